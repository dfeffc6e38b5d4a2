//! A fiber's `pthread_t`, for the holder of its handle: as `std::os::unix::thread::JoinHandleExt`.
//!
//! It is the address of the fiber's thread control block, which lies on its stack. If the program asks
//! before the fiber has FINISHED, the stack is pinned (`fiber::pin`), so the address is good as long as
//! there is a handle. The stack of an ended fiber that was not pinned may be another fiber's. If the program
//! asks only then, and always in shared mode, the `pthread_t` is an address at which there is no thread:
//! `GONE`, or a `Control` for this fiber.
//!
//! libc finds no thread at any of these, and refuses signals and scheduling (`ESRCH`). [`join`] and
//! [`detach`] stand in for libc's.

use std::cell::UnsafeCell;
use std::mem;
use std::os::unix::thread::{JoinHandleExt, RawPthread};
use std::sync::atomic::Ordering;
use std::time::Duration;

use carefree_ground::lock::Lock;
use carefree_ground::nap;

use crate::carrier::switch;
use crate::fiber::bed;
use crate::fiber::current;
use crate::fiber::furnish;
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::pin;
use crate::fiber::registry;
use crate::handle::join::{self, JoinHandle};
use crate::handle::thread::Thread;
use crate::protocol::episode::Outcome;
use crate::wait::park::Until;

/// Zeros at the address of a `pthread_t`, in which libc finds no thread.
#[repr(C, align(64))]
struct Control(UnsafeCell<[u8; 4096]>);

// SAFETY: nothing here accesses the bytes; libc does, as it does with any thread's.
unsafe impl Sync for Control {}

/// For how long a thread lets a fiber start before it looks again.
const UNSTARTED: Duration = Duration::from_micros(20);

/// What the `pthread_t` of fibers without one points to.
static GONE: Control = Control(UnsafeCell::new([0; 4096]));

/// A fiber whose handle was given up for its `pthread_t`.
struct GivenUp {
    thread: usize,
    fiber: Thread,
    /// What `thread` points to, if that is not on the fiber's stack.
    _control: Option<Box<Control>>,
}

static GIVEN_UP: Lock<Vec<GivenUp>> = Lock::new(Vec::new());

fn gone() -> usize {
    (&raw const GONE) as usize
}

/// The `pthread_t` of a fiber to which the caller has a counted reference. It is good as long as that.
fn pin(fiber: FiberRef) -> usize {
    let pinned = pin::pin(fiber).and_then(|mut stack| {
        // One that has yet to start gets its stack then; never, if it was left to the parent by a fork.
        while stack.is_null() {
            if registry::is_of_parent(fiber) {
                return None;
            }
            match current::on_fiber() {
                true => switch::yield_now(),
                false => nap::sleep(UNSTARTED),
            }
            stack = fiber.stack.load(Ordering::Acquire);
        }
        Some(stack)
    });
    match pinned {
        // SAFETY: the stack is pinned, so it stays the fiber's while the caller has its reference.
        Some(stack) => unsafe { furnish::pthread_of(stack) }.unwrap_or(gone()),
        None => gone(),
    }
}

impl<T> JoinHandleExt for JoinHandle<T> {
    /// The fiber's `pthread_t`: what `pthread_self` says on it, if it had not ended and has
    /// thread-local storage of its own. libc knows no thread by that: it refuses signals and scheduling
    /// parameters. If the fiber has yet to start, this waits until it has.
    fn as_pthread_t(&self) -> RawPthread {
        let fiber = self.thread().as_ref();
        let thread = match fiber.kind.get() {
            Kind::Thread => bed::of(fiber).joinable(),
            Kind::Fiber => pin(fiber),
        };
        thread as RawPthread
    }

    /// Gives the handle up for the fiber's `pthread_t`, which must then be given to `pthread_join` or
    /// `pthread_detach`. The fiber's value is dropped.
    fn into_pthread_t(self) -> RawPthread {
        let mut thread = self.as_pthread_t() as usize;
        let fiber = self.thread().clone();
        if fiber.as_ref().kind.get() == Kind::Thread {
            // The thread is the caller's from now on.
            bed::of(fiber.as_ref()).give_up();
        } else {
            let mut control = None;
            if thread == gone() {
                let own = control.insert(Box::new(Control(UnsafeCell::new([0; 4096]))));
                thread = (&raw const **own) as usize;
            }
            let given_up = GivenUp { thread, fiber, _control: control };
            // The list grows under its lock: the caller must not park in the allocator meanwhile.
            current::without_parking(|| GIVEN_UP.lock().push(given_up));
        }
        thread as RawPthread
    }
}

/// Takes the fiber that was given up for this `pthread_t` off the list.
fn take(thread: usize) -> Option<GivenUp> {
    let mut given_up = GIVEN_UP.lock();
    let index = given_up.iter().position(|one| one.thread == thread)?;
    Some(given_up.swap_remove(index))
}

/// `pthread_join` of a fiber, until `deadline`: whether it has ended by then, and is joined. `None` if
/// `thread` is no fiber that was given up.
pub fn join(thread: usize, deadline: u64) -> Option<bool> {
    let given_up = GIVEN_UP.lock();
    let fiber = given_up.iter().find(|one| one.thread == thread)?.fiber.clone();
    drop(given_up);
    if deadline == 0 && !fiber.as_ref().has_finished() {
        return Some(false);
    }
    let outcome = join::await_end(fiber.as_ref(), Until { deadline, cancellable: false });
    if outcome == Outcome::TimedOut {
        return Some(false);
    }
    // A thread is joined once.
    drop(take(thread));
    Some(true)
}

/// `pthread_detach` of a fiber: whether `thread` was one.
pub fn detach(thread: usize) -> bool {
    take(thread).is_some()
}

/// Forgets the fibers that were given up: in the child of a fork, where none of them is.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: there is one thread, and it does not have the lock.
    unsafe { GIVEN_UP.renew(Vec::new()) };
}

const _: () = assert!(mem::size_of::<RawPthread>() == mem::size_of::<usize>());
