//! Looking up symbols of libc that no header declares.
//!
//! In a dynamic program the loader finds them. A static program has no loader, but its linker sees
//! libc's own objects, including hidden symbols. There each name is a weak reference, which is null if
//! libc has no such symbol. A weak reference does not link an object into the program, but the objects
//! that start and end threads, which have these symbols, are linked anyway.

use std::ffi::{CStr, c_void};

/// Whether libc is linked into this program statically.
pub(super) const STATIC: bool = cfg!(all(target_feature = "crt-static", target_env = "gnu"));

/// A symbol of the running process, or null.
#[cfg(not(all(target_feature = "crt-static", target_env = "gnu")))]
pub(super) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string, which dlsym only looks up.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
pub(super) use linked::symbol;

#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
mod linked {
    use super::{CStr, c_void};

    macro_rules! weak {
        ($($name:literal)*) => {
            /// All names that `symbol` is called with.
            const NAMES: &[&str] = &[$($name),*];

            std::arch::global_asm!(
                ".pushsection .data.rel.ro.carefree_libc_symbols,\"aw\"",
                ".balign 8",
                ".globl carefree_libc_symbols",
                ".hidden carefree_libc_symbols",
                "carefree_libc_symbols:",
                $(concat!(".weak ", $name), concat!(".quad ", $name),)*
                ".popsection",
            );
        };
    }

    weak! {
        "__call_tls_dtors"
        "__libc_thread_freeres"
        "__pthread_keys"
        "__rseq_offset"
        "__rseq_size"
        "_thread_db_pthread_cancelhandling"
        "_thread_db_pthread_key_data_level2_data"
        "_thread_db_pthread_list"
        "_thread_db_pthread_specific"
        "_thread_db_pthread_tid"
        "_thread_db_sizeof_pthread"
        "_thread_db_sizeof_pthread_key_data"
        "_thread_db_sizeof_pthread_key_struct"
    }

    unsafe extern "C" {
        #[link_name = "carefree_libc_symbols"]
        static ADDRESSES: [*mut c_void; NAMES.len()];
    }

    pub(in super::super) fn symbol(name: &CStr) -> *mut c_void {
        let index = NAMES.iter().position(|known| known.as_bytes() == name.to_bytes());
        // SAFETY: the array above has one address for each name, written by the linker.
        index.map_or(std::ptr::null_mut(), |index| unsafe { ADDRESSES[index] })
    }
}
