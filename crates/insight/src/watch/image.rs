//! The objects that are loaded in the process, as the kernel lists them, and their files.
//!
//! The loader is not asked, because its list is under a lock that a stuck fiber may hold. The memory to which
//! an object is loaded is not read either, because it may be unmapped meanwhile: `/proc/self/maps` names the
//! file, which is mapped once more. By now that may be another file, or one that is being written, so nothing
//! in it is taken for granted.

use std::ffi::CStr;

use carefree_context::mapped_file::MappedFile;
use carefree_ground::kernel;
use object::LittleEndian;
use object::elf::{FileHeader64, PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use carefree_ground::file;
use carefree_ground::mapped::Mapped;

/// Bytes at the beginning of a file that are compared to find out whether it is the one that was loaded.
const HEAD: usize = 4096;

/// An object of the process: the program, a library, the kernel's page of code (the vDSO).
#[derive(Clone, Copy)]
pub(super) struct Image {
    contents: Contents,
    /// The difference between addresses in memory and in the file.
    pub(super) bias: u64,
    /// Where its name is in the list.
    name: (usize, usize),
}

#[derive(Clone, Copy)]
pub(super) enum Contents {
    File(MappedFile),
    /// Memory that is never written or unmapped: the vDSO.
    Memory(*const u8, usize),
}

// SAFETY: what it points to is never written, and any thread may read and close it.
unsafe impl Send for Contents {}

/// The objects of the process.
pub(super) struct Images {
    /// The kernel's list, read once.
    list: Mapped<u8>,
    found: Mapped<Image>,
}

/// A line of the kernel's list: a mapping, and the file and offset that it is of.
struct Line<'a> {
    begin: u64,
    end: u64,
    /// Whether it is executable.
    runs: bool,
    offset: u64,
    name: &'a [u8],
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let number = |field: &[u8]| u64::from_str_radix(std::str::from_utf8(field).ok()?, 16).ok();
        let mut extent = fields.next()?.split(|byte| *byte == b'-');
        let (begin, end) = (number(extent.next()?)?, number(extent.next()?)?);
        let runs = fields.next()?.contains(&b'x');
        let offset = number(fields.next()?)?;
        let name = fields.nth(2).unwrap_or_default().trim_ascii();
        Some(Line { begin, end, runs, offset, name })
    }
}

impl Images {
    pub(super) fn read() -> Images {
        let list = file::read(c"/proc/self/maps").unwrap_or_default();
        Images { list, found: Mapped::new() }
    }

    /// A list of one object, with these contents and no name.
    #[cfg(test)]
    pub(super) fn of(contents: Contents, bias: u64) -> Images {
        let mut found = Mapped::new();
        assert!(found.push(Image { contents, bias, name: (0, 0) }));
        Images { list: Mapped::new(), found }
    }

    /// The object that is loaded at `address`.
    pub(super) fn find(&mut self, address: u64) -> Option<usize> {
        if let Some(known) = self.found.iter().position(|image| image.has(address)) {
            return Some(known);
        }
        let lines = self.list.split(|byte| *byte == b'\n').filter_map(Line::parse);
        let line = { lines }.find(|line| (line.begin..line.end).contains(&address))?;
        // Words of a stack may be any addresses. A mapping that is not executable may be of a device, which
        // must not be opened.
        if !line.runs {
            return None;
        }
        let place = line.offset.checked_add(address - line.begin)?;
        let contents = match line.name {
            b"[vdso]" => {
                Contents::Memory(line.begin as *const u8, (line.end - line.begin) as usize)
            }
            [b'/', ..] => self.open(line.name, address, place)?,
            _ => return None,
        };
        let name = line.name.as_ptr() as usize - self.list.as_ptr() as usize;
        let image = Image { contents, bias: 0, name: (name, name + line.name.len()) };
        let Some(image) = image.loaded(address, place) else {
            image.close();
            return None;
        };
        if !self.found.push(image) {
            image.close();
            return None;
        }
        Some(self.found.len() - 1)
    }

