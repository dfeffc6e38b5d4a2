//! A table that grows without copying its rows, and without the program's allocator.
//!
//! A `Vec` that grows to a million rows is copied twenty times, the last time 16 MB at once: a
//! pause of milliseconds, under the caller's lock, in an operation that should take nanoseconds.
//! Where this table grows, the kernel moves its pages.
//!
//! A fiber may set a timer within the allocator, which waits a moment for one of its locks.

use std::ops::{Index, IndexMut};

use carefree_ground::mapped::Mapped;

/// Rows by number, appended and never removed.
#[derive(Debug)]
pub(super) struct Table<R: Copy>(Mapped<R>);

impl<R: Copy> Table<R> {
    pub(super) const fn new() -> Self {
        Table(Mapped::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, row: R) {
        self.0.push_or_abort(row);
    }
}

impl<R: Copy> Index<u32> for Table<R> {
    type Output = R;

    #[inline]
    fn index(&self, number: u32) -> &R {
        &self.0[number as usize]
    }
}

impl<R: Copy> IndexMut<u32> for Table<R> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut R {
        &mut self.0[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_numbers() {
        const ROWS: u32 = 100_000;
        let mut table = Table::new();
        for row in 0..ROWS {
            assert_eq!(table.len(), row as usize);
            table.push(row);
        }
        table[70_000] += 1;
        for row in 0..ROWS {
            assert_eq!(table[row], row + u32::from(row == 70_000));
        }
    }
}
