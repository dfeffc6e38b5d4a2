//! The processor time that hosted threads have used: see `carrier::meter`.

use std::sync::atomic::{Ordering, fence};

use carefree_ground::kernel;

use crate::carrier::carrier::{self, Carrier};
use crate::carrier::meter::{self, turn_on, used, used_by};
use crate::fiber::header::FiberRef;
use crate::fiber::split::Split;

/// Has the carrier of the calling fiber measure at once.
fn begin_here(me: FiberRef) -> &'static Carrier {
    turn_on();
    let carrier = carrier::of(me);
    if carrier.meter.fiber.load(Ordering::Relaxed) != me.as_ptr() {
        carrier.meter.begin(me);
        carrier.round.set(0);
    }
    carrier
}

/// The nanoseconds of processor time that the calling fiber has used, as far as they were measured.
pub(super) fn own(me: FiberRef) -> u64 {
    let carrier = begin_here(me);
    let spent =
        used_by(libc::CLOCK_THREAD_CPUTIME_ID) - carrier.meter.since.load(Ordering::Relaxed);
    used(me).load(Ordering::Relaxed) + spent
}

/// How what the calling hosted thread has used is divided, from when that was first asked of some thread.
pub(super) fn own_split(me: FiberRef) -> [u64; 2] {
    meter::divide();
    let meter = &begin_here(me).meter;
    let spent = meter.split_spent().unwrap_or_else(|| {
        // It was entered before this was measured.
        meter.left();
        meter.begin(me);
        [0; 2]
    });
    let before = meter::split_of(me).map_or([0; 2], Split::get);
    [before[0] + spent[0], before[1] + spent[1]]
}

/// [`own`] of another fiber, which has not ended. (The caller may be a plain thread.)
pub(super) fn of(fiber: FiberRef) -> u64 {
    turn_on();
    loop {
        let place = fiber.carrier.get();
        // SAFETY: null, or a carrier of the runtime that the fiber belongs to, which is there.
        let Some(carrier) = (unsafe { place.cast::<Carrier>().as_ref() }) else { return 0 };
        let meter = &carrier.meter;
        let changes = meter.changes.load(Ordering::Acquire);
        let mut time = used(fiber).load(Ordering::Relaxed);
        if meter.fiber.load(Ordering::Relaxed) == fiber.as_ptr() {
            /// The kernel's for a clock of what a thread has used (`linux/posix-timers.h`).
            const THREAD: i32 = 4 | 2;
            let now = used_by(!carrier.thread() << 3 | THREAD);
            time += now.saturating_sub(meter.since.load(Ordering::Relaxed));
        }
        fence(Ordering::Acquire);
        let unchanged = meter.changes.load(Ordering::Relaxed) == changes;
        if changes % 2 == 0 && unchanged && fiber.carrier.get() == place {
            return time;
        }
        // SAFETY: takes nothing.
        let _ = unsafe { kernel::call(libc::SYS_sched_yield, [0; 6]) };
    }
}
