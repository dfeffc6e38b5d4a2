//! Crowds that wait, and what they cost.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use carefree::{Builder, JoinHandle, scope, sleep, spawn, yield_now};

use crate::limit::number;

/// What a crowd does.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Over which reactor, if that makes a difference.
    pub(crate) reactor: Option<&'static str>,
    /// Descriptors that each takes.
    pub(crate) descriptors: usize,
    /// Memory that each takes at most, the kernel's among it.
    pub(crate) bytes: u64,
    /// What is made before time is taken.
    prepare: fn(usize) -> io::Result<()>,
    begin: fn(usize) -> io::Result<Crowd>,
}

/// A crowd of which all wait, and what ends their waits and joins them.
type Crowd = Box<dyn FnOnce() -> io::Result<()>>;

const fn row(name: &'static str, what: &'static str, begin: fn(usize) -> io::Result<Crowd>) -> Row {
    Row { name, what, reactor: None, descriptors: 0, bytes: 9 << 10, prepare: |_| Ok(()), begin }
}

pub(crate) const ROWS: [Row; 9] = [
    row("parked", "fibers are spawned and park; they are unparked and joined", parked),
    row("scope", "the same in one scope, whose end waits for them", scoped),
    row(
        "deadlines",
        "they park with deadlines in a thousand seconds, no two alike, and are unparked",
        deadlines,
    ),
    row("timers", "they sleep until times that come one each microsecond", timers),
    row("lock", "they wait for one mutex of std's, which each gets and passes on", lock),
    row(
        "condvar",
        "they wait on one condition variable of std's, which wakes all at once",
        condvar,
    ),
    row("semaphore", "they wait for one semaphore, and get permits one by one", semaphore),
    Row {
        reactor: Some("uring"),
        descriptors: 1,
        bytes: 13 << 10,
        prepare: make_sockets,
        ..row(
            "sockets, io_uring",
            "each reads from a socket of its own, which gets a byte",
            sockets,
        )
    },
    Row {
        reactor: Some("epoll"),
        descriptors: 1,
        bytes: 13 << 10,
        prepare: make_sockets,
        ..row("sockets, epoll", "the same over epoll", sockets)
    },
];

/// What each of a crowd costs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    /// Nanoseconds from the first spawn until all wait.
    pub(crate) begin: f64,
    /// The same of a second crowd in the same process.
    pub(crate) begin_again: f64,
    /// Nanoseconds until all have been woken and joined.
    pub(crate) end: f64,
    pub(crate) end_again: f64,
    /// How much of the first crowd's time the kernel took.
    pub(crate) kernel: f64,
    /// Memory, page tables among it, while all wait.
    pub(crate) bytes: f64,
    /// Pages that were touched first.
    pub(crate) faults: f64,
    /// Mappings of the process while all wait.
    pub(crate) mappings: f64,
}

impl Figures {
    const NAMES: [&str; 8] = [
        "begin_ns",
        "begin_again_ns",
        "end_ns",
        "end_again_ns",
        "kernel",
        "bytes",
        "faults",
        "mappings",
    ];

    fn all(self) -> [f64; 8] {
        let Figures { begin, begin_again, end, end_again, kernel, bytes, faults, mappings } = self;
        [begin, begin_again, end, end_again, kernel, bytes, faults, mappings]
    }

    fn of(
        [begin, begin_again, end, end_again, kernel, bytes, faults, mappings]: [f64; 8],
    ) -> Figures {
        Figures { begin, begin_again, end, end_again, kernel, bytes, faults, mappings }
    }

    pub(crate) fn line(self) -> String {
        self.all().map(|number| number.to_string()).join(" ")
    }

    pub(crate) fn read(line: &str) -> Option<Figures> {
        let numbers: Vec<f64> = line.split_whitespace().flat_map(str::parse).collect();
        Some(Figures::of(numbers.try_into().ok()?))
    }

    pub(crate) fn median(all: &[Figures]) -> Figures {
        let mut place = 0;
        Figures::of([0.0; 8].map(|_| {
            let mut numbers: Vec<f64> = all.iter().map(|one| one.all()[place]).collect();
            numbers.sort_by(f64::total_cmp);
            place += 1;
            numbers[numbers.len() / 2]
        }))
    }

