//! Memory that is not the program's allocator's: for reports.
//!
//! A report says why a program hangs. That may be its allocator: a fiber that waits while it holds
//! the allocator's lock, or a bug of the allocator's own. So what makes reports asks the kernel for
//! pages, and neither the global allocator nor malloc. It grows as a `Vec` does, and where the
//! kernel refuses, a report is cut short.

use std::fmt;
use std::mem::{align_of, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use carefree_ground::kernel;

/// A mapping's least size in bytes; whole pages are what the kernel gives.
const LEAST: usize = 4096;

/// A vector in a mapping of its own. An empty one has none.
pub(crate) struct Mapped<T: Copy> {
    first: NonNull<T>,
    len: usize,
    /// Bytes mapped.
    bytes: usize,
}

// SAFETY: it owns its mapping, as a `Vec` owns its memory.
unsafe impl<T: Copy + Send> Send for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// An empty vector, which asks the kernel for nothing yet.
    pub(crate) const fn new() -> Mapped<T> {
        assert!(align_of::<T>() <= LEAST && size_of::<T>() > 0);
        Mapped { first: NonNull::dangling(), len: 0, bytes: 0 }
    }

    /// Makes room for `more` elements; whether there is.
    pub(crate) fn reserve(&mut self, more: usize) -> bool {
        let needed = self.len.checked_add(more).and_then(|len| len.checked_mul(size_of::<T>()));
        let Some(needed) = needed.filter(|needed| *needed <= isize::MAX as usize / 2) else {
            return false;
        };
        if needed <= self.bytes {
            return true;
        }
        let bytes = needed.max(2 * self.bytes).next_multiple_of(LEAST);
        let mapped = if self.bytes == 0 {
            let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
            // SAFETY: a new mapping where nothing is.
            unsafe { kernel::call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) }
        } else {
            let (old, moves) = (self.first.as_ptr() as usize, libc::MREMAP_MAYMOVE as usize);
            // SAFETY: the mapping is this vector's alone, and nothing borrows from it now.
            unsafe { kernel::call(libc::SYS_mremap, [old, self.bytes, bytes, moves, 0, 0]) }
        };
        let Some(first) = mapped.ok().and_then(|address| NonNull::new(address as *mut T)) else {
            return false;
        };
        (self.first, self.bytes) = (first, bytes);
        true
    }

    /// Adds an element at the end; whether there was room for it.
    pub(crate) fn push(&mut self, value: T) -> bool {
        self.extend(&[value])
    }

    /// Adds elements at the end; whether there was room for them.
    pub(crate) fn extend(&mut self, values: &[T]) -> bool {
        if !self.reserve(values.len()) {
            return false;
        }
        // SAFETY: there is room for so many more, and what the caller borrows is not in there.
        unsafe {
            let end = self.first.as_ptr().add(self.len);
            ptr::copy_nonoverlapping(values.as_ptr(), end, values.len());
        }
        self.len += values.len();
        true
    }

    /// Forgets all elements but the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Mapped<u8> {
    /// Lets `fill` write to the room behind the end, at least `least` bytes of it; it says how many it
    /// has written, or none at an error. Returns what it returned; `None` without room.
    pub(crate) fn fill<E>(
        &mut self,
        least: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        if !self.reserve(least) {
            return None;
        }
        // SAFETY: mapped memory is bytes that have values, behind the end as before it.
        let room = unsafe {
            std::slice::from_raw_parts_mut(self.first.as_ptr().add(self.len), self.bytes - self.len)
        };
        let (most, filled) = (room.len(), fill(room));
        if let Ok(count) = &filled {
            self.len += (*count).min(most);
        }
        Some(filled)
    }
}

impl<T: Copy> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many elements were written; a page's beginning is aligned for them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for Mapped<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T: Copy> Drop for Mapped<T> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mapping = [self.first.as_ptr() as usize, self.bytes, 0, 0, 0, 0];
            // SAFETY: the mapping is this vector's, and nothing borrows from it any more.
            let _ = unsafe { kernel::call(libc::SYS_munmap, mapping) };
        }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Mapped<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

/// Text that grows. Writing fails only where the kernel has no memory.
#[derive(Debug)]
pub(crate) struct Text(Mapped<u8>);

impl Text {
    pub(crate) const fn new() -> Text {
        Text(Mapped::new())
    }

    /// With what `arguments` say, as far as there is room.
    pub(crate) fn of(arguments: fmt::Arguments<'_>) -> Text {
        let mut text = Text::new();
        text.say(arguments);
        text
    }

    /// Adds a letter, unless the kernel has no room for it.
    pub(crate) fn add(&mut self, letter: char) {
        let _ = fmt::Write::write_char(self, letter);
    }

