//! What more carriers gain or cost: the same work on one carrier and on two, or as many as are asked
//! for, in turn.
//!
//!     cargo run --release -p carefree --example carriers [-- CARRIERS [ROW]]
//!
//! Each row has the median of the time on one carrier and on more, their ratio (below 1: more carriers
//! are faster), the processor time of both, and for more carriers how often fibers were taken from
//! another carrier.
//!
//!     carriers only CARRIERS SAMPLES ROW
//!
//! is for `.ci/queues`: one row on so many carriers and no others, as numbers.

use std::hint::spin_loop;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use carefree::{JoinHandle, Runtime, spawn, yield_now};

const SAMPLES: usize = 9;

/// A row: its name, the unit of its time, and the work, which returns how many of it were done.
type Row = (&'static str, fn() -> u64);

const ROWS: &[Row] = &[
    ("yield, two fibers", yields),
    ("hand-over by std's mpsc, two fibers", hand_overs),
    ("hand-over by a word, two fibers that spin and yield", spinning),
    ("one lock, four fibers", || contending(4)),
    ("one channel, four that send and one that receives", sending),
    ("alloc: 10,000 fibers that allocate and end, spawned by one", allocating),
    ("warm: 100 fibers, 2 yields each", || crowd(100, 2, 100)),
    ("warm: 1,000 fibers, 2 yields each", || crowd(1_000, 2, 20)),
    ("warm: 10,000 fibers, 2 yields each", || crowd(10_000, 2, 2)),
    ("throughput: 1,000 fibers, 100 yields each", || crowd(1_000, 100, 1)),
    ("2,000 fibers that compute 20 us", computing),
    ("fork and join of 2 x 200 us", forking),
    ("16 pairs that send a byte to and fro by sockets", sockets),
];

fn yields() -> u64 {
    const ROUNDS: u64 = 500_000;
    let all = [(); 2].map(|()| spawn(|| (0..ROUNDS).for_each(|_| yield_now())));
    join(all);
    2 * ROUNDS
}

fn hand_overs() -> u64 {
    const ROUNDS: u64 = 20_000;
    let (to, from) = channel::<u64>();
    let (back, answers) = channel::<u64>();
    let other = spawn(move || {
        for value in from {
            back.send(value + 1).expect("the asking fiber waits");
        }
    });
    for round in 0..ROUNDS {
        to.send(round).expect("the answering fiber waits");
        assert_eq!(answers.recv(), Ok(round + 1));
    }
    drop(to);
    other.join().expect("it does not panic");
    2 * ROUNDS
}

/// Two fibers take turns. Each spins until its turn comes, and yields after a while, as crossbeam's channels do.
fn spinning() -> u64 {
    const ROUNDS: u64 = 5_000;
    /// So often twice as long as before.
    const STEPS: u32 = 7;
    let turn = Arc::new(AtomicU64::new(0));
    let all = [0, 1].map(|me| {
        let turn = Arc::clone(&turn);
        spawn(move || {
            for round in 0..ROUNDS {
                let mut step = 0;
                while turn.load(Ordering::Acquire) != 2 * round + me {
                    match step < STEPS {
                        true => (0..1 << step).for_each(|_| spin_loop()),
                        false => yield_now(),
                    }
                    step += 1;
                }
                turn.fetch_add(1, Ordering::Release);
            }
        })
    });
    join(all);
    2 * ROUNDS
}

/// Fibers that take one lock in turn, and yield with it now and then, so that the others wait for it.
fn contending(fibers: u64) -> u64 {
    const ROUNDS: u64 = 20_000;
    let lock = Arc::new(Mutex::new(0));
    let all = (0..fibers).map(|_| {
        let lock = Arc::clone(&lock);
        spawn(move || {
            for round in 0..ROUNDS {
                let mut sum = lock.lock().expect("no panic");
                *sum += 1;
                if round % 16 == 0 {
                    yield_now();
                }
            }
        })
    });
    join(all.collect::<Vec<_>>());
    assert_eq!(*lock.lock().expect("no panic"), fibers * ROUNDS);
    fibers * ROUNDS
}

fn sending() -> u64 {
    const SENDERS: u64 = 4;
    const ROUNDS: u64 = 20_000;
    let (to, from) = sync_channel::<u64>(1);
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let to = to.clone();
            spawn(move || (0..ROUNDS).for_each(|n| to.send(n).expect("it receives all")))
        })
        .collect();
    drop(to);
    assert_eq!(from.iter().count() as u64, SENDERS * ROUNDS);
    join(senders);
    SENDERS * ROUNDS
}

fn allocating() -> u64 {
    const FIBERS: u64 = 10_000;
    let all: Vec<_> = (0..FIBERS)
        .map(|n| {
            spawn(move || {
                let text = vec![n as u8; 64 + n as usize % 512];
                text.iter().map(|&byte| u64::from(byte)).sum::<u64>()
            })
        })
        .collect();
    join(all);
    FIBERS
}

fn crowd(fibers: u64, yields: u64, rounds: u64) -> u64 {
    for _ in 0..rounds {
        let body = move || (0..yields).for_each(|_| yield_now());
        join((0..fibers).map(|_| spawn(body)).collect::<Vec<_>>());
    }
    fibers * rounds
}

fn computing() -> u64 {
    const FIBERS: u64 = 2_000;
    join((0..FIBERS).map(|_| spawn(|| compute(Duration::from_micros(20)))).collect::<Vec<_>>());
    FIBERS
}

