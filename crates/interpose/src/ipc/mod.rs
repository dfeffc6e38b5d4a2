//! Queues and semaphores between processes.

pub mod posix_queue;
pub mod system_v;
mod turns;
