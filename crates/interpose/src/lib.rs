//! libc's blocking calls, so that they park a fiber instead of blocking its carrier.
//!
//! A program that links this crate (through `carefree`) calls the functions defined here wherever
//! it says `read`, `nanosleep` or `pthread_mutex_lock`, and so do `std` and the C libraries it
//! loads: the dynamic loader, which looks at the program first, finds ours before libc's.
//!
//! * **Off a fiber** a call is passed on to libc's own function, for the price of a read of a
//!   thread-local. Signals, cancellation points and all else are as ever.
//! * **On a fiber** it does without blocking what it can, and parks the fiber until the rest is
//!   done. `errno` and results are as libc's.
//!
//! There is nothing to call here by a Rust name. One folder per family (`docs/calls.md` says for each
//! call what it does on a fiber, in which file, and which test covers it):
//!
//! | family | folder |
//! |---|---|
//! | `read`, `write`, `readv`, `writev`, `pread`, `pwrite` and their later forms; `eventfd_read`, `eventfd_write`; `tcdrain` | `io` |
//! | `recv`, `send`, `recvmsg`, `sendmsg`, `recvmmsg`, `sendmmsg`, `accept`, `connect` | `socket` |
//! | `sendfile`, `splice`, `tee`, `vmsplice`, `copy_file_range` | `transfer` |
//! | `poll`, `select`, `epoll_wait` and their kin | `poll` |
//! | `open`, `close`, `dup2`, `fclose`, `fcntl`, `ioctl`, `setsockopt`, `flock`, `lockf`, `fsync` | `file` |
//! | `sleep`, `nanosleep`; `clock_gettime`, where time is virtual | `time` |
//! | `sigwait`, `pause`, `sigsuspend` | `signal` |
//! | `wait`, `waitpid`, `waitid`, `system`, `pclose` | `process` |
//! | POSIX message queues; System V messages and semaphores | `ipc` |
//! | `pthread_mutex_*`, `pthread_cond_*`, `pthread_rwlock_*`, `sem_*`, `pthread_barrier_*`, `pthread_once`, `flockfile`; C11's | `locks` |
//! | `pthread_join`, `pthread_create`, `pthread_setname_np`, `prctl`, `sched_yield`, `thrd_yield` | `thread` |
//! | `dlopen`, `dlclose`; libraries that are loaded | `loader` |
//! | `getaddrinfo`, `gethostbyname`, `getpwnam` and their kin | `lookup` |
//! | `syscall`: the futex (`futex`), and the calls above by their numbers | `syscall` |
//! | `__read_chk` and other checked forms | `fortify` |
//!
//! Beneath them lie `call` (what every stand-in is made of), `descriptor` (what is known of each file
//! descriptor) and `wait` (how a fiber waits). A module stands above all it imports, and so does a folder.
//!
//! A new stand-in is one `interpose!` (see `call/original.rs`) with what it does on a fiber.

#![warn(missing_docs)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "nothing here is called by its Rust name: the documentation is for its developers"
)]

#[macro_use]
mod call;

pub use call::host;

mod descriptor;
mod futex;
mod wait;

pub mod file;
pub mod fortify;
pub mod io;
pub mod ipc;
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
pub mod loader;
pub mod locks;
pub mod lookup;
pub mod poll;
pub mod process;
pub mod signal;
pub mod socket;
pub mod syscall;
pub mod thread;
pub mod time;
pub mod transfer;
