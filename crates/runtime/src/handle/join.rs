//! Waiting for a fiber's end, and what its function returned. Its models: `model/joining.rs`.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use carefree_ground::fatal;

use crate::carrier::policy::JOINED;
use crate::fiber::bed;
use crate::fiber::current;
use crate::fiber::header::{AWAITED, DETACHED, FINISHED, FiberRef, STORED};
use crate::handle::thread::Thread;
use crate::protocol::episode::Outcome;
use crate::protocol::reason::Reason;
use crate::protocol::sync::Ordering;
use crate::wait::cancel::{Cancelled, Interrupted, TimedOut, cancel};
use crate::wait::limits;
use crate::wait::lot;
use crate::wait::park::{self, Until};

/// Owns the right to wait for a fiber's end and take its value: as `std::thread::JoinHandle`.
///
/// Dropping it detaches the fiber, which goes on.
pub struct JoinHandle<T> {
    fiber: Thread,
    value: PhantomData<Value<T>>,
}

/// A type by which the handle gets the automatic traits of std's: it is `Unpin` whatever `T` is, and not
/// `UnwindSafe`.
type Value<T> = (fn() -> T, &'static UnsafeCell<()>);

// SAFETY: the handle passes a value on from another fiber, once, as a channel does. That T is Send, `spawn`
// has demanded.
unsafe impl<T> Send for JoinHandle<T> {}
// SAFETY: a shared handle gives no access to the value.
unsafe impl<T> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// Takes over a counted reference to a fiber whose value is a `T`.
    pub(crate) fn from_counted(fiber: FiberRef) -> Self {
        JoinHandle { fiber: Thread::from_counted(fiber), value: PhantomData }
    }

    /// Waits for the fiber to end and returns its value, or what it panicked with.
    ///
    /// A calling fiber parks; a plain thread blocks. If the wait can never end, because every fiber waits
    /// and no thread is left to wake one, that is reported and the process aborted.
    ///
    /// # Errors
    /// The payload of the fiber's panic. If the *caller* is cancelled meanwhile, or its
    /// [`timeout`](crate::timeout()) is over, before the fiber has ended: a [`Cancelled`] or
    /// [`TimedOut`]. The fiber is detached then, and its value dropped when it ends. To keep the
    /// handle in such a case, [`wait`](Self::wait) first.
    ///
    /// # Panics
    /// When the caller is that fiber.
    pub fn join(self) -> thread::Result<T> {
        match self.wait() {
            Ok(()) => self.take(),
            Err(Interrupted::Cancelled) => Err(Box::new(Cancelled)),
            Err(Interrupted::TimedOut) => Err(Box::new(TimedOut)),
        }
    }

    /// Waits for the fiber to end; after that [`join`](Self::join) returns at once.
    ///
    /// Unlike `join`, a wait that is cut short leaves the handle to the caller:
    ///
    /// ```
    /// use std::time::Duration;
    /// use carefree_runtime::{park, spawn, timeout};
    ///
    /// let answer = spawn(|| {
    ///     park();
    ///     42
    /// });
    /// assert!(timeout(Duration::from_millis(5), || answer.wait()).is_err());
    /// answer.thread().unpark();
    /// assert_eq!(answer.join().unwrap(), 42);
    /// ```
    ///
    /// # Errors
    /// [`Interrupted`] when the caller is cancelled, or its [`timeout`](crate::timeout()) is over, before
    /// the fiber has ended.
    ///
    /// # Panics
    /// When the caller is that fiber.
    pub fn wait(&self) -> Result<(), Interrupted> {
        self.refuse_own();
        match self.wait_until(Until::WOKEN) {
            // However the wait ended, the value is there.
            _ if self.is_finished() => Ok(()),
            Outcome::Cancelled => Err(Interrupted::Cancelled),
            _ => {
                limits::tell_timed_out();
                Err(Interrupted::TimedOut)
            }
        }
    }

    /// [`join`](Self::join) that nothing cuts short, for callers from which the fiber borrows.
    pub(crate) fn join_uncancellable(self) -> thread::Result<T> {
        self.refuse_own();
        park::or_abort(|| self.wait_until(Until::WOKEN_ONLY));
        self.take()
    }

    /// Panics as std does where a thread joins itself, which would wait for ever.
    fn refuse_own(&self) {
        // A thread in place of a fiber has ended for others while its variables' destructors run, and
        // those may join it.
        if current::try_current() == Some(self.fiber.as_ref()) && !self.is_finished() {
            panic!("failed to join thread: {}", io::Error::from_raw_os_error(libc::EDEADLK));
        }
    }

    /// Waits without taking the value.
    fn wait_until(&self, until: Until) -> Outcome {
        await_end(self.fiber.as_ref(), until)
    }

    fn take(self) -> thread::Result<T> {
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: FINISHED was read with acquire, and this handle, the fiber's only one, is consumed, so
        // the value is taken once. `Drop` does not run; the `Thread` is read out and dropped here.
        unsafe {
            let result = take(this.fiber.as_ref());
            bed::join(this.fiber.as_ref());
            drop(std::ptr::read(&this.fiber));
            result
        }
    }

    /// Whether the fiber has ended, so that [`join`](Self::join) would not wait.
    pub fn is_finished(&self) -> bool {
        self.fiber.as_ref().has_finished()
    }

    /// The fiber.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        &self.fiber
    }

    /// Asks the fiber to end soon.
    ///
    /// Cancellation is cooperative: from now on, whatever the fiber waits for by sleeping, parking
    /// or joining ends at once, with an error where one can be returned, and
    /// [`check`](crate::check) tells it so. Nothing is unwound; a fiber that does not look goes on.
    /// Waits for locks are not cut short. [`shield`](crate::shield) defers it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let handle = carefree_runtime::spawn(|| {
    ///     while carefree_runtime::check().is_ok() {
    ///         carefree_runtime::sleep(Duration::from_secs(3600));
    ///     }
    ///     "cancelled"
    /// });
    /// handle.cancel();
    /// assert_eq!(handle.join().unwrap(), "cancelled");
    /// ```
    pub fn cancel(&self) {
        cancel(self.fiber.as_ref());
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        let fiber = self.fiber.as_ref();
        let before = fiber.join.fetch_or(DETACHED, Ordering::AcqRel);
        bed::detach(fiber);
        if before & STORED != 0 {
            // SAFETY: STORED was read with acquire, and this handle, the fiber's only one, ends here, so the
            // value is taken once.
            drop_quietly(unsafe { take::<T>(fiber) });
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

/// Waits until `fiber` has ended; [`Outcome::Invalid`] if it had.
pub(crate) fn await_end(fiber: FiberRef, until: Until) -> Outcome {
    let running = || !fiber.has_finished();
    if !running() {
        return Outcome::Invalid;
    }
    if fiber.join.fetch_or(AWAITED, Ordering::AcqRel) & FINISHED != 0 {
        return Outcome::Invalid;
    }
    loop {
        match park::park(fiber.key(), running, Reason::Join, until) {
            Outcome::Unparked if running() => {}
            outcome => return outcome,
        }
    }
}

/// Notes that `me`, the calling fiber or thread in place of one, has ended, and wakes those that wait for
/// that.
#[inline(always)]
pub(crate) fn finish(me: FiberRef) {
    let before = me.join.fetch_or(FINISHED, Ordering::AcqRel);
    if before & AWAITED != 0 {
        lot::unpark_to(me.key(), usize::MAX, JOINED);
    }
}

/// Drops a result that nothing asks for. A panic of its destructor ends the process, as it does on a
/// thread.
pub(crate) fn drop_quietly<T>(result: T) {
    let dropped = panic::catch_unwind(AssertUnwindSafe(|| drop(result)));
    if let Err(payload) = dropped {
        mem::forget(payload);
        fatal::abort(format_args!("a fiber's result panicked when it was dropped"));
    }
}

pub(crate) type Stored<T> = Result<T, Box<dyn Any + Send>>;

/// Leaves the result of `me`'s function to its handle, or drops it here when the handle is gone.
///
/// A value is dropped where `std` drops it: by the fiber, before its thread-local variables, if the
/// handle was dropped before the function returned; otherwise by the handle's owner, perhaps while the
/// fiber still runs the destructors of its thread-local variables.
///
/// Both sides set their bit by one read-modify-write of one word, [`STORED`] here and [`DETACHED`]
/// in the handle's destructor, so exactly one of them comes second, sees the other's bit, and drops
/// the result; the fiber's write of the result comes before its bit (release), which the handle
/// reads with acquire. A result that needs no destructor and no box is left in the header without
/// a bit: dropping it would do nothing.
///
/// # Safety
/// The calling fiber is `me`, it does so once, and has not FINISHED.
#[inline(always)]
pub(crate) unsafe fn leave<T>(me: FiberRef, result: Stored<T>) {
    if me.join.load(Ordering::Acquire) & DETACHED != 0 {
        return drop_quietly(result);
    }
    let plain = fits::<T>() && !mem::needs_drop::<T>() && result.is_ok();
    // SAFETY: this function demands the same, and is called before STORED and FINISHED are set.
    unsafe { store(me, result) };
    if !plain && me.join.fetch_or(STORED, Ordering::AcqRel) & DETACHED != 0 {
        // SAFETY: stored just now; the handle was dropped before STORED was set, so it has not taken it.
        drop_quietly(unsafe { take::<T>(me) });
    }
}

/// Whether a result lies in the header itself; else the header holds a box of it.
const fn fits<T>() -> bool {
    size_of::<Stored<T>>() <= size_of::<[usize; 2]>() && align_of::<Stored<T>>() <= 8
}

/// Puts the result of `me`'s function into its header.
///
/// # Safety
/// The calling fiber is `me`, it does so once, before STORED and FINISHED.
#[inline(always)]
unsafe fn store<T>(me: FiberRef, result: Stored<T>) {
    // SAFETY: nothing else touches the result before STORED and FINISHED; it fits, or its box does.
    me.result.with_mut(|place| unsafe {
        if fits::<T>() {
            place.cast::<MaybeUninit<Stored<T>>>().write(MaybeUninit::new(result));
        } else {
            place.cast::<*mut Stored<T>>().write(Box::into_raw(Box::new(result)));
        }
    });
}

/// Takes the result out of a header.
///
/// # Safety
/// [`store`]d as a `T`, FINISHED or STORED seen with acquire (or the caller is the fiber), and taken
/// once.
#[inline(always)]
unsafe fn take<T>(fiber: FiberRef) -> Stored<T> {
    // SAFETY: what is there was written by `store` for the same T, and the caller, which has seen that, is
    // the only one to take it.
    fiber.result.with_mut(|place| unsafe {
        if fits::<T>() {
            place.cast::<Stored<T>>().read()
        } else {
            *Box::from_raw(place.cast::<*mut Stored<T>>().read())
        }
    })
}
