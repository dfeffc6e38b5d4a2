//! What fibers that keep their carriers cost the others, beside threads that do the same.
//!
//!     cargo run --release -p carefree --example kept [-- [CARRIERS] [ping|flood|spin]]
//!
//! *Ping*: a unit sleeps for half a millisecond, sends a byte to another by a socket and gets it back,
//! again and again, beside units that compute without a pause. Shown are percentiles of the round trips'
//! times, and of what the sleeps take too long. *Flood* is the same without the sleeps. *Spin*: units spin
//! until one that is spawned after them sets a flag. Shown is the time until all have ended.
//!
//! Fibers have one carrier to begin with, or as many as are asked for. Samples of threads and of fibers
//! alternate, so that a disturbance of the machine strikes both.

use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carefree::Runtime;

/// Computing units beside the ping.
const BESIDE: &[usize] = &[0, 1, 2, 4, 8, 16];
/// Spinning units.
const SPINNING: &[usize] = &[1, 2, 4, 8, 16];
/// Samples of threads, and as many of fibers.
const SAMPLES: usize = 5;
/// Round trips a sample, a half millisecond between each two.
const TRIPS: usize = 400;
/// Without that.
const FLOOD: usize = 60_000;
/// Between two round trips.
const PAUSE: Duration = Duration::from_micros(500);
/// Before those that count: carriers are added meanwhile.
const WARM_UP: Duration = Duration::from_millis(50);
const SPINS: usize = 15;

/// Starts units, all of threads or all of fibers.
trait Units: Copy + Send + 'static {
    type Handle;
    fn spawn(self, body: impl FnOnce() + Send + 'static) -> Self::Handle;
    fn join(handle: Self::Handle);
}

#[derive(Clone, Copy)]
struct Threads;

impl Units for Threads {
    type Handle = std::thread::JoinHandle<()>;

    fn spawn(self, body: impl FnOnce() + Send + 'static) -> Self::Handle {
        std::thread::spawn(body)
    }

    fn join(handle: Self::Handle) {
        handle.join().expect("it does not panic");
    }
}

#[derive(Clone, Copy)]
struct Fibers;

impl Units for Fibers {
    type Handle = carefree::JoinHandle<()>;

    fn spawn(self, body: impl FnOnce() + Send + 'static) -> Self::Handle {
        carefree::spawn(body)
    }

    fn join(handle: Self::Handle) {
        handle.join().expect("it does not panic");
    }
}

/// Times of round trips, and how late the sleeps before them ended, beside so many units that compute.
fn ping<U: Units>(units: U, beside: usize, trips: usize, pause: Duration) -> [Vec<Duration>; 2] {
    let end = Arc::new(AtomicBool::new(false));
    let (mut here, mut there) = UnixStream::pair().expect("two sockets");
    let answering = units.spawn(move || {
        let mut byte = [0];
        while there.read(&mut byte).is_ok_and(|read| read == 1) {
            there.write_all(&byte).expect("the other end is open");
        }
    });
    let computing: Vec<_> = (0..beside)
        .map(|_| {
            let end = Arc::clone(&end);
            units.spawn(move || {
                let mut sum = 0u64;
                while !end.load(Ordering::Relaxed) {
                    sum = black_box((0..1_000).fold(sum, |sum, n| sum.wrapping_mul(3) ^ n));
                }
            })
        })
        .collect();
    let mut byte = [0];
    let mut trip = || {
        let begun = Instant::now();
        if !pause.is_zero() {
            // On a fiber, too, it parks.
            std::thread::sleep(pause);
        }
        let start = Instant::now();
        here.write_all(&byte).expect("the other end is open");
        here.read_exact(&mut byte).expect("the other end answers");
        (start.elapsed(), start - begun - pause)
    };
    let start = Instant::now();
    while start.elapsed() < WARM_UP {
        trip();
    }
    let (times, late) = (0..trips).map(|_| trip()).unzip();
    end.store(true, Ordering::Relaxed);
    drop(here);
    computing.into_iter().for_each(U::join);
    U::join(answering);
    [times, late]
}

/// The time until so many units that spin for a later one have ended.
fn spin<U: Units>(units: U, spinning: usize) -> Duration {
    let start = Instant::now();
    let end = Arc::new(AtomicBool::new(false));
    let all: Vec<_> = (0..spinning)
        .map(|_| {
            let end = Arc::clone(&end);
            units.spawn(move || {
                while !end.load(Ordering::Acquire) {
                    spin_loop();
                }
            })
        })
        .collect();
    let later = units.spawn(move || end.store(true, Ordering::Release));
    all.into_iter().for_each(U::join);
    U::join(later);
    start.elapsed()
}

fn percentile(sorted: &[Duration], per_mille: usize) -> f64 {
    sorted[(sorted.len() * per_mille / 1_000).min(sorted.len() - 1)].as_secs_f64() * 1e6
}

fn turned<T>([[a, b], [c, d]]: [[T; 2]; 2]) -> [[T; 2]; 2] {
    [[a, c], [b, d]]
}

/// A row: of threads, of fibers, and their ratios.
fn print(what: &str, taken: [Vec<Duration>; 2]) {
    let [threads, fibers] = taken.map(|mut times| {
        times.sort();
        [500, 990, 999].map(|part| percentile(&times, part))
    });
    print!("| {what:<24} |");
    for time in threads.into_iter().chain(fibers) {
        print!(" {time:>7.0} |");
    }
    println!(" {:>5.2} | {:>5.2} |", fibers[0] / threads[0], fibers[1] / threads[1]);
}

fn main() {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let carriers = match arguments.first().map(|text| text.parse()) {
        Some(Ok(number)) => {
            arguments.remove(0);
            number
        }
        _ => 1,
    };
    let wants = |name: &str| arguments.is_empty() || arguments.iter().any(|word| word == name);
    let runtime = Runtime::builder().carriers(carriers).build().expect("carriers");
    println!("carriers to begin with: {carriers}; times in us\n");
    let heads = "threads p50 |     p99 |   p99.9 | fibers p50 |  p99 |   p99.9 |   p50 |   p99";
    println!("| {:<24} | {heads} |", "what");
    println!("|:{:-<24}-|{}", "", "--:|".repeat(8));
    for (name, trips, pause) in [("ping", TRIPS, PAUSE), ("flood", FLOOD, Duration::ZERO)] {
        for &beside in BESIDE.iter().filter(|_| wants(name)) {
            let mut taken = [const { [Vec::new(), Vec::new()] }; 2];
            for _ in 0..SAMPLES {
                let threads = ping(Threads, beside, trips, pause);
                let fibers = runtime.run(move || ping(Fibers, beside, trips, pause));
                for (all, [threads, fibers]) in taken.iter_mut().zip(turned([threads, fibers])) {
                    all[0].extend(threads);
                    all[1].extend(fibers);
                }
            }
            let [trips, late] = taken;
            print(&format!("{name} beside {beside}"), trips);
            if !pause.is_zero() {
                print(&format!("sleep beside {beside}, late"), late);
            }
        }
    }
    if wants("spin") {
        for &spinning in SPINNING {
            let mut taken = [Vec::new(), Vec::new()];
            for _ in 0..SPINS {
                taken[0].push(spin(Threads, spinning));
                taken[1].push(runtime.run(move || spin(Fibers, spinning)));
            }
            print(&format!("{spinning} spin for a later one"), taken);
        }
    }
}