    /// The file that was loaded, whose offset `place` is at `address`.
    fn open(&self, name: &[u8], address: u64, place: u64) -> Option<Contents> {
        let mut path = Mapped::new();
        let whole = path.extend(name) && path.push(0);
        let path = CStr::from_bytes_with_nul(&path).ok().filter(|_| whole);
        // `/proc/self/exe` finds the program even if its file was replaced or removed. It is tried for every
        // object, so where memory cannot be read to compare it, it is not used.
        let program = Some((c"/proc/self/exe", false));
        let paths = [path.map(|path| (path, true)), program];
        paths.into_iter().flatten().find_map(|(path, unread)| {
            let contents = Contents::File(MappedFile::open(path)?);
            let image = Image { contents, bias: 0, name: (0, 0) };
            if image.is_at(address, place).unwrap_or(unread) {
                return Some(contents);
            }
            image.close();
            None
        })
    }

    pub(super) fn get(&self, index: usize) -> &Image {
        &self.found[index]
    }

    /// The path of an object's file, or the kernel's name for its own.
    pub(super) fn name(&self, index: usize) -> &[u8] {
        let (begin, end) = self.found[index].name;
        let name = &self.list[begin..end];
        name.strip_suffix(b" (deleted)").unwrap_or(name)
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        self.found.iter().for_each(Image::close);
    }
}

impl Image {
    fn close(&self) {
        if let Contents::File(file) = self.contents {
            // SAFETY: `Images` closes each file once, when nothing borrows from it any more; a file that is not
            // in its list is closed here by the function that has opened it.
            unsafe { file.close() };
        }
    }

    /// Whether the file is the one whose offset `place` is at `address`: its beginning is the same as in
    /// memory. `None` where memory cannot be read.
    fn is_at(&self, address: u64, place: u64) -> Option<bool> {
        let Some(image) = self.loaded(address, place) else { return Some(false) };
        let begin = image.address_of(0)?;
        let mut memory = [0u8; HEAD];
        let read = read_memory(begin, &mut memory);
        let head = self.bytes().len().min(read);
        (head > 0).then(|| memory[..head] == self.bytes()[..head])
    }

    /// The image, with the bias by which offset `place` of the file is at `address`.
    fn loaded(self, address: u64, place: u64) -> Option<Image> {
        let segments = self.segments();
        let segment = { segments }.find(|s| {
            let (begin, len) = s.file_range(LittleEndian);
            (begin..begin.saturating_add(len)).contains(&place)
        })?;
        let within = place - segment.p_offset(LittleEndian);
        let there = within.wrapping_add(segment.p_vaddr(LittleEndian));
        Some(Image { bias: address.wrapping_sub(there), ..self })
    }

    /// The file.
    pub(super) fn bytes(&self) -> &[u8] {
        match self.contents {
            // SAFETY: the file is closed when the `Images` are dropped, from which this is borrowed.
            Contents::File(file) => unsafe { file.bytes() },
            // SAFETY: such memory is never unmapped.
            Contents::Memory(begin, len) => unsafe { std::slice::from_raw_parts(begin, len) },
        }
    }

    pub(super) fn header(&self) -> Option<&FileHeader64<LittleEndian>> {
        FileHeader64::parse(self.bytes()).ok()
    }

    pub(super) fn headers(&self) -> &[ProgramHeader64<LittleEndian>] {
        let headers = self.header().map(|h| h.program_headers(LittleEndian, self.bytes()));
        headers.and_then(Result::ok).unwrap_or_default()
    }

    fn segments(&self) -> impl Iterator<Item = &ProgramHeader64<LittleEndian>> {
        self.headers().iter().filter(|header| header.p_type(LittleEndian) == PT_LOAD)
    }

