//! What fibers promise, in one program: `modes` runs all of it again in every forced mode.

mod cancelling;
mod common;
mod fairness;
mod limits;
mod locals;
mod modes;
mod offloading;
mod runtimes;
mod scopes;
mod semaphores;
mod stress;
mod thread_like;
mod timing;
mod unwinding;
