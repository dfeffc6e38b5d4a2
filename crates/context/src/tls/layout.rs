//! Where things lie in a block of thread-local storage, relative to its lowest address.
//!
//! ```text
//!   x86-64 (TLS variant II)                     aarch64 (TLS variant I)
//!
//!   end ──► ┌──────────────────────┐            end ──► ┌──────────────────────┐
//!           │ struct pthread       │                    │ reserve for dlopen   │
//!    tp ──► ├──────────────────────┤                    ├──────────────────────┤
//!           │ executable's TLS     │                    │ last module's TLS    │
//!           │ libc's TLS, …        │                    │ …, executable's TLS  │
//!           ├──────────────────────┤                    │ dtv pointer, unused  │
//!           │ reserve for dlopen   │             tp ──► ├──────────────────────┤
//!    lo ──► └──────────────────────┘                    │ struct pthread       │
//!                                                lo ──► └──────────────────────┘
//! ```

use std::ffi::{CStr, c_void};
use std::ops::Range;

use super::destructors::KeyTable;

/// Offset of the dynamic thread vector's pointer from the thread pointer (ELF TLS ABI).
pub(super) const DTV_FROM_TP: usize = if cfg!(target_arch = "x86_64") { 8 } else { 0 };

/// One module's static thread-local storage: the executable's, or that of a library.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Module {
    /// libc's number for it, an index into the dynamic thread vector.
    pub(super) id: usize,
    /// Address of its first byte minus the thread pointer.
    pub(super) from_tp: isize,
    /// Bytes in memory.
    pub(super) size: usize,
    /// Alignment its segment asks for.
    pub(super) align: usize,
}

/// Everything needed to make blocks of thread-local storage in this process.
///
/// All positions are in bytes from the block's lowest address.
#[derive(Debug)]
pub struct Layout {
    /// Bytes of a block.
    pub(super) size: usize,
    /// What the thread pointer must be a multiple of.
    pub(super) align: usize,
    /// The thread pointer's position.
    pub(super) tp: usize,
    /// Position of the reserve for libraries loaded later, and its length.
    pub(super) reserve: Range<usize>,
    /// A pristine block; the words listed in `rebase` hold positions instead of addresses.
    pub(super) image: Box<[u64]>,
    /// Indices of the words of `image` that hold a position in the block.
    pub(super) rebase: Box<[u32]>,
    /// Position of `struct pthread`, which is also the value of `pthread_self()`.
    pub(super) pthread: usize,
    /// Position of the thread's id (32 bits).
    pub(super) tid: usize,
    /// Position of the cancellation flags (32 bits), where glibc tells.
    pub(super) cancel_flags: Option<usize>,
    /// Positions of the stack's lowest address and of its length.
    pub(super) stack_base: usize,
    pub(super) stack_size: usize,
    /// Static modules, libc's own among them.
    pub(super) modules: Box<[Module]>,
    /// What `reset` copies anew from `image`: every module's storage but libc's own.
    pub(super) reset: Box<[Range<usize>]>,
    /// Those of `rebase` that lie there (none, as a rule).
    pub(super) rebase_in_reset: Box<[u32]>,
    /// The dynamic thread vector's generation when the pristine thread was looked at.
    pub(super) generation: usize,
    /// pthread keys: their destructors, and where their values lie.
    pub(super) keys: KeyTable,
    /// Runs the destructors of `thread_local` variables registered on the calling thread.
    pub(super) call_tls_dtors: unsafe extern "C" fn(),
}

impl Layout {
    /// Bytes of thread-local storage a fiber carries at the top of its stack.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes at the top of a stack that a block may lie in, alignment included.
    pub fn room(&self) -> usize {
        self.size + self.align
    }

    /// Bytes of it kept free for libraries loaded later that use the initial-exec model.
    ///
    /// `CAREFREE_TLS_RESERVE` in the environment sets it; by default it is what still lets the
    /// block and a fiber's first frames share one page of memory.
    pub fn reserve(&self) -> usize {
        self.reserve.len()
    }
}

/// A symbol of the running process, or null.
pub(super) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; dlsym only looks it up.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// A field's offset as told by one of glibc's descriptors for debuggers: three 32-bit numbers,
/// the field's size in bits, its number of elements, its offset in bytes.
pub(super) fn debugger_offset(name: &CStr) -> Option<usize> {
    let table = symbol(name).cast::<u32>();
    if table.is_null() {
        return None;
    }
    // SAFETY: glibc exports these as arrays of three 32-bit numbers (nptl_db's ABI with libc).
    Some(unsafe { table.add(2).read() } as usize)
}
