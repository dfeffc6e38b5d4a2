//! Text that no allocator is asked for: see [`mapped`](crate::mapped).

use std::fmt;
use std::ops::Deref;

use crate::kernel;
use crate::mapped::Mapped;

/// Text that grows. Writing fails only if the kernel has no memory.
#[derive(Debug)]
pub struct Text(Mapped<u8>);

impl Text {
    /// An empty text.
    pub const fn new() -> Text {
        Text(Mapped::new())
    }

    /// The text of `arguments`, as far as there is room.
    pub fn of(arguments: fmt::Arguments<'_>) -> Text {
        let mut text = Text::new();
        text.say(arguments);
        text
    }

    /// Appends a character, if there is room.
    pub fn add(&mut self, letter: char) {
        let _ = fmt::Write::write_char(self, letter);
    }

    /// Appends the text of `arguments`, as far as there is room.
    pub fn say(&mut self, arguments: fmt::Arguments<'_>) {
        let _ = fmt::Write::write_fmt(self, arguments);
    }

    /// The text so far.
    pub fn as_str(&self) -> &str {
        // SAFETY: only whole strings are appended, and `truncate` cuts at boundaries of characters.
        unsafe { std::str::from_utf8_unchecked(&self.0) }
    }

    /// Truncates the text to `len` bytes.
    ///
    /// # Panics
    /// When that is not a boundary of characters.
    pub fn truncate(&mut self, len: usize) {
        assert!(self.as_str().is_char_boundary(len) || len >= self.0.len());
        self.0.truncate(len);
    }

    /// Writes the text to a descriptor, if possible by one call, so that other output does not get
    /// in between.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn write_to(&self, descriptor: i32) -> Result<(), i32> {
        let mut rest: &[u8] = &self.0;
        while !rest.is_empty() {
            let arguments = [descriptor as usize, rest.as_ptr() as usize, rest.len(), 0, 0, 0];
            // SAFETY: the kernel only reads `rest`.
            match unsafe { kernel::call(libc::SYS_write, arguments) } {
                Ok(0) => return Err(libc::EIO),
                Ok(written) => rest = &rest[written.min(rest.len())..],
                Err(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes a line to standard error, if that can be written. (`eprintln` panics where it cannot.)
    pub fn print_line(line: fmt::Arguments<'_>) {
        Text::of(format_args!("{line}\n")).print();
    }

    /// Writes the text to standard error. Not by `std::io`, which may use a lock that a fiber
    /// holds, nor by libc, whose call may park.
    pub fn print(&self) {
        let _ = self.write_to(libc::STDERR_FILENO);
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::new()
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
