//! The functions of an ELF file of this machine's kind, by its table of symbols (`.symtab`).

/// A function of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function<'f> {
    pub(crate) name: &'f [u8],
    /// Its address; relative to where the file is loaded, if that may be anywhere.
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// Whether addresses in the file are relative to where it is loaded.
pub(crate) fn is_relocated(file: &[u8]) -> bool {
    const ET_DYN: u64 = 3;
    number(file, 16, 2) == Some(ET_DYN)
}

/// The first function that passes `test`.
pub(crate) fn find_function(
    file: &[u8],
    mut test: impl FnMut(&Function<'_>) -> bool,
) -> Option<Function<'_>> {
    const SYMTAB: u64 = 2;
    const FUNCTION: u64 = 2;
    const SYMBOL: usize = 24;
    let field = |place: usize, bytes| number(file, place, bytes).map(|number| number as usize);
    let (sections, size, count) = (field(40, 8)?, field(58, 2)?, field(60, 2)?);
    let section = |index: usize| sections.checked_add(index.checked_mul(size)?);
    for index in 0..count {
        let header = section(index)?;
        if number(file, header.checked_add(4)?, 4)? != SYMTAB {
            continue;
        }
        let (begin, length) = (field(header + 24, 8)?, field(header + 32, 8)?);
        let names = section(field(header + 40, 4)?)?;
        let names = file.get(field(names.checked_add(24)?, 8)?..)?;
        for place in (begin..begin.checked_add(length)?).step_by(SYMBOL) {
            if number(file, place.checked_add(4)?, 1)? & 0xf != FUNCTION {
                continue;
            }
            let name = names.get(field(place, 4)?..).unwrap_or_default();
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let function =
                Function { name, address: field(place + 8, 8)?, bytes: field(place + 16, 8)? };
            if test(&function) {
                return Some(function);
            }
        }
    }
    None
}

/// The number of so many bytes at `place`.
fn number(file: &[u8], place: usize, bytes: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(file.get(place..place.checked_add(bytes)?)?);
    Some(u64::from_le_bytes(number))
}
