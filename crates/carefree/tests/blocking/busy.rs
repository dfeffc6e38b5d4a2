//! A carrier that always has something to run holds up none that wait there: for one fiber that computes, other
//! carriers see to them; between many, it does so itself.

use std::io::{Read, Write};
use std::mem;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carefree::{Runtime, TlsMode, platform, sleep, spawn, yield_now};

/// Has a fiber `wait` on one of two carriers, and keeps that carrier busy until the wait is over: the other
/// carrier must end it.
fn beside_a_busy_carrier(wait: impl FnOnce() + Send + 'static, wake: impl FnOnce() + Send) {
    if platform().tls == TlsMode::Shared {
        return println!("skipped: fibers stay on their carriers here");
    }
    Runtime::builder().carriers(2).build().unwrap().run(|| {
        let begun = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        // Keeps the other carrier busy, so that it does not steal.
        let spinning = spawn({
            let (begun, stop) = (Arc::clone(&begun), Arc::clone(&stop));
            move || {
                begun.store(true, Ordering::SeqCst);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        // Spins until that fiber runs there and not here.
        while !begun.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1));
        }
        let waiting = spawn(wait);
        for _ in 0..3 {
            yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        thread::scope(|s| {
            s.spawn(wake);
            // Without the other carrier's help this would never end.
            while !waiting.is_finished() {
                std::hint::spin_loop();
            }
        });
        waiting.join().unwrap();
        spinning.join().unwrap();
    });
}

/// Threads see to it that the carrier always finds something to run, and never sleeps.
#[test]
fn a_read_ends_while_threads_submit_fibers_without_a_pause() {
    // Some run until the next look, and some until the threads hear of it. The best of several tries counts: on a busy
    // machine a thread may hear of it late.
    let many: Vec<_> =
        (0..10).map(|_| fibers_until_a_read()).take_while(|&since| since >= 300).collect();
    assert!(many.len() < 10, "{many:?} fibers ran meanwhile");
}

/// How many fibers run between a write and the end of the read.
fn fibers_until_a_read() -> usize {
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    let is_read = Arc::new(AtomicBool::new(false));
    let reading = runtime.spawn({
        let is_read = Arc::clone(&is_read);
        move || {
            reader.read_exact(&mut [0]).unwrap();
            is_read.store(true, Ordering::Release);
        }
    });
    let (is_written, since) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
    let compute = |counts: bool| {
        let since = Arc::clone(&since);
        move || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(50) {}
            since.fetch_add(counts.into(), Ordering::Relaxed);
        }
    };
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let next = || runtime.spawn(compute(is_written.load(Ordering::Acquire)));
                let mut former = next();
                while !is_read.load(Ordering::Acquire) {
                    // While one runs, the next waits.
                    mem::replace(&mut former, next()).join().unwrap();
                }
            });
        }
        thread::sleep(Duration::from_millis(100));
        writer.write_all(b"a").unwrap();
        is_written.store(true, Ordering::Release);
    });
    reading.join().unwrap();
    since.load(Ordering::Relaxed)
}

#[test]
fn a_read_ends_while_its_carrier_computes() {
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    beside_a_busy_carrier(
        move || reader.read_exact(&mut [0; 3]).unwrap(),
        move || {
            thread::sleep(Duration::from_millis(20));
            writer.write_all(b"abc").unwrap();
        },
    );
}

/// An operation of the busy carrier's reactor is cancelled, and the fiber goes on elsewhere.
#[test]
fn a_read_is_given_up_in_time_while_its_carrier_computes() {
    let (mut reader, _writer) = UnixStream::pair().unwrap();
    beside_a_busy_carrier(
        move || {
            let read = || reader.read_exact(&mut [0; 3]);
            assert!(carefree::timeout(Duration::from_millis(20), read).is_err());
        },
        || {},
    );
}
