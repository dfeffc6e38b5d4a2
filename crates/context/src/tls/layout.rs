//! Where things lie in a block of thread-local storage, relative to its lowest address, and what a
//! fiber does with them as it begins and ends.
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

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU32;

use super::glibc;
use super::keys::{self, KeyTable};
use super::libraries::Libraries;
use super::robust_mutexes;
use crate::arch;

/// Everything needed to make blocks of thread-local storage in this process.
///
/// All positions are in bytes from the block's lowest address.
#[derive(Debug)]
pub struct Layout {
    /// Bytes of a block.
    pub(super) size: usize,
    /// The alignment of the thread pointer.
    pub(super) align: usize,
    /// The thread pointer's position.
    pub(super) tp: usize,
    /// Position of the reserve for libraries loaded later.
    pub(super) reserve: Range<usize>,
    /// A pristine block; the words listed in `rebase` hold positions instead of addresses.
    pub(super) image: Box<[u64]>,
    /// Indices of the words of `image` that are not zero.
    pub(super) written: Box<[u32]>,
    /// Indices of the words of `image` that hold a position in the block, in ascending order.
    pub(super) rebase: Box<[u32]>,
    /// `struct pthread`, whose address is the value of `pthread_self()`.
    pub(super) pthread: Range<usize>,
    /// Storage of libc's own variables; empty in a static program, where it is the program's.
    pub(super) libc: Range<usize>,
    /// Position of the thread's id (32 bits).
    pub(super) tid: usize,
    /// Positions of the stack's lowest address and of its length.
    pub(super) stack_base: usize,
    pub(super) stack_size: usize,
    /// Positions of 32-bit words of libc's that each fiber must find as a new thread does.
    pub(super) anew: Box<[usize]>,
    /// Positions of the words by which libc's malloc finds what it keeps for a thread.
    pub(super) mallocs: Box<[usize]>,
    /// Where libc's code and data lie.
    pub(super) libc_object: Range<usize>,
    /// Position of the pointer to what `dlerror` will return.
    pub(super) dlerror: Option<usize>,
    /// Position of the head of the list of robust mutexes held.
    pub(super) robust: Option<usize>,
    /// The dynamic thread vector: position of module 1's variables, of module 2's, … `None` for
    /// modules whose storage is allocated at first use.
    pub(super) vector: Box<[Option<usize>]>,
    /// Its generation when the pristine thread was examined.
    pub(super) generation: usize,
    /// pthread keys: their destructors, and the positions of their values.
    pub(super) keys: KeyTable,
    /// Runs the destructors of `thread_local` variables registered on the calling thread. `None` in
    /// static programs that cannot register any with libc.
    pub(super) call_tls_dtors: Option<unsafe extern "C" fn()>,
    /// In a static program: frees what libc keeps for the calling thread, whose variables a reset
    /// overwrites like all others.
    pub(super) free_libcs: Option<unsafe extern "C" fn()>,
    /// The libraries whose variables lie in a block, and the variables' initial values.
    pub(super) libraries: Libraries,
}

/// Sizes and positions.
impl Layout {
    /// Bytes of thread-local storage that a fiber has at the top of its stack.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The thread pointer's position, in bytes from a block's lowest address.
    #[inline]
    pub fn tp_position(&self) -> usize {
        self.tp
    }

    /// Bytes at the top of a stack within which a block lies, alignment included.
    pub fn room(&self) -> usize {
        self.size + self.align
    }

    /// Bytes of a block kept free for libraries loaded later that use the initial-exec model.
    ///
    /// `CAREFREE_TLS_RESERVE` in the environment sets it. By default it is as large as possible while
    /// the block and a fiber's first frames share one page of memory.
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

    /// The lowest address of the block of the thread or fiber whose `pthread_t` is `pthread`.
    #[inline]
    pub fn low_of(&self, pthread: *mut u8) -> *mut u8 {
        pthread.wrapping_sub(self.pthread.start)
    }

    /// The id that libc keeps for a thread or fiber: what `gettid` would say on it.
    ///
    /// # Safety
    /// `pthread` is the `pthread_t` of a thread or fiber whose control block is still mapped.
    #[inline]
    pub unsafe fn id_of(&self, pthread: *mut u8) -> u32 {
        // SAFETY: the word lies in the control block. Only its own thread or fiber writes to it, before
        // others know the `pthread_t`.
        unsafe { self.low_of(pthread).add(self.tid).cast::<u32>().read() }
    }

