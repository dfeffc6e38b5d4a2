//! Glances at runtimes and their carriers.

use std::ptr;
use std::sync::atomic::Ordering;

use carefree_ground::mapped::Mapped;

use crate::carrier::carrier::{Carrier, Shared};
use crate::carrier::runtimes;

/// A runtime that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeGlance<'a>(&'a Shared);

/// A carrier of such a runtime.
#[derive(Clone, Copy, Debug)]
pub struct CarrierGlance<'a> {
    runtime: &'a Shared,
    carrier: &'a Carrier,
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

    /// Whether fibers are queued here.
    pub fn has_queued(self) -> bool {
        !self.carrier.is_empty()
    }

    /// Whether fibers wait for the kernel here.
    pub fn has_operations(self) -> bool {
        self.carrier.has_operations()
    }

    /// Notes that it has been in the same fiber for long, since its switch number `switches`.
    pub fn mark_held_up(self, switches: u64) {
        // 0 is for none.
        self.carrier.held_up.store(switches + 1, Ordering::Relaxed);
    }

    /// Whether it is still in the fiber for which it was [marked](Self::mark_held_up).
    pub fn is_held_up(self) -> bool {
        self.carrier.held_up.load(Ordering::Relaxed) == self.carrier.switches() + 1
    }

    /// Wakes the fibers of this carrier whose operations are done, so that other carriers run them: for
    /// a carrier that has been in one fiber for long. Unlike the rest of this module this allocates,
    /// and waits while the carrier is in its driver.
    pub fn rescue(self) {
        self.carrier.rescue();
    }
}

/// A way to visit carriers without the lock on the list of runtimes. It keeps the memory that it needs
/// for that.
#[derive(Debug)]
pub struct Visits(Mapped<*const Shared>);

// SAFETY: it is empty but during a visit, which borrows it exclusively.
unsafe impl Send for Visits {}

impl Visits {
    /// Begins without memory.
    pub const fn new() -> Visits {
        Visits(Mapped::new())
    }

    /// Calls `visit` for each carrier, of as many runtimes as there is memory to note. These do not end
    /// meanwhile.
    pub fn for_each_carrier(&mut self, mut visit: impl FnMut(CarrierGlance<'_>)) {
        runtimes::for_each(|runtime| {
            if self.0.push(runtime) {
                runtime.visit();
            }
        });
        for runtime in self.0.iter() {
            // SAFETY: it was alive when it counted this visitor, and does not end before `leave` below.
            let runtime = unsafe { &**runtime };
            RuntimeGlance(runtime).carriers().for_each(&mut visit);
        }
        for runtime in self.0.iter() {
            // SAFETY: as for the visit; this access is the last.
            unsafe { (**runtime).leave() };
        }
        self.0.truncate(0);
    }
}

impl Default for Visits {
    fn default() -> Self {
        Visits::new()
    }
}
