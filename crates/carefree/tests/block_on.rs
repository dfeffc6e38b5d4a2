//! `block_on`: futures on fibers and on plain threads.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::cell::Cell;
use std::future::{pending, poll_fn, ready};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use carefree::{Interrupted, block_on, run, spawn, timeout, try_block_on};

/// A value that is sent once and awaited by one future.
struct Slot<T> {
    state: Mutex<(Option<T>, Option<Waker>)>,
    polls: AtomicUsize,
}

impl<T> Slot<T> {
    fn new() -> Arc<Slot<T>> {
        Arc::new(Slot { state: Mutex::new((None, None)), polls: AtomicUsize::new(0) })
    }

    fn send(&self, value: T) {
        let waker = {
            let mut state = self.state.lock().unwrap();
            state.0 = Some(value);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn receive(&self) -> T {
        poll_fn(|context| {
            self.polls.fetch_add(1, Ordering::Relaxed);
            let mut state = self.state.lock().unwrap();
            match state.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    state.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn is_awaited(&self) -> bool {
        self.state.lock().unwrap().1.is_some()
    }
}

/// Lets other fibers run until one of them waits for `slot`.
fn until_awaited<T>(slot: &Slot<T>) {
    while !slot.is_awaited() {
        carefree::sleep(Duration::from_micros(100));
    }
}

#[test]
fn what_is_ready_comes_back_at_once() {
    assert_eq!(run(|| block_on(ready(1))), 1);
    assert_eq!(block_on(async { ready(2).await }), 2);
    assert_eq!(run(|| try_block_on(ready(3))), Ok(3));
}

#[test]
fn a_fiber_wakes_a_fiber_and_other_fibers_run_meanwhile() {
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let slot = Slot::new();
        let waiting = spawn({
            let slot = slot.clone();
            move || block_on(slot.receive())
        });
        // On the only carrier, this runs only if the other fiber is parked.
        until_awaited(&slot);
        slot.send("woken");
        assert_eq!(waiting.join().unwrap(), "woken");
        assert_eq!(slot.polls.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn threads_and_fibers_wake_each_other() {
    let (to_fiber, to_thread) = (Slot::new(), Slot::new());
    let fiber = spawn({
        let (to_fiber, to_thread) = (to_fiber.clone(), to_thread.clone());
        move || {
            let got = block_on(to_fiber.receive());
            until_awaited(&to_thread);
            to_thread.send(got + 1);
        }
    });
    let thread = std::thread::spawn(move || {
        until_awaited(&to_fiber);
        to_fiber.send(1);
        block_on(to_thread.receive())
    });
    assert_eq!(thread.join().unwrap(), 2);
    fiber.join().unwrap();
}

#[test]
fn a_wake_up_while_it_is_polled_counts() {
    let polls = Cell::new(0);
    let wakes_itself = || {
        poll_fn(|context| {
            polls.set(polls.get() + 1);
            if polls.get() % 100 == 0 {
                return Poll::Ready(polls.get());
            }
            context.waker().wake_by_ref();
            context.waker().wake_by_ref();
            Poll::Pending
        })
    };
    assert_eq!(block_on(wakes_itself()), 100);
    let polls = AtomicUsize::new(0);
    let count = run(|| {
        block_on(poll_fn(|context| {
            // Sent by another fiber, which ends before this one waits.
            let waker = context.waker().clone();
            spawn(move || waker.wake()).join().unwrap();
            match polls.fetch_add(1, Ordering::Relaxed) {
                20 => Poll::Ready(20),
                _ => Poll::Pending,
            }
        }))
    });
    assert_eq!(count, 20);
}

#[test]
fn a_future_that_wakes_itself_lets_others_run() {
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let other = spawn(|| ());
        block_on(poll_fn(|context| {
            if other.is_finished() {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }));
    });
}

#[test]
fn calls_nest() {
    run(|| {
        let (outer, inner) = (Slot::new(), Slot::new());
        let sending = spawn({
            let (outer, inner) = (outer.clone(), inner.clone());
            move || {
                until_awaited(&inner);
                inner.send(1);
                until_awaited(&outer);
                outer.send(2);
            }
        });
        let sum = block_on(async {
            let first = block_on(inner.receive());
            first + outer.receive().await
        });
        assert_eq!(sum, 3);
        sending.join().unwrap();
    });
}

#[test]
fn a_panic_comes_out_and_the_future_is_dropped() {
    struct Dropped<'a>(&'a Cell<bool>);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let message = run(|| {
        let dropped = Cell::new(false);
        let held = Dropped(&dropped);
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            block_on(async {
                let _held = held;
                // Without a message: `resume_unwind` skips the hook.
                panic::resume_unwind(Box::new("on purpose"));
            })
        }));
        assert!(dropped.get());
        *result.unwrap_err().downcast::<&str>().unwrap()
    });
    assert_eq!(message, "on purpose");
}

#[test]
fn cancellation_drops_the_future() {
    run(|| {
        let alive = Arc::new(());
        let held = alive.clone();
        let waiting = spawn(move || {
            try_block_on(async move {
                let _held = held;
                pending::<()>().await
            })
        });
        carefree::sleep(Duration::from_millis(2));
        waiting.cancel();
        assert_eq!(waiting.join().unwrap(), Err(Interrupted::Cancelled));
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

#[test]
fn a_timeout_gives_up_and_a_wake_up_that_comes_later_does_no_harm() {
    run(|| {
        let slot = Slot::<u8>::new();
        let begun = Instant::now();
        let mut result = Ok(0);
        let limited = timeout(Duration::from_millis(10), || {
            result = try_block_on(slot.receive());
        });
        assert!(limited.is_err());
        assert_eq!(result, Err(Interrupted::TimedOut));
        assert!(begun.elapsed() >= Duration::from_millis(10));
        // The waker outlives the wait.
        slot.send(1);
        assert_eq!(block_on(slot.receive()), 1);
    });
}

#[test]
fn what_cannot_be_given_up_is_not() {
    run(|| {
        let slot = Slot::new();
        let waiting = spawn({
            let slot = slot.clone();
            move || block_on(slot.receive())
        });
        until_awaited(&slot);
        waiting.cancel();
        carefree::sleep(Duration::from_millis(5));
        assert!(!waiting.is_finished());
        slot.send(5);
        assert_eq!(waiting.join().unwrap(), 5);
    });
}

#[test]
fn the_token_of_park_is_left_alone() {
    run(|| {
        let slot = Slot::new();
        carefree::current().unpark();
        let sending = spawn({
            let slot = slot.clone();
            move || {
                until_awaited(&slot);
                slot.send(());
            }
        });
        block_on(slot.receive());
        sending.join().unwrap();
        // Without the token, this would wait for ever.
        carefree::park();
    });
}

#[test]
fn thousands_of_tasks_pass_values_around() {
    const FIBERS: usize = 100;
    const ROUNDS: usize = 50;
    run(|| {
        let slots: Vec<_> = (0..FIBERS).map(|_| Slot::<usize>::new()).collect();
        let handles: Vec<_> = (0..FIBERS)
            .map(|number| {
                let (from, to) = (slots[number].clone(), slots[(number + 1) % FIBERS].clone());
                spawn(move || {
                    let mut last = 0;
                    for _ in 0..ROUNDS {
                        last = block_on(from.receive());
                        to.send(last + 1);
                    }
                    last
                })
            })
            .collect();
        slots[0].send(0);
        let last = handles.into_iter().map(|handle| handle.join().unwrap()).max();
        assert_eq!(last, Some(FIBERS * ROUNDS - 1));
    });
}
