//! How large a stack is.

use super::sys;
use std::fmt;

/// The size of a stack: how much address space is reserved for it, guard included.
///
/// Sizes come in classes, the powers of two from 16 KiB to 1 GiB, so that stacks tile their slab,
/// the slot of an address is found by masking it, and a stack that was given back fits whoever asks
/// next. A size between two classes is rounded up.
///
/// Reserved is not used: a stack costs the memory of the pages it has touched (one, 4 KiB, for a
/// fiber that does little) and a page-table entry's worth for each page of address space (512 bytes
/// for the default size). Be generous, as with a thread's stack.
///
/// The lowest sixteenth, but at least a page and at most 64 KiB, is the guard: an access there ends
/// the program with a message instead of overwriting the neighbour. [`usable`](Self::usable) is
/// what remains.
///
/// ```
/// use carefree_context::stack::StackSize;
///
/// let size = StackSize::new(100_000)?;
/// assert_eq!(size.bytes(), 128 * 1024);
/// assert!(size.usable() >= 100_000);
/// assert_eq!(StackSize::default().bytes(), 256 * 1024);
/// assert!(StackSize::new(1000).is_err());
/// # Ok::<(), carefree_context::stack::StackSizeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackSize {
    exponent: u8,
}

/// Two to this power is the smallest class: 16 KiB.
const MIN_EXPONENT: u8 = 14;
/// Two to this power is the largest class: 1 GiB.
const MAX_EXPONENT: u8 = 30;
/// No guard is larger than this.
const MAX_GUARD: usize = 64 * 1024;

impl StackSize {
    /// The smallest size: 16 KiB.
    pub const MIN: StackSize = StackSize { exponent: MIN_EXPONENT };

    /// The size a stack has when nobody says otherwise: 256 KiB.
    ///
    /// Enough for most Rust and C code (musl's threads live on 128 KiB), and small enough that a
    /// million of them are 244 GiB of address space, which no machine runs out of, and 512 MiB of
    /// page tables.
    pub const DEFAULT: StackSize = StackSize { exponent: 18 };

    /// The largest size: 1 GiB.
    pub const MAX: StackSize = StackSize { exponent: MAX_EXPONENT };

    /// How many classes there are.
    pub const CLASSES: usize = (MAX_EXPONENT - MIN_EXPONENT) as usize + 1;

    /// The smallest class that holds `bytes`, guard included.
    ///
    /// On machines whose pages are larger than 4 KiB, the smallest class is four pages.
    ///
    /// # Errors
    /// [`StackSizeError`] when `bytes` is less than 16 KiB or more than 1 GiB.
    pub fn new(bytes: usize) -> Result<StackSize, StackSizeError> {
        if bytes < Self::MIN.bytes() {
            return Err(StackSizeError { bytes, too_large: false });
        }
        if bytes > Self::MAX.bytes() {
            return Err(StackSizeError { bytes, too_large: true });
        }
        let bytes = bytes.max(4 * sys::page_size()).next_power_of_two();
        Ok(StackSize { exponent: bytes.trailing_zeros() as u8 })
    }

    /// All of a stack of this size, guard included, in bytes: a power of two.
    pub const fn bytes(self) -> usize {
        1 << self.exponent
    }

    /// The guard at the low end, in bytes: whole pages.
    ///
    /// Code that touches every page on its way down (all of Rust; C compiled with
    /// `-fstack-clash-protection`) is caught by any guard. Other C code may jump over a small one
    /// with one large frame, so the guard is as large as is cheap. It takes no memory: guarding is
    /// a mark in page-table entries that exist anyway, since guard and top page share a page table
    /// (2 MiB of address space) in every class up to 2 MiB.
    pub fn guard(self) -> usize {
        (self.bytes() / 16).clamp(sys::page_size(), MAX_GUARD.max(sys::page_size()))
    }

    /// What code running on the stack can use of it, in bytes.
    pub fn usable(self) -> usize {
        self.bytes() - self.guard()
    }

    /// The number of the class, counted from the smallest: below [`CLASSES`](Self::CLASSES).
    pub const fn class(self) -> usize {
        (self.exponent - MIN_EXPONENT) as usize
    }

    /// The size of the class with this number.
    pub(super) const fn of_class(class: usize) -> StackSize {
        StackSize { exponent: MIN_EXPONENT + class as u8 }
    }
}

impl Default for StackSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<usize> for StackSize {
    type Error = StackSizeError;
    fn try_from(bytes: usize) -> Result<StackSize, StackSizeError> {
        StackSize::new(bytes)
    }
}

impl fmt::Display for StackSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exponent {
            0..20 => write!(out, "{} KiB", self.bytes() >> 10),
            20..30 => write!(out, "{} MiB", self.bytes() >> 20),
            _ => write!(out, "{} GiB", self.bytes() >> 30),
        }
    }
}

impl fmt::Debug for StackSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StackSize({self})")
    }
}

/// A stack of the size asked for cannot be: it is below 16 KiB or above 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSizeError {
    bytes: usize,
    too_large: bool,
}

impl fmt::Display for StackSizeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fault, right) = if self.too_large {
            ("too large", format!("at most {} ({} bytes)", StackSize::MAX, StackSize::MAX.bytes()))
        } else {
            ("too small", format!("at least {} ({} bytes)", StackSize::MIN, StackSize::MIN.bytes()))
        };
        write!(out, "a stack size of {} bytes is {fault}: ask for {right}", self.bytes)
    }
}

impl std::error::Error for StackSizeError {}

impl From<StackSizeError> for std::io::Error {
    fn from(error: StackSizeError) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_to_powers_of_two() {
        for (asked, got) in [
            (16 << 10, 16 << 10),
            ((16 << 10) + 1, 32 << 10),
            (100_000, 128 << 10),
            (1 << 20, 1 << 20),
            ((512 << 20) + 1, 1 << 30),
            (1 << 30, 1 << 30),
        ] {
            assert_eq!(StackSize::new(asked).unwrap().bytes(), got, "asked for {asked}");
        }
    }

    #[test]
    fn refuses_what_no_class_holds_and_names_the_limits() {
        let small = StackSize::new((16 << 10) - 1).unwrap_err().to_string();
        assert_eq!(
            small,
            "a stack size of 16383 bytes is too small: ask for at least 16 KiB (16384 bytes)"
        );
        for bytes in [(1 << 30) + 1, usize::MAX / 2 + 2, usize::MAX] {
            let large = StackSize::new(bytes).unwrap_err().to_string();
            assert!(
                large.ends_with("is too large: ask for at most 1 GiB (1073741824 bytes)"),
                "{large}"
            );
        }
        assert_eq!(
            std::io::Error::from(StackSize::new(0).unwrap_err()).kind(),
            std::io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn guards_are_whole_pages_within_the_slot() {
        for class in 0..StackSize::CLASSES {
            let size = StackSize::of_class(class);
            assert_eq!(size.class(), class);
            assert_eq!(size.guard() % sys::page_size(), 0);
            assert!(size.guard() >= sys::page_size() && size.guard() <= size.bytes() / 4);
            assert_eq!(size.usable() + size.guard(), size.bytes());
        }
    }

    #[test]
    fn prints_for_people() {
        let shown: Vec<String> =
            [14, 18, 20, 23, 30].map(|e| StackSize { exponent: e }.to_string()).into();
        assert_eq!(shown, ["16 KiB", "256 KiB", "1 MiB", "8 MiB", "1 GiB"]);
    }
}
