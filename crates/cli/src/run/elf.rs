//! What the loader will do with a program, by its headers.

use std::fs::File;
use std::io;
use std::path::Path;

use carefree_settings::denied;
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, PT_INTERP};
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
    let loader = part.data(order, data).ok()?;
    let loader = loader.split(|byte| *byte == 0).next().unwrap_or_default();
    let loader = String::from_utf8_lossy(loader).into_owned();
    let name = loader.rsplit('/').next().unwrap_or_default();
    if !name.starts_with("ld-linux") {
        return Some(Elf::OtherLibc(loader));
    }
    let is_go = header.sections(order, data).is_ok_and(|sections| {
        sections.section_by_name(order, denied::GO_SECTION.as_bytes()).is_some()
    });
    Some(if is_go { Elf::Go } else { Elf::Dynamic })
}