    fn has(&self, address: u64) -> bool {
        let there = address.wrapping_sub(self.bias);
        self.segments()
            .any(|s| there.wrapping_sub(s.p_vaddr(LittleEndian)) < s.p_memsz(LittleEndian))
    }

    /// Where a place of the file is loaded.
    fn address_of(&self, place: u64) -> Option<u64> {
        let at = |s: &ProgramHeader64<LittleEndian>| {
            let within = place.checked_sub(s.p_offset(LittleEndian))?;
            let loaded = within < s.p_filesz(LittleEndian);
            loaded.then(|| self.bias.wrapping_add(s.p_vaddr(LittleEndian)).wrapping_add(within))
        };
        self.segments().find_map(at)
    }

    /// The file's bytes from those loaded at `address` to the end of their segment. With `code`, only of an
    /// executable segment.
    pub(super) fn from(&self, address: u64, code: bool) -> Option<&[u8]> {
        let there = address.wrapping_sub(self.bias);
        let segment = self.segments().find(|s| {
            there.wrapping_sub(s.p_vaddr(LittleEndian)) < s.p_filesz(LittleEndian)
                && (!code || s.p_flags(LittleEndian) & PF_X != 0)
        })?;
        let within = there.wrapping_sub(segment.p_vaddr(LittleEndian)) as usize;
        segment.data(LittleEndian, self.bytes()).ok()?.get(within..)
    }
}

/// Reads as much of this process's memory as is mapped; returns how many bytes. The kernel reads it, because
/// there may be no memory.
pub(super) fn read_memory(address: u64, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    let (local, remote) = ((&raw const local) as usize, (&raw const remote) as usize);
    // SAFETY: the kernel writes to `to` only, and fails where there is nothing to read.
    let read = unsafe {
        let process = kernel::call(libc::SYS_getpid, [0; 6]).unwrap_or(0);
        kernel::call(libc::SYS_process_vm_readv, [process, local, 1, remote, 1, 0])
    };
    // A sandbox may refuse the call.
    read.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood() {
        let line =
            b"7f00-7f10 r-xp 00001000 fe:01 1234                   /usr/lib/a b.so (deleted)";
        let line = Line::parse(line).unwrap();
        assert_eq!((line.begin, line.end, line.runs, line.offset), (0x7f00, 0x7f10, true, 0x1000));
        assert_eq!(line.name, b"/usr/lib/a b.so (deleted)");
        let nameless = Line::parse(b"7f00-7f10 rw-p 00000000 00:00 0 ").unwrap();
        assert!(nameless.name.is_empty() && !nameless.runs);
        assert!(Line::parse(b"").is_none() && Line::parse(b"7f00 r-xp").is_none());
    }

    #[test]
    fn objects_are_found_with_their_files() {
        let mut images = Images::read();
        let here = objects_are_found_with_their_files as fn() as usize as u64;
        let program = images.find(here).unwrap();
        assert_eq!(images.find(here + 1), Some(program));
        let path = std::env::current_exe().unwrap();
        assert_eq!(images.name(program), path.to_str().unwrap().as_bytes());
        assert!(images.get(program).bytes() == std::fs::read(path).unwrap());
        // The bytes in memory are those of the file.
        // SAFETY: the beginning of a function.
        let code = unsafe { std::slice::from_raw_parts(here as *const u8, 8) };
        assert!(images.get(program).from(here, true).unwrap().starts_with(code));
        let mut read = [0; 8];
        assert_eq!((read_memory(here, &mut read), &read[..]), (8, code));

        // SAFETY: asks for a number.
        let kernels = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        let page = images.find(kernels + 1).unwrap();
        assert_eq!((images.name(page), images.get(page).bias), (&b"[vdso]"[..], kernels));
        let local = 0;
        assert_eq!(images.find((&raw const local) as u64), None, "a stack is no object");
        assert_eq!(images.find(7), None);
        assert_eq!(read_memory(7, &mut read), 0);
    }
}
