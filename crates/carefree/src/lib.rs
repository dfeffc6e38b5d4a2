//! Threads at the price of fibers.
//!
//! `carefree` has the API of [`std::thread`]. Replace `std::thread::spawn` by `carefree::spawn`, and the
//! thread is a fiber: it starts in a fraction of the time, switches without the kernel, and takes little
//! more than one page of memory. (`carefree bench` measures the difference on your machine.)
//!
//! ```
//! let handles: Vec<_> = (0..10_000)
//!     .map(|i| carefree::spawn(move || i * 2))
//!     .collect();
//! let sum: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
//! assert_eq!(sum, 99_990_000);
//! ```
//!
//! # What a fiber is
//!
//! A fiber has a stack and, where the [`platform`] allows it, thread-local storage of its own:
//! `thread_local!`, `errno`, and the per-thread state of libc and of C libraries. So code that is right on
//! threads is right on fibers. Fibers run on *carriers*, one kernel thread for each core, and may move
//! from one to another whenever they wait.
//!
//! A fiber that waits lets others run, whether it waits through this crate ([`sleep`], [`park`],
//! [`JoinHandle::join`], [`Semaphore`], …) or through libc. Linking this crate puts its own `read`,
//! `recv`, `poll`, `nanosleep`, `pthread_mutex_lock`, `syscall` (on which `std::sync` is built) and so on
//! before libc's, for the program and for the C libraries it uses. On a fiber these functions park the
//! fiber instead of blocking its carrier; on a plain thread they call libc's.
//!
//! Sleeps and waits for files and sockets end early when the fiber is cancelled or its [`timeout`] is
//! over; waits for locks do not. A wait that the crate cannot see (a raw system call instruction, a wait
//! within libc) blocks the carrier; the watchdog, where it is switched on, reports it.
//!
//! # What is not as in `std::thread`
//!
//! With `use carefree as thread`, code that compiles against `std::thread` compiles and does the same,
//! except for this:
//!
//! | | on a fiber |
//! |---|---|
//! | [`JoinHandle::join`], [`sleep`], [`park`] | also end when the calling fiber is cancelled or its [`timeout`] is over |
//! | [`JoinHandle::is_finished`] | true once the fiber's thread-local variables are destroyed as well, so that `join` does not wait |
//! | `std::thread::current()` | std's own handle to the fiber: it has the same name as [`current`]'s, and another number |
//! | its `unpark` | ends `std::thread::park`, not [`park`]; [`Thread::unpark`] ends both |
//! | [`available_parallelism`] | the number of carriers: `CAREFREE_CARRIERS`, or `std`'s answer, up to 1024 |
//! | [`Builder::stack_size`] | 256 KiB by default, guard included |
//! | names | `pthread_getname_np` gives the first 15 bytes, as on threads; `/proc`, `ps` and debuggers show carriers |
//! | `JoinHandleExt` of `std::os::unix` | its `pthread_t`s are good for `pthread_join` and `pthread_detach`; libc refuses to signal or schedule a fiber |
//! | spawn hooks (unstable), and `println!` into a test's captured output | work for named fibers only |
//! | [`sleep_until`] | available on stable Rust |
//!
//! Where fibers share their carrier's thread-local storage ([`platform`]), std knows the carrier only:
//! `std::thread::current()` and panics name the carrier.
//!
//! # Where fibers are threads
//!
//! Thread-local storage of their own needs glibc and no sanitizer. Elsewhere the same API starts a kernel
//! thread for each fiber: code that is right on fibers is right there, at the price of threads.
//! [`Platform::tls`] says which it is, and [`Platform::tls_reason`] why. On such threads libc's calls are
//! libc's own: cancellation and [`timeout`] end the waits of this crate, but not libc's.
//! [`RuntimeBuilder::virtual_time`] is refused.
//!
//! # What `std::thread` does not have
//!
//! * [`run`] runs a closure as a fiber and waits for it.
//! * [`timeout`] limits how long a piece of code may wait.
//! * [`JoinHandle::cancel`], [`check`] and [`shield`] are for cooperative cancellation.
//! * [`Scope::cancel_on_failure`] and [`Scope::limit`].
//! * [`Semaphore`].
//! * [`offload`] makes a call that blocks its kernel thread on a thread where that does no harm.
//! * [`on_large_stack`] makes a call that goes deeper than a fiber's stack allows.
//! * [`block_on`] runs a future on a fiber, for crates that are async only.
//! * [`Runtime`] and [`RuntimeBuilder`] start carriers apart from those of the process.
//! * [`coroutine_scope`] and [`Coroutine`] are the bare resumable function, which does not need the
//!   runtime. A coroutine shares its resumer's thread-local variables, so both are `unsafe`.
//!
//! # Fibers that keep their carrier
//!
//! A fiber that computes, or makes a call that blocks, keeps its carrier. The other fibers run on the
//! other carriers; where all are kept, carriers are added after some milliseconds. With
//! `CAREFREE_WATCH=10` the watchdog reports a fiber that keeps its carrier for more than 10 milliseconds:
//! on standard error, with a backtrace, at most once a minute for each place. [`dump`] says what each fiber
//! waits for, and [`dump_to`] writes that even where the program hangs in its allocator. (A `staticlib`
//! that a C linker links has the watchdog only with `--whole-archive`.)
//!
//! # Processes
//!
//! `std::process::Command`, `posix_spawn` and `fork` with `exec` work from any fiber. In the child of a
//! bare `fork`, the fiber that called it is the only thread: it waits by blocking, and it may spawn
//! fibers, for which new carriers are started. When its function returns, the child exits with status 0.
//! The parent's other fibers do not run there, so locks that they held stay locked.
//!
//! # Tests of code that waits
//!
//! [`RuntimeBuilder::virtual_time`] makes a runtime whose clock stands still while a fiber can run, and
//! jumps to the next deadline when all fibers wait, so sleeps of hours take no time. Which fiber runs next
//! is drawn from a seed, so a run that failed can be repeated. `Instant::now` shows that clock, and
//! `SystemTime::now` a day that begins at midnight of 1 January 2020.
//!
//! # Environment
//!
//! The environment variables, from `CAREFREE_CARRIERS` to `CAREFREE_WATCH`, are listed in the repository's
//! `docs/settings.md`. A program with rights that its user does not have ignores all of them.

