//! `poll`, `select`, `epoll_wait` and their kin: waiting for one of several files.
//!
//! A call is tried without waiting. If nothing is ready, the fiber parks until the reactor reports an event
//! on one of the files, and the call is tried again. So the caller gets the kernel's own answer, and if
//! another reader was faster, the fiber waits again.
//!
//! A file that is closed while a fiber waits for it is reported as not open (`poll`: `POLLNVAL`, `select`: ready, as the
//! kernel has it, `epoll_wait`: `EBADF`), by a call with a time limit only when something else ends its wait. On a
//! thread, all would go on as if nothing had happened, and the kernel looks at the numbers again in the end.
//!
//! A call that changes the signal mask is made by a thread that may block: the mask is for the signals of
//! the thread that waits.

pub mod epoll;
mod mask;
pub mod pollfd;
pub mod select;
mod several;
