//! `pthread_once`, whose function may park.
//!
//! While one thread runs the function, libc makes others wait in the kernel. A fiber must not, because the
//! function may be running on a fiber of the same carrier. So the runner of the function holds one of a few
//! *gates*, by the control's address, and fibers that come meanwhile park until it opens. Then they look again:
//! an exception may have left the function, and another caller runs it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use carefree_runtime::wait::{Until, park};
use carefree_runtime::{Outcome, Reason, lot};

use crate::call::fiber;
use crate::call::host;

/// The value of a control whose function has been run, in glibc and in musl.
const DONE: i32 = 2;

const GATES: usize = 64;

/// The control whose function is being run; 0 in an open gate.
static RUNNING: [AtomicUsize; GATES] = [const { AtomicUsize::new(0) }; GATES];

pub(crate) type Routine = extern "C-unwind" fn();

interpose! { lean anywhere
    /// `pthread_once(3)`.
    fn pthread_once(control: *mut libc::pthread_once_t, routine: Routine) -> c_int,
        linked "__pthread_once"
    {
        // SAFETY: the program has given a control, which stays at least until this returns. All accesses to one
        // are atomic, libc's too.
        let state = unsafe { AtomicI32::from_ptr(control) };
        let place = (control as usize / size_of::<i32>()) % GATES;
        let gate = &RUNNING[place];
        let address = control as usize;
        loop {
            if state.load(Ordering::Acquire) == DONE {
                return 0;
            }
            match gate.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    RUNNERS[place].store(own(), Ordering::Relaxed);
                    let _open = Open(place);
                    // SAFETY: control and routine are handed on as the program has given them.
                    return unsafe { original(control, routine) };
                }
                Err(running) if running == address && fiber::on_fiber() => {
                    let is_closed = || gate.load(Ordering::Acquire) == address;
                    // Signals are handled amid this wait: the function may wait for that.
                    let cancellable = host::is_interruptible();
                    let until = Until { cancellable, ..Until::WOKEN_ONLY };
                    fiber::guarded(|| {
                        if park(address, is_closed, Reason::Once, until) == Outcome::Cancelled {
                            host::handle_signals();
                        }
                    });
                }
                // A thread can wait in the kernel. If another control holds the gate, this call does
                // without.
                // SAFETY: control and routine are handed on as the program has given them.
                Err(_) => return unsafe { original(control, routine) },
            }
        }
    }
}

/// The `pthread_t` of the thread or fiber that holds each gate, or 0.
static RUNNERS: [AtomicUsize; GATES] = [const { AtomicUsize::new(0) }; GATES];

/// Opens the gates of the calling fiber, which ends by `pthread_exit` or because it was cancelled. It has left the
/// functions of `pthread_once` without unwinding, if their code has no tables for that.
pub fn leave_all() {
    let own = own();
    for (place, runner) in RUNNERS.iter().enumerate() {
        if runner.load(Ordering::Relaxed) == own {
            drop(Open(place));
        }
    }
}

fn own() -> usize {
    // SAFETY: takes nothing.
    unsafe { libc::pthread_self() as usize }
}

/// Opens a gate when the function has returned, or an exception has left it.
struct Open(usize);

impl Drop for Open {
    fn drop(&mut self) {
        RUNNERS[self.0].store(0, Ordering::Relaxed);
        let address = RUNNING[self.0].swap(0, Ordering::SeqCst);
        // `unpark` always takes the bucket's lock, so this needs no fence.
        lot::unpark(address, usize::MAX);
    }
}

/// In the child of a fork the parent's fibers do not go on running their functions: libc starts over, and so
/// do the gates.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn open_all() {
            RUNNING.iter().chain(&RUNNERS).for_each(|word| word.store(0, Ordering::Relaxed));
        }
        // SAFETY: the handler touches nothing but the gates.
        unsafe { libc::pthread_atfork(None, None, Some(open_all)) };
    }
    mind_forks
};
