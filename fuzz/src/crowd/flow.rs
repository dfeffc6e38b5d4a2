//! Bytes and messages from some lanes to others: each must arrive once and whole.

use std::ffi::c_int;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::lane::Lanes;
use crate::object::Family;
use crate::system::{errno, name};
use crate::world::{connected, pipe};

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Transport {
    Pipe,
    Sockets(Family),
}

/// Lanes that write, and others that read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Flow {
    pub transport: Transport,
    pub nonblocking: bool,
    pub writers: u8,
    pub readers: u8,
    /// Records that each writer writes.
    pub records: u16,
    /// Bytes of a record, at most `PIPE_BUF`: such are written as a whole.
    pub size: u16,
    /// Through a second pipe, by splice.
    pub spliced: bool,
    /// Those that read ask by poll first.
    pub polls: bool,
}

pub(super) fn flow() -> impl Strategy<Value = Flow> {
    let transport = prop_oneof![
        3 => Just(Transport::Pipe),
        1 => Just(Transport::Sockets(Family::Stream)),
        1 => Just(Transport::Sockets(Family::Datagram)),
        1 => Just(Transport::Sockets(Family::Packet)),
        1 => Just(Transport::Sockets(Family::Tcp)),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (transport, 1u8..5, 1u8..4, 1u16..200, prop_oneof![8u16..200, Just(4096u16)], flags).prop_map(
        |(transport, writers, readers, records, size, (nonblocking, spliced, polls))| Flow {
            transport,
            nonblocking,
            writers,
            readers,
            records,
            size,
            spliced,
            polls,
        },
    )
}

fn close(fd: c_int) {
    // SAFETY: a number of ours.
    unsafe { libc::close(fd) };
}

fn wait(fd: c_int, events: i16) {
    let mut file = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: a list of one.
    unsafe { libc::poll(&mut file, 1, -1) };
}

/// What readers have seen.
#[derive(Debug, Default)]
struct Seen {
    bytes: u64,
    sum: u64,
    messages: u64,
    problems: Vec<String>,
}

/// A sum in which each byte counts, wherever it lies.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte) * u64::from(*byte) + 1).sum()
}

fn record(writer: u8, number: u16, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at as u16 ^ number.wrapping_mul(7) ^ u16::from(writer)) as u8).collect()
}

impl Flow {
    /// Whether records stay apart.
    fn keeps_records(&self) -> bool {
        matches!(self.transport, Transport::Sockets(Family::Datagram | Family::Packet))
    }

    fn is_spliced(&self) -> bool {
        self.spliced && !self.keeps_records()
    }

    pub(super) fn run(&self, lanes: Lanes) -> Vec<String> {
        let [reads, writes] = match self.transport {
            Transport::Pipe => pipe(0),
            Transport::Sockets(family) => connected(family),
        };
        if self.nonblocking {
            for fd in [reads, writes] {
                // SAFETY: calls with numbers.
                unsafe {
                    libc::fcntl(
                        fd,
                        libc::F_SETFL,
                        libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK,
                    )
                };
            }
        }
        let spliced = self.is_spliced();
        let (end, splicer) = if spliced {
            let [out, into] = pipe(0);
            let splicer = lanes.spawn(move || {
                let problem = splice(reads, into);
                close(into);
                problem
            });
            (out, Some(splicer))
        } else {
            (reads, None)
        };
        let readers: Vec<_> = (0..self.readers)
            .map(|_| {
                let this = self.clone();
                lanes.spawn(move || this.read(end))
            })
            .collect();
        let writers: Vec<_> = (0..self.writers)
            .map(|writer| {
                let this = self.clone();
                lanes.spawn(move || this.write(writes, writer))
            })
            .collect();
        let mut problems: Vec<_> = writers.into_iter().filter_map(|writer| writer.join()).collect();
        self.say_end(writes);
        problems.extend(splicer.and_then(|splicer| splicer.join()));
        let mut seen = Seen::default();
        for reader in readers {
            let one = reader.join();
            seen.bytes += one.bytes;
            seen.sum += one.sum;
            seen.messages += one.messages;
            problems.extend(one.problems);
        }
        if spliced {
            close(end);
        }
        close(reads);
        if self.transport == Transport::Sockets(Family::Datagram) {
            close(writes);
        }
        problems.extend(self.compare(&seen));
        problems
    }

