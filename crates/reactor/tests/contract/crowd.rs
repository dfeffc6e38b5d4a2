//! Many operations on one descriptor: each ends once, none is forgotten, and a long line takes no
//! more tries than a short one.

use super::kit::*;
use carefree_reactor::{Completions, Kind, Op, clock, faults};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

over_all! {
    a_crowd_is_served_byte_by_byte
    a_hang_up_ends_all_of_a_crowd
    cancelling_at_the_front_does_not_delay_others
    no_wake_up_is_lost_in_a_crowd
}

const CROWD: usize = 2_000;

/// Counts the calling thread's attempts to read while this exists.
struct Tries(Rc<Cell<usize>>);

impl Tries {
    fn count() -> Tries {
        let tries = Rc::new(Cell::new(0));
        let counter = Rc::clone(&tries);
        faults::set(Some(Box::new(move |number| {
            if matches!(number, libc::SYS_preadv2 | libc::SYS_recvfrom) {
                counter.set(counter.get() + 1);
            }
            None
        })));
        Tries(tries)
    }
}

impl Drop for Tries {
    fn drop(&mut self) {
        faults::set(None);
    }
}

fn a_crowd_is_served_byte_by_byte(kind: Kind) {
    // The mock tries all operations, in a random order; and after a hundred failed wake-ups a ring
    // uses a kernel thread for an operation.
    let crowd = if kind == Kind::Epoll { CROWD } else { 50 };
    let mut bench = Bench::new(kind);
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut buffers = vec![[0u8; 1]; crowd];
    for (token, buffer) in (0..).zip(&mut buffers) {
        bench.start(token, receive(&here, buffer, 0));
    }
    bench.poll();
    let tries = Tries::count();
    let mut served = Vec::new();
    for number in 0..crowd {
        there.write_all(&[number as u8]).unwrap();
        let end = clock::after(PATIENCE);
        while served.len() <= number {
            assert!(clock::now() < end, "byte {number} is not read");
            let mut out = Completions::new();
            bench.driver.wait((kind != Kind::Mock).then_some(end), &mut out);
            served.extend(out.iter().copied());
        }
    }
    let tried = tries.0.get();
    drop(tries);
    if kind == Kind::Epoll {
        assert!(tried <= 2 * crowd, "{tried} tries for {crowd} bytes");
        assert!(served.is_sorted_by_key(|done| done.token), "not in the order of submission");
    }
    let mut tokens: Vec<u64> = served.iter().map(|done| done.token).collect();
    tokens.sort_unstable();
    assert!(tokens.iter().copied().eq(0..crowd as u64), "each ends once");
    assert!(served.iter().all(|done| done.result == 1));
    for (number, done) in served.iter().enumerate() {
        // A ring does not tell which of several simultaneous completions was first.
        let got = buffers[done.token as usize][0];
        assert!(kind == Kind::Uring || got == number as u8, "{got} for {number}");
    }
}

fn a_hang_up_ends_all_of_a_crowd(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, there) = UnixStream::pair().unwrap();
    let mut buffers = vec![[0u8; 1]; 300];
    for (token, buffer) in (0..).zip(&mut buffers) {
        let op = if token % 3 == 0 { poll(&here, libc::POLLIN) } else { read(&here, buffer) };
        bench.start(token, op);
    }
    bench.is_waiting(299);
    drop(there);
    for token in 0..300 {
        let result = bench.finish(token);
        if token % 3 == 0 {
            assert_ne!(result & i32::from(libc::POLLHUP | libc::POLLIN), 0, "{result}");
        } else {
            assert_eq!(result, 0);
        }
    }
}

fn cancelling_at_the_front_does_not_delay_others(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut buffers = vec![[0u8; 1]; 100];
    for (token, buffer) in (0..).zip(&mut buffers) {
        bench.start(token, receive(&here, buffer, 0));
    }
    bench.is_waiting(99);
    // A byte arrives for the front operation, which is cancelled at the same time.
    there.write_all(b"a").unwrap();
    for token in (0..100).filter(|token| token % 10 != 9) {
        bench.driver.cancel(token);
    }
    let mut served = 0;
    for token in (0..100).filter(|token| token % 10 != 9) {
        match bench.finish(token) {
            1 => served += 1,
            result => assert!([-libc::ECANCELED, -libc::EINTR].contains(&result), "{result}"),
        }
    }
    // One byte went to one of the hundred; the rest are for the remaining ones.
    there.write_all(&b"bcdefghijk"[..9 + served]).unwrap();
    for token in (0..100).filter(|token| token % 10 == 9) {
        assert_eq!(bench.finish(token), 1, "{token}");
    }
}

/// One socket and its operations: readers, pollers and senders, each with its buffer.
struct Crowd {
    here: UnixStream,
    there: UnixStream,
    under_way: BTreeMap<u64, (What, Box<[u8]>)>,
    next: u64,
    /// Bytes written at the other end, and read here.
    written: usize,
    read: usize,
    /// Bytes sent here, and received at the other end.
    sent: usize,
    received: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Reads,
    Polls,
    Sends,
}

