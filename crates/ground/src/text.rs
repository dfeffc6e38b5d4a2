//! Text in pages of the kernel's: see [`mapped`](crate::mapped).

use std::fmt;
use std::ops::Deref;

use crate::kernel;
use crate::mapped::Mapped;

/// Text that grows. Writing fails only where the kernel has no memory.
#[derive(Debug)]
pub struct Text(Mapped<u8>);

impl Text {
    /// An empty text.
    pub const fn new() -> Text {
        Text(Mapped::new())
    }

    /// With what `arguments` say, as far as there is room.
    pub fn of(arguments: fmt::Arguments<'_>) -> Text {
        let mut text = Text::new();
        text.say(arguments);
        text
    }

    /// Adds a letter, unless the kernel has no room for it.
    pub fn add(&mut self, letter: char) {
        let _ = fmt::Write::write_char(self, letter);
    }

    /// Adds what `arguments` say; what the kernel has no room for is left out.
    pub fn say(&mut self, arguments: fmt::Arguments<'_>) {
        let _ = fmt::Write::write_fmt(self, arguments);
    }

    /// What was added.
    pub fn as_str(&self) -> &str {
        // SAFETY: only whole strings are added, and `truncate` keeps to their letters' borders.
        unsafe { std::str::from_utf8_unchecked(&self.0) }
    }

    /// Cuts it to `len` bytes.
    ///
    /// # Panics
    /// When that is amid a letter.
    pub fn truncate(&mut self, len: usize) {
        assert!(self.as_str().is_char_boundary(len) || len >= self.0.len());
        self.0.truncate(len);
    }

    /// Writes it to a descriptor, at once, so that it is not torn by what others write.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn write_to(&self, descriptor: i32) -> Result<(), i32> {
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
