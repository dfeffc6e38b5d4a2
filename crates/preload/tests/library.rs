//! The file `libcarefree.so`: what of it others find, and the thread-local variables that every thread and fiber of
//! the program has.

use std::collections::BTreeSet;
use std::path::Path;

use carefree_testing::artifact::preload;
use object::read::elf::{ElfFile64, ElfSymbol64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, elf};

/// A thread of C++ that waits for a condition variable takes one page of memory if they are no more than
/// this, and two with 40 bytes more: `carefree bench parked --unit "thread (carefree)"`. A channel of std's
/// has 16 bytes of them, a `HashMap` with std's hasher 24.
#[cfg(target_arch = "x86_64")]
#[test]
fn its_own_variables_leave_room_on_a_threads_page() {
    let library = std::fs::read(preload()).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*library).unwrap();
    let endian = file.endian();
    let storage =
        file.elf_program_headers().iter().filter(|part| part.p_type(endian) == elf::PT_TLS);
    let bytes: Vec<u64> = storage.map(|part| part.p_memsz(endian)).collect();
    assert_eq!(bytes.len(), 1, "the library has thread-local variables");
    assert!(bytes[0] <= 200, "{} bytes", bytes[0]);
}

/// Functions that return twice: libc is to find their callers' registers and stack, so there is nothing before
/// the jump.
#[cfg(target_arch = "x86_64")]
#[test]
fn functions_that_return_twice_are_jumps() {
    let library = std::fs::read(preload()).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*library).unwrap();
    for name in ["__sigsetjmp", "_setjmp", "setjmp"] {
        let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
        let section = symbol.section_index().unwrap();
        let section = file.section_by_index(section).unwrap();
        let code = section.data_range(symbol.address(), 6).unwrap().unwrap();
        // By a distance of one byte, or of four.
        assert!(matches!(code[0], 0xeb | 0xe9), "{name}: {code:x?}");
    }
}

/// What `interpose` stands in for: the first cells of the tables in docs/calls.md, which its own test compares
/// with a program. That program sees symbols of assembly as well, and a library's users do not.
#[test]
fn it_stands_in_for_all_that_a_program_with_carefree_does() {
    let library = std::fs::read(preload()).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*library).unwrap();
    let defined = |symbol: &ElfSymbol64<'_, '_>| symbol.is_definition();
    let symbols: Vec<_> = file.dynamic_symbols().filter(defined).collect();
    let exported: BTreeSet<_> = symbols.iter().filter_map(|symbol| symbol.name().ok()).collect();
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/calls.md");
    let document = std::fs::read_to_string(document).unwrap();
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.trim_matches('|').split(" | ").next());
    let named = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // And what is no call of a program's: libc asks a thread for its stack, and libraries say that they begin.
    let all: BTreeSet<_> = named.chain(["pthread_getattr_np", "__gmon_start__"]).collect();
    assert!(all.contains("dlopen"), "no names were found: {all:?}");
    let missing: Vec<_> = all.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    // The library's own calls bind to them wherever it stands in the loader's order.
    let is_protected =
        |symbol: &&ElfSymbol64<'_, '_>| symbol.elf_symbol().st_visibility() == elf::STV_PROTECTED;
    let protected: BTreeSet<_> =
        symbols.iter().filter(is_protected).filter_map(|symbol| symbol.name().ok()).collect();
    let others: Vec<_> = all.difference(&protected).collect();
    assert!(others.is_empty(), "others may replace them: {others:?}");
}
