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
//!
//! # Crowds
//!
//! Thousands may wait for one descriptor: readers of a queue, acceptors of a listener. They stand in
//! lines ([`Line`]), in the order they came. An event is work for the front of a line only: its
//! operation is tried, and if that succeeds the next one's, until one would have to wait, and so all
//! behind it would. So there is one try for each success, and one more for each event, however long
//! the line is.
//!
//! *No wake-up is lost.* Outside [`Watcher::happened`], each line that is not empty is armed with the
//! kernel, or an event about it is still to be collected:
//!
//! * Who joins a line arms its descriptor afterwards. Arming looks at once whether it is ready, so what
//!   happened before is reported.
//! * An event disarms the descriptor, whatever it reports. `happened` arms it anew for all lines in
//!   which somebody is left, those it did not concern too. What happened between the last try and that is
//!   reported by the same look.
//! * There is nobody who was woken and has still to make use of it: who leaves the front has succeeded,
//!   or failed for good, and the next was tried after that. Who is cancelled, or timed out, leaves the
//!   line from wherever it stands in it; others wait as before. A completion that somebody does not
//!   want any more is his who has it: what it read counts as read.
//! * A hang-up or an error concerns every line: all whose calls do not wait any more end at once.

use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;

use super::line::Line;
use super::poller::{BELL, Change, Events, Poller};
use crate::idle::Idle;
use crate::op::{Completion, Op, Unsupported};
use crate::sys::acceptor::Acceptor;
use crate::sys::waiting::Waiting;

/// A name that is ignored: that of descriptor -1 in a generation that was never given.
const NOBODY: u64 = u32::MAX as u64;
/// Reported whether asked for or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

#[derive(Debug)]
pub(crate) struct Watcher {
    poller: Poller,
    /// The operations under way, by token.
    ops: HashMap<u64, Member>,
    watches: HashMap<RawFd, Watch>,
    /// Completions to hand out.
    done: Vec<Completion>,
    /// The last generation given.
    generation: u32,
    /// The last place in a line given.
    place: u64,
    /// Accepts without waiting; without it, another process may be faster.
    acceptor: Acceptor,
}

/// An operation in a line.
#[derive(Debug)]
struct Member {
    waiting: Waiting,
    line: usize,
    /// When it came: the numbers rise along each line.
    place: u64,
}

/// A registered descriptor.
#[derive(Debug)]
struct Watch {
    generation: u32,
    /// What the kernel reports next, 0 when disarmed.
    armed: u32,
    /// Who waits for it: in lines, by what for.
    lines: [Line; LINES],
}

const LINES: usize = 3;
/// Those who read, receive or accept.
const IN: usize = 0;
/// Those who write or send.
const OUT: usize = 1;
/// Those of whom each may go on or not for itself: they poll, or receive urgent data. Each is tried at
/// each event.
const EACH: usize = 2;

/// In which line an operation waits.
fn line_of(waiting: &Waiting) -> usize {
    match waiting.events as i32 {
        _ if waiting.is_poll() => EACH,
        libc::EPOLLIN => IN,
        libc::EPOLLOUT => OUT,
        _ => EACH,
    }
}

impl Watcher {
    /// Lets go of an epoll that belongs to the parent process: closing the child's descriptor
    /// changes nothing in it.
    pub(crate) fn abandon(self) {
        // Not the tables: their owner may have been changing them.
        let Watcher { poller, ops, watches, done, generation: _, place: _, acceptor } = self;
        std::mem::forget((ops, watches, done));
        drop(poller);
        acceptor.abandon();
    }

    pub(crate) fn new(idle: &Idle) -> io::Result<Watcher> {
        Ok(Watcher::with(Poller::new(Some(idle.bell()))?))
    }

    /// One not to be slept in: when [`fd`](Self::fd) is readable there is something to
    /// [collect](Self::collect).
    pub(crate) fn polled() -> io::Result<Watcher> {
        Ok(Watcher::with(Poller::new(None)?))
    }

    fn with(poller: Poller) -> Watcher {
        Watcher {
            poller,
            ops: HashMap::new(),
            watches: HashMap::new(),
            done: Vec::new(),
            generation: 0,
            place: 0,
            acceptor: Acceptor::none(),
        }
    }

