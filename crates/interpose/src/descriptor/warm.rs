//! Which parts of files on disks were found in memory lately.
//!
//! Whether a file is in memory is asked page by page, which for the 60 KB that a server sends at a time costs
//! several times what sending them does. A server also opens the same files again and again. So the answer is
//! kept by inode and not by descriptor, for [`LATELY`]: a part that was in memory then most likely still is.
//!
//! The table is a hint. Its slots are shared by all inodes of one hash and are written without a lock, so a
//! range may even be another file's. A wrong hint has a carrier wait for a disk: that costs time, and no bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use carefree_reactor::clock;

/// How long an answer holds, in nanoseconds.
const LATELY: u64 = 1_000_000_000;

const SLOTS: usize = 256;

static TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];

#[derive(Debug)]
struct Slot {
    /// The inode's [`hash`](super::storage::hash); 0 for none.
    inode: AtomicU64,
    begin: AtomicU64,
    end: AtomicU64,
    /// Until when the answer holds.
    until: AtomicU64,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            inode: AtomicU64::new(0),
            begin: AtomicU64::new(0),
            end: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }

    fn of(inode: u64) -> &'static Slot {
        &TABLE[(inode >> 56) as usize % SLOTS]
    }

    /// Its range, if it is that of `inode` and holds still.
    fn range(&self, inode: u64, now: u64) -> Option<(u64, u64)> {
        let is_of = inode != 0 && self.inode.load(Ordering::Relaxed) == inode;
        (is_of && now < self.until.load(Ordering::Relaxed))
            .then(|| (self.begin.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed)))
    }
}

/// Whether a part of `inode` was found in memory lately: then it is on a local disk, too.
pub(crate) fn is_known(inode: u64) -> bool {
    Slot::of(inode).range(inode, clock::now()).is_some()
}

/// Whether all of `inode` from `begin` to `end` was found in memory lately.
pub(crate) fn is_warm(inode: u64, begin: u64, end: u64) -> bool {
    let range = Slot::of(inode).range(inode, clock::now());
    range.is_some_and(|(from, to)| from <= begin && end <= to)
}

/// All of `inode` from `begin` to `end` was found in memory just now.
pub(crate) fn found(inode: u64, begin: u64, end: u64) {
    let (slot, now) = (Slot::of(inode), clock::now());
    match slot.range(inode, now) {
        // Both parts together, as long as the answer for the older one holds.
        Some((from, to)) if from <= end && begin <= to => {
            slot.begin.store(from.min(begin), Ordering::Relaxed);
            slot.end.store(to.max(end), Ordering::Relaxed);
        }
        _ => {
            slot.until.store(0, Ordering::Relaxed);
            slot.inode.store(inode, Ordering::Relaxed);
            slot.begin.store(begin, Ordering::Relaxed);
            slot.end.store(end, Ordering::Relaxed);
            slot.until.store(now.saturating_add(LATELY), Ordering::Relaxed);
        }
    }
}

/// Nothing is known of `inode` any more.
#[cfg(test)]
pub(crate) fn forget(inode: u64) {
    Slot::of(inode).until.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_are_joined_and_those_of_another_are_not_known() {
        // (No other test has inodes of these hashes.)
        let (inode, other) = (0xf1 << 56 | 1, 0xf1 << 56 | 2);
        assert!(!is_known(inode) && !is_warm(inode, 0, 1));
        found(inode, 4096, 8192);
        assert!(is_known(inode) && is_warm(inode, 5000, 8192));
        assert!(!is_warm(inode, 0, 8192) && !is_warm(inode, 5000, 8193));
        found(inode, 8192, 12288);
        assert!(is_warm(inode, 4096, 12288));
        // With a gap: the later part alone.
        found(inode, 20480, 24576);
        assert!(is_warm(inode, 20480, 24576) && !is_warm(inode, 4096, 12288));
        assert!(!is_known(other) && !is_warm(other, 20480, 24576));
        found(other, 0, 4096);
        assert!(is_warm(other, 0, 4096) && !is_known(inode));
        forget(other);
        assert!(!is_known(other));
        // What has no inode is never known.
        found(0, 0, 4096);
        assert!(!is_known(0));
    }
}
