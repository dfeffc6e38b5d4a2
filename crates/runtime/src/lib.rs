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
#[cfg(all(test, loom))]
mod handshake;
mod signal;
mod sleepers;
mod sync;

#[cfg(not(loom))]
mod bed;
#[cfg(not(loom))]
mod cancel;
#[cfg(not(loom))]
mod carrier;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
mod deadlock;
#[cfg(not(loom))]
mod dump;
#[cfg(not(loom))]
mod fiber;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod furnish;
#[cfg(not(loom))]
mod glimpse;
#[cfg(not(loom))]
mod injector;
#[cfg(not(loom))]
mod io;
#[cfg(not(loom))]
mod join;
#[cfg(not(loom))]
mod large;
#[cfg(not(loom))]
mod limits;
#[cfg(not(loom))]
pub mod lot;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
pub mod names;
#[cfg(not(loom))]
mod native;
#[cfg(not(loom))]
mod offload;
#[cfg(not(loom))]
pub mod operation;
#[cfg(not(loom))]
pub mod pthread;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod reason;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
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
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
mod timeout;
#[cfg(not(loom))]
mod timers;
#[cfg(not(loom))]
pub mod wait;
#[cfg(not(loom))]
mod watch;

#[cfg(not(loom))]
#[expect(deprecated, reason = "std::thread has them, and says the same of them")]
pub use rest::{park_timeout_ms, sleep_ms};
#[cfg(not(loom))]
pub use {
    cancel::{Cancelled, Interrupted, check, interrupted, shield},
    dump::dump,
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
