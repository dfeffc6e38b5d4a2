//! The processor time that waiting for a socket costs: a byte goes to and fro, and its reader waits
//! each time.
//!
//! ```text
//! cargo run --release -p carefree-reactor --example round_trip
//! ```

use carefree_reactor::{Completions, Driver, Kind, Op, clock};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const ROUNDS: u64 = 200_000;

/// Processor time of this process in nanoseconds, which other programs do not affect.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: only writes to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn report(what: &str, started: u64, count: u64) {
    let each = (now() - started) as f64 / count as f64;
    println!("{what:<64} {each:>8.0} ns");
}

fn receive(fd: &UnixStream, buffer: &mut [u8]) -> Op {
    let (start, length) = (buffer.as_mut_ptr(), buffer.len());
    Op::Receive { fd: fd.as_raw_fd(), buffer: start, length, flags: 0 }
}

/// One socket: submit, enter the kernel, the peer writes, collect.
fn one(kind: Kind) {
    let mut driver = Driver::new(kind).unwrap();
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut buffer = [0];
    let mut out = Completions::new();
    let started = now();
    for _ in 0..ROUNDS {
        // SAFETY: the buffer is not used until the completion has come.
        unsafe { driver.submit(1, &receive(&here, &mut buffer)) }.unwrap();
        driver.poll(&mut out);
        there.write_all(b"x").unwrap();
        while out.is_empty() {
            driver.wait(None, &mut out);
        }
        out.clear();
    }
    report(&format!("{kind}: one waits, write included"), started, ROUNDS);
}

/// Sixty-four sockets at once, so that calls are shared.
fn many(kind: Kind) {
    const MANY: usize = 64;
    let mut driver = Driver::new(kind).unwrap();
    let mut pairs: Vec<_> = (0..MANY).map(|_| UnixStream::pair().unwrap()).collect();
    let mut buffers = [[0]; MANY];
    let mut out = Completions::new();
    let rounds = ROUNDS / MANY as u64;
    let started = now();
    for _ in 0..rounds {
        for (token, (pair, buffer)) in (0..).zip(pairs.iter().zip(&mut buffers)) {
            // SAFETY: the buffers are not used until the completions have come.
            unsafe { driver.submit(token, &receive(&pair.0, buffer)) }.unwrap();
        }
        driver.poll(&mut out);
        for pair in &mut pairs {
            pair.1.write_all(b"x").unwrap();
        }
        while out.len() < MANY {
            driver.wait(None, &mut out);
        }
        out.clear();
    }
    report(&format!("{kind}: {MANY} wait, write included"), started, rounds * MANY as u64);
}

/// The plain calls, for comparison.
fn plain() {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let started = now();
    for _ in 0..ROUNDS {
        there.write_all(b"x").unwrap();
        here.read_exact(&mut [0]).unwrap();
    }
    report("write and read without waiting", started, ROUNDS);
}

/// Two threads that wake each other, each sleeping with an operation pending.
fn wake(kind: Kind) {
    let (tell, told) = std::sync::mpsc::channel();
    let (tell_back, told_back) = std::sync::mpsc::channel();
    let rounds = ROUNDS / 20;
    let play =
        move |tell: std::sync::mpsc::Sender<_>, told: std::sync::mpsc::Receiver<_>, first: bool| {
            let mut driver = Driver::new(kind).unwrap();
            let (here, there) = UnixStream::pair().unwrap();
            let mut buffer = [0];
            // SAFETY: the buffer is not used until the completion has come.
            unsafe { driver.submit(1, &receive(&here, &mut buffer)) }.unwrap();
            tell.send(driver.waker()).unwrap();
            let other: carefree_reactor::Waker = told.recv().unwrap();
            let mut out = Completions::new();
            for round in 0..rounds {
                if round > 0 || !first {
                    while !driver.wait(Some(clock::after(Duration::from_secs(1))), &mut out) {}
                }
                other.wake();
            }
            drop(there);
            while out.is_empty() {
                driver.wait(None, &mut out);
            }
        };
    let other = std::thread::spawn(move || play(tell, told_back, false));
    let started = now();
    play(tell_back, told, true);
    other.join().unwrap();
    report(&format!("{kind}: wake a thread that waits"), started, 2 * rounds);
}

fn main() {
    plain();
    for kind in [Kind::Uring, Kind::Epoll] {
        one(kind);
        many(kind);
        wake(kind);
    }
}
