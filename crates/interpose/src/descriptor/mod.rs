//! What is known of each file descriptor: which fibers wait on it, what it refers to, how it behaves.
//!
//! # Closing a file that fibers wait on
//!
//! An operation that waits refers to its file by number until the reactor has handed it to the
//! kernel. Were the number closed and given to another file meanwhile, the operation would be done
//! on that one. So `close` first tells the waiters to give up, waits until they have, and only then
//! closes: see [`carefree_runtime::waiters`]. (A `read` that comes between the two, on a number that
//! another fiber is closing, is the same race on threads.)
//!
//! A file that is closed unseen (by libc within `daemon`, by a system call that has no function here)
//! leaves its record behind, until the number is opened, accepted or duplicated anew. So a record is a
//! hint, except for its waiters, which are exact. A read or write that goes by a stale one notices if a
//! socket or a pipe has become a file; if a file has become a socket or a pipe, it may block its carrier.
//!
//! # What is remembered of a file
//!
//! A system call that asks for a file's mode or time limits costs as much as one that reads from it,
//! so the answers are remembered until a call that is seen here changes them. Both belong to the open
//! file, to which several numbers may refer: a change through a number that has been duplicated, or is a
//! duplicate, makes us ask again for every file. (Numbers that came to refer to the same file unseen, for
//! example received over a socket, do not share what is remembered.) A mode that is changed by a raw
//! system call is noticed if that happens before a fiber first waits on the file, as when the program
//! sets it right after opening.

mod events;
mod file;
pub(crate) mod holder;
pub(crate) mod kind;
pub(crate) mod low_water;
pub(crate) mod option;
mod process;
pub(crate) mod storage;
mod table;
mod traits;
mod waiter;
pub(crate) mod warm;

pub(crate) use events::{accepted, changed, claimed, closed, duplicated, opened, replaced};
pub(crate) use file::{File, blocking, seen};
pub(crate) use process::is_beside_parent;
pub(crate) use table::{
    around_own, file, is_waited_on, known, prepare_to_close, prepare_to_close_range,
};
pub(crate) use traits::{Limit, Trait, is_blocking, limit_of};
pub(crate) use waiter::Waiter;