    /// The word in which libc keeps whether a thread was cancelled.
    ///
    /// # Safety
    /// As for [`id_of`](Self::id_of), as long as the result is used.
    pub unsafe fn cancellation_of<'a>(&self, pthread: *mut u8) -> Option<&'a AtomicU32> {
        let field = glibc::debugger_field(c"_thread_db_pthread_cancelhandling")?;
        // SAFETY: the word lies in the control block, and libc accesses it by atomic instructions.
        Some(unsafe { AtomicU32::from_ptr(pthread.add(field.offset as usize).cast()) })
    }

    /// The thread pointer of the kernel thread that the caller runs on: the carrier's, on a fiber.
    /// `None` if the kernel does not say. Async-signal-safe.
    ///
    /// The kernel knows where the thread's robust mutexes are listed, and the list's head has a fixed
    /// place in the thread's `struct pthread`.
    pub(super) fn kernel_thread_pointer(&self) -> Option<*mut u8> {
        let (head, _) = robust_mutexes::kernel_head()?;
        Some(head.wrapping_sub(self.robust?).wrapping_add(self.tp))
    }
}

/// Libraries that are loaded or unloaded.
impl Layout {
    /// Notices libraries that were loaded or unloaded since the last call and that have a fixed
    /// place in every block: blocks built or reset from now on get their initial values.
    ///
    /// Costs little when nothing was loaded or unloaded (`cargo run --release -p carefree-context
    /// --example switch_costs` prints it), and starts a short-lived thread when something was, so
    /// call it once for each batch of blocks built, and every so often where blocks are only reset.
    /// Any thread may call it at any time, but not a fiber: it may block until another caller has
    /// finished.
    ///
    /// # Errors
    /// The thread to examine could not be started. The next call tries again.
    ///
    /// # Aborts
    /// When a library was given a place outside of the reserve, where its variables would overlap
    /// fibers' frames. A line names the library and a sufficient `CAREFREE_TLS_RESERVE`.
    pub fn refresh(&self) -> io::Result<()> {
        self.libraries.refresh()
    }

    /// Gives the variables of the library that contains `code` their initial values in all blocks,
    /// even if fibers are running on them. To be called when the loader calls the library's
    /// `_init`, before its constructors, on any thread or fiber. What it calls of libc must not
    /// switch to other fibers.
    ///
    /// # Errors
    /// The thread to examine could not be started.
    ///
    /// # Aborts
    /// As [`refresh`](Self::refresh).
    pub fn begin(&self, code: *const c_void) -> io::Result<()> {
        self.libraries.begin(code as usize)
    }
}

/// A fiber's beginning and end.
impl Layout {
    /// Does what libc does when a thread starts, for state that a former fiber, or the program
    /// meanwhile, may have changed: the locale becomes the process's.
    ///
    /// # Safety
    /// The caller has just begun to run on a [`Block`](super::Block) of this layout.
    #[inline]
    pub unsafe fn enter(&self) {
        // Unconditionally: this also updates the tables of `isalpha` and the like after a setlocale
        // that came after the pristine thread.
        // SAFETY: LC_GLOBAL_LOCALE, (locale_t) -1, is always valid.
        unsafe { libc::uselocale(usize::MAX as libc::locale_t) };
    }

    /// Whether a fiber can use what libc's malloc keeps for the thread that runs it: where that was recognised,
    /// and `CAREFREE_MALLOC=own` in the environment does not say otherwise.
    pub fn lends_malloc(&self) -> bool {
        !self.mallocs.is_empty()
    }

    /// Has libc's malloc make what it keeps for the calling thread, before that
    /// [lends](Self::lend_malloc) it. A malloc that is not libc's is not called.
    pub fn prepare_malloc(&self) {
        if !self.mallocs.is_empty() {
            // SAFETY: the block is freed once, and is not used.
            unsafe { libc::free(std::hint::black_box(libc::malloc(1))) };
        }
    }

