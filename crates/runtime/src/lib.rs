//! Fibers on carriers: spawning, switching, waiting, timers.
//!
//! This room knows no symbol of libc that a program calls. The crates that do (`interpose`, and the
//! `carefree` crate that users see) have one way to wait, [`wait::park`], and one to wake,
//! [`lot::unpark`].
//!
//! # Floors
//!
//! A module stands above all that it imports. From the bottom, a folder each: `protocol` (knows nothing
//! of fibers), `fiber` (one at rest), `carrier` (what runs fibers), `wait`, `handle`, `inspect` (what
//! crates that report on the runtime see of it), `process` (runtimes, forks, deadlocks), `api`, `hosted` (the
//! threads of programs that know no fibers). Where a
//! lower floor needs what a higher one does, it is handed a function (`carrier::census::set_look`,
//! `fiber::furnish::Refused`); crates that report are called by [`inspect::Hooks`].
//!
//! Beside them stand two worlds in which the real code is run for its proof: `model` (loom's) and
//! `simulation` (a machine of many cores).

#![warn(missing_docs)]
#![cfg_attr(
    any(loom, simulated),
    allow(dead_code, unreachable_pub, reason = "the models use a part of each module")
)]

#[cfg_attr(feature = "rejected-deque", allow(dead_code, reason = "the other queue has no letters"))]
mod protocol;

mod fiber;

mod carrier;

pub mod wait;

mod handle;

#[cfg(not(loom))]
pub mod inspect;

#[cfg(not(loom))]
mod process;

mod api;

#[cfg(not(loom))]
pub mod hosted;

#[cfg(all(test, not(loom)))]
mod crowds;
#[cfg(loom)]
mod model;
#[cfg(simulated)]
mod simulation;

#[cfg(not(loom))]
#[expect(deprecated, reason = "std::thread has them, and says the same of them")]
pub use api::rest::{park_timeout_ms, sleep_ms};
#[cfg(not(loom))]
pub use {
    api::{
        large::on_large_stack,
        rest::{park, park_timeout, sleep, sleep_until},
        scope::{Scope, ScopedJoinHandle, scope},
        semaphore::{Permit, Semaphore},
        spawn::{Builder, run, spawn},
        timeout::{timeout, timeout_with_value},
    },
    carrier::switch::yield_now,
    carrier::{clock, launch},
    fiber::standard,
    handle::{
        join::JoinHandle,
        thread::{Thread, ThreadId, current},
    },
    handle::{kernel_name, parker, pthread},
    process::{
        fork::install_fork_handlers,
        metrics::{Metrics, kept_carriers, metrics, waits_by_reason},
        runtime::{Runtime, RuntimeBuilder, available_parallelism, prepare_process},
    },
    protocol::{episode::Outcome, reason::Reason},
    wait::{
        cancel::{Cancelled, Interrupted, TimedOut, check, interrupted, shield},
        limits::tell_timed_out,
        offload::{offload, offload_unchecked},
    },
    wait::{lot, operation, waiters},
};
