//! What is loaded in the process, as the kernel lists it, and the files it was loaded from.
//!
//! The loader is not asked: it goes through its list under a lock, which a fiber may hold that never
//! gets on. Nor is the memory looked at that the objects are loaded to, which may be unmapped
//! meanwhile: `/proc/self/maps` names the file, and that is mapped once more.

use std::ffi::CStr;

use carefree_context::kernel;
use object::LittleEndian;
use object::elf::{FileHeader64, PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::mapped::{Mapped, read_file};

/// Bytes at the beginning of a file that tell whether it is the one that was loaded.
const HEAD: usize = 4096;

/// An object of the process (the program, a library, the kernel's page of code).
#[derive(Clone, Copy)]
pub(super) struct Image {
    /// The file; of the kernel's page, its memory.
    bytes: *const u8,
    len: usize,
    /// Whether `bytes` is a mapping of ours.
    ours: bool,
    /// What is added to the file's addresses.
    pub(super) bias: u64,
    /// Where its name is in the list.
    name: (usize, usize),
}

// SAFETY: what it points to is never written, and stays until it is closed, by any thread.
unsafe impl Send for Image {}

/// The objects of the process.
pub(super) struct Images {
    /// What the kernel says, read once.
    list: Mapped<u8>,
    found: Mapped<Image>,
}

/// A line of the kernel's list: what is mapped, from which place in which file.
struct Line<'a> {
    begin: u64,
    end: u64,
    offset: u64,
    name: &'a [u8],
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let number = |field: &[u8]| u64::from_str_radix(std::str::from_utf8(field).ok()?, 16).ok();
        let mut extent = fields.next()?.split(|byte| *byte == b'-');
        let (begin, end) = (number(extent.next()?)?, number(extent.next()?)?);
        let offset = number(fields.nth(1)?)?;
        let name = fields.nth(2).unwrap_or_default().trim_ascii();
        Some(Line { begin, end, offset, name })
    }
}

impl Images {
    pub(super) fn read() -> Images {
        let list = read_file(c"/proc/self/maps").unwrap_or(Mapped::new());
        Images { list, found: Mapped::new() }
    }

