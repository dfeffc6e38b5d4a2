//! io_uring: the kernel performs the operations and posts their results to a ring in shared memory.

mod entry;
mod probe;
mod ring;

pub(crate) use probe::probe;
pub(crate) use ring::Ring;
