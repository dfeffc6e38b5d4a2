//! An eventfd that some lanes add to and others take from: nothing may be lost.

use std::ffi::c_int;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::lane::Lanes;
use crate::system::{errno, name};

/// Lanes that count.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counter {
    pub semaphore: bool,
    pub nonblocking: bool,
    pub adders: u8,
    pub takers: u8,
    /// What each adder adds, by ones.
    pub each: u16,
}

pub(super) fn counter() -> impl Strategy<Value = Counter> {
    (any::<bool>(), any::<bool>(), 1u8..5, 1u8..5, 1u16..200).prop_map(
        |(semaphore, nonblocking, adders, takers, each)| Counter {
            semaphore,
            nonblocking,
            adders,
            takers,
            each,
        },
    )
}

/// More than is ever added: tells a taker to end.
const END: u64 = 1 << 32;

impl Counter {
    pub(super) fn run(&self, lanes: Lanes) -> Vec<String> {
        let kind = if self.semaphore { libc::EFD_SEMAPHORE } else { 0 };
        let mode = if self.nonblocking { libc::EFD_NONBLOCK } else { 0 };
        // SAFETY: a call with numbers.
        let fd = unsafe { libc::eventfd(0, kind | mode) };
        let all = u64::from(self.adders) * u64::from(self.each);
        // Of a semaphore each taker gets ones; a sum may be taken all at once, so it has one taker.
        let takers = if self.semaphore { self.takers } else { 1 };
        let shares = (0..u64::from(takers))
            .map(|taker| all / u64::from(takers) + u64::from(taker < all % u64::from(takers)));
        let takers: Vec<_> = shares
            .map(|share| {
                let semaphore = self.semaphore;
                lanes.spawn(move || take(fd, share, semaphore))
            })
            .collect();
        let adders: Vec<_> = (0..self.adders)
            .map(|_| {
                let each = self.each;
                lanes.spawn(move || (0..each).find_map(|_| add(fd)))
            })
            .collect();
        let mut problems: Vec<_> = adders.into_iter().filter_map(|adder| adder.join()).collect();
        let mut taken = 0;
        for taker in takers {
            match taker.join() {
                Ok(count) => taken += count,
                Err(problem) => problems.push(problem),
            }
        }
        // SAFETY: a number of ours.
        unsafe { libc::close(fd) };
        if taken != all && problems.is_empty() {
            problems.push(format!("{taken} taken of {all}"));
        }
        problems
    }
}

fn wait(fd: c_int, events: i16) {
    let mut file = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: a list of one.
    unsafe { libc::poll(&mut file, 1, -1) };
}

fn add(fd: c_int) -> Option<String> {
    let one = 1u64;
    loop {
        // SAFETY: a number that lives until then.
        match unsafe { libc::write(fd, (&raw const one).cast(), 8) } {
            8 => return None,
            -1 if errno() == libc::EAGAIN => wait(fd, libc::POLLOUT),
            -1 => return Some(format!("an addition: {}", name(errno()))),
            other => return Some(format!("an addition: {other}")),
        }
    }
}

fn take(fd: c_int, share: u64, semaphore: bool) -> Result<u64, String> {
    let mut taken = 0;
    while taken < share {
        let mut count = 0u64;
        // SAFETY: a number that lives until then.
        match unsafe { libc::read(fd, (&raw mut count).cast(), 8) } {
            8 if semaphore && count != 1 => return Err(format!("a semaphore gave {count}")),
            8 if count >= END => return Err(format!("a count of {count}")),
            8 => taken += count,
            -1 if errno() == libc::EAGAIN => wait(fd, libc::POLLIN),
            -1 => return Err(format!("a taking: {}", name(errno()))),
            other => return Err(format!("a taking: {other}")),
        }
    }
    Ok(taken)
}
