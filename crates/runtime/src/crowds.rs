//! The work that it takes to end the waits of many at once, counted: four times as many may take about
//! four times as much.
//!
//! Steps are looks at entries of lists and at fibers' headers, attempts to end a wait, and switches. (The reactor's own tables count theirs: `ending`, `line`.) Each
//! count is taken by a process of its own, over each reactor.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree_reactor::{Op, clock};

use crate::Interrupted;
use crate::JoinHandle;
use crate::Outcome;
use crate::Reason;
use crate::Semaphore;
use crate::fiber::registry;
use crate::metrics;
use crate::protocol::work;
use crate::run;
use crate::scope;
use crate::sleep;
use crate::spawn;
use crate::timeout;
use crate::wait::lot;
use crate::wait::operation::{self, Ended, Wait};
use crate::wait::park;
use crate::wait::park::Until;
use crate::wait::waiters::{Seat, Waiters};
use crate::yield_now;

/// Fibers of the larger count; of the smaller one a quarter.
const MANY: usize = if cfg!(debug_assertions) { 4_000 } else { 100_000 };
/// Fibers that wait for one file.
const CROWD: usize = 10;

const CASE: &str = "CAREFREE_TEST_CROWD";

/// What has been done since the start of the process.
fn done() -> u64 {
    work::steps() + metrics().switches
}

/// How many fibers wait for `reason`.
fn waiting_for(reason: Reason) -> usize {
    let mut waiting = 0;
    registry::for_each_alive(|fiber| {
        let it = fiber.reason.load(Ordering::Relaxed) == reason as u8;
        waiting += usize::from(it && fiber.episode.is_waiting());
    });
    waiting
}

/// Waits until so many fibers wait for `reason`.
fn until_waiting(count: usize, reason: Reason) {
    while waiting_for(reason) < count {
        sleep(Duration::from_millis(5));
    }
}

/// Files of which nothing can be read, and the fibers that wait for each.
struct Files(Vec<(UnixDatagram, Waiters)>);

impl Files {
    fn new(count: usize) -> Arc<Files> {
        let files = (0..count).map(|_| (UnixDatagram::unbound().expect("a file"), Waiters::new()));
        Arc::new(Files(files.collect()))
    }

    /// Waits for these, none of which ever has anything to be read.
    fn wait(&self, which: &[usize]) -> Ended {
        let seats: Vec<_> = which.iter().map(|_| Seat::new()).collect();
        // SAFETY: each has a seat of its own, which lives longer.
        let enter = |(file, seat): (&usize, _)| unsafe { self.0[*file].1.enter(seat) };
        let entered = which.iter().zip(&seats).map(enter);
        let waiters: Vec<_> = entered.map(|entered| entered.expect("none is closed yet")).collect();
        let holds = || waiters.iter().all(|waiter| waiter.holds());
        let how = Wait { holds: &holds, ..Wait::until_done(Reason::Read) };
        let fd = |file: &usize| self.0[*file].0.as_raw_fd();
        if let [file] = which {
            let mut byte = 0;
            let op = Op::Receive { fd: fd(file), buffer: &raw mut byte, length: 1, flags: 0 };
            // SAFETY: there is room for a byte.
            unsafe { operation::perform(&op, &how) }
        } else {
            let poll = |file| Op::Poll { fd: fd(file), events: libc::POLLIN as u32 };
            let ops: Vec<_> = which.iter().map(poll).collect();
            // SAFETY: they point to nothing.
            unsafe { operation::perform_any(&ops, &how, &mut Vec::new()) }
        }
    }

    /// Fibers that wait for the files in turn.
    fn crowd(self: &Arc<Files>, fibers: usize) -> Vec<JoinHandle<Ended>> {
        let one = |n: usize| {
            let files = Arc::clone(self);
            spawn(move || files.wait(&[n % files.0.len()]))
        };
        let all = (0..fibers).map(one).collect();
        until_waiting(fibers, Reason::Read);
        all
    }
}

fn all_end(fibers: Vec<JoinHandle<Ended>>, so: Ended) {
    for fiber in fibers {
        assert_eq!(fiber.join().expect("it does not panic"), so);
    }
}

/// Numbers below `count` in an order without order.
fn shuffled(count: usize) -> impl Iterator<Item = usize> {
    // A prime that is larger than any count here, and so divides none.
    (0..count).map(move |n| n * 1_000_000_007 % count)
}

/// Of limits that all end at the same moment.
fn timeouts(fibers: usize) -> u64 {
    // They have to wait by then, all of them: a machine that is slow gets more time.
    let mut span = 500_000_000 + 20_000 * fibers as u64;
    loop {
        if let Some(steps) = timeouts_within(span, fibers) {
            return steps;
        }
        span *= 3;
    }
}

