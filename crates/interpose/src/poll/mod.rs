//! `poll`, `select`, `epoll_wait` and their kin: waiting for one of several files.
//!
//! A call is tried without waiting. If nothing is ready, the fiber parks until the reactor says that
//! something has happened on one of the files, and the call is tried again: the kernel's own answer
//! is what the caller gets, and what another has taken meanwhile is waited for again.
//!
//! A file that is closed while a fiber waits for it is reported as one that is not open (`POLLNVAL`,
//! `EBADF`). On a thread it would be waited for as if nothing had happened.
//!
//! With a signal mask of its own, a call is made by a thread that may block, for it is that thread's
//! signals that the call is about.

pub mod epoll;
mod mask;
pub mod pollfd;
pub mod select;
mod several;
