//! Symbols of libc's that no header declares.
//!
//! In a dynamic program the loader finds them. A static program has no loader to ask, but its linker
//! has libc's own objects before it, hidden symbols included: there each name is a weak reference, null
//! if libc has none. A weak reference brings no object into the program; those meant here are part of
//! what starts and ends threads, and are there anyway.

use std::ffi::{CStr, c_void};

/// Whether libc is a part of this program's own file.
pub(super) const STATIC: bool = cfg!(all(target_feature = "crt-static", target_env = "gnu"));

/// A symbol of the running process, or null.
#[cfg(not(all(target_feature = "crt-static", target_env = "gnu")))]
pub(super) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; dlsym only looks it up.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
pub(super) use linked::symbol;

#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
mod linked {
    use super::{CStr, c_void};

    macro_rules! weak {
        ($($name:literal)*) => {
            /// All names that are asked for.
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
        // SAFETY: as many addresses as names, written by the linker.
        index.map_or(std::ptr::null_mut(), |index| unsafe { ADDRESSES[index] })
    }
}
