//! What `std`'s own tests check of `std::sync`, on fibers: poison, timeouts of any length, channels
//! whose ends are dropped, hundreds of waits with a timeout for one condition.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError, TrySendError};
use std::sync::{Arc, Condvar, LazyLock, Mutex, Once, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use carefree::{scope, spawn};

use crate::kit::{many, on_a_fiber};

const MOMENT: Duration = Duration::from_millis(5);

/// Whether `std` distinguishes fibers. Fibers that share their carrier's thread-local storage share
/// the handle that `std::thread::park` and channels park.
fn are_threads_to_std() -> bool {
    carefree::platform().tls != carefree::TlsMode::Shared
}

/// Runs `f`, which must panic, on a new fiber.
fn panics(f: impl FnOnce() + Send + 'static) {
    assert!(spawn(f).join().is_err());
}

#[test]
fn panics_poison_what_they_should() {
    on_a_fiber(|| {
        let mutex = Arc::new(Mutex::new(1));
        let lock = Arc::new(RwLock::new(1));
        let reader = lock.clone();
        panics(move || {
            let _guard = reader.read().unwrap();
            panic!("a reader spoils nothing");
        });
        assert!(!lock.is_poisoned());
        let (held, writer) = (mutex.clone(), lock.clone());
        panics(move || {
            let (mut one, mut other) = (held.lock().unwrap(), writer.write().unwrap());
            (*one, *other) = (2, 2);
            // Waits during unwinding, which then continues.
            struct Waits;
            impl Drop for Waits {
                fn drop(&mut self) {
                    carefree::sleep(MOMENT);
                }
            }
            let _waits = Waits;
            panic!("a writer does");
        });
        assert_eq!(*mutex.lock().unwrap_err().into_inner(), 2);
        assert!(matches!(mutex.try_lock(), Err(std::sync::TryLockError::Poisoned(_))));
        assert!(lock.read().is_err() && lock.write().is_err());
        mutex.clear_poison();
        assert_eq!(*mutex.lock().unwrap(), 2);
        assert_eq!(Arc::try_unwrap(lock).unwrap().into_inner().unwrap_err().into_inner(), 2);
    });
}

#[test]
fn an_initializer_that_panics() {
    static LAZY: LazyLock<u32> = LazyLock::new(|| panic!("never there"));
    on_a_fiber(|| {
        let once = Arc::new(Once::new());
        let first = once.clone();
        panics(move || {
            first.call_once(|| {
                carefree::sleep(MOMENT);
                panic!("not done");
            });
        });
        let second = once.clone();
        panics(move || second.call_once(|| {}));
        // The second attempt lets all waiting fibers continue.
        scope(|s| {
            for _ in 0..20 {
                s.spawn(|| once.call_once_force(|_| carefree::sleep(MOMENT)));
            }
        });
        assert!(once.is_completed());
        for _ in 0..2 {
            assert!(catch_unwind(|| *LAZY).is_err());
        }
    });
}

#[test]
fn a_limit_beyond_all_time_is_none() {
    if !are_threads_to_std() {
        return;
    }
    on_a_fiber(|| {
        let (send, receive) = mpsc::channel();
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let waker = spawn({
            let pair = pair.clone();
            move || {
                carefree::sleep(MOMENT);
                *pair.0.lock().unwrap() = true;
                pair.1.notify_one();
                carefree::sleep(MOMENT);
                send.send(1).unwrap();
            }
        });
        let guard = pair.0.lock().unwrap();
        let (guard, result) =
            pair.1.wait_timeout_while(guard, Duration::MAX, |there| !*there).unwrap();
        assert!(*guard && !result.timed_out());
        assert_eq!(receive.recv_timeout(Duration::MAX), Ok(1));
        waker.join().unwrap();
        thread::current().unpark();
        thread::park_timeout(Duration::MAX);
        let sleeps = spawn(|| thread::sleep(Duration::from_secs(u64::from(u32::MAX))));
        carefree::sleep(MOMENT);
        sleeps.cancel();
        // A cancellation ends the wait.
        assert!(sleeps.join().is_ok());
        assert_eq!(carefree::timeout(Duration::MAX, || 7), Ok(7));
    });
}

#[test]
fn a_limit_of_nothing_is_over_at_once() {
    on_a_fiber(|| {
        let (_send, receive) = mpsc::channel::<()>();
        assert_eq!(receive.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        let (mutex, condition) = (Mutex::new(()), Condvar::new());
        let waited = condition.wait_timeout(mutex.lock().unwrap(), Duration::ZERO).unwrap();
        assert!(waited.1.timed_out());
        thread::park_timeout(Duration::ZERO);
        thread::sleep(Duration::ZERO);
    });
}

#[test]
fn ends_of_a_channel_are_dropped() {
    if !are_threads_to_std() {
        return;
    }
    on_a_fiber(|| {
        // A waiting receiver notices that the last sender is dropped.
        let (send, receive) = mpsc::channel::<u32>();
        let waits = spawn(move || receive.recv());
        let other = send.clone();
        carefree::sleep(MOMENT);
        drop(send);
        carefree::yield_now();
        assert!(!waits.is_finished());
        drop(other);
        assert!(waits.join().unwrap().is_err());
        // A sender that waits for room gets its value back.
        for room in [0, 1] {
            let (send, receive) = mpsc::sync_channel(room);
            for _ in 0..room {
                send.send("fills it").unwrap();
            }
            assert_eq!(send.try_send("late"), Err(TrySendError::Full("late")));
            let waits = spawn(move || send.send("kept"));
            carefree::sleep(MOMENT);
            drop(receive);
            assert_eq!(waits.join().unwrap().unwrap_err().0, "kept");
        }
        // A value in the channel is dropped once.
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let count = Arc::new(AtomicUsize::new(0));
        let (send, receive) = mpsc::channel();
        for _ in 0..100 {
            send.send(Counted(count.clone())).unwrap();
        }
        drop(receive.recv().unwrap());
        drop(receive);
        assert!(send.send(Counted(count.clone())).is_err());
        assert_eq!(count.load(Ordering::SeqCst), 101);
        let (send, receive) = mpsc::channel::<()>();
        assert_eq!(receive.try_recv(), Err(TryRecvError::Empty));
        drop(send);
        assert_eq!(receive.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(receive.iter().count(), 0);
    });
}

#[test]
fn a_hand_over_without_room_waits_for_both() {
    if !are_threads_to_std() {
        return;
    }
    on_a_fiber(|| {
        let (send, receive) = mpsc::sync_channel(0);
        let sent = Arc::new(AtomicUsize::new(0));
        let sender = spawn({
            let sent = sent.clone();
            move || {
                for value in 0..100 {
                    send.send(value).unwrap();
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        for value in 0..100 {
            assert!(sent.load(Ordering::SeqCst) <= value);
            assert_eq!(receive.recv(), Ok(value));
        }
        sender.join().unwrap();
    });
}

#[test]
fn many_fibers_wait_with_a_limit_for_one_condition() {
    // Some are notified, others time out; none is missed, and only one fiber or thread at a time holds
    // the lock.
    on_a_fiber(|| {
        let waiters = many(1000);
        let (tickets, condition) = (Mutex::new(0usize), Condvar::new());
        let (got, late, inside) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let wait = |limit| {
            let begun = Instant::now();
            let guard = tickets.lock().unwrap();
            let (mut guard, result) =
                condition.wait_timeout_while(guard, limit, |tickets| *tickets == 0).unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            if *guard > 0 {
                *guard -= 1;
                got.fetch_add(1, Ordering::SeqCst);
            } else {
                assert!(result.timed_out() && begun.elapsed() >= limit);
                late.fetch_add(1, Ordering::SeqCst);
            }
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        let given = waiters / 2;
        scope(|s| {
            for index in 0..waiters {
                let limit = Duration::from_millis(10 + index as u64 % 40);
                s.spawn(move || wait(limit));
            }
            thread::scope(|threads| {
                for _ in 0..4 {
                    threads.spawn(|| wait(Duration::from_millis(20)));
                }
                for index in 0..given {
                    *tickets.lock().unwrap() += 1;
                    condition.notify_one();
                    if index % 16 == 0 {
                        carefree::yield_now();
                    }
                }
            });
        });
        let left = *tickets.lock().unwrap();
        let (got, late) = (got.into_inner(), late.into_inner());
        assert_eq!((got + late, got + left), (waiters + 4, given));
    });
}

#[test]
fn a_lock_is_taken_in_unwinding() {
    on_a_fiber(|| {
        let mutex = Arc::new(Mutex::new(1));
        struct Unwinder(Arc<Mutex<u32>>);
        impl Drop for Unwinder {
            fn drop(&mut self) {
                *self.0.lock().unwrap() += 1;
            }
        }
        let held = mutex.lock().unwrap();
        let other = mutex.clone();
        let unwinds = spawn(move || {
            let _unwinder = Unwinder(other);
            panic!("and waits for a lock meanwhile");
        });
        carefree::sleep(MOMENT);
        drop(held);
        assert!(unwinds.join().is_err());
        // Locked and unlocked during one panic, it is not poisoned.
        assert_eq!(*mutex.lock().unwrap(), 2);
    });
}

#[test]
fn scopes_of_threads_pass_on_panics_and_wait_for_all() {
    on_a_fiber(|| {
        let count = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            thread::scope(|s| {
                s.spawn(|| panic!("one of them"));
                for _ in 0..4 {
                    s.spawn(|| {
                        thread::sleep(MOMENT);
                        count.fetch_add(1, Ordering::SeqCst);
                    });
                }
            });
        }));
        assert!(result.is_err());
        assert_eq!(count.load(Ordering::SeqCst), 4);
        let value = thread::scope(|s| s.spawn(|| 5).join().unwrap());
        assert_eq!(value, 5);
        let finished = thread::spawn(|| {});
        while !finished.is_finished() {
            thread::yield_now();
        }
        finished.join().unwrap();
    });
}
