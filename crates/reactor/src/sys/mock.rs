//! The mock: real descriptors, but virtual time and an order of completions drawn from a seed.
//!
//! For tests of programs that wait. Operations that are ready complete in an order that the seed
//! determines. If none is ready and the wait has a deadline, the clock is set forward to it instead of
//! sleeping. Without a deadline the thread sleeps until a descriptor is ready or it is woken.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{file_kind, is_storage};
use super::epoll::{Events, Poller};
use super::poll::poll;
use super::waiting::Waiting;
use crate::clock::{self, Virtual};
use crate::idle::Idle;
use crate::op::{Completion, Completions, Op, Unsupported};

/// How long to sleep at once while time is held.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Mock {
    clock: Arc<Virtual>,
    /// The state of the random number generator.
    random: u64,
    /// The operations under way with their tokens, in the order of submission.
    ops: Vec<(u64, Waiting)>,
    done: Completions,
    /// Watches the bell.
    poller: Poller,
}

impl Mock {
    pub(crate) fn new(seed: u64, clock: Arc<Virtual>, idle: &Idle) -> io::Result<Mock> {
        let poller = Poller::new(Some(idle.bell()))?;
        Ok(Mock { clock, random: seed, ops: Vec::new(), done: Completions::new(), poller })
    }

    /// Discards what belongs to the parent process, as epoll's does.
    pub(crate) fn abandon(self) {
        let Mock { clock, random: _, ops, done, poller } = self;
        std::mem::forget((clock, ops, done));
        drop(poller);
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    pub(crate) fn pending(&self) -> usize {
        self.ops.len() + self.done.len()
    }

    /// # Safety
    /// As for [`Driver::submit`](crate::Driver::submit).
    pub(crate) unsafe fn submit(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        let mut waiting = Waiting::new(op, false).ok_or(Unsupported)?;
        if is_storage(file_kind(waiting.fd)) {
            // As with epoll.
            return Err(Unsupported);
        }
        if waiting.must_not_wait() {
            // SAFETY: the operation's memory is valid from its submission on.
            let result = unsafe { waiting.attempt(None) }.unwrap_or(-libc::EAGAIN);
            self.done.push_or_abort(Completion { token, result });
        } else {
            self.ops.push((token, waiting));
        }
        Ok(())
    }

    pub(crate) fn cancel(&mut self, token: u64) {
        if let Some(index) = self.ops.iter().position(|&(other, _)| other == token) {
            let (token, waiting) = self.ops.remove(index);
            self.done.push_or_abort(Completion { token, result: waiting.end(libc::ECANCELED) });
        }
    }

    pub(crate) fn poll(&mut self, out: &mut Completions) {
        let mut order: Vec<usize> = (0..self.ops.len()).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, self.draw(place + 1));
        }
        let mut ended = vec![false; order.len()];
        for index in order {
            let (token, waiting) = &mut self.ops[index];
            // SAFETY: the submitter keeps the operation's memory valid until the completion.
            if let Some(result) = unsafe { waiting.attempt(None) } {
                self.done.push_or_abort(Completion { token: *token, result });
                ended[index] = true;
            }
        }
        let mut ended = ended.into_iter();
        self.ops.retain(|_| !ended.next().expect("one for each"));
        out.append(&mut self.done);
    }

    pub(crate) fn wait(
        &mut self,
        idle: &Idle,
        deadline: Option<u64>,
        out: &mut Completions,
    ) -> bool {
        let before = out.len();
        self.poll(out);
        if out.len() > before {
            return false;
        }
        let woken = idle.listen(false, || match deadline {
            Some(deadline) if !self.clock.is_held() => self.clock.set_forward(deadline),
            Some(deadline) if self.clock.now() >= deadline => {}
            // A wake-up or the end of the hold tells that the time is no longer held.
            Some(_) => self.sleep(Some(clock::after(LOOK))),
            None => self.sleep(None),
        });
        self.poll(out);
        woken
    }

    /// Sleeps until the bell rings, a descriptor may be ready, or until `limit` on the real clock.
    fn sleep(&mut self, limit: Option<u64>) {
        let mut fds = vec![self.poller.pollfd()];
        fds.extend(self.ops.iter().map(|(_, waiting)| libc::pollfd {
            fd: waiting.fd,
            events: waiting.events as i16,
            revents: 0,
        }));
        let limit = limit.map(|limit| limit.saturating_sub(clock::now()));
        // A failure makes the wait return early, which it may.
        let _ = poll(&mut fds, limit);
        // Consumes the bell's event.
        self.poller.collect(&mut Events::new());
    }

    /// A number below `bound`.
    fn draw(&mut self, bound: usize) -> usize {
        // SplitMix64, for which every seed is good, also 0.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) % bound as u64) as usize
    }
}