    /// Adds what `arguments` say; what the kernel has no room for is left out.
    pub(crate) fn say(&mut self, arguments: fmt::Arguments<'_>) {
        let _ = fmt::Write::write_fmt(self, arguments);
    }

    pub(crate) fn as_str(&self) -> &str {
        // SAFETY: only whole strings are added, and `truncate` keeps to their letters' borders.
        unsafe { std::str::from_utf8_unchecked(&self.0) }
    }

    /// Cuts it to `len` bytes.
    ///
    /// # Panics
    /// When that is amid a letter.
    pub(crate) fn truncate(&mut self, len: usize) {
        assert!(self.as_str().is_char_boundary(len) || len >= self.0.len());
        self.0.truncate(len);
    }

    /// Writes it to a descriptor, at once, so that it is not torn by what others write.
    ///
    /// # Errors
    /// The kernel's error number.
    pub(crate) fn write_to(&self, descriptor: i32) -> Result<(), i32> {
        let mut rest: &[u8] = &self.0;
        while !rest.is_empty() {
            let arguments = [descriptor as usize, rest.as_ptr() as usize, rest.len(), 0, 0, 0];
            // SAFETY: the kernel reads from `rest`.
            match unsafe { kernel::call(libc::SYS_write, arguments) } {
                Ok(0) => return Err(libc::EIO),
                Ok(written) => rest = &rest[written.min(rest.len())..],
                Err(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes it to standard error. Not by `std::io`, which may have a lock that a fiber holds, and
    /// not by libc, whose call may park.
    pub(crate) fn print(&self) {
        let _ = self.write_to(libc::STDERR_FILENO);
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.extend(text.as_bytes()) { Ok(()) } else { Err(fmt::Error) }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// What is in a file, or what the kernel says in one of its own; `None` if it cannot be read.
pub(crate) fn read_file(path: &std::ffi::CStr) -> Option<Mapped<u8>> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let here = libc::AT_FDCWD as usize;
    // SAFETY: the kernel reads the path.
    let file =
        unsafe { kernel::call(libc::SYS_openat, [here, path.as_ptr() as usize, flags, 0, 0, 0]) };
    let file = file.ok()?;
    let mut contents = Mapped::new();
    let read = loop {
        let read = contents.fill(LEAST / 2, |room| {
            let arguments = [file, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
            // SAFETY: the kernel writes to `room`.
            unsafe { kernel::call(libc::SYS_read, arguments) }
        });
        match read {
            Some(Ok(0)) => break true,
            Some(Ok(_)) | Some(Err(libc::EINTR)) => {}
            _ => break false,
        }
    };
    // SAFETY: the descriptor is this function's own.
    let _ = unsafe { kernel::call(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    read.then_some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_keeps_what_was_there() {
        let mut numbers = Mapped::new();
        assert!(numbers.is_empty() && !format!("{numbers:?}").contains('0'));
        for n in 0..10_000u64 {
            assert!(numbers.push(n));
        }
        assert!(numbers.iter().copied().eq(0..10_000));
        numbers[9] = 77;
        numbers.truncate(10);
        assert_eq!(numbers.last(), Some(&77));
        assert!(!numbers.reserve(usize::MAX) && !numbers.reserve(usize::MAX / 16));
        assert_eq!(numbers.len(), 10);
    }

    #[test]
    fn texts_are_written_whole() {
        let mut text = Text::of(format_args!("one {}", 1));
        text.say(format_args!(", täglich"));
        assert_eq!(&*text, "one 1, täglich");
        text.truncate(8);
        assert_eq!(text.as_str(), "one 1, t");
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        text.write_to(ends[1]).unwrap();
        let mut read = [0u8; 16];
        // SAFETY: room for as many bytes; the descriptors are this test's.
        let length = unsafe {
            let length = libc::read(ends[0], read.as_mut_ptr().cast(), read.len());
            libc::close(ends[0]);
            length
        };
        assert_eq!(&read[..length as usize], b"one 1, t");
        assert_eq!(text.write_to(-1), Err(libc::EBADF));
    }

    #[test]
    fn files_of_any_length_are_read() {
        let status = read_file(c"/proc/self/status").unwrap();
        assert!(status.starts_with(b"Name:"));
        let program = std::env::current_exe().unwrap();
        let path = std::ffi::CString::new(program.to_str().unwrap()).unwrap();
        assert!(*read_file(&path).unwrap() == *std::fs::read(program).unwrap());
        assert!(read_file(c"/nowhere").is_none());
        assert!(read_file(c"/proc").is_none(), "a folder");
    }
}
