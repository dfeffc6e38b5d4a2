//! What the loader will do with a program, by its headers.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use carefree_settings::denied;
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, PT_INTERP, PT_TLS};
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, FileKind};

/// A program, as far as preloading a library is concerned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Elf {
    /// glibc's loader starts it.
    Dynamic,
    /// So it is, and Go's linker has made it.
    Go,
    /// The kernel starts it alone.
    Static,
    /// This loader starts it.
    OtherLibc(String),
    OtherMachine,
    /// It is no program of this format.
    None,
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = EM_AARCH64;
const _: [u16; 2] = [EM_X86_64, EM_AARCH64];

/// Reads a program's headers.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read(path: &Path) -> io::Result<Elf> {
    let data = ReadCache::new(File::open(path)?);
    match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => return Ok(Elf::OtherMachine),
        _ => return Ok(Elf::None),
    }
    Ok(look(&data).unwrap_or(Elf::None))
}

fn look(data: &ReadCache<File>) -> Option<Elf> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let order = header.endian().ok()?;
    if header.e_machine(order) != MACHINE {
        return Some(Elf::OtherMachine);
    }
    let parts = header.program_headers(order, data).ok()?;
    let Some(part) = parts.iter().find(|part| part.p_type(order) == PT_INTERP) else {
        return Some(Elf::Static);
    };
    let loader = text(part.data(order, data).ok()?);
    let name = loader.rsplit('/').next().unwrap_or_default();
    if !name.starts_with("ld-linux") {
        return Some(Elf::OtherLibc(loader));
    }
    Some(if has_go(header, order, data) { Elf::Go } else { Elf::Dynamic })
}

/// A path of the loader's, which ends with a NUL.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

type Header = FileHeader64<Endianness>;

fn has_go(header: &Header, order: Endianness, data: &ReadCache<File>) -> bool {
    header.sections(order, data).is_ok_and(|sections| {
        sections.section_by_name(order, denied::GO_SECTION.as_bytes()).is_some()
    })
}

/// The thread-local storage of a program or library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    bytes: u64,
    align: u64,
}

impl Storage {
    /// The most that it takes among others.
    pub(crate) fn most(self) -> u64 {
        self.bytes.next_multiple_of(self.align.max(1))
    }
}

/// What `f` finds in a program or library for this machine.
fn within<T>(
    path: &Path,
    f: impl FnOnce(&Header, Endianness, &ReadCache<File>) -> Option<T>,
) -> Option<T> {
    let data = ReadCache::new(File::open(path).ok()?);
    let header = Header::parse(&data).ok()?;
    let order = header.endian().ok()?;
    f(header, order, &data)
}

/// The loader that a program names.
pub(crate) fn loader(path: &Path) -> Option<PathBuf> {
    within(path, |header, order, data| {
        let parts = header.program_headers(order, data).ok()?;
        let part = parts.iter().find(|part| part.p_type(order) == PT_INTERP)?;
        Some(PathBuf::from(text(part.data(order, data).ok()?)))
    })
}

/// Whether Go's linker has made a program or library.
pub(crate) fn is_go(path: &Path) -> bool {
    within(path, |header, order, data| Some(has_go(header, order, data))) == Some(true)
}

/// The thread-local storage of a program or library, if it has some.
pub(crate) fn storage(path: &Path) -> Option<Storage> {
    within(path, |header, order, data| {
        let parts = header.program_headers(order, data).ok()?;
        let part = parts.iter().find(|part| part.p_type(order) == PT_TLS)?;
        Some(Storage { bytes: part.p_memsz(order), align: part.p_align(order) })
    })
}