    /// Has libc's malloc use, on a fiber, what it keeps for the thread that runs it: that thread's cache of
    /// free blocks and its arena. Otherwise each fiber would get a cache of its own at its first
    /// call, of some 650 bytes, in which it never finds a block that another has freed; and one of the arenas
    /// that threads have made, whichever is next.
    ///
    /// malloc's first arena, a variable of libc's, is not lent. malloc counts the threads that use it, and has a
    /// caller that it refuses memory leave it for another arena. A fiber that was lent it would be counted as
    /// leaving though it never came, and libc ends the process when more leave than came.
    ///
    /// No fiber parks within malloc, whose locks are libc's own: the thread waits for them. So a fiber changes from
    /// one thread's cache to another's between two calls. (A signal's handler may wait in the midst of a call:
    /// `docs/blocking.md` says so to programs, and `carefree run` calls none there.)
    ///
    /// # Safety
    /// `fiber` is the thread pointer of a fiber on a block of this layout that has just begun or is about to be
    /// entered, on the thread with the thread pointer `thread`. That thread has called
    /// [`prepare_malloc`](Self::prepare_malloc), and the fiber does not run on another before this is called
    /// again. Before its block is retired, [`Block::return_malloc`](super::Block::return_malloc) is called.
    #[inline]
    pub unsafe fn lend_malloc(&self, thread: *mut u8, fiber: *mut u8) {
        for position in &self.mallocs {
            let from_tp = (*position).wrapping_sub(self.tp);
            // SAFETY: the word has the same place in every block, and in every thread's storage. The thread,
            // which is the caller, and the fiber are the only ones that access theirs.
            unsafe {
                let word = thread.wrapping_add(from_tp).cast::<usize>().read();
                if !self.libc_object.contains(&word) {
                    fiber.wrapping_add(from_tp).cast::<usize>().write(word);
                }
            }
        }
    }

    /// Prefetches what [`run_destructors`](Self::run_destructors) reads: libc's own variables, and the
    /// control block's note of pthread keys.
    #[inline(always)]
    pub fn prefetch_end(&self, tp: *mut u8) {
        let low = tp.wrapping_sub(self.tp);
        for position in self.libc.clone().step_by(64) {
            arch::prefetch(low.wrapping_add(position));
        }
        arch::prefetch(low.wrapping_add(self.pthread.start + self.keys.first_read()));
    }

    /// Does what libc and the kernel do when a thread ends: runs the destructors of the calling
    /// fiber's thread-local variables (glibc's exported `__call_tls_dtors`) and of its pthread
    /// keys, releases robust mutexes that it holds, clears `dlerror`.
    ///
    /// # Safety
    /// The caller runs on a [`Block`](super::Block) of this layout whose thread pointer is `tp`,
    /// and is about to end for good.
    pub unsafe fn run_destructors(&self, tp: *mut u8) {
        let low = tp.wrapping_sub(self.tp);
        let destroy_variables = || {
            if let Some(call) = self.call_tls_dtors {
                // SAFETY: runs destructors that the calling fiber has registered, each once; the
                // fiber uses none of these variables afterwards.
                unsafe { call() };
            }
        };
        destroy_variables();
        // A destructor of a key may be the first to use some thread-local variable, whose
        // destructor is registered then; and one of those may set a key's value. A thread leaves
        // those undestroyed. A fiber must not: the next one on the block would run their
        // destructors.
        let pthread = low.wrapping_add(self.pthread.start);
        let none_left = (0..keys::ROUNDS).any(|_| {
            // SAFETY: this is the `struct pthread` of the block that the caller runs on.
            let any = unsafe { self.keys.run_destructors(pthread) };
            if any {
                destroy_variables();
            }
            !any
        });
        if !none_left {
            // What the last destructors of variables have set must not be the next fiber's.
            // SAFETY: as above.
            unsafe { self.keys.forget_values(pthread) };
        }
        if let Some(head) = self.robust {
            // SAFETY: the id and the list head lie in the block that the caller runs on.
            unsafe {
                let owner = low.add(self.tid).cast::<u32>().read();
                robust_mutexes::release(low.add(head), owner);
            }
        }
        if let Some(free) = self.free_libcs {
            // SAFETY: libc's last step when a thread ends. Afterwards libc finds nothing cached,
            // and what it caches again until the fiber's end, the next reset forgets.
            return unsafe { free() };
        }
        // SAFETY: the word lies in the block that the caller runs on.
        let error =
            self.dlerror.map(|position| unsafe { low.add(position).cast::<usize>().read() });
        if error != Some(0) {
            // The first call returns the error, if there is one, the second frees it.
            // SAFETY: no preconditions.
            unsafe {
                libc::dlerror();
                libc::dlerror();
            }
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
