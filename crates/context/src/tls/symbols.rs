//! Symbols of libc's that no header declares.
//!
//! In a dynamic program the loader finds them. A static program has no loader to ask, but its linker
//! has libc's own objects before it, hidden symbols included: there each name is a weak reference, null
//! if libc has none. A weak reference brings no object into the program; those meant here are part of
//! what starts and ends threads, and are there anyway.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::OnceLock;

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

/// What libc's symbols tell that is asked for at each look.
#[derive(Debug)]
pub(super) struct Constants {
    /// Bytes of `struct pthread`.
    pub(super) pthread_size: Option<usize>,
    /// Where the restartable-sequences area is, relative to the thread pointer.
    pub(super) rseq_offset: Option<isize>,
    rseq_size: Option<u32>,
}

/// Looked up once, before there are fibers: the loader finds symbols under a lock that the thread or
/// fiber holds that is loading a library, and it may be waiting for the thread that looks. (Nor is it
/// for the thread that is looked at: what is not there leaves traces in dlerror and errno.)
pub(super) fn constants() -> &'static Constants {
    static CONSTANTS: OnceLock<Constants> = OnceLock::new();
    CONSTANTS.get_or_init(|| {
        // SAFETY: glibc exports both as constants of these types.
        let (rseq_offset, rseq_size) = unsafe {
            (
                symbol(c"__rseq_offset").cast::<isize>().as_ref().copied(),
                symbol(c"__rseq_size").cast::<u32>().as_ref().copied(),
            )
        };
        let pthread_size = super::layout::debugger_size(c"_thread_db_sizeof_pthread");
        Constants { pthread_size, rseq_offset, rseq_size }
    })
}

impl Constants {
    /// The restartable-sequences area, relative to the thread pointer.
    ///
    /// The area is there even where registering it was turned off or failed (`__rseq_size` is 0 then),
    /// and libc reads it all the same, in `sched_getcpu`. glibc before 2.35 has none.
    pub(super) fn rseq(&self) -> Option<Range<isize>> {
        /// The kernel's original size of it, which is also the least.
        const ORIGINAL: usize = 32;
        /// The auxiliary vector's entry for the size that the kernel knows.
        const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
        let (offset, size) = (self.rseq_offset?, self.rseq_size? as usize);
        // SAFETY: no preconditions.
        let known = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } as usize;
        // glibc 2.41 and later make it as large as the kernel says; earlier ones have the original. It
        // cannot reach over the thread pointer, nor is it put right below.
        let size = if size > ORIGINAL { size.max(known) } else { ORIGINAL };
        (offset != 0).then(|| offset..offset + size.next_multiple_of(ORIGINAL) as isize)
    }
}

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
