//! What the loader will do with a program, by its headers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use carefree_settings::denied;
use carefree_settings::headers::{self, Kind};
use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_GNU_STACK, PT_INTERP, PT_TLS, SHT_DYNSYM, STB_WEAK};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};
use object::read::{ReadCache, ReadCacheOps};

/// Reads what a program is.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn kind(path: &Path) -> io::Result<Kind> {
    let file = File::open(path)?;
    Ok(headers::kind(|offset, buffer| file.read_at(buffer, offset).unwrap_or(0)))
}

/// A path of the loader's, which ends with a NUL.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

type Header = FileHeader64<Endianness>;

/// A file that is read by blocks: a cache reads each name by a call of its own.
struct Blocks {
    file: File,
    at: u64,
    block: Vec<u8>,
    begin: u64,
}

impl Blocks {
    const BYTES: u64 = 16 * 1024;

    fn open(path: &Path) -> io::Result<Blocks> {
        Ok(Blocks { file: File::open(path)?, at: 0, block: Vec::new(), begin: 0 })
    }

    /// What of the block is at the place to read.
    fn there(&self) -> &[u8] {
        let place = self.at.checked_sub(self.begin).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.block.get(place..)).unwrap_or_default()
    }
}

impl ReadCacheOps for Blocks {
    fn len(&mut self) -> Result<u64, ()> {
        self.file.metadata().map(|about| about.len()).map_err(drop)
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.at = position;
        Ok(position)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ()> {
        if self.there().is_empty() {
            self.begin = self.at - self.at % Self::BYTES;
            self.block.resize(Self::BYTES as usize, 0);
            let length = self.file.read_at(&mut self.block, self.begin).map_err(drop)?;
            self.block.truncate(length);
        }
        let there = self.there();
        let length = there.len().min(buffer.len());
        buffer[..length].copy_from_slice(&there[..length]);
        self.at += length as u64;
        Ok(length)
    }

    fn read_exact(&mut self, mut buffer: &mut [u8]) -> Result<(), ()> {
        while !buffer.is_empty() {
            match self.read(buffer)? {
                0 => return Err(()),
                length => buffer = &mut buffer[length..],
            }
        }
        Ok(())
    }
}

fn has_go(header: &Header, order: Endianness, data: &ReadCache<Blocks>) -> bool {
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
    f: impl FnOnce(&Header, Endianness, &ReadCache<Blocks>) -> Option<T>,
) -> Option<T> {
    let data = ReadCache::new(Blocks::open(path).ok()?);
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

/// Whether a sanitizer's runtime is a part of a program.
pub(crate) fn is_sanitized(path: &Path) -> bool {
    let has = |header: &Header, order, data: &ReadCache<Blocks>| {
        let symbols = header.sections(order, data).ok()?.symbols(order, data, SHT_DYNSYM).ok()?;
        Some(symbols.iter().any(|symbol| {
            let name = symbols.symbol_name(order, symbol).unwrap_or_default();
            let (is_weak, is_there) = (symbol.st_bind() == STB_WEAK, !symbol.is_undefined(order));
            // (A weak one that is not there is only asked for, as Carefree does.)
            let is_sanitizers = denied::SANITIZERS.iter().any(|it| it.to_bytes() == name);
            is_sanitizers && (is_there || !is_weak)
                || denied::INTERCEPTED.to_bytes() == name && is_there && is_weak
        }))
    };
    within(path, has) == Some(true)
}

/// Whether Go's linker has made a program or library.
pub(crate) fn is_go(path: &Path) -> bool {
    within(path, |header, order, data| Some(has_go(header, order, data))) == Some(true)
}

/// Whether a program or library asks for stacks that can be executed.
pub(crate) fn needs_executable_stacks(path: &Path) -> bool {
    within(path, |header, order, data| {
        let parts = header.program_headers(order, data).ok()?;
        let part = parts.iter().find(|part| part.p_type(order) == PT_GNU_STACK)?;
        Some(part.p_flags(order) & PF_X != 0)
    }) == Some(true)
}

/// The thread-local storage of a program or library, if it has some.
pub(crate) fn storage(path: &Path) -> Option<Storage> {
    within(path, |header, order, data| {
        let parts = header.program_headers(order, data).ok()?;
        let part = parts.iter().find(|part| part.p_type(order) == PT_TLS)?;
        Some(Storage { bytes: part.p_memsz(order), align: part.p_align(order) })
    })
}
