//! A table that grows without moving its rows.
//!
//! A `Vec` that grows to a million rows is copied twenty times, the last time 16 MB at once: a
//! pause of milliseconds, under the caller's lock, in an operation that should take nanoseconds.
//! This table grows by one segment at a time.

use std::ops::{Index, IndexMut};

/// The size of a segment: large enough that the directory stays in the first-level cache, and small
/// enough to be allocated quickly. Memory that no row has touched costs nothing.
const SEGMENT_BYTES: usize = 128 * 1024;

/// Rows by number, appended and never removed.
#[derive(Debug)]
pub(super) struct Table<R> {
    /// All but the last are full.
    segments: Vec<Vec<R>>,
}

impl<R> Table<R> {
    /// Rows in a segment, a power of two.
    const SEGMENT: usize = 1 << (SEGMENT_BYTES / size_of::<R>()).ilog2();

    pub(super) const fn new() -> Self {
        Table { segments: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.segments
            .last()
            .map_or(0, |last| (self.segments.len() - 1) * Self::SEGMENT + last.len())
    }

    pub(super) fn push(&mut self, row: R) {
        match self.segments.last_mut() {
            Some(last) if last.len() < Self::SEGMENT => last.push(row),
            _ => {
                let mut segment = Vec::with_capacity(Self::SEGMENT);
                segment.push(row);
                self.segments.push(segment);
            }
        }
    }
}

impl<R> Index<u32> for Table<R> {
    type Output = R;

    #[inline]
    fn index(&self, number: u32) -> &R {
        &self.segments[number as usize / Self::SEGMENT][number as usize % Self::SEGMENT]
    }
}

impl<R> IndexMut<u32> for Table<R> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut R {
        &mut self.segments[number as usize / Self::SEGMENT][number as usize % Self::SEGMENT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_numbers_and_their_addresses() {
        const SEGMENT: usize = Table::<u32>::SEGMENT;
        let mut table = Table::new();
        assert_eq!(table.len(), 0);
        table.push(0);
        let first = &raw const table[0];
        for row in 1..5 * SEGMENT as u32 {
            assert_eq!(table.len(), row as usize);
            table.push(row);
        }
        table[SEGMENT as u32] += 1;
        for row in 0..5 * SEGMENT as u32 {
            assert_eq!(table[row], row + u32::from(row == SEGMENT as u32));
        }
        assert_eq!(first, &raw const table[0]);
    }
}