fn forking() -> u64 {
    const ROUNDS: u64 = 50;
    for _ in 0..ROUNDS {
        let other = spawn(|| compute(Duration::from_micros(200)));
        compute(Duration::from_micros(200));
        other.join().expect("it does not panic");
    }
    ROUNDS
}

/// Computes what takes about so long on a processor of its own. (Not by the clock: two that share a
/// processor must take twice as long.)
fn compute(span: Duration) {
    static RATE: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    let spin =
        |steps: u64| (0..steps).fold(1u64, |sum, n| std::hint::black_box(sum.wrapping_mul(n | 1)));
    let rate = RATE.get_or_init(|| {
        const STEPS: u64 = 1_000_000;
        let fastest = (0..5).map(|_| {
            let start = Instant::now();
            std::hint::black_box(spin(STEPS));
            start.elapsed()
        });
        STEPS as f64 / fastest.min().expect("five samples").as_secs_f64()
    });
    std::hint::black_box(spin((rate * span.as_secs_f64()) as u64));
}

fn sockets() -> u64 {
    const ROUNDS: u64 = 500;
    const PAIRS: u64 = 16;
    let bounce = |mut socket: UnixStream, first: bool| {
        let mut byte = [0];
        for _ in 0..ROUNDS {
            if first {
                socket.write_all(&byte).expect("the other end is open");
            }
            socket.read_exact(&mut byte).expect("the other end answers");
            if !first {
                socket.write_all(&byte).expect("the other end is open");
            }
        }
    };
    let all = (0..PAIRS).flat_map(|_| {
        let (one, other) = UnixStream::pair().expect("two sockets");
        [spawn(move || bounce(one, true)), spawn(move || bounce(other, false))]
    });
    join(all.collect::<Vec<_>>());
    PAIRS * ROUNDS * 2
}

fn join(all: impl IntoIterator<Item = JoinHandle<impl Send>>) {
    for handle in all {
        let _ = handle.join().expect("it does not panic");
    }
}

/// Nanoseconds, processor time, and steals, each of one piece of work.
#[derive(Clone, Copy)]
struct Sample {
    time: f64,
    cpu: f64,
    steals: f64,
    /// How many pieces.
    done: f64,
}

fn cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn sample(runtime: &Runtime, work: fn() -> u64) -> Sample {
    let (cpu_before, steals) = (cpu(), carefree::metrics().steals);
    let start = Instant::now();
    let done = runtime.run(work) as f64;
    let time = start.elapsed().as_secs_f64() * 1e9;
    Sample {
        time: time / done,
        cpu: (cpu() - cpu_before) / done,
        steals: (carefree::metrics().steals - steals) as f64 / done,
        done,
    }
}

fn median(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<_> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One row, for another program to read: the median of the time and of the processor time of one piece, in
/// nanoseconds; how many were done in all, and how many times fibers were taken and asked for meanwhile.
fn only(mut arguments: impl Iterator<Item = String>) {
    let mut number = || arguments.next()?.parse().ok();
    let (Some(carriers), Some(samples)) = (number(), number()) else {
        panic!("usage: carriers only CARRIERS SAMPLES ROW");
    };
    let row = arguments.next().unwrap_or_default();
    let (_, work) = ROWS.iter().find(|(name, _)| name.contains(&row)).expect("a row's name");
    let runtime = Runtime::builder().carriers(carriers).build().expect("carriers");
    compute(Duration::ZERO);
    let mut pieces = 0;
    let samples: Vec<_> = (0..samples)
        .map(|_| {
            let sample = sample(&runtime, *work);
            pieces += sample.done as u64;
            sample
        })
        .collect();
    let metrics = carefree::metrics();
    let [time, cpu] = [median(&samples, |s| s.time), median(&samples, |s| s.cpu)];
    println!("{time:.1} {cpu:.1} {pieces} {} {}", metrics.steals, metrics.requests);
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == "only").is_some() {
        return only(arguments);
    }
    let many = arguments.next().map_or(2, |text| text.parse().expect("a number of carriers"));
    let only = arguments.next().unwrap_or_default();
    let [one, more] = [1, many].map(|n| Runtime::builder().carriers(n).build().expect("carriers"));
    compute(Duration::ZERO);
    println!(
        "| {:<58} | {:>10} | {many:>4} carriers | ratio | worst | CPU, 1 | CPU, {many} | a steal in |",
        "what (ns each)", "1 carrier"
    );
    for (name, work) in ROWS.iter().filter(|(name, _)| name.contains(&only)) {
        let mut samples = [const { Vec::new() }; 2];
        for round in 0..=SAMPLES {
            for (runtime, samples) in [&one, &more].into_iter().zip(&mut samples) {
                let sample = sample(runtime, *work);
                if round > 0 {
                    samples.push(sample);
                }
            }
        }
        let [one, more] = &samples;
        let (before, after) = (median(one, |s| s.time), median(more, |s| s.time));
        let worst = more.iter().map(|s| s.time).fold(0.0, f64::max);
        println!(
            "| {name:<58} | {before:>10.0} | {after:>13.0} | {:>5.2} | {:>5.2} | {:>6.0} | {:>6.0} | {:>10.0} |",
            after / before,
            worst / before,
            median(one, |s| s.cpu),
            median(more, |s| s.cpu),
            1.0 / median(more, |s| s.steals),
        );
    }
}
