//! Threads at the price of fibers.
//!
//! `carefree` has the API of [`std::thread`]: replace `std::thread::spawn` by `carefree::spawn` and
//! get a thread that starts hundreds of times faster, switches without the kernel, and costs little
//! more than one page of memory. (`carefree bench` says how much faster on your machine.)
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
//! A fiber has a stack and, where the [`platform`] allows it, thread-local storage of its own, so
//! code that is right on threads is right on fibers: `thread_local!`, `errno`, libc's and C
//! libraries' per-thread state are each fiber's own. Fibers run on *carriers*, one kernel thread a
//! processor, and may move from one to another whenever they wait.
//!
//! A fiber lets others run when it waits: through this crate ([`sleep`], [`park`],
//! [`JoinHandle::join`], [`Semaphore`], …) and through libc. Linking this crate puts its own
//! `read`, `recv`, `poll`, `nanosleep`, `pthread_mutex_lock`, `syscall` (of which `std::sync` is
//! made) and so on before libc's, for the program and for the C libraries it uses: on a fiber they
//! park it instead of blocking its carrier; anywhere else they are libc's. Waits for files and
//! sockets and sleeps end early when the fiber is cancelled or its [`timeout`] is over; waits for
//! locks do not. What cannot be seen (raw system call instructions, waits within libc) blocks the
//! carrier, and a watchdog says so.
//!
//! # What is not as in `std::thread`
//!
//! With `use carefree as thread`, what compiles against `std::thread` compiles here, and does the
//! same, but for this:
//!
//! | | on a fiber |
//! |---|---|
//! | [`JoinHandle::join`], [`sleep`], [`park`] | also end when the calling fiber is cancelled or its [`timeout`] is over |
//! | `std::thread::current()` | a handle of std's own to the fiber: it has the same name, and another number than [`current`]'s |
//! | its `unpark` | ends `std::thread::park`, not [`park`]; [`Thread::unpark`] ends both |
//! | [`available_parallelism`] | the carriers: `CAREFREE_CARRIERS`, or `std`'s answer, up to 1024 |
//! | [`Builder::stack_size`] | without it a fiber has 256 KiB |
//! | names | 15 bytes of them in `pthread_getname_np`, as ever; `/proc`, `ps` and debuggers show carriers |
//! | `JoinHandleExt` of `std::os::unix` | its `pthread_t`s are good for `pthread_join` and `pthread_detach`; libc refuses to signal or schedule a fiber |
//! | spawn hooks (unstable), and `println!` into a test's captured output | those of named fibers only |
//! | [`sleep_until`] | here on stable Rust |
//!
//! Where fibers share their carrier's thread-local storage ([`platform`]), std knows the carrier:
//! `std::thread::current()` and panics name that.
//!
//! # Where there are no fibers
//!
//! Fibers need thread-local storage of their own, which takes a libc that is known (glibc) and no
//! sanitizer. Elsewhere the same API starts a thread of the kernel's for each fiber: what is right on
//! fibers is right there, at the price of threads. [`Platform::tls`] says which it is, and
//! [`Platform::tls_reason`] why. Such a thread's calls of libc are libc's own: cancellation and
//! [`timeout`] end the waits of this crate there, but not those of libc.
//! [`RuntimeBuilder::virtual_time`] is refused.
//!
//! # What `std::thread` does not have
//!
//! * [`run`] runs a closure as a fiber and waits for it.
//! * [`timeout`] limits what a piece of code may wait for.
//! * [`JoinHandle::cancel`], [`check`], [`shield`]: cooperative cancellation.
//! * [`Scope::cancel_on_failure`] and [`Scope::limit`].
//! * [`Semaphore`].
//! * [`offload`]: a call that blocks its kernel thread, made on one where that does no harm.
//! * [`on_large_stack`]: a call that goes deeper than a fiber's stack allows.
//! * [`block_on`]: a future run to its end by a fiber, for crates that are async only.
//! * [`coroutine_scope`] and [`Coroutine`]: the bare resumable function, which does not need the
//!   runtime.
//!
//! A fiber that computes, or makes a call that blocks, keeps its carrier. The other fibers run on the
//! other carriers; where all are kept, carriers are added after some milliseconds. With
//! `CAREFREE_WATCH=10`, a fiber that keeps its carrier for more than 10 milliseconds is reported on
//! standard error, with a backtrace of where it was: once a minute for each place. [`dump`] says what
//! each fiber waits for, and [`dump_to`] writes that even where the program hangs in its allocator. (Of a
//! `staticlib` linked by C's linker, the watchdog is a part only with `--whole-archive`.)
//!
//! # Processes
//!
//! `std::process::Command`, `posix_spawn` and `fork` with `exec` work from any fiber. In the child of a
//! bare `fork`, the fiber that called is the only thread: it waits by blocking, it may spawn fibers,
//! for which carriers are started anew, and when its function returns the child exits with status 0.
//! The parent's other fibers never run there, so what they hold stays held.
//!
//! # Tests of code that waits
//!
//! [`RuntimeBuilder::virtual_time`] makes a runtime whose clock stands still while a fiber can run and
//! jumps when all wait: sleeps of hours take no time, and which fiber runs next is drawn from a seed,
//! so that what went wrong once goes wrong again. `Instant::now` shows that clock, and
//! `SystemTime::now` a day that begins at midnight of 1 January 2020.
//!
//! # Environment
//!
//! The table of environment variables, from `CAREFREE_CARRIERS` to `CAREFREE_WATCH`, is in the
//! repository's `README.md`. A program with rights that its user does not have obeys none of them.

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
