//! Operations that wait for their descriptors, and what becomes of them.
//!
//! # Registrations
//!
//! A descriptor is registered when the first operation waits for it, with `EPOLLONESHOT`: it is
//! reported once and must be armed anew, so descriptors that nobody waits for are never reported,
//! and one registered in several carriers' drivers works in each. It stays registered, disarmed:
//! arming takes one call and registering two.
//!
//! # Numbers that are used again
//!
//! The kernel forgets a registration when the last descriptor of the *file* is closed, and tells
//! nobody. A number may then mean another file. So:
//!
//! * Arming (`EPOLL_CTL_MOD`) finds the registration by number and file. `ENOENT` means the number
//!   is another file's now: what waited for the old one ends with `-EBADF`, and the new one is
//!   registered, with a new *generation*.
//! * An event carries number and generation. If the old file lives on through a duplicate, its
//!   registration does too, and reports under the old generation, which is ignored (once, for it
//!   is disarmed by that).
//! * Before a call is made after an event, registering once more must fail with `EEXIST`: that is
//!   how the kernel says that number and file still belong together. (Without operations waiting
//!   there is no call to make.) What another thread does to the number from there to the call is a
//!   race that plain blocking calls have too.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::RawFd;

use super::poller::{BELL, Change, Events, Poller};
use crate::idle::Idle;
use crate::op::{Completion, Op, Unsupported};
use crate::sys::waiting::Waiting;

/// A name that is ignored: that of descriptor -1 in a generation that was never given.
const NOBODY: u64 = u32::MAX as u64;
/// Reported whether asked for or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

#[derive(Debug)]
pub(crate) struct Watcher {
    poller: Poller,
    /// The operations under way, by token.
    ops: HashMap<u64, Waiting>,
    watches: HashMap<RawFd, Watch>,
    /// Completions to hand out.
    done: Vec<Completion>,
    /// The last generation given.
    generation: u32,
}

/// A registered descriptor.
#[derive(Debug)]
struct Watch {
    generation: u32,
    /// What the kernel reports next, 0 when disarmed.
    armed: u32,
    /// Who waits for it, in order.
    waiting: VecDeque<u64>,
}

impl Watcher {
    /// Lets go of an epoll that belongs to the parent process: closing the child's descriptor
    /// changes nothing in it.
    pub(crate) fn abandon(self) {
        // Not the tables: their owner may have been changing them.
        let Watcher { poller, ops, watches, done, generation: _ } = self;
        std::mem::forget((ops, watches, done));
        drop(poller);
    }

    pub(crate) fn new(idle: &Idle) -> io::Result<Watcher> {
        Ok(Watcher {
            poller: Poller::new(idle.bell())?,
            ops: HashMap::new(),
            watches: HashMap::new(),
            done: Vec::new(),
            generation: 0,
        })
    }

    pub(crate) fn pending(&self) -> usize {
        self.ops.len() + self.done.len()
    }

    /// # Safety
    /// As for [`Driver::submit`](crate::Driver::submit).
    pub(crate) unsafe fn submit(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        let mut waiting = Waiting::new(op).ok_or(Unsupported)?;
        if waiting.must_not_wait() {
            // SAFETY: the caller's promise.
            let result = unsafe { waiting.attempt() }.unwrap_or(-libc::EAGAIN);
            self.done.push(Completion { token, result });
            return Ok(());
        }
        let fd = waiting.fd;
        match self.watch(fd, waiting.events) {
            Ok(()) => {}
            Err(libc::EBADF) => {
                self.done.push(Completion { token, result: -libc::EBADF });
                return Ok(());
            }
            // Files on disks are always ready, says epoll, and refuses them (EPERM). Or there is no
            // room for one more registration.
            Err(_) => return Err(Unsupported),
        }
        let watch = self.watches.get_mut(&fd).expect("just registered");
        watch.waiting.push_back(token);
        self.ops.insert(token, waiting);
        Ok(())
    }

    pub(crate) fn cancel(&mut self, token: u64) {
        let Some(waiting) = self.ops.remove(&token) else {
            return;
        };
        if let Some(watch) = self.watches.get_mut(&waiting.fd) {
            watch.waiting.retain(|&other| other != token);
        }
        self.done.push(Completion { token, result: waiting.end(libc::ECANCELED) });
    }

    pub(crate) fn poll(&mut self, out: &mut Vec<Completion>) {
        let mut events = Events::new();
        while !self.ops.is_empty() {
            let happened = self.poller.collect(&mut events);
            self.note(happened);
            if !Events::may_be_more(happened.len()) {
                break;
            }
        }
        out.append(&mut self.done);
    }

