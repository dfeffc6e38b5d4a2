//! How large a stack is.

use super::{setting, sys};
use std::fmt;

/// The size of a stack.
///
/// Sizes come in classes: powers of two from 16 KiB to 64 TiB, guard included, so that stacks tile
/// their slab and a stack that was given back fits the next request of its class. A size between is rounded up:
/// [`usable`](Self::usable) is at least what was asked for.
///
/// Reserved is not used: a stack costs the memory of the pages it has touched (one, 4 KiB, for a
/// fiber that does little) and a page-table entry's worth for each page of address space (512 bytes
/// for the default size). Be generous, as with a thread's stack.
///
/// The lowest quarter, but at most 1 MiB, is the guard: an access there ends the program with a
/// message instead of overwriting the neighbour. `CAREFREE_GUARD` in the environment (bytes, or a
/// number with `K`, `M` or `G`) makes guards larger: see [`guard`](Self::guard).
///
/// ```
/// use carefree_context::stack::StackSize;
///
/// let size = StackSize::new(100_000)?;
/// assert_eq!(size.bytes(), 256 * 1024);
/// assert!(size.usable() >= 100_000);
/// assert_eq!(StackSize::DEFAULT.bytes(), 256 * 1024);
/// assert_eq!(StackSize::new(0)?, StackSize::new(1)?);
/// assert!(StackSize::new(usize::MAX).is_err());
/// # Ok::<(), carefree_context::stack::StackSizeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackSize {
    exponent: u8,
}

/// Two to this power is the smallest class: 16 KiB.
const MIN_EXPONENT: u8 = 14;
/// Two to this power is the largest class: 64 TiB, half of what x86-64 and aarch64 give a process.
const MAX_EXPONENT: u8 = 46;
/// No guard is larger than this, unless it is asked for: what Linux keeps free below a process's
/// first stack.
const MAX_GUARD: usize = 1 << 20;

impl StackSize {
    /// The smallest class: 16 KiB. Where pages are larger than 4 KiB, the stack that is made for it has
    /// four pages (256 KiB where they have 64 KiB).
    pub const MIN: StackSize = StackSize { exponent: MIN_EXPONENT };

    /// The size a stack has when nothing else is said: 256 KiB, of which 64 KiB are guard.
    ///
    /// Enough for most Rust and C code (musl's threads live on 128 KiB), and small enough that a
    /// million of them are 244 GiB of address space, which no machine runs out of, and 512 MiB of
    /// page tables.
    pub const DEFAULT: StackSize = StackSize { exponent: 18 };

    /// The largest class: 64 TiB.
    pub const MAX: StackSize = StackSize { exponent: MAX_EXPONENT };

    /// How many classes there are.
    pub const CLASSES: usize = (MAX_EXPONENT - MIN_EXPONENT) as usize + 1;

    /// The smallest class of which at least `bytes` are [usable](Self::usable).
    ///
    /// # Errors
    /// [`StackSizeError`] when no class has so many.
    pub fn new(bytes: usize) -> Result<StackSize, StackSizeError> {
        Self::with_guard(bytes, setting::guard())
    }

    fn with_guard(bytes: usize, guard: usize) -> Result<StackSize, StackSizeError> {
        Self::on_pages(sys::page_size(), bytes, guard)
    }

    fn on_pages(page: usize, bytes: usize, guard: usize) -> Result<StackSize, StackSizeError> {
        (0..Self::CLASSES)
            .map(Self::of_class)
            .find(|size| {
                size.is_possible(page)
                    && size.bytes() / 2 >= guard
                    && size.bytes() - size.guard_of(page, guard) >= bytes
            })
            .ok_or_else(|| {
                let most = Self::MAX.bytes() - Self::MAX.guard_of(page, guard);
                StackSizeError { bytes, most }
            })
    }

    /// Whether a stack can have this size where pages have so many bytes: it takes one for the guard, and
    /// three for code.
    const fn is_possible(self, page: usize) -> bool {
        self.bytes() >= 4 * page
    }

    /// The size that a stack has for which this one is asked.
    pub(super) fn made(self) -> StackSize {
        self.made_of(sys::page_size())
    }

    fn made_of(self, page: usize) -> StackSize {
        let mut larger = (self.class()..Self::CLASSES).map(Self::of_class);
        larger.find(|size| size.is_possible(page)).unwrap_or(Self::MAX)
    }

    /// All of a stack of this size, guard included, in bytes: a power of two.
    pub const fn bytes(self) -> usize {
        1 << self.exponent
    }

    /// The guard at the low end, in bytes: whole pages.
    ///
    /// Code that touches every page on its way down (all of Rust; C compiled with
    /// `-fstack-clash-protection`) is caught by any guard. Other C code may jump over a guard with
    /// one frame that is larger, so it is as large as is cheap: a quarter of the stack, at most
    /// 1 MiB, or what `CAREFREE_GUARD` asks for, as far as that leaves half of the stack
    /// ([`new`](Self::new) takes a class large enough for both).
    ///
    /// It takes no memory: guarding is a mark in page-table entries that exist anyway, since guard
    /// and top page share a page table (2 MiB of address space) in every class up to 2 MiB. What
    /// would cost memory is to move neighbours apart: each fiber has its part of a page table, 512
    /// bytes for 256 KiB, so with guards of 1 MiB below stacks of 192 KiB it would be 4 KiB, and
    /// twice the memory for a fiber.
    ///
    /// None for a size below four pages, of which no stack is made: see [`MIN`](Self::MIN).
    pub fn guard(self) -> usize {
        self.guard_of(sys::page_size(), setting::guard())
    }

