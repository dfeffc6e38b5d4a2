//! What the loader will do with a program and a library that is preloaded into it, by the program's first bytes and
//! headers.
//!
//! `carefree run` looks before it starts a program, and its library before the program starts another. That may be
//! the child of a `vfork`, so nothing is allocated here.

/// How many bytes of a script the kernel reads.
pub const START: usize = 256;

/// A program, as far as preloading a library is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// glibc's loader starts it.
    Dynamic,
    /// The kernel starts it alone.
    Static,
    /// Another libc's loader starts it, which cannot load the library.
    OtherLibc,
    /// It is for another kind of processor.
    OtherMachine,
    /// A sanitizer's library is to be loaded before all others, or ends it.
    Sanitized,
    /// The kernel starts an interpreter: see [`interpreter`].
    Script,
    /// It is no program of this format.
    Unknown,
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u64 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u64 = 183;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// How the names of libraries begin that are to be loaded first. (clang links them statically, unless asked.)
const SANITIZERS: &[&[u8]] = &[
    b"libasan.so",
    b"libtsan.so",
    b"libhwasan.so",
    b"libclang_rt.asan",
    b"libclang_rt.tsan",
    b"libclang_rt.hwasan",
];

/// What a file of a program is; `read(offset, buffer)` reads of it, and tells how many bytes it has read.
pub fn kind(read: impl FnMut(u64, &mut [u8]) -> usize) -> Kind {
    let mut window = Window::new(read);
    look(&mut |offset, buffer| window.read(offset, buffer)).unwrap_or(Kind::Unknown)
}

/// Bytes of a [`Window`].
const WINDOW: usize = 1024;

/// A part of a file that was read in one call: headers are small, and stand together.
struct Window<R> {
    read: R,
    begin: u64,
    bytes: [u8; WINDOW],
    length: usize,
}

impl<R: FnMut(u64, &mut [u8]) -> usize> Window<R> {
    fn new(read: R) -> Self {
        Window { read, begin: 0, bytes: [0; WINDOW], length: 0 }
    }

    /// What of the window begins at `offset`.
    fn from(&self, offset: u64) -> &[u8] {
        let place = offset.checked_sub(self.begin).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.bytes[..self.length].get(place..)).unwrap_or_default()
    }

    /// Reads no more than a window holds.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> usize {
        if self.from(offset).len() < buffer.len() {
            (self.begin, self.length) = (offset, (self.read)(offset, &mut self.bytes));
        }
        let there = self.from(offset);
        let length = there.len().min(buffer.len());
        buffer[..length].copy_from_slice(&there[..length]);
        length
    }
}

type Read<'r> = &'r mut dyn FnMut(u64, &mut [u8]) -> usize;

fn look(read: Read<'_>) -> Option<Kind> {
    let mut header = [0; 64];
    let length = read(0, &mut header);
    if header.starts_with(b"#!") {
        return Some(Kind::Script);
    }
    const BITS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    if header[4..6] != [BITS_64, LITTLE_ENDIAN] || number(&header, 18, 2)? != MACHINE {
        return Some(Kind::OtherMachine);
    }
    let parts = Parts { at: number(&header, 32, 8)?, count: number(&header, 56, 2)? };
    if length < header.len() {
        return None;
    }
    let Some(loader) = parts.find(read, |part| part.kind == PT_INTERP) else {
        return Some(Kind::Static);
    };
    let mut path = [0; START];
    let path = text(read, loader.offset, &mut path);
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    if !name.starts_with(b"ld-linux") {
        return Some(Kind::OtherLibc);
    }
    let sanitized = parts.needs(read, |name| SANITIZERS.iter().any(|it| name.starts_with(it)));
    Some(if sanitized == Some(true) { Kind::Sanitized } else { Kind::Dynamic })
}

/// Where the headers of a program's parts are.
struct Parts {
    at: u64,
    count: u64,
}

