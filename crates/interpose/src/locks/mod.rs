//! Locks in memory: pthread's, C11's and POSIX's.

pub mod barrier;
pub mod c11;
pub mod condition;
mod kinds;
pub mod mutex;
pub(crate) mod object;
pub mod once;
pub mod rwlock;
pub mod semaphore;
pub mod spin;
pub mod stream;
mod unseen_unlock;