    fn guard_of(self, page: usize, asked: usize) -> usize {
        if !self.is_possible(page) {
            return 0;
        }
        let own = (self.bytes() / 4).clamp(page, MAX_GUARD.max(page));
        own.max(asked.next_multiple_of(page).min(self.bytes() / 2))
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
    ///
    /// # Panics
    /// When there is none.
    pub const fn of_class(class: usize) -> StackSize {
        assert!(class < Self::CLASSES);
        StackSize { exponent: MIN_EXPONENT + class as u8 }
    }
}

impl Default for StackSize {
    /// [`DEFAULT`](Self::DEFAULT); or the next class that has as much besides the guard that
    /// `CAREFREE_GUARD` asks for.
    fn default() -> Self {
        let usable = Self::DEFAULT.bytes() - Self::DEFAULT.guard_of(sys::page_size(), 0);
        Self::new(usable).unwrap_or(Self::DEFAULT)
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
            30..40 => write!(out, "{} GiB", self.bytes() >> 30),
            _ => write!(out, "{} TiB", self.bytes() >> 40),
        }
    }
}

impl fmt::Debug for StackSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StackSize({self})")
    }
}

/// A stack of the size asked for cannot be: no address space holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSizeError {
    bytes: usize,
    /// The most that any class has besides its guard.
    most: usize,
}

impl fmt::Display for StackSizeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StackSizeError { bytes, most } = self;
        write!(out, "a stack size of {bytes} bytes is too large: ask for at most {most} bytes")
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
    fn what_is_asked_for_is_usable() {
        for (asked, got) in [
            (0, 16 << 10),
            (12 << 10, 16 << 10),
            ((12 << 10) + 1, 32 << 10),
            (64 << 10, 128 << 10),
            (192 << 10, 256 << 10),
            (2 << 20, 4 << 20),
            (16 << 30, 32 << 30),
            ((64 << 40) - MAX_GUARD, 64 << 40),
        ] {
            let size = StackSize::on_pages(4096, asked, 0).unwrap();
            assert_eq!(size.bytes(), got, "asked for {asked}");
            assert!(size.bytes() - size.guard_of(4096, 0) >= asked);
        }
    }

    /// What pages have on aarch64, as the kernel was built.
    const PAGES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

    #[test]
    fn a_larger_guard_takes_nothing_from_the_stack() {
        for page in PAGES {
            for guard in [1, 100_000, 1 << 20, 3 << 20, 1 << 30] {
                for asked in [0, 192 << 10, 1 << 20, 100 << 20] {
                    let size = StackSize::on_pages(page, asked, guard).unwrap();
                    assert!(size.guard_of(page, guard) >= guard, "{guard} below {asked}");
                    let usable = size.bytes() - size.guard_of(page, guard);
                    assert!(usable >= asked, "{guard} below {asked}");
                    assert_eq!(size.guard_of(page, guard) % page, 0);
                }
            }
        }
    }

    #[test]
    fn refuses_what_no_class_holds_and_names_the_limit() {
        for page in PAGES {
            for guard in [0, 1, 5 << 20, 1 << 40] {
                for bytes in [64 << 40, usize::MAX / 2 + 2, usize::MAX] {
                    let large = StackSize::on_pages(page, bytes, guard).unwrap_err();
                    let text = large.to_string();
                    let (_, most) = text.split_once("is too large: ask for at most ").unwrap();
                    let most: usize = most.strip_suffix(" bytes").unwrap().parse().unwrap();
                    // It is true.
                    assert!(StackSize::on_pages(page, most, guard).is_ok(), "{guard}: {text}");
                    assert!(StackSize::on_pages(page, most + 1, guard).is_err(), "{guard}: {text}");
                    assert_eq!(
                        std::io::Error::from(large).kind(),
                        std::io::ErrorKind::InvalidInput
                    );
                }
            }
        }
        let large = StackSize::on_pages(4096, usize::MAX, 0).unwrap_err().to_string();
        assert!(large.ends_with("is too large: ask for at most 70368743129088 bytes"), "{large}");
    }

    #[test]
    fn guards_are_whole_pages_within_the_slot() {
        for page in PAGES {
            for class in 0..StackSize::CLASSES {
                let size = StackSize::of_class(class);
                assert_eq!(size.class(), class);
                for asked in [0, 1, 1 << 20, 1 << 40] {
                    // Of a size that no stack has, too.
                    assert!(size.guard_of(page, asked) <= size.bytes() / 2, "{size}: {page}");
                    let made = size.made_of(page);
                    assert!(made >= size && made.bytes() >= 4 * page);
                    assert_eq!(made.guard_of(page, asked) % page, 0);
                    assert!(made.guard_of(page, asked) >= page);
                }
            }
            assert_eq!(StackSize::MIN.made_of(page).bytes(), 4 * page);
            assert_eq!(StackSize::on_pages(page, 0, 0).unwrap(), StackSize::MIN.made_of(page));
            assert_eq!(StackSize::MAX.made_of(page), StackSize::MAX);
        }
        let size = StackSize::default();
        assert_eq!(size.usable() + size.guard(), size.bytes());
    }

    #[test]
    fn prints_for_people() {
        let shown: Vec<String> =
            [14, 18, 20, 23, 30, 45].map(|e| StackSize { exponent: e }.to_string()).into();
        assert_eq!(shown, ["16 KiB", "256 KiB", "1 MiB", "8 MiB", "1 GiB", "32 TiB"]);
    }
}
