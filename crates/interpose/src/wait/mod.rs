//! How a fiber waits: for the kernel, for a thread of the pool, for its turn, or by asking again.

#[cfg(test)]
mod crowds;
pub(crate) mod file_lock;
pub(crate) mod multi_step;
pub(crate) mod offload;
pub(crate) mod parking;
pub(crate) mod polling;
pub(crate) mod readiness;
pub(crate) mod starvation;
pub(crate) mod user_op;
