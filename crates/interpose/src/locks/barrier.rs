//! `pthread_barrier_*`.
//!
//! An arrival at a barrier cannot be tried and repeated, so libc's barriers are of no use to a fiber. A
//! barrier of one process is entirely ours, for threads as well as fibers: it lies in the memory of libc's
//! object, with a mark where libc's have 0 or a flag. One that processes share stays libc's; a fiber has a
//! thread wait there in its stead.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use carefree_ground::kernel;
use carefree_runtime::wait::{Until, park};
use carefree_runtime::{Outcome, Reason, lot};

use crate::call::amid_signals;
use crate::call::fiber;
use crate::call::host;
use crate::call::user::User;

type Object<'u> = User<'u, libc::pthread_barrier_t>;

/// Distinguishes our barriers from libc's.
const MARK: u32 = 0x6361_7265;
/// One arrival, in the lower half of the state; the upper half counts rounds.
const ARRIVAL: u64 = 1;
const ROUND: u64 = 1 << 32;

/// Our contents of a `pthread_barrier_t`.
#[repr(C)]
struct Barrier {
    /// The arrivals of this round, and above them the number of rounds.
    state: AtomicU64,
    /// The arrivals that end a round.
    count: u32,
    /// Lies where libc's barriers have the flag that says whether they are shared.
    mark: u32,
    /// How many fibers and threads may still access this memory.
    inside: AtomicU32,
}

const _: () = assert!(
    size_of::<Barrier>() <= size_of::<libc::pthread_barrier_t>()
        && align_of::<Barrier>() <= align_of::<libc::pthread_barrier_t>()
);

/// The barrier, if it is one of ours.
///
/// # Safety
/// The barrier was set up, and stays during `'u`.
unsafe fn ours<'u>(barrier: Object<'u>) -> Option<&'u Barrier> {
    let barrier = barrier.pointer().cast::<Barrier>();
    // SAFETY: it is there, says the caller, and large enough, as compared above. Both ours and libc's have a
    // number where the mark is, which is written before the barrier is used. In one of ours, that and the
    // count do not change, and the rest is atomic.
    unsafe { ((*barrier).mark == MARK).then(|| &*barrier) }
}

interpose! { lean anywhere
    /// `pthread_barrier_init(3)`.
    safe fn pthread_barrier_init(
        barrier: Object,
        attributes: User<libc::pthread_barrierattr_t>,
        count: u32,
    ) -> c_int, linked "__pthread_barrier_init" {
        let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
        if !attributes.is_null() {
            // SAFETY: the program has given attributes that libc has set up, and `shared` is ours.
            unsafe {
                libc::pthread_barrierattr_getpshared(attributes.pointer(), &raw mut shared);
            }
        }
        if count == 0 || count >= i32::MAX as u32 || shared != libc::PTHREAD_PROCESS_PRIVATE {
            return original(barrier, attributes, count);
        }
        let state = AtomicU64::new(0);
        let contents = Barrier { state, count, mark: MARK, inside: AtomicU32::new(0) };
        // SAFETY: the program has given a barrier's memory to be set up, which no other call uses meanwhile.
        // Ours is no larger and needs no stricter alignment.
        unsafe { barrier.pointer().cast::<Barrier>().write(contents) };
        0
    }
}

interpose! { lean anywhere
    /// `pthread_barrier_wait(3)`.
    safe fn pthread_barrier_wait(barrier: Object) -> c_int, linked "__pthread_barrier_wait" {
        // SAFETY: the program has set it up, and may destroy it when it has left a round; `wait` leaves it by
        // its last access, and `destroy` waits for that.
        if let Some(barrier) = unsafe { ours(barrier) } {
            return wait(barrier);
        }
        // One of libc's, at which any thread may wait.
        let barrier = barrier.address();
        let wait = move || {
            // SAFETY: the program has set it up, and keeps it until all have left that have arrived.
            original(unsafe { User::new(std::ptr::with_exposed_provenance(barrier)) })
        };
        fiber::guarded(|| amid_signals::offload(wait))
    }
}

interpose! { lean anywhere
    /// `pthread_barrier_destroy(3)`.
    safe fn pthread_barrier_destroy(barrier: Object) -> c_int, linked "__pthread_barrier_destroy" {
        // SAFETY: the program has set it up, and nothing else destroys it during this call.
        let Some(ours) = (unsafe { ours(barrier) }) else {
            return original(barrier);
        };
        // The first to leave a round may destroy it while others are still leaving.
        while ours.inside.load(Ordering::Acquire) != 0 {
            if fiber::on_fiber() {
                fiber::guarded(carefree_runtime::yield_now);
            } else {
                // SAFETY: takes nothing.
                let _ = unsafe { kernel::call(libc::SYS_sched_yield, [0; 6]) };
            }
        }
        // SAFETY: the last call that was inside has left, `ours` is not used below, and the program makes no
        // other call on a barrier that it destroys. Without the mark it is not one of ours.
        unsafe { barrier.pointer().cast::<c_void>().write_bytes(0, size_of::<Barrier>()) };
        0
    }
}

fn wait(barrier: &Barrier) -> c_int {
    barrier.inside.fetch_add(1, Ordering::Relaxed);
    let key = std::ptr::from_ref(barrier) as usize;
    let arrive = |state: u64| {
        if (state as u32) + 1 == barrier.count {
            Some((state & !u64::from(u32::MAX)).wrapping_add(ROUND))
        } else {
            Some(state + ARRIVAL)
        }
    };
    // `arrive` never returns `None`.
    let before = barrier
        .state
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, arrive)
        .unwrap_or_else(|state| state);
    let round = before >> 32;
    let last = (before as u32) + 1 == barrier.count;
    if last {
        // A fiber that is not in the lot yet will find that the next round has begun.
        lot::unpark(key, usize::MAX);
    } else {
        let waits = || barrier.state.load(Ordering::Acquire) >> 32 == round;
        // Signals are handled amid this wait. No time limit of the fiber's ends it, and nothing else unparks
        // the key.
        fiber::guarded(|| {
            loop {
                let cancellable = host::is_interruptible();
                let until = Until { cancellable, ..Until::WOKEN_ONLY };
                match park(key, waits, Reason::Barrier, until) {
                    Outcome::Cancelled => host::handle_signals(),
                    Outcome::Invalid => return,
                    _ if !waits() => return,
                    _ => {}
                }
            }
        });
    }
    barrier.inside.fetch_sub(1, Ordering::Release);
    if last { libc::PTHREAD_BARRIER_SERIAL_THREAD } else { 0 }
}
