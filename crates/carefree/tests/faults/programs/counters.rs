//! Eventfds and timers, whose reads take a count.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use carefree::{JoinHandle, spawn, timeout_with_value};

use super::ends::owned;
use super::{finish, micros};
use crate::stream::{checked, insist};

fn make_counter() -> OwnedFd {
    // SAFETY: no memory is involved.
    owned(checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }).unwrap())
}

fn add(fd: RawFd, value: u64) {
    // SAFETY: a number of eight bytes.
    let added = insist(|| checked(unsafe { libc::write(fd, (&raw const value).cast(), 8) } as i64));
    assert_eq!(added, Ok(8));
}

fn take(fd: RawFd) -> Result<u64, i32> {
    let mut value = 0u64;
    // SAFETY: room for eight bytes.
    let taken = insist(|| checked(unsafe { libc::read(fd, (&raw mut value).cast(), 8) } as i64))?;
    assert_eq!(taken, 8);
    assert!(value > 0);
    Ok(value)
}

fn adders(counter: &Arc<OwnedFd>, random: &mut fastrand::Rng) -> (u64, Vec<JoinHandle<()>>) {
    let each = random.u64(1..20);
    let fibers = (0..3).map(|_| {
        let (counter, mut random) = (Arc::clone(counter), random.fork());
        spawn(move || {
            for _ in 0..each {
                carefree::sleep(micros(&mut random, 200));
                add(counter.as_raw_fd(), 1);
            }
        })
    });
    (3 * each, fibers.collect())
}

/// Each unit that is added to a counter is taken once.
pub(super) fn counter(mut random: fastrand::Rng) {
    let counter = Arc::new(make_counter());
    let (total, adders) = adders(&counter, &mut random);
    let mut taken = 0;
    while taken < total {
        taken += take(counter.as_raw_fd()).unwrap();
    }
    assert_eq!(taken, total);
    finish(adders);
}

/// A counter that several fibers take from, whose calls time out again and again.
pub(super) fn late_counter(mut random: fastrand::Rng) {
    let counter = Arc::new(make_counter());
    let (total, adders) = adders(&counter, &mut random);
    let taken = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let takers = (0..3).map(|_| {
        let (counter, mut random) = (Arc::clone(&counter), random.fork());
        let (taken, over) = (Arc::clone(&taken), Arc::clone(&over));
        spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let limit = micros(&mut random, 500);
                match timeout_with_value(limit, || take(counter.as_raw_fd())).0 {
                    Ok(value) => {
                        if taken.fetch_add(value, Ordering::SeqCst) + value == total {
                            over.store(true, Ordering::SeqCst);
                        }
                    }
                    Err(libc::ETIMEDOUT) => {}
                    Err(errno) => panic!("eventfd: errno {errno}"),
                }
            }
        })
    });
    finish(takers.collect::<Vec<_>>());
    finish(adders);
    assert_eq!(taken.load(Ordering::SeqCst), total);
}

pub(super) fn timers(mut random: fastrand::Rng) {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    let timer = owned(checked(fd).unwrap());
    for _ in 0..random.u8(1..6) {
        let span = libc::timespec { tv_sec: 0, tv_nsec: random.i64(1..300_000) };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let once = libc::itimerspec { it_value: span, it_interval: none };
        // SAFETY: a time to read.
        let set = unsafe { libc::timerfd_settime(fd, 0, &raw const once, ptr::null_mut()) };
        checked(set).unwrap();
        assert_eq!(take(timer.as_raw_fd()), Ok(1));
    }
}