    /// The instance's descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.poller.pollfd().fd
    }

    /// Has connections accepted in a way that does not wait even if another process takes them.
    /// Where that cannot be had, nothing changes.
    pub(crate) fn make_acceptor(&mut self) {
        if !self.acceptor.is_there() {
            let _ = self.acceptor.make();
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.ops.len() + self.done.len()
    }

    /// Whether operations wait for `fd` to be readable.
    pub(crate) fn is_waited_for(&self, fd: RawFd) -> bool {
        self.watches.get(&fd).is_some_and(|watch| !watch.lines[IN].is_empty())
    }

    /// Accepts a connection if one is there; whether it did, or can never.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    pub(crate) unsafe fn accept(&mut self, token: u64, op: &Op) -> bool {
        let Some(mut waiting) = Waiting::new(op, self.acceptor.is_there()) else { return false };
        // SAFETY: the caller's promise.
        let result = unsafe { waiting.attempt(self.acceptor.as_mut()) };
        self.done.extend(result.map(|result| Completion { token, result }));
        result.is_some()
    }

    /// # Safety
    /// As for [`Driver::submit`](crate::Driver::submit).
    pub(crate) unsafe fn submit(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        let mut waiting = Waiting::new(op, self.acceptor.is_there()).ok_or(Unsupported)?;
        if waiting.must_not_wait() {
            // SAFETY: the caller's promise.
            let result =
                unsafe { waiting.attempt(self.acceptor.as_mut()) }.unwrap_or(-libc::EAGAIN);
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
        self.place += 1;
        let line = line_of(&waiting);
        watch.lines[line].join(self.place, token);
        self.ops.insert(token, Member { waiting, line, place: self.place });
        Ok(())
    }

    /// Whether there was such an operation.
    pub(crate) fn cancel(&mut self, token: u64) -> bool {
        let Some(Member { waiting, line, .. }) = self.ops.remove(&token) else {
            return false;
        };
        if let Some(watch) = self.watches.get_mut(&waiting.fd) {
            watch.lines[line].left(|place, token| stands(&self.ops, place, token));
        }
        self.done.push(Completion { token, result: waiting.end(libc::ECANCELED) });
        true
    }

    pub(crate) fn poll(&mut self, out: &mut Vec<Completion>) {
        if !self.ops.is_empty() {
            self.collect();
        }
        self.hand_out(out);
    }

    /// Makes the calls that what has happened allows, until nothing is left to be reported.
    pub(crate) fn collect(&mut self) {
        let mut events = Events::new();
        loop {
            let happened = self.poller.collect(&mut events);
            self.note(happened);
            if !Events::may_be_more(happened.len()) {
                break;
            }
        }
    }

    /// Appends what is done to `out`.
    #[inline]
    pub(crate) fn hand_out(&mut self, out: &mut Vec<Completion>) {
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
        let watch = Watch { generation, armed: events, lines: Default::default() };
        self.watches.insert(fd, watch);
        Ok(())
    }

    /// Ends what waits for a descriptor that was closed, or cannot be watched any more.
    fn unwatch(&mut self, fd: RawFd, errno: i32) {
        let Some(watch) = self.watches.remove(&fd) else {
            return;
        };
        for (place, token) in watch.lines.iter().flat_map(Line::places) {
            if !stands(&self.ops, place, token) {
                continue;
            }
            let member = self.ops.remove(&token).expect("what stands in line is under way");
            self.done.push(Completion { token, result: member.waiting.end(errno) });
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
        if watch.lines.iter().all(Line::is_empty) {
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
        let mut wanted = 0;
        for (line, asked) in [(IN, libc::EPOLLIN as u32), (OUT, libc::EPOLLOUT as u32)] {
            let line = &mut watch.lines[line];
            let concerned = events & (asked | ALWAYS) != 0;
            let first = |ops: &HashMap<u64, Member>, line: &mut Line| {
                line.front(|place, token| stands(ops, place, token)).filter(|_| concerned)
            };
            while let Some(token) = first(&self.ops, line) {
                // SAFETY: who submitted it keeps the memory valid until the completion.
                if !unsafe { advance(&mut self.ops, &mut self.done, &mut self.acceptor, token) } {
                    break;
                }
                line.served();
            }
            if !line.is_empty() {
                wanted |= asked;
            }
        }
        watch.lines[EACH].retain(|place, token| {
            if !stands(&self.ops, place, token) {
                return false;
            }
            let asked = self.ops[&token].waiting.events;
            // SAFETY: as above.
            let gone = events & (asked | ALWAYS) != 0
                && unsafe { advance(&mut self.ops, &mut self.done, &mut self.acceptor, token) };
            if !gone {
                wanted |= asked;
            }
            !gone
        });
        if wanted != 0 {
            if let Err(errno) = self.watch(fd, wanted) {
                // Closed by another thread meanwhile; or no memory, of which those who wait would
                // never learn otherwise.
                self.unwatch(fd, errno);
            }
        }
    }
}

/// Whether the operation with this token is the one that was given this place in a line.
fn stands(ops: &HashMap<u64, Member>, place: u64, token: u64) -> bool {
    ops.get(&token).is_some_and(|member| member.place == place)
}

/// Tries an operation under way; tells whether it is done.
///
/// # Safety
/// Its memory is valid.
unsafe fn advance(
    ops: &mut HashMap<u64, Member>,
    done: &mut Vec<Completion>,
    acceptor: &mut Acceptor,
    token: u64,
) -> bool {
    let member = ops.get_mut(&token).expect("who stands in line is under way");
    // SAFETY: the caller's promise.
    let Some(result) = (unsafe { member.waiting.attempt(acceptor.as_mut()) }) else {
        return false;
    };
    ops.remove(&token);
    done.push(Completion { token, result });
    true
}