    pub(crate) fn wait(
        &mut self,
        idle: &Idle,
        deadline: Option<u64>,
        out: &mut Vec<Completion>,
    ) -> bool {
        if !self.done.is_empty() {
            self.poll(out);
            return false;
        }
        if self.ops.is_empty() {
            // A futex is cheaper to be woken from.
            return idle.wait(deadline);
        }
        let mut events = Events::new();
        let mut happened: &[libc::epoll_event] = &[];
        let poller = &mut self.poller;
        let woken = idle.listen(deadline.is_some(), || {
            happened = poller.wait(deadline, &mut events);
        });
        self.note(happened);
        if Events::may_be_more(happened.len()) {
            self.poll(out);
        }
        out.append(&mut self.done);
        woken
    }

    /// Sees to it that `fd` is reported when `events` happen, besides what is reported already.
    fn watch(&mut self, fd: RawFd, events: u32) -> Result<(), i32> {
        let name = |generation: u32| u64::from(generation) << 32 | fd as u64;
        let shot = libc::EPOLLONESHOT as u32;
        if let Some(watch) = self.watches.get_mut(&fd) {
            let all = watch.armed | events;
            match self.poller.control(Change::Modify, fd, all | shot, name(watch.generation)) {
                Ok(()) => {
                    watch.armed = all;
                    return Ok(());
                }
                Err(errno @ (libc::ENOENT | libc::EBADF)) => {
                    self.unwatch(fd, libc::EBADF);
                    if errno == libc::EBADF {
                        return Err(errno);
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
        let generation = self.generation.wrapping_add(1);
        let name = name(generation);
        match self.poller.control(Change::Add, fd, events | shot, name) {
            // Registered by the look at who has the number (below), under no name.
            Err(libc::EEXIST) => self.poller.control(Change::Modify, fd, events | shot, name)?,
            result => result?,
        }
        self.generation = generation;
        let watch = Watch { generation, armed: events, waiting: VecDeque::new() };
        self.watches.insert(fd, watch);
        Ok(())
    }

    /// Ends what waits for a descriptor that was closed, or cannot be watched any more.
    fn unwatch(&mut self, fd: RawFd, errno: i32) {
        let Some(watch) = self.watches.remove(&fd) else {
            return;
        };
        for token in watch.waiting {
            let waiting = self.ops.remove(&token).expect("waiting operations are under way");
            self.done.push(Completion { token, result: waiting.end(errno) });
        }
    }

    /// Makes the calls that events allow.
    fn note(&mut self, happened: &[libc::epoll_event]) {
        for event in happened {
            let (name, events) = (event.u64, event.events);
            // The bell has done its work by ending the wait.
            if name != BELL {
                self.happened(name as u32 as RawFd, (name >> 32) as u32, events);
            }
        }
    }

    fn happened(&mut self, fd: RawFd, generation: u32, events: u32) {
        let Some(watch) = self.watches.get_mut(&fd).filter(|w| w.generation == generation) else {
            return;
        };
        watch.armed = 0;
        if watch.waiting.is_empty() {
            return;
        }
        match self.poller.control(Change::Add, fd, libc::EPOLLONESHOT as u32, NOBODY) {
            Err(libc::EEXIST) => {}
            // Another file has the number now (and is registered, to be found by its first
            // operation), or none has it.
            Ok(()) | Err(libc::EBADF) => return self.unwatch(fd, libc::EBADF),
            // No memory to find out, or the like: the call will tell.
            Err(_) => {}
        }
        let mut left = VecDeque::new();
        // Whether one who reads, or writes, has found that there is nothing left to do.
        let mut exhausted = 0;
        let mut wanted = 0;
        for token in std::mem::take(&mut watch.waiting) {
            let waiting = self.ops.get_mut(&token).expect("waiting operations are under way");
            let concerned = events & (waiting.events | ALWAYS) != 0;
            let poll = waiting.is_poll();
            if concerned && (poll || exhausted & waiting.events == 0) {
                // SAFETY: who submitted it keeps the memory valid until the completion.
                if let Some(result) = unsafe { waiting.attempt() } {
                    self.ops.remove(&token);
                    self.done.push(Completion { token, result });
                    continue;
                }
                if !poll {
                    exhausted |= waiting.events;
                }
            }
            wanted |= waiting.events;
            left.push_back(token);
        }
        watch.waiting = left;
        if wanted != 0 {
            if let Err(errno) = self.watch(fd, wanted) {
                // Closed by another thread meanwhile; or no memory, of which those who wait would
                // never learn otherwise.
                self.unwatch(fd, errno);
            }
        }
    }
}