fn timeouts_within(span: u64, fibers: usize) -> Option<u64> {
    let files = Files::new(fibers / CROWD);
    let over = Arc::new(AtomicUsize::new(0));
    let end = clock::now() + span;
    let one = |n: usize| {
        let (files, over) = (Arc::clone(&files), Arc::clone(&over));
        spawn(move || {
            let left = Duration::from_nanos(end.saturating_sub(clock::now()));
            let ended = timeout(left, || files.wait(&[n % files.0.len()]));
            over.fetch_add(1, Ordering::SeqCst);
            // The limit counts when a call tells its caller.
            assert_eq!(ended, Ok(Ended::Interrupted(Interrupted::TimedOut)));
        })
    };
    let all: Vec<_> = (0..fibers).map(one).collect();
    let here = || waiting_for(Reason::Read) + over.load(Ordering::SeqCst);
    while here() < fibers {
        sleep(Duration::from_millis(5));
    }
    let before = done();
    let in_time = over.load(Ordering::SeqCst) == 0;
    all.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    in_time.then(|| done() - before)
}

fn cancels(fibers: usize) -> u64 {
    let files = Files::new(fibers / CROWD);
    let all = files.crowd(fibers);
    let before = done();
    shuffled(fibers).for_each(|n| all[n].cancel());
    all_end(all, Ended::Interrupted(Interrupted::Cancelled));
    done() - before
}

/// Closes, while other fibers wait for other files, and for many files each.
fn closes(fibers: usize) -> u64 {
    const SEVERAL: usize = 20;
    let (files, others) = (Files::new(fibers / CROWD), Files::new(SEVERAL));
    let all = files.crowd(fibers);
    let polls = |_| {
        let others = Arc::clone(&others);
        spawn(move || others.wait(&(0..SEVERAL).collect::<Vec<_>>()))
    };
    let pollers: Vec<_> = (0..fibers / SEVERAL).map(polls).collect();
    until_waiting(fibers + pollers.len(), Reason::Read);
    let before = done();
    shuffled(files.0.len()).for_each(|file| assert!(files.0[file].1.close()));
    all_end(all, Ended::Pointless);
    // Each of its fibers waits for all the others too, so this is work for as many as they are.
    assert!(others.0[0].1.close());
    all_end(pollers, Ended::Pointless);
    done() - before
}

/// Each is joined by another, in any order.
fn joins(fibers: usize) -> u64 {
    const GATE: usize = 1;
    static OPEN: AtomicUsize = AtomicUsize::new(0);
    let shut = || OPEN.load(Ordering::Acquire) == 0;
    let one = |_| Some(spawn(move || park::park(GATE, shut, Reason::Other, Until::WOKEN)));
    let mut all: Vec<_> = (0..fibers).map(one).collect();
    until_waiting(fibers, Reason::Other);
    let joined = |n: usize| {
        let fiber = all[n].take().expect("once each");
        spawn(move || assert_eq!(fiber.join().expect("it does not panic"), Outcome::Unparked))
    };
    let joiners: Vec<_> = shuffled(fibers).map(joined).collect();
    until_waiting(fibers, Reason::Join);
    let before = done();
    OPEN.store(1, Ordering::Release);
    assert_eq!(lot::unpark(GATE, usize::MAX), fibers);
    joiners.into_iter().for_each(|joiner| joiner.join().expect("it does not panic"));
    let spent = done() - before;
    // And all by their scope.
    let before = done();
    scope(|scope| (0..fibers).for_each(|_| drop(scope.spawn(yield_now))));
    spent + done() - before
}

/// Each waits for a key of its own, while many wait for one.
fn wakes(fibers: usize) -> u64 {
    const SHARED: usize = 1;
    // Far from each other, as addresses of what is allocated one by one.
    let key = |n: usize| 0x5000_0000_0000 + n * 72;
    let waits = |key| {
        spawn(move || {
            assert_eq!(
                park::park(key, || true, Reason::Other, Until::WOKEN_ONLY),
                Outcome::Unparked
            )
        })
    };
    let own: Vec<_> = (0..fibers).map(|n| waits(key(n))).collect();
    let shared: Vec<_> = (0..fibers).map(|_| waits(SHARED)).collect();
    until_waiting(2 * fibers, Reason::Other);
    let before = done();
    shuffled(fibers).for_each(|n| assert_eq!(lot::unpark(key(n), 1), 1));
    own.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    (0..fibers).for_each(|_| assert_eq!(lot::unpark(SHARED, 1), 1));
    shared.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    done() - before
}

