//! A fiber that computes keeps its own carrier busy, not what waits there.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use carefree::{Runtime, TlsMode, platform, sleep, spawn, yield_now};

/// Two carriers, of which one is kept busy for as long as `wait` takes that waits there; the other one
/// has to do it.
fn beside_a_busy_carrier(wait: impl FnOnce() + Send + 'static, wake: impl FnOnce() + Send) {
    if platform().tls == TlsMode::Shared {
        return println!("skipped: fibers stay on their carriers here");
    }
    Runtime::builder().carriers(2).build().unwrap().run(|| {
        let begun = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        // The other carrier is busy, and does not steal.
        let spinning = spawn({
            let (begun, stop) = (Arc::clone(&begun), Arc::clone(&stop));
            move || {
                begun.store(true, Ordering::SeqCst);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        // Until it runs there, not here.
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
            // Were it not helped, this would never end.
            while !waiting.is_finished() {
                std::hint::spin_loop();
            }
        });
        waiting.join().unwrap();
        spinning.join().unwrap();
    });
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

/// What has to be taken back from the carrier's reactor is: the fiber goes on elsewhere.
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
