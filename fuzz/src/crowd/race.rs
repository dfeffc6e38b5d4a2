//! Lanes that wait for a file while another one changes it: each call must end, with one of the
//! answers that are allowed.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::flow::Transport;
use crate::lane::Lanes;
use crate::object::Family;
use crate::system::{errno, name};
use crate::world::{connected, pipe};

/// What happens to the file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Rival {
    /// Its number is closed.
    Closes,
    /// Another file gets its number.
    Replaces,
    /// Its other end is closed.
    ClosesPeer,
    /// It is shut down.
    ShutsDown,
    /// Something comes.
    Writes,
    /// It gets non-blocking, and something comes.
    ChangesMode,
}

/// Lanes that wait, and one that does something about it; again and again.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Race {
    pub transport: Transport,
    pub rival: Rival,
    /// They ask by poll, and do not read.
    pub polls: bool,
    pub waiters: u8,
    pub rounds: u8,
    /// Microseconds before the rival acts.
    pub delay: u16,
}

pub(super) fn race() -> impl Strategy<Value = Race> {
    let transport = prop_oneof![
        3 => Just(Transport::Pipe),
        1 => Just(Transport::Sockets(Family::Stream)),
        1 => Just(Transport::Sockets(Family::Packet)),
        1 => Just(Transport::Sockets(Family::Tcp)),
    ];
    let rival = prop_oneof![
        3 => Just(Rival::Closes),
        1 => Just(Rival::Replaces),
        1 => Just(Rival::ClosesPeer),
        1 => Just(Rival::ShutsDown),
        1 => Just(Rival::Writes),
        1 => Just(Rival::ChangesMode),
    ];
    let delay = prop_oneof![Just(0u16), 1u16..50, 50u16..500];
    (transport, rival, prop_oneof![3 => Just(false), 1 => Just(true)], 1u8..4, 5u8..40, delay)
        .prop_map(|(transport, rival, polls, waiters, rounds, delay)| Race {
            transport,
            rival,
            polls,
            waiters,
            rounds,
            delay,
        })
}

fn close(fd: c_int) {
    // SAFETY: a number of ours.
    unsafe { libc::close(fd) };
}

/// Bytes that are written to end a wait: one for each that waits.
fn write(fd: c_int, count: u8) {
    for _ in 0..count {
        // SAFETY: a byte.
        unsafe { libc::write(fd, c"x".as_ptr().cast(), 1) };
    }
}

impl Race {
    pub(super) fn run(&self, lanes: Lanes) -> Vec<String> {
        (0..self.rounds).flat_map(|_| self.round(lanes)).take(5).collect()
    }

    /// How a wait may end: by a byte or a report (1), by the end (0), or by an error.
    fn may_be(&self, answer: isize, errno: c_int) -> bool {
        let closed = matches!(self.rival, Rival::Closes | Rival::Replaces);
        match answer {
            1 => true,
            // A fiber's wait ends when the file is closed, and it has no more to wait for then;
            // a thread's goes on until something comes, or the file is closed at its other end.
            0 => !self.polls && !matches!(self.rival, Rival::Writes),
            _ => match errno {
                libc::EBADF => closed,
                // Another lane was faster.
                libc::EAGAIN => self.rival == Rival::ChangesMode && !self.polls,
                libc::ECONNRESET => {
                    self.transport == Transport::Sockets(Family::Tcp)
                        || self.rival == Rival::ClosesPeer
                }
                _ => false,
            },
        }
    }

    fn round(&self, lanes: Lanes) -> Vec<String> {
        let [fd, other] = match self.transport {
            Transport::Pipe => pipe(0),
            Transport::Sockets(family) => connected(family),
        };
        let started = Arc::new(AtomicU32::new(0));
        let waiters: Vec<_> = (0..self.waiters)
            .map(|_| {
                let (polls, started) = (self.polls, Arc::clone(&started));
                lanes.spawn(move || {
                    started.fetch_add(1, Ordering::Relaxed);
                    let mut byte = 0u8;
                    let mut file = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                    // SAFETY: a byte, or a list of one.
                    let answer = unsafe {
                        match polls {
                            true => libc::poll(&mut file, 1, -1) as isize,
                            false => libc::read(fd, (&raw mut byte).cast(), 1),
                        }
                    };
                    (answer, if answer < 0 { errno() } else { 0 })
                })
            })
            .collect();
        let rival = self.clone();
        let rival = lanes.spawn(move || {
            while started.load(Ordering::Relaxed) < u32::from(rival.waiters) {
                thread::yield_now();
            }
            if rival.delay > 0 {
                thread::sleep(Duration::from_micros(rival.delay.into()));
            }
            rival.act(fd, other)
        });
        let (open, other_open) = rival.join();
        // What still waits is given something: a thread waits on when its file is closed.
        if other_open {
            write(other, self.waiters);
            close(other);
        }
        let mut problems = Vec::new();
        for waiter in waiters {
            let (answer, errno) = waiter.join();
            if !self.may_be(answer, errno) {
                let how = if answer < 0 { name(errno) } else { answer.to_string() };
                problems.push(format!("a wait ended with {how}"));
            }
        }
        if open {
            close(fd);
        }
        problems
    }

    /// Whether the file and its other end are open afterwards.
    fn act(&self, fd: c_int, other: c_int) -> (bool, bool) {
        match self.rival {
            Rival::Closes => {
                close(fd);
                (false, true)
            }
            Rival::Replaces => {
                let [reads, writes] = pipe(0);
                close(writes);
                // SAFETY: calls with numbers.
                unsafe { libc::dup2(reads, fd) };
                close(reads);
                (true, true)
            }
            Rival::ClosesPeer => {
                close(other);
                (true, false)
            }
            Rival::ShutsDown => {
                // SAFETY: a call with numbers.
                if unsafe { libc::shutdown(fd, libc::SHUT_RDWR) } < 0 {
                    // A pipe is none.
                    write(other, self.waiters);
                }
                (true, true)
            }
            Rival::Writes => {
                write(other, self.waiters);
                (true, true)
            }
            Rival::ChangesMode => {
                // SAFETY: a call with numbers.
                unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
                write(other, self.waiters);
                (true, true)
            }
        }
    }
}
