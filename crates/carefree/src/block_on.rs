//! Futures on fibers: the fiber that polls a future parks while the future waits.
//!
//! # The protocol, and why no wake-up is lost
//!
//! A future that is being run is a *task*. It has one word: `RUNS`, `WAITS` or `WOKEN`.
//!
//! ```text
//!  task:  T1  poll; ready: done                    wake:  K1  old = swap(WOKEN)
//!         T2  RUNS -> WAITS (was WOKEN: go to T4)         K2  if old was WAITS: unpark the key
//!         T3  park on the key while WAITS
//!         T4  old = swap(RUNS)
//!             was WOKEN: go to T1, else to T2
//! ```
//!
//! All steps on the word are read-modify-writes, so K1 comes between two steps of the task. If it comes
//! between T4 and T2, T2 sees `WOKEN` and the task polls again. If it comes between T2 and T4, the waker saw
//! `WAITS` and goes on to K2. Parking looks at the word under the lock that unparking takes: either it sees
//! `WOKEN` and does not park, or K2 comes later and finds the task parked. Further wakers find `WOKEN` and
//! leave K2 to the first. Only T4 takes `WOKEN` away, and T1 follows. K1 releases and T4 acquires, so that
//! poll sees what the waker did before.
//!
//! The key is the address of the word. A waker's reference to the task keeps that address from being used for
//! anything else until K2 is over. The fiber's own token (`park`, `unpark`) is not involved: a program may
//! use both.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Interrupted, Outcome, Reason, lot, tell_timed_out, yield_now};

const RUNS: u8 = 0;
const WAITS: u8 = 1;
const WOKEN: u8 = 2;

/// A future that one fiber or thread waits for.
struct Task {
    state: AtomicU8,
}

impl Task {
    /// What the fiber or thread parks on.
    fn key(&self) -> usize {
        (&raw const self.state) as usize
    }

    /// Waits until the task has been woken since its last poll.
    fn wait(&self, until: Until) -> Result<(), Interrupted> {
        loop {
            let begun =
                self.state.compare_exchange(RUNS, WAITS, Ordering::AcqRel, Ordering::Acquire);
            let outcome = match begun {
                Ok(_) => {
                    let waits = || self.state.load(Ordering::Acquire) == WAITS;
                    wait::park(self.key(), waits, Reason::Future, until)
                }
                Err(_) => {
                    // Woken during its poll, which is how a future yields: lets others run.
                    yield_now();
                    Outcome::Invalid
                }
            };
            if self.state.swap(RUNS, Ordering::AcqRel) == WOKEN {
                return Ok(());
            }
            match outcome {
                Outcome::Cancelled => return Err(Interrupted::Cancelled),
                Outcome::TimedOut => {
                    tell_timed_out();
                    return Err(Interrupted::TimedOut);
                }
                Outcome::Unparked | Outcome::Invalid => {}
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == WAITS {
            lot::unpark(self.key(), 1);
        }
    }
}

/// Runs a future to its end on the calling fiber, which parks whenever the future waits.
///
/// This is how a fiber uses a crate that is async only. The carrier runs other fibers meanwhile, and the
/// fiber may move to another carrier between two polls. What the future needs to make progress (timers,
/// I/O) is not provided here: futures of a runtime with a reactor of its own, such as tokio's, have to be
/// driven by that, or find it in the fiber's thread-local variables. On a plain thread it works alike.
///
/// Calls may be nested, and the future may use blocking code: it then parks the fiber, and with it
/// the whole future. The future lies in the caller's frame; box one that is large against a fiber's
/// stack.
///
/// Neither cancellation nor a [`timeout`](crate::timeout()) cuts this short, for there would be no output to
/// return: see [`try_block_on`].
///
/// # Panics
/// With the future's panic, if it panics.
///
/// ```
/// use std::future::{poll_fn, ready};
/// use std::task::Poll;
///
/// let answer = carefree::run(|| {
///     carefree::block_on(async {
///         let mut waited = false;
///         // Waits once: wakes itself, and is polled again.
///         poll_fn(|context| {
///             if std::mem::replace(&mut waited, true) {
///                 return Poll::Ready(());
///             }
///             context.waker().wake_by_ref();
///             Poll::Pending
///         })
///         .await;
///         6 * ready(7).await
///     })
/// });
/// assert_eq!(answer, 42);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    match drive(pin!(future.into_future()), Until::WOKEN_ONLY) {
        Ok(output) => output,
        Err(_) => unreachable!("a wait that cannot be cut short was"),
    }
}

/// [`block_on`], given up when the fiber is cancelled or a [`timeout`](crate::timeout()) that it is within is
/// over. The future is dropped then, which is how futures are cancelled.
///
/// A future that is ready without waiting returns its output all the same.
///
/// # Errors
/// [`Interrupted`], with the reason.
///
/// # Panics
/// With the future's panic, if it panics.
///
/// ```
/// use std::time::Duration;
/// use carefree::{Interrupted, timeout, try_block_on};
///
/// let mut result = Ok(());
/// let limited = timeout(Duration::from_millis(5), || {
///     result = try_block_on(std::future::pending());
/// });
/// assert!(limited.is_err());
/// assert_eq!(result, Err(Interrupted::TimedOut));
/// ```
pub fn try_block_on<F: IntoFuture>(future: F) -> Result<F::Output, Interrupted> {
    drive(pin!(future.into_future()), Until::WOKEN)
}

fn drive<F: Future>(mut future: Pin<&mut F>, until: Until) -> Result<F::Output, Interrupted> {
    let task = Arc::new(Task { state: AtomicU8::new(RUNS) });
    let waker = Waker::from(Arc::clone(&task));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        task.wait(until)?;
    }
}
