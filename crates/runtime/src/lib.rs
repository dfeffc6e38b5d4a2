//! Fibers on carriers: spawning, switching, waiting, timers.
//!
//! This room knows no symbol of libc that a program calls; it gives those who do (`interpose`, and
//! the `carefree` crate that users see) one way to wait, [`wait::park`], and one to wake,
//! [`lot::unpark`].

#![warn(missing_docs)]
#![cfg_attr(
    loom,
    allow(dead_code, unreachable_pub, reason = "the models use a part of each module")
)]

mod bias;
mod episode;
mod flight;
#[cfg(loom)]
mod model;
mod signal;
mod sleepers;
mod sync;
pub mod waiters;
mod work;

#[cfg(all(test, not(loom)))]
mod crowds;

mod bed;
mod cancel;
#[cfg_attr(loom, path = "model/carrier.rs")]
mod carrier;
#[cfg_attr(loom, path = "model/clock.rs")]
pub mod clock;
#[cfg_attr(loom, path = "model/current.rs")]
mod current;
#[cfg_attr(loom, path = "model/deadlock.rs")]
mod deadlock;
#[cfg(not(loom))]
mod dump;
mod fiber;
#[cfg(not(loom))]
mod fork;
#[cfg_attr(loom, path = "model/furnish.rs")]
mod furnish;
mod glimpse;
#[cfg(not(loom))]
mod injector;
#[cfg(not(loom))]
mod io;
mod join;
#[cfg(not(loom))]
mod large;
#[cfg(not(loom))]
pub mod launch;
#[cfg_attr(loom, path = "model/limits.rs")]
mod limits;
pub mod lot;
#[cfg(not(loom))]
mod mapped;
#[cfg(not(loom))]
mod metrics;
#[cfg_attr(loom, path = "model/names.rs")]
pub mod names;
#[cfg(not(loom))]
mod native;
#[cfg(not(loom))]
mod offload;
pub mod operation;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
pub mod pthread;
#[cfg_attr(loom, path = "model/queue.rs")]
mod queue;
mod reason;
#[cfg_attr(loom, path = "model/registry.rs")]
mod registry;
#[cfg_attr(loom, path = "model/rest.rs")]
mod rest;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod runtime;
#[cfg(not(loom))]
mod scope;
#[cfg(not(loom))]
mod semaphore;
#[cfg(not(loom))]
mod shortage;
#[cfg(not(loom))]
mod size;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
pub mod standard;
mod thread;
mod timeout;
mod timers;
pub mod wait;
#[cfg(not(loom))]
mod watch;

#[cfg(not(loom))]
#[expect(deprecated, reason = "std::thread has them, and says the same of them")]
pub use rest::{park_timeout_ms, sleep_ms};
#[cfg(not(loom))]
pub use {
    cancel::{Cancelled, Interrupted, check, interrupted, shield},
    dump::{dump, dump_to},
    episode::Outcome,
    join::JoinHandle,
    large::on_large_stack,
    metrics::{Metrics, metrics},
    offload::{offload, offload_unchecked},
    reason::Reason,
    rest::{park, park_timeout, sleep, sleep_until, yield_now},
    runtime::{Runtime, RuntimeBuilder, available_parallelism, prepare_process},
    scope::{Scope, ScopedJoinHandle, scope},
    semaphore::{Permit, Semaphore},
    spawn::{Builder, current, run, spawn},
    thread::{Thread, ThreadId},
    timeout::{TimedOut, tell_timed_out, timeout, timeout_with_value},
};