/// Keys that are in one place, for one of which many wait: the others' waits are not theirs.
fn wakes_beside(fibers: usize) -> u64 {
    let keys = crate::carrier::bucket::keys_together(2);
    let waits = |key| {
        spawn(move || {
            assert_eq!(
                park::park(key, || true, Reason::Other, Until::WOKEN_ONLY),
                Outcome::Unparked
            )
        })
    };
    let many: Vec<_> = (0..fibers).map(|_| waits(keys[0])).collect();
    until_waiting(fibers, Reason::Other);
    let mut spent = 0;
    for _ in 0..fibers {
        let other = waits(keys[1]);
        while !other.thread().as_ref().episode.is_waiting() {
            yield_now();
        }
        let before = done();
        assert_eq!(lot::unpark(keys[1], 1), 1);
        other.join().expect("it does not panic");
        spent += done() - before;
    }
    assert_eq!(lot::unpark(keys[0], usize::MAX), fibers);
    many.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    spent
}

fn permits(fibers: usize) -> u64 {
    let door = Arc::new(Semaphore::new(0));
    let one = |_| {
        let door = Arc::clone(&door);
        spawn(move || door.acquire().expect("nothing is cancelled").forget())
    };
    let all: Vec<_> = (0..fibers).map(one).collect();
    until_waiting(fibers, Reason::Semaphore);
    let before = done();
    (0..fibers).for_each(|_| door.release(1));
    all.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    done() - before
}

type Case = (&'static str, fn(usize) -> u64);

/// Those that wait for operations, and differ from reactor to reactor.
const OPERATIONS: [Case; 3] = [("timeouts", timeouts), ("cancels", cancels), ("closes", closes)];
const OTHERS: [Case; 4] =
    [("joins", joins), ("wakes", wakes), ("wakes beside", wakes_beside), ("permits", permits)];

/// In the process that counts: what it is asked to.
#[test]
fn counted() {
    let Some(asked) = carefree_settings::text(CASE) else { return };
    let (case, fibers) = asked.rsplit_once(' ').expect("a case and a number");
    let fibers = fibers.parse().expect("a number of fibers");
    let (_, count) = (OPERATIONS.iter().chain(&OTHERS).find(|(name, _)| *name == case))
        .expect("one of the cases");
    // SAFETY: there is room for the limits.
    unsafe {
        let mut limits: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits);
        limits.rlim_cur = limits.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits);
    }
    println!("steps: {}", run(move || count(fibers)));
}

fn steps(case: &str, fibers: usize, reactor: &str) -> u64 {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crowds::counted", "--nocapture"])
        .env(CASE, format!("{case} {fibers}"))
        .env("CAREFREE_REACTOR", reactor)
        .output()
        .expect("it can be started again");
    let text = String::from_utf8_lossy(&output.stdout);
    let steps = text.lines().find_map(|line| line.split_once("steps: ")?.1.parse().ok());
    let complaints = String::from_utf8_lossy(&output.stderr);
    steps.unwrap_or_else(|| panic!("{case}, {fibers} fibers, {reactor}: {text}{complaints}"))
}

/// Four times as many take four times as many steps; half as many again may be due to how things
/// happened to interleave.
fn assert_linear(cases: &[Case], reactor: &str) {
    for (case, _) in cases {
        let begun = Instant::now();
        let [few, many] = [MANY / 4, MANY].map(|fibers| steps(case, fibers, reactor));
        println!(
            "{case}, {reactor}: {few} steps for {}, {many} for {MANY}, {:?}",
            MANY / 4,
            begun.elapsed()
        );
        assert!(many >= MANY as u64, "{case}, {reactor}: nothing was counted");
        assert!(
            many <= 6 * few,
            "{case}, {reactor}: {few} steps for {} fibers, {many} for {MANY}",
            MANY / 4
        );
    }
}

#[test]
fn ending_the_waits_of_many_is_linear_over_io_uring() {
    let idle = carefree_reactor::Shared::new(carefree_reactor::Idle::new());
    if carefree_reactor::Driver::with_idle(carefree_reactor::Kind::Uring, idle).is_err() {
        // Said by the reactor's own tests.
        return;
    }
    assert_linear(&OPERATIONS, "uring");
}

#[test]
fn ending_the_waits_of_many_is_linear_over_epoll() {
    assert_linear(&OPERATIONS, "epoll");
}

#[test]
fn waking_many_is_linear() {
    assert_linear(&OTHERS, "epoll");
}
