//! Looking at all carriers of all runtimes.

use crate::carrier::carrier::{Carrier, Shared};
use crate::carrier::runtimes;
use crate::insight::mapped::Mapped;

/// Keeps the runtimes that are running, and so their carriers, for as long as they are looked at.
pub(super) struct Visits(Mapped<*const Shared>);

// SAFETY: empty but during a look, which one thread makes.
unsafe impl Send for Visits {}

impl Visits {
    pub(super) const fn new() -> Visits {
        Visits(Mapped::new())
    }

    /// Calls `look` for each carrier, of the runtimes that there is memory to remember.
    pub(super) fn for_each_carrier(&mut self, mut look: impl FnMut(&Shared, &Carrier)) {
        runtimes::for_each(|runtime| {
            if self.0.push(runtime) {
                runtime.visit();
            }
        });
        for runtime in self.0.iter() {
            // SAFETY: it waits for its visitors before it ends.
            let runtime = unsafe { &**runtime };
            runtime.carriers.iter().for_each(|carrier| look(runtime, carrier));
        }
        for runtime in self.0.iter() {
            // SAFETY: as above; it is not touched after this.
            unsafe { (**runtime).leave() };
        }
        self.0.truncate(0);
    }
}