impl Crowd {
    fn new() -> Crowd {
        let (here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        Crowd {
            here,
            there,
            under_way: BTreeMap::new(),
            next: 0,
            written: 0,
            read: 0,
            sent: 0,
            received: 0,
        }
    }

    fn join(&mut self, bench: &mut Bench, what: What, length: usize) {
        let mut buffer = vec![7u8; length].into_boxed_slice();
        let op: Op = match what {
            What::Reads => receive(&self.here, &mut buffer, 0),
            What::Polls => poll(&self.here, libc::POLLIN),
            What::Sends => send(&self.here, &buffer, 0),
        };
        bench.start(self.next, op);
        self.under_way.insert(self.next, (what, buffer));
        self.next += 1;
    }

    fn collect(&mut self, bench: &mut Bench, soon: Duration) {
        let mut out = Completions::new();
        let deadline = clock::add(bench.driver.now(), soon);
        bench.driver.wait(Some(deadline), &mut out);
        for done in out.iter() {
            let (what, _buffer) = self.under_way.remove(&done.token).expect("it ends once");
            match (what, done.result) {
                (_, result) if result == -libc::ECANCELED || result == -libc::EINTR => {}
                (What::Reads, result) => self.read += usize::try_from(result).expect("it reads"),
                (What::Sends, result) => self.sent += usize::try_from(result).expect("it sends"),
                (What::Polls, result) => assert_ne!(result & i32::from(libc::POLLIN), 0),
            }
        }
    }

    fn waits(&self, what: What) -> bool {
        self.under_way.values().any(|(operation, _)| *operation == what)
    }

    fn is_ready(&self, events: i16) -> bool {
        let mut one = libc::pollfd { fd: self.here.as_raw_fd(), events, revents: 0 };
        // SAFETY: one structure to read and write.
        unsafe { libc::poll(&raw mut one, 1, 0) == 1 && one.revents & events != 0 }
    }

    /// Asserts that no operation waits although it could complete.
    fn settle(&mut self, bench: &mut Bench, seed: u64) {
        let end = clock::after(PATIENCE);
        loop {
            self.collect(bench, Duration::from_micros(50));
            let reads = self.waits(What::Reads) || self.waits(What::Polls);
            let forgotten = (reads && self.is_ready(libc::POLLIN))
                || (self.waits(What::Sends) && self.is_ready(libc::POLLOUT));
            if !forgotten {
                return;
            }
            assert!(clock::now() < end, "an operation waits though it could complete, seed {seed}");
        }
    }

    /// The other end receives what was sent.
    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            match self.there.read(&mut buffer) {
                Ok(count) => self.received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn no_wake_up_is_lost_in_a_crowd(kind: Kind) {
    for seed in 1..=3 {
        let mut random = Random(seed);
        let mut bench = Bench::new(kind);
        let mut crowd = Crowd::new();
        for _ in 0..1_500 {
            match random.below(12) {
                0..=3 if crowd.under_way.len() < 200 => {
                    crowd.join(&mut bench, What::Reads, 1 + random.below(3) as usize);
                }
                4 if crowd.under_way.len() < 200 => crowd.join(&mut bench, What::Polls, 0),
                5 if crowd.under_way.len() < 200 => {
                    crowd.join(&mut bench, What::Sends, 1 + random.below(60_000) as usize);
                }
                6 | 7 => {
                    let length = random.below(5) as usize;
                    match crowd.there.write(&[7; 5][..length]) {
                        Ok(count) => crowd.written += count,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                }
                // Cancelled as by a timeout: any operation, at the front or within the line.
                8 | 9 => {
                    let alive = crowd.under_way.len() as u64;
                    let token = crowd.under_way.keys().nth(random.below(alive.max(1)) as usize);
                    token.into_iter().for_each(|token| bench.driver.cancel(*token));
                }
                10 => crowd.drain(),
                _ => crowd.settle(&mut bench, seed),
            }
        }
        crowd.settle(&mut bench, seed);
        // The senders continue when there is room, and then the peer hangs up: all operations end.
        let end = clock::after(PATIENCE);
        while crowd.waits(What::Sends) {
            assert!(clock::now() < end, "senders are forgotten, seed {seed}");
            crowd.drain();
            crowd.collect(&mut bench, Duration::from_micros(50));
        }
        crowd.there.shutdown(Shutdown::Write).unwrap();
        while !crowd.under_way.is_empty() {
            assert!(clock::now() < end, "{} do not end, seed {seed}", crowd.under_way.len());
            crowd.collect(&mut bench, Duration::from_millis(1));
        }
        crowd.drain();
        crowd.read += crowd.here.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!((crowd.read, crowd.received), (crowd.written, crowd.sent), "seed {seed}");
    }
}
