//! The runtime on a machine that is simulated, with more cores than there are: how often cores take lines
//! of memory from each other, wake and interrupt each other, for the same work on 1 to 256 of them.
//!
//! `RUSTFLAGS="--cfg simulated" CARGO_TARGET_DIR=target/simulated cargo test --release -p carefree-runtime --lib
//! simulation::growth::table -- --ignored --nocapture` prints it; docs/scheduling.md has the result.
//!
//! Everything that runs is the real runtime: its queues, its protocols, its carriers, which are threads as
//! ever, and fibers that are switched to as ever. What is beneath is replaced (`protocol::sync` chooses):
//!
//! * The atomics, the cells and the locks count, and let time pass ([`memory`]).
//! * The clock is the machine's, and so is the sleep of carriers and threads ([`machine`]).
//! * There are no operations of the kernel's (fibers wait for each other and for time), and no monitor.
//!
//! Other tests are not to be run in such a build: without a machine its fences are none.
//!
//! What is not seen: memory that is not atomic (the stacks and headers of fibers), libc's allocator, the
//! supply of stacks, and the kernel, but for a price for each wake-up. So what is counted here says how the
//! scheduler's own parts get in each other's way. The times decide in which order things happen; they
//! are not those of a machine that could be bought.

#[cfg(test)]
mod growth;
#[cfg(test)]
mod load;
pub(crate) mod machine;
pub(crate) mod memory;

use std::sync::atomic;

pub(crate) use machine::pause;
use memory::{AtomicU32, Ordering};

/// Nanoseconds of a call by which a thread gives up its processor, where no other wants it.
const GIVE_WAY: u64 = 300;

/// As `sched_yield`.
pub(crate) fn give_way() {
    machine::pass(GIVE_WAY);
}

/// The clock of the machine.
pub(crate) mod clock {
    use carefree_reactor::clock::add;

    use std::time::Duration;

    /// As the real one.
    pub(crate) fn now() -> u64 {
        super::machine::now()
    }

    pub(crate) fn after(duration: Duration) -> u64 {
        add(now(), duration)
    }
}

const EMPTY: u32 = 0;
const WAITING: u32 = 1;
const WOKEN: u32 = 2;

/// Where a core sleeps: with the real one's protocol.
#[derive(Debug)]
pub(crate) struct Idle {
    word: AtomicU32,
    /// The core that waits here.
    core: atomic::AtomicUsize,
}

impl Idle {
    pub(crate) const fn new() -> Idle {
        Idle { word: AtomicU32::new(EMPTY), core: atomic::AtomicUsize::new(0) }
    }

    pub(crate) fn wake(&self) {
        if self.word.swap(WOKEN, Ordering::AcqRel) == WAITING {
            machine::wake(self.core.load(Ordering::Relaxed));
        }
    }

    pub(crate) fn wait(&self, deadline: Option<u64>) -> bool {
        self.core.store(machine::here(), Ordering::Relaxed);
        let waits = self.word.compare_exchange(EMPTY, WAITING, Ordering::AcqRel, Ordering::Acquire);
        if waits.is_ok() {
            machine::sleep(deadline);
        }
        self.word.swap(EMPTY, Ordering::AcqRel) == WOKEN
    }
}