    /// Tells the readers that no more comes.
    fn say_end(&self, writes: c_int) {
        if self.transport != Transport::Sockets(Family::Datagram) {
            return close(writes);
        }
        // Datagrams have no end: each reader gets an empty one.
        for _ in 0..self.readers {
            // SAFETY: no memory is involved.
            while unsafe { libc::send(writes, std::ptr::null(), 0, 0) } < 0
                && errno() == libc::EAGAIN
            {
                wait(writes, libc::POLLOUT);
            }
        }
    }

    fn compare(&self, seen: &Seen) -> Option<String> {
        let size = usize::from(self.size);
        let all = (0..self.writers).flat_map(|writer| {
            (0..self.records).map(move |number| sum(&record(writer, number, size)))
        });
        let records = u64::from(self.writers) * u64::from(self.records);
        let (bytes, sum) = (records * u64::from(self.size), all.sum::<u64>());
        let apart = !self.keeps_records() || seen.messages == records;
        let same = seen.bytes == bytes && seen.sum == sum && apart;
        (!same).then(|| {
            format!(
                "{} bytes of sum {} in {} parts instead of {bytes} of {sum} in {records}",
                seen.bytes, seen.sum, seen.messages
            )
        })
    }

    fn write(&self, fd: c_int, writer: u8) -> Option<String> {
        for number in 0..self.records {
            let bytes = record(writer, number, usize::from(self.size));
            let mut at = 0;
            while at < bytes.len() {
                // SAFETY: a buffer that lives until then.
                let written =
                    unsafe { libc::write(fd, bytes[at..].as_ptr().cast(), bytes.len() - at) };
                match written {
                    -1 if errno() == libc::EAGAIN && self.nonblocking => wait(fd, libc::POLLOUT),
                    -1 => return Some(format!("a write: {}", name(errno()))),
                    0 => return Some("a write of nothing".to_owned()),
                    // In blocking mode all is written; so is, whatever the mode, what a pipe or a
                    // message takes as a whole.
                    part if part < (bytes.len() - at) as isize
                        && (!self.nonblocking
                            || self.transport == Transport::Pipe
                            || self.keeps_records()) =>
                    {
                        return Some(format!("a write of {part} bytes of {}", bytes.len() - at));
                    }
                    part => at += part as usize,
                }
            }
        }
        None
    }

    fn read(&self, fd: c_int) -> Seen {
        let mut seen = Seen::default();
        let mut buffer = vec![0u8; 5000];
        // Behind a splice it is another pipe, in blocking mode.
        let nonblocking = self.nonblocking && !self.is_spliced();
        loop {
            if self.polls {
                wait(fd, libc::POLLIN);
            }
            // SAFETY: a buffer that lives until then.
            let read = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
            match read {
                0 => return seen,
                -1 if errno() == libc::EAGAIN && nonblocking => wait(fd, libc::POLLIN),
                -1 => {
                    seen.problems.push(format!("a read: {}", name(errno())));
                    return seen;
                }
                read => {
                    let bytes = &buffer[..read as usize];
                    seen.bytes += bytes.len() as u64;
                    seen.sum += sum(bytes);
                    seen.messages += 1;
                    if self.keeps_records() && bytes.len() != usize::from(self.size) {
                        seen.problems.push(format!("a message of {read} bytes"));
                    }
                }
            }
        }
    }
}

fn splice(from: c_int, to: c_int) -> Option<String> {
    let null = std::ptr::null_mut::<libc::off_t>();
    loop {
        // SAFETY: no memory is involved.
        match unsafe { libc::splice(from, null, to, null, 10_000, 0) } {
            0 => return None,
            // One end in non-blocking mode makes it not wait for the other either.
            -1 if errno() == libc::EAGAIN => {
                wait(from, libc::POLLIN);
                wait(to, libc::POLLOUT);
            }
            -1 => return Some(format!("a splice: {}", name(errno()))),
            _ => {}
        }
    }
}
