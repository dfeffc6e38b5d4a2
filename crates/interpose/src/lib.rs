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
//! There is nothing to call here by a Rust name. One file per family (`docs/calls.md` says for each call
//! what becomes of it, and which test would notice):
//!
//! | family | file |
//! |---|---|
//! | `sched_yield` | `rest` |
//! | `clock_gettime`, `gettimeofday`, `time`: where time is virtual | `clocks` |
//! | `syscall`: the futex, and what else waits | `syscall`, `futex` |
//! | `sleep`, `usleep`, `nanosleep`, `clock_nanosleep`, `thrd_sleep` | `sleep` |
//! | `poll`, `ppoll`, `select`, `pselect`, `epoll_wait`, `epoll_pwait`, `epoll_pwait2` | `ready` |
//! | `pthread_mutex_*`, `pthread_cond_*`, `pthread_rwlock_*`, `sem_*` | `mutex`, `condition`, `rwlock`, `semaphore`; `object` has what they share |
//! | `pthread_barrier_*`, `pthread_spin_lock`, `pthread_once`, `flockfile` | `barrier`, `spin`, `once`, `stream_lock` |
//! | `mtx_*`, `cnd_*`, `call_once`, `thrd_join` of C11 | `c11` |
//! | `pthread_join` and its kin | `thread` |
//! | `pthread_setname_np`, `pthread_getname_np`, `prctl` | `title` |
//! | `pthread_create`, `pthread_detach`: where `std` spawns for a named fiber | `creation` |
//! | `read`, `write`, `readv`, `writev`, `pread`, `pwrite`, `preadv`, `pwritev` and their later forms; `eventfd_read`, `eventfd_write` | `stream`, `flow`, `seekable`; `counter` |
//! | `recv`, `send`, `recvfrom`, `sendto`, `recvmsg`, `sendmsg` | `socket`; `all` |
//! | `accept`, `accept4`, `connect` | `connection` |
//! | `recvmmsg`, `sendmmsg` | `messages` |
//! | `wait`, `waitpid`, `wait3`, `wait4`, `waitid`, `system`, `pclose` | `processes` |
//! | `getaddrinfo`, `gethostbyname`, `getpwnam` and their kin | `names` |
//! | `__read_chk` and other checked forms | `fortify` |
//! | `sendfile`, `splice`, `tee`, `vmsplice`, `copy_file_range` | `transfer` |
//! | `sigwait`, `sigwaitinfo`, `sigtimedwait`, `pause`, `sigsuspend` | `signals` |
//! | `mq_receive`, `mq_send`, `msgrcv`, `msgsnd`, `semop`, `semtimedop`, `tcdrain` | `ipc` |
//! | `open`, `openat`, `creat` | `opening` |
//! | `flock`, `lockf` | `locks` |
//! | `fsync`, `fdatasync`, `syncfs`, `sync`, `sync_file_range`, `msync` | `sync` |
//! | `__gmon_start__`: libraries that are loaded | `library` |
//! | `dlopen`, `dlmopen`, `dlclose`, `__cxa_thread_atexit_impl` | `dlopen`, `loader` |
//! | `close`, `dup2`, `dup3`, `close_range`, `closefrom`, `fclose`, `setsockopt`, `fcntl`, `ioctl` | `descriptor` |
//!
//! A new stand-in is one `interpose!` (see `original`) with what it does on a fiber.

#![warn(missing_docs)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "nothing here is called by its Rust name: the documentation is for who works on it"
)]

#[macro_use]
mod original;
#[macro_use]
mod fallback;

mod all;
mod anew;
mod buffers;
#[cfg(test)]
mod crowds;
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static"), not(carefree_sanitized)))]
mod dlopen;
mod fiber;
mod files;
mod flow;
mod futex;
mod glance;
mod hold;
mod kind;
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
mod library;
mod memory;
mod object;
mod option;
mod parking;
mod part;
mod patience;
mod plain;
mod scratch;
mod seekable;
mod span;
mod steps;
mod storage;
mod terminal;
mod time;
mod turn;
mod undisturbed;

pub mod barrier;
pub mod c11;
pub mod clocks;
pub mod condition;
pub mod connection;
pub mod counter;
pub mod creation;
pub mod descriptor;
pub mod fortify;
pub mod ipc;
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
pub mod loader;
pub mod locks;
pub mod messages;
pub mod mutex;
pub mod names;
pub mod once;
pub mod opening;
pub mod processes;
pub mod ready;
pub mod rest;
pub mod rwlock;
pub mod semaphore;
pub mod signals;
pub mod sleep;
pub mod socket;
pub mod spin;
pub mod stream;
pub mod stream_lock;
pub mod sync;
pub mod syscall;
pub mod thread;
pub mod title;
pub mod transfer;