    pub(crate) fn json(self) -> String {
        let pairs = Figures::NAMES.iter().zip(self.all());
        pairs
            .map(|(name, number)| format!(r#""{name}": {number:.3}"#))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// What the process has used so far.
struct Used {
    nanoseconds: f64,
    kernel: f64,
    faults: f64,
}

impl Used {
    fn now() -> Used {
        // SAFETY: all zeros are a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for it.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let time = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
        Used {
            nanoseconds: time(usage.ru_utime) + time(usage.ru_stime),
            kernel: time(usage.ru_stime),
            faults: usage.ru_minflt as f64,
        }
    }
}

fn memory() -> f64 {
    let anonymous = number("/proc/self/smaps_rollup", "Anonymous:").unwrap_or(0);
    let tables = number("/proc/self/status", "VmPTE:").unwrap_or(0);
    ((anonymous + tables) << 10) as f64
}

/// Two crowds, one after the other.
pub(crate) fn run(row: &Row, size: usize) -> io::Result<Figures> {
    // What the first of a process costs.
    (row.prepare)(1)?;
    (row.begin)(1)?()?;
    (row.prepare)(size)?;
    let before = memory();
    let first = Used::now();
    let crowd = (row.begin)(size)?;
    let waiting = Used::now();
    let bytes = memory() - before;
    let mappings = std::fs::read_to_string("/proc/self/maps")?.lines().count();
    let woken = Used::now();
    crowd()?;
    let over = Used::now();
    let crowd = (row.begin)(size)?;
    let waiting_again = Used::now();
    crowd()?;
    let over_again = Used::now();
    let each =
        |from: &Used, to: &Used, what: fn(&Used) -> f64| (what(to) - what(from)) / size as f64;
    let time = |from: &Used, to: &Used| each(from, to, |used| used.nanoseconds);
    let kernel = |from: &Used, to: &Used| each(from, to, |used| used.kernel);
    let (begin, end) = (time(&first, &waiting), time(&woken, &over));
    Ok(Figures {
        begin,
        begin_again: time(&over, &waiting_again),
        end,
        end_again: time(&waiting_again, &over_again),
        kernel: (kernel(&first, &waiting) + kernel(&woken, &over)) / (begin + end).max(1.0),
        bytes: bytes / size as f64,
        faults: each(&first, &waiting, |used| used.faults),
        mappings: mappings as f64,
    })
}

/// How many of a crowd are about to wait.
#[derive(Clone, Default)]
struct Arrived(Arc<AtomicUsize>);

impl Arrived {
    fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when all of them wait: with one carrier each goes on until it does.
    fn until(&self, size: usize) {
        while self.0.load(Ordering::Relaxed) < size {
            yield_now();
        }
        yield_now();
    }
}

/// Spawns a crowd; returns when all of it waits.
fn crowd<F: FnOnce() + Send + 'static>(
    size: usize,
    make: impl Fn(usize) -> F,
) -> io::Result<Vec<JoinHandle<()>>> {
    let arrived = Arrived::default();
    let one = |number| {
        let (arrived, wait) = (arrived.clone(), make(number));
        Builder::new().spawn(move || {
            arrived.one();
            wait();
        })
    };
    let all = (0..size).map(one).collect::<io::Result<_>>()?;
    arrived.until(size);
    Ok(all)
}

fn join(all: Vec<JoinHandle<()>>) -> io::Result<()> {
    all.into_iter().try_for_each(|one| one.join().map_err(|_| io::Error::other("a fiber panicked")))
}

fn unparked(all: Vec<JoinHandle<()>>) -> Crowd {
    Box::new(move || {
        all.iter().for_each(|one| one.thread().unpark());
        join(all)
    })
}

fn parked(size: usize) -> io::Result<Crowd> {
    Ok(unparked(crowd(size, |_| carefree::park)?))
}

/// The scope is another fiber's, which does nothing else.
fn scoped(size: usize) -> io::Result<Crowd> {
    let (arrived, door) = (Arrived::default(), Arc::new(carefree::Semaphore::new(0)));
    let (waits, opens) = (arrived.clone(), door.clone());
    let owner = spawn(move || {
        scope(|all| {
            for _ in 0..size {
                let one = || {
                    arrived.one();
                    drop(door.acquire());
                };
                Builder::new().spawn_scoped(all, one)?;
            }
            Ok(())
        })
    });
    while waits.0.load(Ordering::Relaxed) < size && !owner.is_finished() {
        yield_now();
    }
    yield_now();
    Ok(Box::new(move || {
        opens.release(1);
        owner.join().map_err(|_| io::Error::other("a fiber panicked"))?
    }))
}

/// Numbers in no order, the same each time.
fn drawn(number: usize, below: u64) -> u64 {
    (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) % below
}

fn deadlines(size: usize) -> io::Result<Crowd> {
    Ok(unparked(crowd(size, |number| {
        let limit = Duration::from_secs(1_000) + Duration::from_micros(drawn(number, 100_000_000));
        move || carefree::park_timeout(limit)
    })?))
}

fn timers(size: usize) -> io::Result<Crowd> {
    // Later than the last of them is spawned, on a slow machine.
    let wait = Duration::from_millis(300) + Duration::from_micros(25) * size as u32;
    let begun = std::time::Instant::now();
    let all = crowd(size, |number| {
        let until = begun + wait + Duration::from_micros(drawn(number, size as u64));
        move || carefree::sleep_until(until)
    })?;
    if begun.elapsed() > wait {
        return Err(io::Error::other("the first time had come before all slept"));
    }
    Ok(Box::new(move || join(all)))
}

fn lock(size: usize) -> io::Result<Crowd> {
    let lock: &'static Mutex<usize> = Box::leak(Box::default());
    let held = lock.lock().expect("no fiber panics");
    let all = crowd(size, |_| || *lock.lock().expect("no fiber panics") += 1)?;
    Ok(Box::new(move || {
        drop(held);
        join(all)
    }))
}

fn condvar(size: usize) -> io::Result<Crowd> {
    let door = Arc::new((Mutex::new(false), Condvar::new()));
    let all = crowd(size, |_| {
        let door = door.clone();
        move || {
            let open = door.0.lock().expect("no fiber panics");
            drop(door.1.wait_while(open, |open| !*open).expect("no fiber panics"));
        }
    })?;
    Ok(Box::new(move || {
        *door.0.lock().expect("no fiber panics") = true;
        door.1.notify_all();
        join(all)
    }))
}

fn semaphore(size: usize) -> io::Result<Crowd> {
    let door = Arc::new(carefree::Semaphore::new(0));
    let all = crowd(size, |_| {
        let door = door.clone();
        move || door.acquire().expect("nothing is cancelled").forget()
    })?;
    Ok(Box::new(move || {
        (0..size).for_each(|_| door.release(1));
        join(all)
    }))
}

/// A socket for each that will wait, made before time is taken. Two of them are a pair, so a byte sent by one
/// ends the other's wait, and no descriptor is spent on what only sends.
static SOCKETS: Mutex<Vec<Arc<UnixStream>>> = Mutex::new(Vec::new());

fn make_sockets(size: usize) -> io::Result<()> {
    let mut sockets = SOCKETS.lock().expect("no fiber panics");
    while sockets.len() < size {
        let (one, other) = UnixStream::pair()?;
        sockets.extend([Arc::new(one), Arc::new(other)]);
    }
    Ok(())
}

fn sockets(size: usize) -> io::Result<Crowd> {
    let sockets = SOCKETS.lock().expect("no fiber panics").clone();
    let all = crowd(size, |number| {
        let socket = sockets[number].clone();
        move || drop((&*socket).read(&mut [0]))
    })?;
    // The carrier submits what they wait for.
    sleep(Duration::from_millis(1));
    Ok(Box::new(move || {
        (0..size).try_for_each(|number| (&*sockets[number ^ 1]).write_all(&[1]))?;
        join(all)
    }))
}
