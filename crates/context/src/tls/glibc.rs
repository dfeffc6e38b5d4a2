//! What glibc tells about its own structures, and what it declares in no header of the libc crate.
//!
//! Sizes and offsets come from the tables that glibc exports for debuggers (`_thread_db_*`) and
//! from the symbols that describe the restartable-sequences area.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use super::symbols::symbol;

/// Offset of the dynamic thread vector's pointer from the thread pointer (ELF TLS ABI).
pub(super) const DTV_FROM_TP: usize = if cfg!(target_arch = "x86_64") { 8 } else { 0 };
/// The vector's entry for a module whose storage was not allocated on this thread yet.
pub(super) const UNALLOCATED: usize = usize::MAX;

pub(super) const PTHREAD_CANCEL_ENABLE: c_int = 0;
pub(super) const PTHREAD_CANCEL_DISABLE: c_int = 1;
pub(super) const PTHREAD_CANCEL_DEFERRED: c_int = 0;
pub(super) const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

unsafe extern "C" {
    pub(super) fn __h_errno_location() -> *mut c_int;
    pub(super) fn pthread_attr_setstack(
        attributes: *mut libc::pthread_attr_t,
        base: *mut c_void,
        size: usize,
    ) -> c_int;
    pub(super) fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    pub(super) fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

/// The descriptor of a structure's field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Field {
    /// Bits of the field, or of each element of an array.
    pub(super) bits: u32,
    /// Elements, if the field is an array.
    pub(super) elements: u32,
    /// Bytes from the structure's start.
    pub(super) offset: u32,
}

/// Looks a descriptor up: `_thread_db_STRUCTURE_FIELD`.
pub(super) fn debugger_field(name: &CStr) -> Option<Field> {
    let field = symbol(name).cast::<Field>();
    // SAFETY: glibc exports these as arrays of three 32-bit numbers (nptl_db's ABI with libc).
    (!field.is_null()).then(|| unsafe { field.read() })
}

/// Looks a structure's size up: `_thread_db_sizeof_STRUCTURE`.
pub(super) fn debugger_size(name: &CStr) -> Option<usize> {
    let size = symbol(name).cast::<u32>();
    // SAFETY: glibc exports these as 32-bit numbers.
    (!size.is_null()).then(|| unsafe { size.read() } as usize)
}

/// What every look at a pristine thread needs of libc's symbols.
#[derive(Debug)]
pub(super) struct Constants {
    /// Bytes of `struct pthread`.
    pub(super) pthread_size: Option<usize>,
    /// Where the restartable-sequences area is, relative to the thread pointer.
    pub(super) rseq_offset: Option<isize>,
    rseq_size: Option<u32>,
}

/// Looked up once, before there are fibers. Later it might deadlock: the loader looks symbols up
/// under a lock, which a thread or fiber that is loading a library holds while it waits for this
/// one. Nor may the pristine thread do it: a symbol that does not exist leaves traces in dlerror
/// and errno.
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
        let pthread_size = debugger_size(c"_thread_db_sizeof_pthread");
        Constants { pthread_size, rseq_offset, rseq_size }
    })
}

impl Constants {
    /// The restartable-sequences area, relative to the thread pointer.
    ///
    /// The area exists even if registering it was turned off or failed (`__rseq_size` is 0 then), and
    /// libc reads it nevertheless, in `sched_getcpu`. glibc before 2.35 has none.
    pub(super) fn rseq(&self) -> Option<Range<isize>> {
        /// The kernel's original size of it, which is also the least.
        const ORIGINAL: usize = 32;
        /// The auxiliary vector's entry for the size that the kernel knows.
        const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
        let (offset, size) = (self.rseq_offset?, self.rseq_size? as usize);
        // SAFETY: no preconditions.
        let known = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } as usize;
        // glibc 2.41 and later make the area as large as the kernel says; earlier versions use the
        // original size. The area neither contains the thread pointer nor ends right below it.
        let size = if size > ORIGINAL { size.max(known) } else { ORIGINAL };
        (offset != 0).then(|| offset..offset + size.next_multiple_of(ORIGINAL) as isize)
    }
}
