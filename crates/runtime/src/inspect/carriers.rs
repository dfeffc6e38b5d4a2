//! Glances at runtimes and their carriers.

use std::ptr;

use crate::carrier::carrier::{Carrier, Shared};
use crate::carrier::runtimes;
use crate::protocol::sync::Ordering;

/// A runtime that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeGlance<'a>(&'a Shared);

/// A carrier of such a runtime.
#[derive(Clone, Copy, Debug)]
pub struct CarrierGlance<'a> {
    runtime: &'a Shared,
    carrier: &'a Carrier,
}

/// What a carrier is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierState {
    /// It runs a fiber, or looks for one.
    Up,
    /// It waits, and looks for fibers again within a millisecond.
    Dozing,
    /// It waits to be woken.
    Asleep,
    /// It is not needed just now.
    InReserve,
    /// Its thread has not begun, or has ended with the runtime.
    Ended,
}

/// Calls `visit` for each runtime of this process, with the list of runtimes locked: `visit` must
/// neither allocate nor wait.
pub fn for_each_runtime(mut visit: impl FnMut(RuntimeGlance<'_>)) {
    runtimes::for_each(|runtime| visit(RuntimeGlance(runtime)));
}

impl<'a> RuntimeGlance<'a> {
    /// Whether what is spawned here are threads: there are no carriers then.
    pub fn has_threads(self) -> bool {
        self.0.has_threads()
    }

    /// Whether it was dropped and its last fiber has ended.
    pub fn has_stopped(self) -> bool {
        self.0.has_stopped()
    }

    /// Fibers, or threads in their place, that have not ended.
    pub fn alive(self) -> u64 {
        self.0.alive()
    }

    /// Whether all its carriers sleep that are not in reserve.
    pub fn all_sleep(self) -> bool {
        self.0.all_sleep()
    }

    /// Carriers that sleep. A carrier that wakes leaves this count before it tells the
    /// [lookout](super::lookout).
    pub fn sleeping(self) -> usize {
        self.0.sleepers.sleeping() as usize
    }

    /// Its carriers.
    pub fn carriers(self) -> impl ExactSizeIterator<Item = CarrierGlance<'a>> {
        let runtime = self.0;
        runtime.carriers.iter().map(move |carrier| CarrierGlance { runtime, carrier })
    }
}

impl CarrierGlance<'_> {
    /// Its place among the carriers of its runtime.
    pub fn index(self) -> usize {
        self.carrier.index()
    }

    /// By what to tell it from all other carriers that have not ended.
    pub fn address(self) -> usize {
        ptr::from_ref(self.carrier) as usize
    }

    /// The kernel's number of its thread; 0 until that runs.
    pub fn thread(self) -> i32 {
        self.carrier.thread()
    }

    /// How often it has entered a fiber.
    pub fn switches(self) -> u64 {
        self.carrier.switches()
    }

    /// Whether it sleeps because there is nothing to do.
    pub fn sleeps(self) -> bool {
        self.runtime.sleepers.is_sleeping(self.carrier.index())
    }

    /// What it is doing.
    pub fn state(self) -> CarrierState {
        let (sleepers, index) = (&self.runtime.sleepers, self.carrier.index());
        if self.thread() == 0 {
            CarrierState::Ended
        } else if sleepers.is_in_reserve(index) {
            CarrierState::InReserve
        } else if sleepers.is_sleeping(index) {
            CarrierState::Asleep
        } else if sleepers.is_down(index) {
            CarrierState::Dozing
        } else {
            CarrierState::Up
        }
    }

    /// How often it has taken fibers from another carrier, how often it has asked for some, and how often
    /// it has taken them without an answer.
    pub fn steals(self) -> (u64, u64, u64) {
        let stats = &self.carrier.stats;
        let counts = [&stats.steals, &stats.requests, &stats.forced];
        let [steals, requests, forced] = counts.map(|count| count.load(Ordering::Relaxed));
        (steals, requests, forced)
    }

    /// Whether fibers are queued here.
    pub fn has_queued(self) -> bool {
        !self.carrier.is_empty()
    }

    /// Whether fibers wait for the kernel here.
    pub fn has_operations(self) -> bool {
        self.carrier.has_operations()
    }
}

/// A way to visit carriers without the lock on the list of runtimes. It keeps the memory that it needs
/// for that.
#[derive(Debug)]
pub struct Visits(runtimes::Visits);

impl Visits {
    /// Begins without memory.
    pub const fn new() -> Visits {
        Visits(runtimes::Visits::new())
    }

    /// Calls `visit` for each carrier, of as many runtimes as there is memory to note. These do not end
    /// meanwhile.
    pub fn for_each_carrier(&mut self, mut visit: impl FnMut(CarrierGlance<'_>)) {
        self.0.for_each(|runtime| RuntimeGlance(runtime).carriers().for_each(&mut visit));
    }
}

impl Default for Visits {
    fn default() -> Self {
        Visits::new()
    }
}
