//! Each call of docs/calls.md that can wait, cut short again and again at the moment at which what it
//! waits for arrives: nothing is lost and nothing taken twice, and it says what the page says.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs;
use std::mem;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree::{Interrupted, TlsMode, check, platform, run, spawn, timeout_with_value};
use libc::c_int;

use crate::common::*;
use crate::files::{Directory, open_both};

mod files;
mod messages;
mod others;

/// The limit of each wait, and about the time from one arrival to the next.
const LIMIT: Duration = Duration::from_micros(200);

type Taken = Result<usize, c_int>;
type Take = Arc<dyn Fn() -> Taken + Send + Sync>;

/// What one call waits for, and how it is counted.
struct Scenario {
    /// Makes one more arrive.
    give: Box<dyn FnMut() + Send>,
    /// Makes the call. Returns how many it took, or its `errno`.
    take: Take,
    /// Counts, without waiting, how many are left at the end. Those given are these and those taken.
    left: Box<dyn FnOnce() -> usize + Send>,
    /// How many arrive in all.
    rounds: usize,
    /// Whether the call waits until one arrives.
    waits: bool,
}

impl Scenario {
    fn new(
        give: impl FnMut() + Send + 'static,
        take: impl Fn() -> Taken + Send + Sync + 'static,
        left: impl FnOnce() -> usize + Send + 'static,
    ) -> Scenario {
        let (give, take, left) = (Box::new(give), Arc::new(take), Box::new(left));
        Scenario { give, take, left, rounds: 60, waits: true }
    }

    /// A call that ends by itself, and counts as one.
    fn endless(rounds: usize, call: impl Fn() -> Taken + Send + Sync + 'static) -> Scenario {
        let take = move || call().map(|_| 0);
        Scenario { rounds, waits: false, ..Scenario::new(|| {}, take, move || rounds) }
    }
}

/// How a row is tested.
enum Test {
    Here(fn() -> Option<Scenario>),
    /// By a test that its row names, because it needs a process of its own.
    Elsewhere(&'static str),
}

use Test::{Elsewhere, Here};

/// How each row is tested, by a call of it. A row may be here several times.
const TESTS: &[(&str, Test)] = &[
    ("read", Here(messages::read)),
    ("write", Here(messages::write)),
    ("eventfd_read", Here(messages::eventfd_read)),
    ("readv", Here(messages::readv)),
    ("pread", Here(files::pread)),
    ("__read_chk", Here(messages::read_checked)),
    ("sendfile", Here(messages::sendfile)),
    ("splice", Here(messages::splice)),
    ("copy_file_range", Here(files::copy_file_range)),
    ("fsync", Here(files::fsync)),
    ("sync_file_range", Here(files::sync_file_range)),
    ("recv", Here(messages::recv)),
    ("send", Here(messages::send)),
    ("recvmmsg", Here(messages::recvmmsg)),
    ("accept", Here(messages::accept)),
    ("connect", Here(messages::connect)),
    ("poll", Here(messages::poll)),
    ("select", Here(messages::select)),
    ("epoll_wait", Here(messages::epoll_wait)),
    ("nanosleep", Here(others::nanosleep)),
    ("sleep", Here(others::sleep)),
    ("sigwait", Elsewhere("blocking/signals::cancellation_and_timeouts_reach_in")),
    ("pause", Elsewhere("blocking/signals::cancellation_and_timeouts_reach_in")),
    ("open", Here(files::open)),
    ("flock", Here(files::flock)),
    ("fcntl", Here(files::fcntl)),
    ("close", Here(files::close)),
    ("waitpid", Here(others::waitpid)),
    ("system", Here(others::system)),
    ("setresuid", Here(others::setresuid)),
    ("dlopen", Elsewhere("loading/constructors::others_go_on_while_a_constructor_waits")),
    ("dlclose", Elsewhere("loading/constructors::others_go_on_while_a_constructor_waits")),
    ("getaddrinfo", Here(others::getaddrinfo)),
    ("getnameinfo", Here(others::getnameinfo)),
    ("getservbyname", Here(others::getservbyname)),
    ("getpwuid", Here(others::getpwuid)),
    ("getprotobynumber", Here(others::getprotobynumber)),
    ("pthread_mutex_lock", Here(others::mutex)),
    ("pthread_cond_wait", Here(others::condition)),
    ("pthread_rwlock_wrlock", Here(others::rwlock)),
    ("sem_wait", Here(others::semaphore)),
    ("pthread_barrier_wait", Here(others::barrier)),
    ("pthread_spin_lock", Here(others::spin)),
    ("pthread_once", Here(others::once)),
    ("flockfile", Here(others::stream)),
    ("mtx_lock", Here(others::c11)),
    ("pthread_join", Here(others::join)),
    ("mq_receive", Here(others::mq_receive)),
    ("msgrcv", Here(others::msgrcv)),
    ("semop", Here(others::semop)),
    ("syscall", Here(messages::syscall)),
];

/// The rows of docs/calls.md: the names of the calls, what cuts them short, and the tests.
fn rows() -> Vec<(BTreeSet<String>, String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/calls.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").collect();
        let [calls, _, cut_short, _, tests] = cells[..] else { panic!("five cells: {line}") };
        let calls = calls.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (calls, cut_short.trim().to_owned(), tests.to_owned())
    });
    rows.collect()
}