#![warn(missing_docs)]

mod block_on;
mod platform;

// For its symbols, which stand in for libc's in every program that links this crate.
use carefree_interpose as _;

pub use block_on::{block_on, try_block_on};
pub use carefree_context::coroutine::{
    Coroutine, CoroutineState, Scope as CoroutineScope, ScopedCoroutine, Suspender,
    SymmetricSuspender, scope as coroutine_scope,
};
pub use carefree_context::stack::{StackSize, StackSizeError};
pub use carefree_insight::{dump, dump_to};
pub use carefree_runtime::{
    Builder, Cancelled, Interrupted, JoinHandle, Metrics, Permit, Runtime, RuntimeBuilder, Scope,
    ScopedJoinHandle, Semaphore, Thread, ThreadId, TimedOut, available_parallelism, check, current,
    metrics, offload, on_large_stack, park, park_timeout, run, scope, shield, sleep, sleep_until,
    spawn, timeout, timeout_with_value, yield_now,
};
#[expect(deprecated, reason = "std::thread has them, and says the same of them")]
pub use carefree_runtime::{park_timeout_ms, sleep_ms};
pub use platform::{
    GuardMode, PartOf, Platform, ReactorKind, TlsMode, platform, share_thread_locals,
};
// What std keeps in a fiber's thread-local storage is the fiber's own, so these are std's.
pub use std::thread::{AccessError, LocalKey, Result, panicking};

/// Has this process's fibers watched and its deadlocks explained. Before `main`, for any function of
/// the runtime's may be the first that a program calls.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER_INSIGHT: extern "C" fn() = {
    extern "C" fn register() {
        carefree_insight::register();
    }
    register
};
