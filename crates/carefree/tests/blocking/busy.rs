//! A fiber that computes keeps its own carrier busy, not what waits there.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carefree::{Runtime, TlsMode, platform, sleep, spawn, yield_now};

/// How long a fiber computes. Others are helped when it has done so for some ten milliseconds.
const BUSY: Duration = Duration::from_millis(400);

/// Two carriers, of which one is kept busy; what waits on that one is done by the other.
fn beside_a_busy_carrier(wait: impl FnOnce() + Send + 'static, wake: impl FnOnce() + Send) {
    if platform().tls == TlsMode::Shared {
        return println!("skipped: fibers stay on their carriers here");
    }
    Runtime::builder().carriers(2).build().unwrap().run(|| {
        static STOP: AtomicBool = AtomicBool::new(false);
        STOP.store(false, Ordering::SeqCst);
        // Nobody steals as long as the other carrier is busy.
        let spinning = spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        // Until it runs there, not here.
        sleep(Duration::from_millis(5));
        let waiting = spawn(move || {
            wait();
            Instant::now()
        });
        for _ in 0..3 {
            yield_now();
        }
        STOP.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        thread::scope(|s| {
            s.spawn(wake);
            while begun.elapsed() < BUSY {
                std::hint::spin_loop();
            }
        });
        let took = waiting.join().unwrap() - begun;
        spinning.join().unwrap();
        assert!(took < BUSY * 3 / 4, "it took {took:?} beside one that computed for {BUSY:?}");
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
