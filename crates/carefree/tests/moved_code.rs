//! Code written for `std::thread` runs on fibers when one path is changed.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The same functions twice, with the path as the only difference.
macro_rules! written_for {
    ($name:ident, $($thread:ident)::+) => {
        mod $name {
            use super::*;
            use $($thread)::+ as thread;

            #[test]
            fn spawn_and_join() {
                let handles: Vec<thread::JoinHandle<u32>> =
                    (0..10).map(|n| thread::spawn(move || n * n)).collect();
                let squares: Vec<u32> = handles.into_iter().map(|h| h.join().unwrap()).collect();
                assert_eq!(squares, (0..10).map(|n| n * n).collect::<Vec<_>>());
            }

            #[test]
            fn builders() {
                let handle: std::io::Result<thread::JoinHandle<Option<String>>> =
                    thread::Builder::new()
                        .name("worker".to_string())
                        .stack_size(1 << 20)
                        .spawn(|| thread::current().name().map(str::to_owned));
                let handle = handle.unwrap();
                assert_eq!(handle.thread().name(), Some("worker"));
                assert_eq!(handle.join().unwrap().as_deref(), Some("worker"));
            }

            #[test]
            fn parking() {
                let (send, receive) = mpsc::channel();
                let parked = thread::spawn(move || {
                    send.send(thread::current()).unwrap();
                    thread::park();
                    thread::park_timeout(Duration::from_micros(1));
                    thread::yield_now();
                    thread::current().id()
                });
                let other = receive.recv().unwrap();
                other.unpark();
                assert_eq!(other.id(), parked.thread().id());
                assert_eq!(parked.join().unwrap(), other.id());
                assert_ne!(other.id(), thread::current().id());
            }

            #[test]
            fn scopes() {
                let mut numbers = vec![1, 2, 3];
                let mut doubled = Vec::new();
                thread::scope(|s| {
                    s.spawn(|| numbers.push(4));
                    let handle = thread::Builder::new().spawn_scoped(s, || {
                        doubled.extend([2, 4]);
                        doubled.len()
                    });
                    assert_eq!(handle.unwrap().join().unwrap(), 2);
                });
                assert_eq!((numbers.len(), doubled.len()), (4, 2));
            }

            #[test]
            fn panics_and_sleep() {
                let handle: thread::JoinHandle<()> =
                    thread::spawn(|| std::panic::resume_unwind(Box::new("payload")));
                let begun = Instant::now();
                thread::sleep(Duration::from_millis(2));
                assert!(begun.elapsed() >= Duration::from_millis(2));
                let payload = handle.join().unwrap_err();
                assert_eq!(payload.downcast_ref::<&str>(), Some(&"payload"));
                assert!(thread::available_parallelism().unwrap().get() >= 1);
            }
        }
    };
}

written_for!(threads, std::thread);
written_for!(fibers, carefree);