struct Part {
    kind: u64,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Parts {
    fn find(&self, read: Read<'_>, test: impl Fn(&Part) -> bool) -> Option<Part> {
        const BYTES: usize = 56;
        (0..self.count).find_map(|index| {
            let mut header = [0; BYTES];
            let place = self.at.checked_add(index * BYTES as u64)?;
            if read(place, &mut header) < BYTES {
                return None;
            }
            let field = |place, bytes| number(&header, place, bytes);
            let part = Part {
                kind: field(0, 4)?,
                offset: field(8, 8)?,
                address: field(16, 8)?,
                bytes: field(32, 8)?,
            };
            test(&part).then_some(part)
        })
    }

    /// Whether the program is linked to a library whose name passes `test`.
    fn needs(&self, read: Read<'_>, test: impl Fn(&[u8]) -> bool) -> Option<bool> {
        let dynamic = self.find(read, |part| part.kind == PT_DYNAMIC)?;
        let entries = (dynamic.bytes / 16).min(1024);
        let entry = |index: u64, read: Read<'_>| {
            let mut entry = [0; 16];
            let place = dynamic.offset.checked_add(index * 16)?;
            let is_there = read(place, &mut entry) == entry.len();
            let [tag, value] = [number(&entry, 0, 8)?, number(&entry, 8, 8)?];
            (is_there && tag != DT_NULL).then_some((tag, value))
        };
        let mut names = None;
        for index in 0..entries {
            match entry(index, read) {
                Some((DT_STRTAB, address)) => names = Some(address),
                Some(_) => {}
                None => break,
            }
        }
        let address = names?;
        let holds =
            |part: &Part| part.kind == PT_LOAD && address.wrapping_sub(part.address) < part.bytes;
        let part = self.find(read, holds)?;
        let names = part.offset.checked_add(address - part.address)?;
        for index in 0..entries {
            let Some((tag, value)) = entry(index, read) else { break };
            if tag == DT_NEEDED {
                let mut name = [0; 64];
                if test(text(read, names.checked_add(value)?, &mut name)) {
                    return Some(true);
                }
            }
        }
        Some(false)
    }
}

/// The bytes up to a NUL, or as many as there is room for.
fn text<'b>(read: Read<'_>, offset: u64, buffer: &'b mut [u8]) -> &'b [u8] {
    let length = read(offset, buffer).min(buffer.len());
    buffer[..length].split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The number of so many bytes at `place`.
fn number(bytes: &[u8], place: usize, length: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..length].copy_from_slice(bytes.get(place..place.checked_add(length)?)?);
    Some(u64::from_le_bytes(number))
}

/// The interpreter of a script, by the script's first bytes; `None` if it is no script, or names none.
///
/// ```
/// let interpreter = carefree_settings::headers::interpreter;
/// assert_eq!(interpreter(b"#! /usr/bin/env python3\n"), Some(&b"/usr/bin/env"[..]));
/// assert_eq!(interpreter(b"\x7fELF"), None);
/// ```
pub fn interpreter(start: &[u8]) -> Option<&[u8]> {
    let line = start.strip_prefix(b"#!")?.split(|byte| matches!(byte, b'\n' | b'\0')).next()?;
    line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn of(bytes: &[u8]) -> Kind {
        kind(|offset, buffer| {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            length
        })
    }

    #[test]
    fn programs_are_told_apart() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(of(&own), Kind::Dynamic);
        assert_eq!(of(b"#!/bin/sh\n"), Kind::Script);
        assert_eq!(of(b"text"), Kind::Unknown);
        assert_eq!(of(b""), Kind::Unknown);
        let changed = |place: usize, byte: u8| {
            let mut changed = own.clone();
            changed[place] = byte;
            of(&changed)
        };
        assert_eq!(changed(4, 1), Kind::OtherMachine);
        assert_eq!(changed(18, 3), Kind::OtherMachine);
        // No parts, so no loader.
        assert_eq!(changed(56, 0), Kind::Static);
        let place = own.windows(8).position(|bytes| bytes == b"ld-linux").unwrap();
        assert_eq!(changed(place, b'x'), Kind::OtherLibc);
        let place = own.windows(10).position(|bytes| bytes == b"libc.so.6\0").unwrap();
        let mut sanitized = own.clone();
        sanitized[place..place + 10].copy_from_slice(b"libasan.so");
        assert_eq!(of(&sanitized), Kind::Sanitized);
    }

    /// Whatever is wrong in a file, it is told of as something.
    #[test]
    fn files_that_are_cut_short_are_survived() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let mut start = vec![0; 8192];
        file.read_exact_at(&mut start, 0).unwrap();
        for length in 0..start.len() {
            of(&start[..length]);
        }
        for place in 0..1024 {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = start.clone();
                changed[place] = byte;
                of(&changed);
            }
        }
    }

    #[test]
    fn interpreters_of_scripts() {
        assert_eq!(interpreter(b"#!/bin/sh\necho"), Some(&b"/bin/sh"[..]));
        assert_eq!(interpreter(b"#!\t/bin/sh -e"), Some(&b"/bin/sh"[..]));
        // As the kernel, which then finds no such file.
        assert_eq!(interpreter(b"#!/bin/sh\r\n"), Some(&b"/bin/sh\r"[..]));
        assert_eq!(interpreter(b"#!\n"), None);
    }
}
