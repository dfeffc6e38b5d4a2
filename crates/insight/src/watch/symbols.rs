//! The functions at the addresses of a stack, by name, file and line.
//!
//! They are read from the objects' files: from the debug information, which also has inlined functions, or else
//! from the symbol table. `addr2line` and `backtrace` know more formats (compressed sections, debug information
//! in other files), but use the program's allocator.

mod lines;
mod symbol;
mod units;

use object::LittleEndian;
use object::elf::{SHF_COMPRESSED, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};

use carefree_ground::mapped::Mapped;
use carefree_ground::text::Text;

use super::image::{Image, Images};
use symbol::bits;
pub(super) use symbol::{MOST, Symbol};

/// The functions at `addresses`, in that order; those at one address from the innermost on. There is at least
/// one for each address.
pub(super) fn look_up<'a>(
    images: &'a Images,
    of: &[Option<usize>],
    addresses: &[u64],
    paths: &mut Text,
) -> Mapped<Symbol<'a>> {
    let addresses = &addresses[..addresses.len().min(MOST)];
    let mut found: Mapped<Symbol<'a>> = Mapped::new();
    let mut done = 0u64;
    for first in 0..addresses.len() {
        let Some(image) = of[first].filter(|_| done & 1 << first == 0) else { continue };
        let mut wanted = 0;
        let mut within = [0; MOST];
        for index in (first..addresses.len()).filter(|index| of[*index] == Some(image)) {
            wanted |= 1 << index;
            within[index] = addresses[index].wrapping_sub(images.get(image).bias);
        }
        done |= wanted;
        let within = &within[..addresses.len()];
        let image = images.get(image);
        let known = found.len();
        if let Some(sections) = sections(image) {
            units::look_up(&sections, within, wanted, paths, &mut |symbol| {
                found.push(symbol);
            });
        }
        // The outermost function at an address is also in the symbol table, which has its full name.
        let names = names(image, within, wanted);
        let mut nameless = wanted;
        for at in known..found.len() {
            let Symbol { index, name, .. } = found[at];
            let outermost = found.get(at + 1).is_none_or(|next| next.index != index);
            if outermost {
                nameless &= !(1 << index);
                found[at].name = names[index].or(name);
            }
        }
        for index in bits(nameless) {
            found.push(Symbol { index, name: names[index], file: None, line: None });
        }
    }
    for index in 0..addresses.len() {
        if done & 1 << index == 0 {
            found.push(Symbol { index, name: None, file: None, line: None });
        }
    }
    in_order(&mut found);
    found
}

