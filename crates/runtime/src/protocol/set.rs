//! A set of carriers, by index, that any thread may change.

use crate::protocol::sync::{AtomicU64, Ordering};

/// Carriers that a runtime can have.
pub(crate) const CARRIERS_MAX: usize = 64 * WORDS;
/// Words of a [`Set`].
#[cfg(not(loom))]
const WORDS: usize = 16;
#[cfg(loom)]
const WORDS: usize = 1;

/// Some carriers of a runtime.
#[derive(Debug)]
pub(crate) struct Set([AtomicU64; WORDS]);

impl Set {
    pub(crate) fn new() -> Set {
        Set(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn insert(&self, carrier: usize) {
        self.0[carrier / 64].fetch_or(1 << (carrier % 64), Ordering::SeqCst);
    }

    /// False: it is not in the set, perhaps not any more.
    pub(crate) fn remove(&self, carrier: usize) -> bool {
        let bit = 1 << (carrier % 64);
        self.0[carrier / 64].fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// One that is in the set.
    pub(crate) fn first(&self) -> Option<usize> {
        self.among(CARRIERS_MAX).next()
    }

    /// Those of the first `carriers` that are in the set, each looked for when its turn comes. (Some
    /// more, if these do not fill the last word.)
    #[inline]
    pub(crate) fn among(&self, carriers: usize) -> impl Iterator<Item = usize> + '_ {
        let words = self.0.iter().take(carriers.div_ceil(64)).enumerate();
        words.flat_map(|(index, word)| {
            Bits(word.load(Ordering::SeqCst)).map(move |bit| index * 64 + bit)
        })
    }

    pub(crate) fn contains(&self, carrier: usize) -> bool {
        self.0[carrier / 64].load(Ordering::SeqCst) & 1 << (carrier % 64) != 0
    }
}

/// The places of the bits that are set in a word.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let lowest = self.0.trailing_zeros() as usize;
        self.0 &= self.0.checked_sub(1)?;
        Some(lowest)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn those_inside_are_found_and_no_others() {
        let set = Set::new();
        let inside = [0, 1, 63, 64, 700, CARRIERS_MAX - 1];
        inside.into_iter().for_each(|carrier| set.insert(carrier));
        assert!(set.among(CARRIERS_MAX).eq(inside));
        assert!(set.among(65).eq([0, 1, 63, 64]));
        assert_eq!(set.first(), Some(0));
        for carrier in [0, 1, 63] {
            assert!(set.remove(carrier) && !set.remove(carrier));
            assert!(!set.contains(carrier));
        }
        assert!(set.contains(700));
        assert_eq!(set.first(), Some(64));
    }
}
