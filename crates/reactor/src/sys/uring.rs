//! io_uring: the kernel performs the operations and posts their results to a ring in shared memory.

mod entry;
mod ring;

pub(crate) use ring::Ring;
