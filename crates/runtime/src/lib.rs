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

mod bed;
mod bias;
mod bucket;
#[cfg(not(loom))]
mod calls;
mod cancel;
#[cfg_attr(loom, path = "model/carrier.rs")]
mod carrier;
#[cfg_attr(loom, path = "model/census.rs")]
mod census;
#[cfg_attr(loom, path = "model/clock.rs")]
pub mod clock;
#[cfg(not(loom))]
mod completion;
#[cfg(all(test, not(loom)))]
mod crowds;
#[cfg_attr(loom, path = "model/current.rs")]
mod current;
#[cfg(not(loom))]
mod deadlock;
#[cfg(not(loom))]
mod dump;
mod episode;
mod fiber;
mod flight;
#[cfg(not(loom))]
mod fork;
#[cfg_attr(loom, path = "model/furnish.rs")]
mod furnish;
mod glimpse;
#[cfg(not(loom))]
mod global;
#[cfg(not(loom))]
mod injector;
#[cfg(not(loom))]
mod io;
mod join;
#[cfg(not(loom))]
pub mod kernel_name;
#[cfg(not(loom))]
mod large;
#[cfg(not(loom))]
pub mod launch;
#[cfg_attr(loom, path = "model/limits.rs")]
mod limits;
#[cfg(not(loom))]
mod lookout;
pub mod lot;
#[cfg(not(loom))]
mod mapped;
#[cfg(not(loom))]
mod metrics;
#[cfg(loom)]
mod model;
#[cfg_attr(loom, path = "model/names.rs")]
mod names;
#[cfg_attr(loom, path = "model/naming.rs")]
mod naming;
#[cfg(not(loom))]
mod native;
#[cfg(not(loom))]
mod offload;
pub mod operation;
#[cfg(not(loom))]
pub mod parker;
mod pin;
mod policy;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
pub mod pthread;
#[cfg(not(loom))]
mod queue;
mod reason;
mod record;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod rest;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod round;
#[cfg(not(loom))]
mod runtime;
#[cfg(not(loom))]
mod runtimes;
#[cfg(not(loom))]
mod scope;
#[cfg(not(loom))]
mod semaphore;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod shortage;
mod signal;
#[cfg(not(loom))]
mod size;
mod sleepers;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
pub mod standard;
mod sync;
mod thread;
mod timeout;
mod timers;
#[cfg(not(loom))]
mod virtual_time;
pub mod wait;
pub mod waiters;
mod wake;
#[cfg(not(loom))]
mod watch;
mod work;

#[cfg(not(loom))]
#[expect(deprecated, reason = "std::thread has them, and says the same of them")]
pub use rest::{park_timeout_ms, sleep_ms};
#[cfg(not(loom))]
pub use {
    cancel::{Cancelled, Interrupted, TimedOut, check, interrupted, shield},
    carrier::yield_now,
    dump::{dump, dump_to},
    episode::Outcome,
    join::JoinHandle,
    large::on_large_stack,
    limits::tell_timed_out,
    metrics::{Metrics, metrics},
    offload::{offload, offload_unchecked},
    reason::Reason,
    rest::{park, park_timeout, sleep, sleep_until},
    runtime::{Runtime, RuntimeBuilder, available_parallelism, prepare_process},
    scope::{Scope, ScopedJoinHandle, scope},
    semaphore::{Permit, Semaphore},
    spawn::{Builder, run, spawn},
    thread::{Thread, ThreadId, current},
    timeout::{timeout, timeout_with_value},
};
