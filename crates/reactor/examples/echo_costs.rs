//! What an echo server on a bare driver costs in processor time per request, with a client on
//! another processor. No fibers: the reactor's share of a server alone.
//!
//! ```text
//! cargo run --release -p carefree-reactor --example echo_costs -- [connections]
//! CAREFREE_URING=deferred cargo run --release -p carefree-reactor --example echo_costs
//! ```

use carefree_reactor::{Attempt, Completions, Driver, Kind, Op};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

const REQUESTS: u64 = 20_000;
const RUNS: usize = 5;
const SIZE: usize = 128;

/// Processor time of this thread in nanoseconds, which other programs do not affect.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: only writes to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Pins this thread to one processor, if there are several.
fn pin(processor: usize) {
    // SAFETY: only reads the set, which is plain old data.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Repeatedly sends a request on every connection and reads every answer.
fn client(mut connections: Vec<TcpStream>) {
    pin(1);
    let mut buffer = [1; SIZE];
    for _ in 0..REQUESTS / connections.len() as u64 {
        for connection in &mut connections {
            connection.write_all(&buffer).unwrap();
        }
        for connection in &mut connections {
            connection.read_exact(&mut buffer).unwrap();
        }
    }
}

/// Answers until all have hung up. Returns the processor time per request in nanoseconds.
fn serve(kind: Kind, connections: usize, try_first: bool) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let there = (0..connections).map(|_| {
        let there = TcpStream::connect(address).unwrap();
        there.set_nodelay(true).unwrap();
        (there, listener.accept().unwrap().0)
    });
    let (there, mut here): (Vec<_>, Vec<_>) = there.unzip();
    let client = std::thread::spawn(move || client(there));
    let mut buffers = vec![[0u8; SIZE]; connections];
    let mut driver = Driver::new(kind).unwrap();
    let (mut open, mut answered) = (connections, 0);
    let mut out = Completions::new();
    let mut turns: Vec<(usize, Option<i32>)> = (0..connections).map(|n| (n, None)).collect();
    let started = now();
    while open > 0 {
        for (number, received) in turns.iter().copied() {
            let (start, length) = (buffers[number].as_mut_ptr(), SIZE);
            let op = Op::Receive { fd: here[number].as_raw_fd(), buffer: start, length, flags: 0 };
            let mut received = received;
            loop {
                match received.take() {
                    Some(0) => {
                        open -= 1;
                        break;
                    }
                    Some(count) => {
                        here[number].write_all(&buffers[number][..count as usize]).unwrap();
                        answered += 1;
                    }
                    None => {}
                }
                if try_first {
                    // SAFETY: the buffer is this connection's own.
                    if let Attempt::Done(count) = unsafe { op.attempt() } {
                        received = Some(count);
                        continue;
                    }
                }
                // SAFETY: the buffer is this connection's own, and not used until the completion
                // has come.
                unsafe { driver.submit(number as u64, &op) }.unwrap();
                break;
            }
        }
        if open > 0 {
            driver.wait(None, &mut out);
        }
        turns.extend(out.iter().copied().map(|done| (done.token as usize, Some(done.result))));
    }
    let spent = now() - started;
    client.join().unwrap();
    spent / answered.max(1)
}

fn main() {
    let connections = std::env::args().nth(1).map_or(64, |text| text.parse().expect("a number"));
    pin(0);
    for kind in [Kind::Uring, Kind::Epoll] {
        for (try_first, how) in [(true, "tried first"), (false, "submitted at once")] {
            let mut runs: Vec<u64> =
                (0..RUNS).map(|_| serve(kind, connections, try_first)).collect();
            runs.sort_unstable();
            println!(
                "{kind:<9} {how:<18} least {:>6} ns, median {:>6} ns",
                runs[0],
                runs[RUNS / 2]
            );
        }
    }
}
