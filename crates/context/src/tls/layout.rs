//! Where things lie in a block of thread-local storage, relative to its lowest address.
//!
//! ```text
//!   x86-64 (TLS variant II)                     aarch64 (TLS variant I)
//!
//!   end ──► ┌──────────────────────┐            end ──► ┌──────────────────────┐
//!           │ struct pthread       │                    │ reserve for dlopen   │
//!    tp ──► ├──────────────────────┤                    ├──────────────────────┤
//!           │ executable's TLS     │                    │ rseq (2.41 and later)│
//!           │ libc's TLS, …        │                    ├──────────────────────┤
//!           ├──────────────────────┤                    │ last module's TLS    │
//!           │ rseq (2.41 and later)│                    │ …, executable's TLS  │
//!           ├──────────────────────┤                    │ dtv pointer, unused  │
//!           │ reserve for dlopen   │             tp ──► ├──────────────────────┤
//!    lo ──► └──────────────────────┘                    │ struct pthread       │
//!                                                lo ──► └──────────────────────┘
//! ```
//!
//! Until glibc 2.40 the restartable-sequences area (rseq) is a part of `struct pthread`.

use std::ffi::CStr;
use std::fmt;
use std::ops::Range;

use super::destructors::KeyTable;
use super::libraries::Libraries;
use super::symbols::symbol;

/// Offset of the dynamic thread vector's pointer from the thread pointer (ELF TLS ABI).
pub(super) const DTV_FROM_TP: usize = if cfg!(target_arch = "x86_64") { 8 } else { 0 };

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
    /// Indices of the words of `image` that hold a position in the block, in ascending order.
    pub(super) rebase: Box<[u32]>,
    /// `struct pthread`; it starts at the value of `pthread_self()`.
    pub(super) pthread: Range<usize>,
    /// Storage of libc's own variables; empty in a static program, where it is the program's.
    pub(super) libc: Range<usize>,
    /// Position of the thread's id (32 bits).
    pub(super) tid: usize,
    /// Positions of the stack's lowest address and of its length.
    pub(super) stack_base: usize,
    pub(super) stack_size: usize,
    /// Positions of the 32-bit words of libc's that each fiber must find as a new thread does.
    pub(super) anew: Box<[usize]>,
    /// Position of the pointer to what `dlerror` will tell.
    pub(super) dlerror: Option<usize>,
    /// Position of the head of the list of robust mutexes held.
    pub(super) robust: Option<usize>,
    /// The dynamic thread vector: position of module 1's variables, of module 2's, … `None` where
    /// storage is given at first use.
    pub(super) vector: Box<[Option<usize>]>,
    /// Its generation when the pristine thread was looked at.
    pub(super) generation: usize,
    /// pthread keys: their destructors, and where their values lie.
    pub(super) keys: KeyTable,
    /// Runs the destructors of `thread_local` variables registered on the calling thread. (In a
    /// static program none may have been registered with libc, nor can be.)
    pub(super) call_tls_dtors: Option<unsafe extern "C" fn()>,
    /// Frees what libc keeps for the calling thread, where its variables get their initial values for
    /// the next fiber like all others.
    pub(super) free_libcs: Option<unsafe extern "C" fn()>,
    /// The libraries whose variables lie in a block, and the variables' initial values.
    pub(super) libraries: Libraries,
}

impl Layout {
    /// Bytes of thread-local storage a fiber carries at the top of its stack.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where the thread pointer lies, in bytes from a block's lowest address.
    #[inline]
    pub fn tp_position(&self) -> usize {
        self.tp
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

    /// Bytes of the reserve that libraries loaded later have taken, as far as
    /// [`Layout::refresh`] has noticed.
    pub fn reserve_used(&self) -> usize {
        let areas = self.libraries.current().areas.iter();
        let taken = areas.filter(|a| self.reserve.start < a.end && a.start < self.reserve.end);
        if cfg!(target_arch = "x86_64") {
            taken.map(|a| self.reserve.end - a.start.max(self.reserve.start)).max().unwrap_or(0)
        } else {
            taken.map(|a| a.end.min(self.reserve.end) - self.reserve.start).max().unwrap_or(0)
        }
    }
}

/// What `carefree doctor` prints of own mode.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let libraries = self.libraries.current().modules.len() + 1; // libc
        write!(
            f,
            "{} bytes a fiber: {} of libc's about the thread, {} of variables of {} {}, {} in \
             reserve for libraries loaded later ({} of them taken)",
            self.size,
            self.pthread.len(),
            self.size - self.pthread.len() - self.reserve(),
            libraries,
            if libraries == 1 { "library" } else { "libraries" },
            self.reserve(),
            self.reserve_used(),
        )
    }
}

/// A field as one of glibc's descriptors for debuggers tells it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Field {
    /// Bits of it, or of each element if it is an array.
    pub(super) bits: u32,
    /// Elements, if it is an array.
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