    /// The object that is loaded at `address`.
    pub(super) fn find(&mut self, address: u64) -> Option<usize> {
        if let Some(known) = self.found.iter().position(|image| image.has(address)) {
            return Some(known);
        }
        let lines = self.list.split(|byte| *byte == b'\n').filter_map(Line::parse);
        let line = { lines }.find(|line| (line.begin..line.end).contains(&address))?;
        let name = line.name.as_ptr() as usize - self.list.as_ptr() as usize;
        let name = (name, name + line.name.len());
        let place = line.offset + (address - line.begin);
        let image = match line.name {
            b"[vdso]" => {
                let len = (line.end - line.begin) as usize;
                Image { bytes: line.begin as *const u8, len, ours: false, bias: 0, name }
            }
            [b'/', ..] => Image { bias: 0, name, ..self.open(line.name, address, place)? },
            _ => return None,
        };
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

    /// The file that was loaded, of which `place` is at `address`.
    fn open(&self, name: &[u8], address: u64, place: u64) -> Option<Image> {
        let mut path = Mapped::new();
        let whole = path.extend(name) && path.push(0);
        let path = CStr::from_bytes_with_nul(&path).ok().filter(|_| whole);
        // The program itself is found though its file was replaced or removed.
        [path, Some(c"/proc/self/exe")].into_iter().flatten().find_map(|path| {
            let image = Image::map(path)?;
            if image.is_at(address, place) {
                return Some(image);
            }
            image.close();
            None
        })
    }

    pub(super) fn get(&self, index: usize) -> &Image {
        &self.found[index]
    }

    /// The path of an object's file, or the name the kernel gives to its own.
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
    fn map(path: &CStr) -> Option<Image> {
        // Should it be a FIFO by now, it does not wait.
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        let (here, path) = (libc::AT_FDCWD as usize, path.as_ptr() as usize);
        let (shared, read) = (libc::MAP_PRIVATE as usize, libc::PROT_READ as usize);
        // SAFETY: the kernel reads the path; a descriptor of ours, and a new mapping where nothing is.
        unsafe {
            let file = kernel::call(libc::SYS_openat, [here, path, flags, 0, 0, 0]).ok()?;
            let end = libc::SEEK_END as usize;
            let len = kernel::call(libc::SYS_lseek, [file, 0, end, 0, 0, 0]).unwrap_or(0);
            let bytes = kernel::call(libc::SYS_mmap, [0, len, read, shared, file, 0]);
            let _ = kernel::call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
            Some(Image { bytes: bytes.ok()? as *const u8, len, ours: true, bias: 0, name: (0, 0) })
        }
    }

    fn close(&self) {
        if self.ours {
            let mapping = [self.bytes as usize, self.len, 0, 0, 0, 0];
            // SAFETY: the mapping is ours; `Images`, which all borrow from, is done with it.
            let _ = unsafe { kernel::call(libc::SYS_munmap, mapping) };
        }
    }

    /// Whether the file is the one of which `place` is at `address`: they begin alike. So it is taken
    /// to be where memory cannot be read.
    fn is_at(&self, address: u64, place: u64) -> bool {
        let Some(begin) = self.loaded(address, place).and_then(|image| image.address_of(0)) else {
            return self.header().is_some();
        };
        let mut memory = [0u8; HEAD];
        let read = read_memory(begin, &mut memory);
        let head = &self.bytes()[..self.len.min(read)];
        memory[..head.len()] == *head
    }

    /// The image as loaded so that `place` of the file is at `address`.
    fn loaded(self, address: u64, place: u64) -> Option<Image> {
        let segments = self.segments();
        let segment = { segments }.find(|s| {
            let (begin, len) = s.file_range(LittleEndian);
            (begin..begin.saturating_add(len)).contains(&place)
        })?;
        let there = place - segment.p_offset.get(LittleEndian) + segment.p_vaddr.get(LittleEndian);
        Some(Image { bias: address.wrapping_sub(there), ..self })
    }

    /// The file.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as the `Images` are there that this is borrowed from; or the
        // kernel's page, which is there for good.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len) }
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

    /// The file's bytes from what is loaded at `address` to the end of its segment, if that may be
    /// read, or run where `code` is asked for.
    pub(super) fn from(&self, address: u64, code: bool) -> Option<&[u8]> {
        let there = address.wrapping_sub(self.bias);
        let segment = self.segments().find(|s| {
            there.wrapping_sub(s.p_vaddr(LittleEndian)) < s.p_filesz(LittleEndian)
                && (!code || s.p_flags(LittleEndian) & PF_X != 0)
        })?;
        let within = (there - segment.p_vaddr(LittleEndian)) as usize;
        segment.data(LittleEndian, self.bytes()).ok()?.get(within..)
    }
}

/// Reads this process's memory, as much as there is; how many bytes that were. By the kernel, for
/// there may be nothing.
pub(super) fn read_memory(address: u64, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    let (local, remote) = ((&raw const local) as usize, (&raw const remote) as usize);
    // SAFETY: the kernel writes to `to`, and refuses to read what is not there.
    let read = unsafe {
        let process = kernel::call(libc::SYS_getpid, [0; 6]).unwrap_or(0);
        kernel::call(libc::SYS_process_vm_readv, [process, local, 1, remote, 1, 0])
    };
    // Where it is not permitted nothing can be read.
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
        assert_eq!((line.begin, line.end, line.offset), (0x7f00, 0x7f10, 0x1000));
        assert_eq!(line.name, b"/usr/lib/a b.so (deleted)");
        let nameless = Line::parse(b"7f00-7f10 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(nameless.name, b"");
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
        // What is in memory is what is in the file.
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
