//! A function at an address: name, file and line.

/// The most addresses that are looked up at once: the number of bits in a word.
pub(in crate::watch) const MOST: usize = 64;

/// A function at one of the addresses.
#[derive(Clone, Copy)]
pub(in crate::watch) struct Symbol<'a> {
    /// The index of the address.
    pub(in crate::watch) index: usize,
    /// The name as in the file, mangled or not, if it has one.
    pub(in crate::watch) name: Option<&'a [u8]>,
    /// The path of its file: a range of the text that goes with the symbols.
    pub(in crate::watch) file: Option<(usize, usize)>,
    pub(in crate::watch) line: Option<u32>,
}

/// The positions of the bits that are set.
pub(in crate::watch) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        bit
    })
}