#[test]
fn every_row_has_a_scenario() {
    let rows = rows();
    for (calls, cut_short, tests) in &rows {
        let here = TESTS.iter().filter(|(call, _)| calls.contains(*call)).count();
        assert!(here > 0 || cut_short == "–", "there is no scenario for {calls:?}");
        assert!(here == 0 || cut_short != "–", "the page says that {calls:?} do not wait");
        for (call, test) in TESTS.iter().filter(|(call, _)| calls.contains(*call)) {
            if let Elsewhere(test) = test {
                assert!(tests.contains(test), "{call}: its row does not name {test}");
            }
        }
    }
    for (call, _) in TESTS {
        assert!(rows.iter().any(|row| row.0.contains(*call)), "{call} has no row");
    }
}

/// Sleeps about as long as the limit.
fn until_about_the_limit(round: usize) {
    carefree::sleep(LIMIT - Duration::from_micros(40) + Duration::from_micros(round as u64 % 64));
}

/// Runs all scenarios. `cut` makes the call of a round and cuts it short; it returns the answer, and the
/// `errno` of the cut if there was one.
fn for_each_row(errno: c_int, cut: fn(usize, Take) -> (Taken, bool)) {
    let rows = rows();
    for (call, test) in TESTS {
        let Here(scenario) = test else { continue };
        let (_, cell, _) = rows.iter().find(|row| row.0.contains(*call)).unwrap();
        let is_cut_short = cell != "no" && cell != "as the pthread ones";
        run(move || {
            let Some(scenario) = scenario() else { return println!("skipped: no {call} here") };
            let Scenario { mut give, take, left, rounds, waits } = scenario;
            let giving = spawn(move || {
                for round in 0..rounds {
                    until_about_the_limit(round);
                    give();
                }
                // The giving end stays open: its end would be one more thing to arrive.
                give
            });
            let (mut taken, mut calls) = (0, 0);
            let more = |taken, calls| match (waits, is_cut_short) {
                (false, _) => calls < rounds,
                (true, false) => taken < rounds,
                (true, true) => !giving.is_finished(),
            };
            while more(taken, calls) {
                let (answer, was_cut) = cut(calls, Arc::clone(&take));
                calls += 1;
                // A call that need not wait lets no other fiber run.
                carefree::yield_now();
                match answer {
                    Ok(some) => {
                        assert!(!was_cut, "{call} took {some} and counts as cut short");
                        taken += some;
                    }
                    Err(error) => {
                        assert_eq!(error, errno, "{call}");
                        assert!(
                            is_cut_short,
                            "{call} was cut short, and the page says that it is not"
                        );
                    }
                }
            }
            let _give = giving.join().unwrap();
            if waits && is_cut_short {
                // Takes what is left. After that, nothing is to be had.
                let mut in_vain = 0;
                while in_vain < 3 {
                    match cut(in_vain, Arc::clone(&take)).0 {
                        Ok(some) => taken += some,
                        Err(_) => in_vain += 1,
                    }
                    assert!(taken <= rounds, "{call}: {taken} of {rounds} were taken");
                }
            }
            assert_eq!(taken + left(), rounds, "{call}: taken, of those given");
        });
    }
}

#[test]
fn by_a_timeout() {
    for_each_row(libc::ETIMEDOUT, |_, take| {
        let (answer, limited) = timeout_with_value(LIMIT, || take());
        assert!(answer.is_ok() || limited.is_err(), "{answer:?} is not told");
        (answer, limited.is_err())
    });
}

#[test]
fn by_a_cancellation() {
    for_each_row(libc::ECANCELED, |round, take| {
        let fiber = spawn(move || take());
        until_about_the_limit(round);
        fiber.cancel();
        // A cancellation stays in force, whatever the call returned.
        (fiber.join().unwrap(), false)
    });
}

/// For calls without an `errno` to report that they were cut short.
fn unless_interrupted(answer: usize) -> Taken {
    match check() {
        Ok(()) => Ok(answer),
        Err(Interrupted::Cancelled) => Err(libc::ECANCELED),
        Err(Interrupted::TimedOut) => Err(libc::ETIMEDOUT),
    }
}

/// A new file without a name.
fn unnamed() -> fs::File {
    open_both(&Directory::new().file())
}

/// A libc call's result as a count.
fn counted(result: impl Into<i64>) -> Taken {
    checked(result).map(|count| count as usize)
}

/// What C calls change through a pointer, for as long as the process lives.
struct Shared<T>(UnsafeCell<T>);

// SAFETY: the calls synchronize what they change.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: the calls synchronize what they change.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn new(value: T) -> &'static Shared<T> {
        Box::leak(Box::new(Shared(UnsafeCell::new(value))))
    }

    fn at(&self) -> *mut T {
        self.0.get()
    }
}