/// Sorts the symbols, a few dozen, by address. Those of one address keep their order.
fn in_order(symbols: &mut [Symbol<'_>]) {
    for sorted in 1..symbols.len() {
        let mut at = sorted;
        while at > 0 && symbols[at - 1].index > symbols[at].index {
            symbols.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// The sections with debug information. A compressed one counts as empty.
fn sections(image: &Image) -> Option<units::Sections<'_>> {
    let table = image.header()?.sections(LittleEndian, image.bytes()).ok()?;
    units::Sections::of(|name| {
        let found = table.section_by_name(LittleEndian, name.as_bytes());
        let section = found.map(|(_, section)| section);
        let whole = section.filter(|s| s.sh_flags(LittleEndian) & u64::from(SHF_COMPRESSED) == 0);
        whole.and_then(|s| s.data(LittleEndian, image.bytes()).ok()).unwrap_or_default()
    })
}

/// The functions of the symbol tables that contain the `wanted` ones of `addresses`.
fn names<'a>(image: &'a Image, addresses: &[u64], wanted: u64) -> [Option<&'a [u8]>; MOST] {
    let mut names = [None; MOST];
    // The lowest and the highest, to pass over most symbols quickly.
    let (mut low, mut high) = (u64::MAX, 0);
    for index in bits(wanted) {
        low = low.min(addresses[index]);
        high = high.max(addresses[index]);
    }
    let Some(header) = image.header() else { return names };
    let Ok(sections) = header.sections(LittleEndian, image.bytes()) else { return names };
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        let Ok(table) = sections.symbols(LittleEndian, image.bytes(), kind) else { continue };
        // Whether the name found so far is a global symbol's, which is preferred.
        let mut global = 0u64;
        for symbol in table.iter() {
            let begin = symbol.st_value(LittleEndian);
            let end = begin.saturating_add(symbol.st_size(LittleEndian));
            if begin > high || end <= low || symbol.is_undefined(LittleEndian) {
                continue;
            }
            if !matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC) {
                continue;
            }
            for index in bits(wanted) {
                let better =
                    names[index].is_none() || !symbol.is_local() && global & 1 << index == 0;
                if (begin..end).contains(&addresses[index]) && better {
                    names[index] = symbol.name(LittleEndian, table.strings()).ok();
                    global |= u64::from(!symbol.is_local()) << index;
                }
            }
        }
        if bits(wanted).all(|index| names[index].is_some()) {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::damage::{Damage, damage_times};
    use crate::watch::image::Contents;
    use crate::watch::unwind::{Copy, Registers, walk};
    use carefree_context::mapped_file::MappedFile;

    #[inline(never)]
    fn outer(found: &mut Vec<(String, String, Option<u32>)>) -> u32 {
        let line = inner(found);
        std::hint::black_box(line)
    }

    #[inline(always)]
    fn inner(found: &mut Vec<(String, String, Option<u32>)>) -> u32 {
        here(found);
        line!() - 1
    }

    /// The symbols of the caller's own address.
    #[inline(never)]
    fn here(found: &mut Vec<(String, String, Option<u32>)>) {
        use std::ffi::c_void;
        unsafe extern "C" {
            fn _Unwind_GetIP(context: *mut c_void) -> usize;
            fn _Unwind_Backtrace(
                note: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32,
                trace: *mut c_void,
            ) -> i32;
        }
        unsafe extern "C" fn note(context: *mut c_void, trace: *mut c_void) -> i32 {
            // SAFETY: called with the unwinder's context and the argument given below.
            let (trace, address) =
                unsafe { (&mut *trace.cast::<Vec<u64>>(), _Unwind_GetIP(context) as u64) };
            // Within the instruction that called.
            trace.extend(address.checked_sub(1));
            0
        }
        let mut trace: Vec<u64> = Vec::new();
        // SAFETY: as declared by the unwinder's own header; the vector outlives the call.
        unsafe { _Unwind_Backtrace(note, (&raw mut trace).cast()) };
        let mut images = Images::read();
        let of: Vec<_> = trace.iter().map(|address| images.find(*address)).collect();
        let mut paths = Text::new();
        let symbols = look_up(&images, &of, &trace, &mut paths);
        for symbol in symbols.iter() {
            let name = String::from_utf8_lossy(symbol.name.unwrap_or(b"?"));
            let name = format!("{:#}", rustc_demangle::demangle(&name));
            let file = symbol.file.map(|(begin, end)| paths[begin..end].to_owned());
            found.push((name, file.unwrap_or_default(), symbol.line));
        }
    }

    #[test]
    fn functions_are_found_by_their_addresses() {
        let mut found = Vec::new();
        let line = outer(&mut found);
        let name =
            |(name, ..): &&(String, String, Option<u32>)| name.rsplit("::").next() == Some("inner");
        let at = found.iter().position(|f| name(&f)).unwrap_or_else(|| panic!("{found:#?}"));
        let (inlined, around) = (&found[at], &found[at + 1]);
        assert!(inlined.1.ends_with("src/watch/symbols.rs"), "{found:#?}");
        assert_eq!(inlined.2, Some(line), "{found:#?}");
        assert!(around.0.ends_with("symbols::tests::outer"), "{found:#?}");
        assert!(around.1.ends_with("src/watch/symbols.rs"), "{found:#?}");
        assert!(around.2.is_some_and(|outer| outer + 8 > line - 6 && outer < line), "{found:#?}");
        assert!(found.iter().any(|f| f.0.contains("functions_are_found_by_their_addresses")));
    }

    #[test]
    fn what_is_nowhere_has_no_name() {
        let mut images = Images::read();
        let of = [images.find(7), None];
        let mut paths = Text::new();
        let symbols = look_up(&images, &of, &[7, 8], &mut paths);
        assert!(symbols.iter().map(|s| (s.index, s.name)).eq([(0, None), (1, None)]));
    }

    /// Reads all that a file, which may be damaged, has about `addresses`: names, and tables for the walk.
    fn read_all(images: &mut Images, addresses: &[u64]) -> usize {
        let of = vec![Some(0); addresses.len()];
        let stack: Vec<u8> = (0..4096u32).flat_map(|n| u64::from(n * 8).to_ne_bytes()).collect();
        for address in addresses {
            let registers = Registers::new(*address, 0x1000);
            let stack = Copy { address: 0x1000, bytes: &stack };
            assert!(walk(registers, &stack, images).len() <= MOST);
        }
        let mut paths = Text::new();
        let symbols = look_up(images, &of, addresses, &mut paths);
        symbols.iter().filter(|symbol| symbol.name.is_some()).count()
    }

    /// Damages the smallest object: the kernel's own.
    #[test]
    fn a_damaged_object_does_no_harm() {
        // SAFETY: asks for a number.
        let begin = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        let mut images = Images::read();
        let Some(page) = images.find(begin) else { return eprintln!("skipped: there is no vDSO") };
        let whole: Vec<u64> = images.get(page).bytes().chunks_exact(8).map(word).collect();
        let mut bytes = whole.clone();
        let bias = 0x7000_0000_0000;
        let functions = images.get(page).bytes().len() as u64;
        let addresses: Vec<u64> = (0..MOST as u64).map(|n| bias + n * functions / 64).collect();
        let (mut damage, mut named) = (Damage(1), 0);
        for round in 0..damage_times(300) {
            bytes.copy_from_slice(&whole);
            let len = if round % 8 == 7 { damage.below(bytes.len()) } else { bytes.len() };
            for _ in 0..round % 8 {
                let at = damage.below(bytes.len());
                // The headers more often than the code.
                let at = if damage.below(2) == 0 { at % 64 } else { at };
                bytes[at] = damage.of_word(bytes[at]);
            }
            let contents = Contents::Memory(bytes.as_ptr().cast(), len * 8);
            named += read_all(&mut Images::of(contents, bias), &addresses);
        }
        // (An emulator's vDSO has hardly any functions.)
        assert!(named > 0 || cfg!(target_arch = "aarch64"));
    }

    fn word(bytes: &[u8]) -> u64 {
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    #[test]
    fn a_file_that_is_cut_short_has_no_names() {
        carefree_context::overflow::install().unwrap();
        let here = a_file_that_is_cut_short_has_no_names as fn() as usize as u64;
        let mut images = Images::read();
        let program = images.find(here).unwrap();
        let bias = images.get(program).bias;
        let path = std::env::temp_dir().join(format!("carefree-program-{}", std::process::id()));
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let file = MappedFile::open(&name).unwrap();
        let mut images = Images::of(Contents::File(file), bias);
        assert!(read_all(&mut images, &[here + 1]) > 0);
        let cut = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        cut.set_len(images.get(0).bytes().len() as u64 / 2).unwrap();
        assert_eq!(read_all(&mut images, &[here + 1]), 0);
        std::fs::remove_file(path).unwrap();
    }
}
