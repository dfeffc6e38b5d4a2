//! Packing a value of any type into one word: a small value itself, a large one by its address.

use std::mem::{ManuallyDrop, MaybeUninit, size_of};
use std::ptr;

/// A word whose bytes need not all be initialised: a small value may have padding.
pub(super) type Word = MaybeUninit<usize>;

/// Packs a value, which must stay in place until [`unpack`] moves it out.
///
/// # Safety
///
/// The word is unpacked at most once, while `value` is alive and in place.
#[inline(always)]
pub(super) unsafe fn pack<T>(value: &ManuallyDrop<T>) -> Word {
    if size_of::<T>() <= size_of::<Word>() {
        let mut word = Word::uninit();
        // SAFETY: the value has this many bytes, and the word has room for them.
        unsafe {
            ptr::from_ref(value)
                .cast::<u8>()
                .copy_to_nonoverlapping(word.as_mut_ptr().cast::<u8>(), size_of::<T>());
        }
        word
    } else {
        Word::new(ptr::from_ref(value).expose_provenance())
    }
}

/// Moves the value out of a word.
///
/// # Safety
///
/// The word was made by [`pack`] from a `T`, has not been unpacked, and the value packed is still
/// where it was.
#[inline(always)]
pub(super) unsafe fn unpack<T>(word: Word) -> T {
    // SAFETY: `pack` stored a `T` in the word, or the address of one, by the same condition. The
    // value is still there and is moved out once.
    unsafe {
        if size_of::<T>() <= size_of::<Word>() {
            word.as_ptr().cast::<T>().read_unaligned()
        } else {
            ptr::with_exposed_provenance::<T>(word.assume_init()).read()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T>(value: T) -> T {
        let value = ManuallyDrop::new(value);
        // SAFETY: unpacked once, while the value is there.
        unsafe { unpack(pack(&value)) }
    }

    #[test]
    fn every_shape_survives() {
        #[derive(Clone, Copy, PartialEq, Debug)]
        #[repr(align(64))]
        struct Aligned<T>(T);

        assert_eq!(round_trip(7_u8), 7);
        assert_eq!(round_trip((1_u8, 2_u32)), (1, 2));
        assert_eq!(round_trip((1_u8, 2_u64)), (1, 2));
        assert_eq!(round_trip(f64::MAX), f64::MAX);
        assert_eq!(round_trip([3_u8; 7]), [3; 7]);
        assert_eq!(round_trip([3_u8; 9]), [3; 9]);
        assert_eq!(round_trip(Aligned(5_u8)), Aligned(5));
        assert_eq!(round_trip(Aligned(())), Aligned(()));
        assert_eq!(round_trip(vec![1, 2]), vec![1, 2]);
        assert_eq!(round_trip(Box::new(1)), Box::new(1));
    }
}
