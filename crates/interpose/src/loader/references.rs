//! References to our functions from a program that is not position-independent.
//!
//! Where such a program takes the address of a function and calls it too, the linker has given the function an
//! address within the program, a stub that jumps to it. glibc (2.35 and later) takes that for a fault if the function
//! is protected, since the library may compare it with the address that it has itself, and says so on standard error
//! when the program first calls the function. Debian's python3.11 is such a program, for `fsync` and `fdatasync`.
//!
//! Carefree compares no such addresses, and what protection is for, that its own calls reach its own functions, the
//! linker has settled. So in a library that comes before libc, the loader is shown plain symbols. (A program that
//! binds all its functions before it runs, `-z now`, is warned all the same: that is earlier than any code of ours.)

use std::ptr;

use carefree_context::exports::Exports;
use carefree_context::{loader, object};

/// `STV_PROTECTED`, and the bits of `st_other` that it is one value of.
const PROTECTED: u8 = 3;
const VISIBILITY: u8 = 3;

/// When the program starts, and before it calls a function.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    extern "C" fn at_start() {
        let own = object::own();
        if own.is_program() || own.is_behind_libc() {
            return;
        }
        let mut is_fixed = None;
        loader::any_object(|info| {
            // (The first one is the program.)
            let is_fixed = *is_fixed.get_or_insert(info.dlpi_addr == 0);
            if is_fixed && own.contains(info.dlpi_phdr.cast()) {
                // SAFETY: the loader describes the object that this code is a part of.
                unsafe { show_plain(info) };
                return true;
            }
            !is_fixed
        });
    }
    at_start
};

/// Has the loader find plain symbols in this object.
///
/// # Safety
/// The loader has just described this object so, and no library is loaded meanwhile that defines functions anew.
unsafe fn show_plain(info: &libc::dl_phdr_info) {
    // SAFETY: as this function demands.
    let Some(exports) = (unsafe { Exports::of(info) }) else { return };
    let symbols = exports.symbols();
    // SAFETY: as this function demands.
    let headers = unsafe { loader::headers(info) };
    let start = symbols.cast::<libc::Elf64_Sym>();
    let place = start as u64 - info.dlpi_addr;
    let bytes = size_of::<libc::Elf64_Sym>() * symbols.len();
    let holds = |part: &&libc::Elf64_Phdr| {
        part.p_type == libc::PT_LOAD
            && part.p_vaddr <= place
            && place + bytes as u64 <= part.p_vaddr + part.p_filesz
    };
    // Only where the symbols can just be read: code beside them might be running.
    let Some(part) = headers.iter().find(holds).filter(|part| part.p_flags == libc::PF_R) else {
        return;
    };
    // The whole part: it begins and ends with a page, whatever a page has.
    let first = ptr::with_exposed_provenance_mut((info.dlpi_addr + part.p_vaddr) as usize);
    let length = part.p_memsz as usize;
    // SAFETY: the loader has mapped this part for reading. Threads may read it meanwhile, which are shown either kind
    // of symbol, by a byte that is written at once.
    unsafe {
        if libc::mprotect(first, length, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        for index in 0..symbols.len() {
            let other = &raw mut (*start.add(index)).st_other;
            if *other & VISIBILITY == PROTECTED {
                other.write(*other & !VISIBILITY);
            }
        }
        libc::mprotect(first, length, libc::PROT_READ);
    }
}
