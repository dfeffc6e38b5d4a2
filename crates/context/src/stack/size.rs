//! Sizes of stacks.

use super::{setting, sys};
use std::fmt;

/// The size of a stack.
///
/// Sizes come in classes, guard included, so that a released stack fits the next request of its class: powers of
/// two from 16 KiB to 64 TiB, and from 8 MiB on a quarter more than each, for requests of just a power of two. A
/// size between is rounded up: [`usable`](Self::usable) is at least what was requested.
///
/// Reserved address space is not memory: a stack costs the pages that were touched (one, 4 KiB, for a
/// fiber that does little) and a page-table entry for each page of address space (520 bytes for the
/// default size). Be generous, as with a thread's stack.
///
/// The lowest quarter, but at most 1 MiB, is the guard: an access there ends the program with a
/// message instead of overwriting the neighbour. `CAREFREE_GUARD` in the environment (bytes, or a
/// number with `K`, `M` or `G`) makes guards larger: see [`guard`](Self::guard). For a process with many large
/// stacks, [`limit_guards`](super::setting::limit_guards) makes them smaller.
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
    /// It has two to this power,
    exponent: u8,
    /// and so many quarters of that besides: one or none.
    quarters: u8,
}

/// Two to this power is the smallest class: 16 KiB.
const MIN_EXPONENT: u8 = 14;
/// Two to this power is the largest class: 64 TiB, half of a process's address space on x86-64 and
/// aarch64.
const MAX_EXPONENT: u8 = 46;
/// From two to this power on, 8 MiB, there is a class a quarter larger than each power of two. Threads of C programs
/// usually ask for 8 MiB: with the guard they get 10 MiB of address space, where the next power of two has 16. A quarter
/// of a smaller one would not be whole page tables: see `spacing`.
const QUARTERED: u8 = 23;

impl StackSize {
    /// The smallest class: 16 KiB. On a machine with pages larger than 4 KiB, a stack requested
    /// with this size has four pages (256 KiB with pages of 64 KiB).
    pub const MIN: StackSize = StackSize::power(MIN_EXPONENT);

    /// The default size of a stack: 256 KiB, of which 64 KiB are guard.
    ///
    /// Enough for most Rust and C code (musl's threads have 128 KiB), and small enough that a
    /// million of them take 248 GiB of address space, a fraction of what a process has, and 496 MiB
    /// of page tables.
    pub const DEFAULT: StackSize = StackSize::power(18);

    /// The largest class: 64 TiB.
    pub const MAX: StackSize = StackSize::power(MAX_EXPONENT);

    /// The number of classes.
    pub const CLASSES: usize = StackSize::MAX.class() + 1;

    const fn power(exponent: u8) -> StackSize {
        StackSize { exponent, quarters: 0 }
    }

    /// The smallest class with at least `bytes` [usable](Self::usable).
    ///
    /// # Errors
    /// [`StackSizeError`] when no class has that many.
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

    /// Whether a stack can have this size with pages of `page` bytes: it needs one page for the
    /// guard and three for code.
    const fn is_possible(self, page: usize) -> bool {
        self.bytes() >= 4 * page
    }

    /// The size of the stack that is made when this size is requested.
    pub(super) fn made(self) -> StackSize {
        self.made_of(sys::page_size())
    }

    fn made_of(self, page: usize) -> StackSize {
        let mut larger = (self.class()..Self::CLASSES).map(Self::of_class);
        larger.find(|size| size.is_possible(page)).unwrap_or(Self::MAX)
    }

    /// All of a stack of this size, guard included, in bytes.
    pub const fn bytes(self) -> usize {
        (4 + self.quarters as usize) << (self.exponent - 2)
    }

    /// The guard at the low end, in bytes: whole pages.
    ///
    /// Any guard catches code that touches every page on its way down (all of Rust; C compiled with
    /// `-fstack-clash-protection`). Other C code may step over a guard with one larger frame, so
    /// the guard is as large as is cheap: a quarter of the stack, at most 1 MiB, or what
    /// `CAREFREE_GUARD` asks for, but never more than half of the stack ([`new`](Self::new) chooses
    /// a class large enough for both).
    ///
    /// The guard takes no memory: it is a mark in page-table entries that exist anyway, since a
    /// guard shares a page table (2 MiB of address space) with its stack's top page, or with that of the
    /// neighbour below. Moving neighbours further apart would
    /// cost memory: each fiber has its part of a page table, 520 bytes for
    /// 256 KiB. With guards of 1 MiB below stacks of 192 KiB that would be 4 KiB, which doubles a
    /// fiber's memory. But the kernel takes time to mark each page: for a guard of 1 MiB, longer than for all
    /// else that a cold stack costs.
    ///
    /// Zero for a size below four pages, of which no stack is made: see [`MIN`](Self::MIN).
    pub fn guard(self) -> usize {
        self.guard_of(sys::page_size(), setting::guard())
    }

    fn guard_of(self, page: usize, asked: usize) -> usize {
        self.guard_within(page, setting::largest_guard(self.bytes()), asked)
    }

