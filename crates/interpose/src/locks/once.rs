//! `pthread_once`, whose function may park.
//!
//! libc makes others wait in the kernel while one runs the function. A fiber must not, for the one
//! may be a fiber of the same carrier. So who is to run the function holds one of a few *gates*,
//! known by the control's address, and fibers that come meanwhile park until it is open again. Then
//! they look again: the function may have been left by an exception, and is another's to run.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use carefree_runtime::wait::{Until, park};
use carefree_runtime::{Reason, lot};

use crate::call::fiber;

/// The bit of a control that says that the function has been run, in glibc and in musl.
const DONE: i32 = 2;

const GATES: usize = 64;

/// Whose function is being run; 0 in a gate that is open.
static RUNNING: [AtomicUsize; GATES] = [const { AtomicUsize::new(0) }; GATES];

pub(crate) type Routine = extern "C-unwind" fn();

interpose! { lean anywhere
    /// `pthread_once(3)`.
    fn pthread_once(control: *mut libc::pthread_once_t, routine: Routine) -> c_int,
        linked "__pthread_once"
    {
        // SAFETY: the caller's control, which is accessed atomically.
        let state = unsafe { AtomicI32::from_ptr(control) };
        let gate = &RUNNING[(control as usize / size_of::<i32>()) % GATES];
        let address = control as usize;
        loop {
            if state.load(Ordering::Acquire) == DONE {
                return 0;
            }
            match gate.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let _open = Open(gate, address);
                    // SAFETY: the caller's promise.
                    return unsafe { original(control, routine) };
                }
                Err(running) if running == address && fiber::on_fiber() => {
                    let is_closed = || gate.load(Ordering::Acquire) == address;
                    fiber::guarded(|| park(address, is_closed, Reason::Once, Until::WOKEN_ONLY));
                }
                // A thread can wait in the kernel; and where another control has the gate, this
                // one goes without.
                // SAFETY: the caller's promise.
                Err(_) => return unsafe { original(control, routine) },
            }
        }
    }
}

/// Opens a gate when the function has returned, or was left by an exception.
struct Open(&'static AtomicUsize, usize);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
        // Takes the lock in any case, so it needs no fence.
        lot::unpark(self.1, usize::MAX);
    }
}

/// In the child of a fork nobody runs what the parent's fibers ran: libc begins anew, and so do we.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn open_all() {
            RUNNING.iter().for_each(|gate| gate.store(0, Ordering::Relaxed));
        }
        // SAFETY: the handler touches nothing but the gates.
        unsafe { libc::pthread_atfork(None, None, Some(open_all)) };
    }
    mind_forks
};
