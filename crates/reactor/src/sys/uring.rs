//! io_uring: the kernel performs the operations and posts their results to a ring in shared memory.

mod cancels;
mod entry;
mod finish;
mod probe;
mod ring;
mod setup;
mod unheld;

pub(crate) use probe::{check_environment, probe};
pub(crate) use ring::Ring;