    fn guard_within(self, page: usize, largest: usize, asked: usize) -> usize {
        if !self.is_possible(page) {
            return 0;
        }
        let own = (self.bytes() / 4).clamp(page, largest.max(page));
        own.max(asked.next_multiple_of(page).min(self.bytes() / 2))
    }

    /// Bytes that code running on the stack can use.
    pub fn usable(self) -> usize {
        self.bytes() - self.guard()
    }

    /// The number of the class, counted from the smallest: below [`CLASSES`](Self::CLASSES).
    pub const fn class(self) -> usize {
        (self.exponent - MIN_EXPONENT + self.exponent.saturating_sub(QUARTERED) + self.quarters)
            as usize
    }

    /// The size of the class with this number.
    ///
    /// # Panics
    /// When there is none.
    pub const fn of_class(class: usize) -> StackSize {
        assert!(class < Self::CLASSES);
        let whole = (QUARTERED - MIN_EXPONENT) as usize;
        match class.checked_sub(whole) {
            None => StackSize::power(MIN_EXPONENT + class as u8),
            Some(more) => {
                StackSize { exponent: QUARTERED + (more / 2) as u8, quarters: (more % 2) as u8 }
            }
        }
    }
}

impl Default for StackSize {
    /// [`DEFAULT`](Self::DEFAULT), or the next class that has as much usable besides the guard that
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
        // The largest unit of which it is a whole number.
        match self.bytes().trailing_zeros() {
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

/// The requested stack is larger than any class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSizeError {
    bytes: usize,
    /// The most bytes that any class has besides its guard.
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
    fn at_least_the_requested_bytes_are_usable() {
        for (asked, got) in [
            (0, 16 << 10),
            (12 << 10, 16 << 10),
            ((12 << 10) + 1, 32 << 10),
            (64 << 10, 128 << 10),
            (192 << 10, 256 << 10),
            (2 << 20, 4 << 20),
            (7 << 20, 8 << 20),
            (8 << 20, 10 << 20),
            (9 << 20, 10 << 20),
            ((9 << 20) + 1, 16 << 20),
            (16 << 30, 20 << 30),
            ((64 << 40) - (1 << 20), 64 << 40),
        ] {
            let size = StackSize::on_pages(4096, asked, 0).unwrap();
            assert_eq!(size.bytes(), got, "asked for {asked}");
            assert!(size.bytes() - size.guard_of(4096, 0) >= asked);
        }
    }

    /// The page sizes of aarch64, of which a kernel is built for one.
    const PAGES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

    #[test]
    fn a_larger_guard_does_not_reduce_the_usable_part() {
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
    fn guards_are_no_larger_than_the_limit_unless_more_is_asked_for() {
        let size = StackSize::on_pages(4096, 8 << 20, 0).unwrap();
        assert_eq!(size.guard_within(4096, 1 << 20, 0), 1 << 20);
        assert_eq!(size.guard_within(4096, 64 << 10, 0), 64 << 10);
        assert_eq!(size.guard_within(4096, 64 << 10, 1 << 20), 1 << 20);
        assert_eq!(StackSize::MIN.guard_within(4096, 64 << 10, 0), 4096);
        // A page at least.
        assert_eq!(StackSize::DEFAULT.guard_within(16 << 10, 4096, 0), 16 << 10);
    }

    #[test]
    fn too_large_a_size_is_refused_with_the_limit() {
        for page in PAGES {
            for guard in [0, 1, 5 << 20, 1 << 40] {
                for bytes in [64 << 40, usize::MAX / 2 + 2, usize::MAX] {
                    let large = StackSize::on_pages(page, bytes, guard).unwrap_err();
                    let text = large.to_string();
                    let (_, most) = text.split_once("is too large: ask for at most ").unwrap();
                    let most: usize = most.strip_suffix(" bytes").unwrap().parse().unwrap();
                    // The limit in the text is exact.
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
                    // Also of a size that no stack has.
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
    fn sizes_are_printed_with_units() {
        let shown: Vec<String> =
            [14, 18, 20, 23, 30, 45].map(|e| StackSize::power(e).to_string()).into();
        assert_eq!(shown, ["16 KiB", "256 KiB", "1 MiB", "8 MiB", "1 GiB", "32 TiB"]);
        let shown =
            [8 << 20, 1 << 30, 4 << 40].map(|bytes| StackSize::new(bytes).unwrap().to_string());
        assert_eq!(shown, ["10 MiB", "1280 MiB", "5 TiB"]);
    }

    #[test]
    fn classes_are_numbered_by_size() {
        let sizes: Vec<_> = (0..StackSize::CLASSES).map(StackSize::of_class).collect();
        assert!(sizes.is_sorted_by(|a, b| a < b && a.bytes() < b.bytes()));
        assert!(sizes.iter().enumerate().all(|(class, size)| size.class() == class));
        assert_eq!((sizes[0], *sizes.last().unwrap()), (StackSize::MIN, StackSize::MAX));
    }
}
