//! Many fibers that wait for one lock: how many wakes it takes until each has had it, and that none is
//! forgotten, whatever ends the waits of others.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carefree_reactor::clock::NEVER;
use carefree_runtime::{JoinHandle, Reason, run, sleep, spawn, timeout, yield_now};

use crate::wait::file_lock;

const MANY: usize = 10_000;

fn wakes() -> usize {
    file_lock::WAKES.load(Ordering::SeqCst)
}

/// One of these tests at a time, for they count together.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many files at least may be open; false if the process may not have them.
fn may_open(files: usize) -> bool {
    // SAFETY: there is room for the limits.
    unsafe {
        let mut limits: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits);
        limits.rlim_cur = limits.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits);
        limits.rlim_cur as usize >= files
    }
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        sleep(Duration::from_millis(1));
    }
}

fn with_file_lock<R>(fd: RawFd, f: impl FnOnce() -> R) -> Result<R, i32> {
    file_lock::with_file_lock(fd, Reason::Read, NEVER, libc::EAGAIN, f)
}

fn flock(file: &File, operation: i32) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::flock(file.as_raw_fd(), operation) == 0 }
}

/// Panics if two fibers are in it at once.
#[derive(Default)]
struct Room(AtomicBool);

impl Room {
    fn visit(&self) {
        assert!(!self.0.swap(true, Ordering::SeqCst), "one at a time");
        yield_now();
        self.0.store(false, Ordering::SeqCst);
    }
}

fn join<T>(all: Vec<JoinHandle<T>>) -> Vec<T> {
    all.into_iter().map(|fiber| fiber.join().expect("it does not panic")).collect()
}

#[test]
fn each_release_wakes_one() {
    let _alone = alone();
    run(|| {
        let file = tempfile::tempfile().expect("a file");
        let (fd, room) = (file.as_raw_fd(), Arc::new(Room::default()));
        let mut all = Vec::new();
        let before = with_file_lock(fd, || {
            let one = || {
                let room = Arc::clone(&room);
                spawn(move || with_file_lock(fd, || room.visit()))
            };
            all.extend((0..MANY).map(|_| one()));
            until(|| file_lock::waiting() == MANY);
            wakes()
        });
        let done = join(all);
        assert!(done.iter().all(Result::is_ok));
        let spent = wakes() - before.expect("the lock");
        assert!((MANY..2 * MANY).contains(&spent), "{spent} wakes for {MANY} waiters");
    });
}

/// Each fiber has the lock in turn; or all share it at once.
fn lock_handed_to_many(operation: i32) {
    let _alone = alone();
    if !may_open(MANY + 200) {
        println!("skipped: a process may not open {MANY} files here");
        return;
    }
    run(move || {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::open(file.path()).expect("the file");
        let (first, room) = (open(), Arc::new(Room::default()));
        assert!(flock(&first, libc::LOCK_EX));
        let one = || {
            let (own, room) = (open(), Arc::clone(&room));
            spawn(move || {
                let locked = flock(&own, operation);
                if operation == libc::LOCK_EX {
                    room.visit();
                }
                // It is closed here, which gives the lock back.
                locked
            })
        };
        let all: Vec<_> = (0..MANY).map(|_| one()).collect();
        until(|| file_lock::waiting() == MANY - 1);
        let before = wakes();
        drop(first);
        assert!(join(all).into_iter().all(|locked| locked));
        let spent = wakes() - before;
        println!("{spent} wakes for {MANY} waiters");
        // For each: that it may ask, that the lock was given back, and that a lock has changed. (A few
        // find by themselves that it is free.)
        assert!((1..4 * MANY).contains(&spent), "{spent} wakes for {MANY} waiters");
    });
}

#[test]
fn a_lock_on_a_file_is_handed_to_many_in_as_many_wakes() {
    lock_handed_to_many(libc::LOCK_EX);
}

#[test]
fn a_shared_lock_is_taken_by_many_in_as_many_wakes() {
    lock_handed_to_many(libc::LOCK_SH);
}

/// Closing other files wakes no fiber that waits for a lock.
#[test]
fn closes_of_other_files_wake_none() {
    let _alone = alone();
    run(|| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::open(file.path()).expect("the file");
        let first = open();
        assert!(flock(&first, libc::LOCK_EX));
        let own = open();
        let waits = spawn(move || flock(&own, libc::LOCK_EX));
        until(|| file_lock::held() == 1);
        let before = wakes();
        for _ in 0..MANY {
            drop(File::open("/dev/null").expect("a device"));
        }
        // The fiber may be woken once, if it has only begun to wait when the first file is closed.
        assert!(wakes() - before <= 1, "{} wakes", wakes() - before);
        drop(first);
        assert!(waits.join().expect("it does not panic"));
    });
}

/// Some fibers wait with a time limit, some are cancelled: the others all get their lock in the end.
#[test]
fn none_is_forgotten_when_others_give_up() {
    const FIBERS: usize = 120;
    let _alone = alone();
    run(|| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let (fd, rooms) = (file.as_raw_fd(), Arc::new([Room::default(), Room::default()]));
        for round in 0..40 {
            let one = |n: usize| {
                let (own, rooms) = (File::open(file.path()).expect("the file"), Arc::clone(&rooms));
                spawn(move || {
                    let shared = n % 16 > 11;
                    let visit = || match n % 2 {
                        0 => with_file_lock(fd, || rooms[0].visit()).is_ok(),
                        _ if shared => flock(&own, libc::LOCK_SH),
                        _ => flock(&own, libc::LOCK_EX) && (rooms[1].visit(), true).1,
                    };
                    match n % 3 {
                        0 => timeout(Duration::from_micros((n * 7 + round) as u64), visit)
                            .unwrap_or(false),
                        _ => visit(),
                    }
                })
            };
            let all: Vec<_> = (0..FIBERS).map(one).collect();
            for (n, fiber) in all.iter().enumerate().filter(|(n, _)| n % 3 == 1) {
                if n % 4 == round % 4 {
                    yield_now();
                }
                fiber.cancel();
            }
            for (n, visited) in join(all).into_iter().enumerate() {
                assert!(visited || n % 3 != 2, "fiber {n} in round {round}");
            }
        }
        assert_eq!((file_lock::held(), file_lock::waiting()), (0, 0));
    });
}
