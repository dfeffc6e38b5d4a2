//! What a program that runs fibers is told of them: the watchdog's reports, with backtraces; dumps; and
//! what waits for what in a deadlock.
//!
//! It sees the runtime through [`carefree_runtime::inspect`], and the runtime calls it through the hooks
//! that [`register`] sets there. The `carefree` crate does that before `main`.

#![warn(missing_docs)]
// The runtime is not there in models.
#![cfg(not(loom))]

mod dump;
mod watch;

pub use dump::{dump, dump_to};

use carefree_runtime::inspect::{self, Hooks};

/// Has the runtimes of this process watched, and their deadlocks explained. To be called before the
/// first runtime is built; more calls change nothing.
pub fn register() {
    static HOOKS: Hooks = Hooks {
        configure: watch::configure,
        carriers_started: watch::start,
        forked: watch::renew,
        threads: watch::threads,
        reports: watch::reports,
        list_waiters: dump::waiters,
    };
    inspect::register(&HOOKS);
}
