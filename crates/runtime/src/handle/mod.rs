//! What a program holds of a fiber: its handle, the right to join it, its `pthread_t`.

pub(crate) mod join;
#[cfg(not(loom))]
pub mod kernel_name;
#[cfg(not(loom))]
pub mod parker;
#[cfg(not(loom))]
pub mod pthread;
pub(crate) mod thread;
