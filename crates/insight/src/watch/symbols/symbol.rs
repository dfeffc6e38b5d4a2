//! What is known of a function.

/// Addresses that are looked up at once, at most: as many as a word has bits.
pub(in crate::watch) const MOST: usize = 64;

/// A function at one of the addresses.
#[derive(Clone, Copy)]
pub(in crate::watch) struct Symbol<'a> {
    /// Which address, by its place.
    pub(in crate::watch) index: usize,
    /// As it is in the file, mangled or not; none where nothing is known.
    pub(in crate::watch) name: Option<&'a [u8]>,
    /// The path of its file, in the text that goes with the symbols.
    pub(in crate::watch) file: Option<(usize, usize)>,
    pub(in crate::watch) line: Option<u32>,
}

/// The places of the bits that are set.
pub(in crate::watch) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        bit
    })
}
