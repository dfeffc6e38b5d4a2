//! The thread-local variables of the library itself, which every thread and fiber of the program has.

use carefree_testing::artifact::preload;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, elf};

/// A thread of C++ that waits for a condition variable takes one page of memory if they are no more than
/// this, and two with 48 bytes more: `carefree bench parked --unit "thread (carefree)"`. A channel of std's
/// has 16 bytes of them, a `HashMap` with std's hasher 24.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_librarys_own_variables_leave_room_on_a_threads_page() {
    let library = std::fs::read(preload()).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*library).unwrap();
    let endian = file.endian();
    let storage =
        file.elf_program_headers().iter().filter(|part| part.p_type(endian) == elf::PT_TLS);
    let bytes: Vec<u64> = storage.map(|part| part.p_memsz(endian)).collect();
    assert_eq!(bytes.len(), 1, "the library has thread-local variables");
    assert!(bytes[0] <= 192, "{} bytes", bytes[0]);
}
