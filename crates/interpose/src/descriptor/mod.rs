//! What is known of each file descriptor: who waits on it, and how it has behaved.
//!
//! # Closing a file that others wait on
//!
//! An operation that waits refers to its file by number until the reactor has handed it to the
//! kernel. Were the number closed and given to another file meanwhile, the operation would be done
//! on that one. So `close` first tells the waiters to give up, waits until they have, and only then
//! closes: see [`carefree_runtime::waiters`]. (Who calls `read` between the two, on a number another
//! fiber is closing, would have the same race on threads.)
//!
//! Files closed by others than the functions interposed here (by libc within `daemon`, by a system call
//! without a function) leave what is known behind, until the number is an opened, accepted or duplicated
//! file's. So all of it is a hint but who waits, which is exact. A read or write that goes by a wrong one
//! finds out where a socket or a pipe has become a file; one of a file that has become a socket or a pipe
//! may block its carrier.
//!
//! # What is remembered of a file
//!
//! A system call that asks for a file's mode or time limits costs as much as one that reads from it,
//! so the answers are remembered, until they are changed by a call seen here. Both belong to the open
//! file, which may go by several numbers: a change through a number that has been duplicated, or is a
//! duplicate, makes us ask again for every file. (Numbers that became the same file's in a way that
//! is not seen here, as those received over a socket, do not share what is remembered.) A mode changed
//! by a raw system call is noticed if that happens before a fiber waits on the file for the first
//! time, as it does with those who set it when they open one.

mod events;
mod file;
pub(crate) mod holder;
pub(crate) mod kind;
pub(crate) mod option;
mod process;
pub(crate) mod storage;
mod table;
mod traits;
mod waiter;

pub(crate) use events::{accepted, changed, claimed, duplicated, opened, replaced};
pub(crate) use file::{File, blocking, seen};
pub(crate) use table::{file, is_waited_on, known, prepare_to_close, prepare_to_close_range};
pub(crate) use traits::{Limit, Trait, is_blocking, limit_of};
pub(crate) use waiter::Waiter;
