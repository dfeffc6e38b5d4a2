//! Operations that wait for their descriptors.
//!
//! # Registrations
//!
//! A descriptor is registered when the first operation waits for it, with `EPOLLONESHOT`: it is
//! reported once and must then be armed again. So a descriptor without waiting operations is never
//! reported, and one registered in several carriers' drivers works in each. It stays registered,
//! disarmed: arming takes one call and registering two.
//!
//! # Reused numbers
//!
//! The kernel drops a registration when the last descriptor of the *file* is closed, without
//! notice. The number may then mean another file. So:
//!
//! * Arming (`EPOLL_CTL_MOD`) finds the registration by number and file. `ENOENT` means the number
//!   is another file's now: operations that waited for the old file end with `-EBADF`, and the new one
//!   is registered, with a new *generation*.
//! * An event carries number and generation. If the old file lives on through a duplicate, its
//!   registration does too, and reports under the old generation. That event is ignored, and has
//!   disarmed the registration.
//! * Before a call is made after an event, another registration must fail with `EEXIST`, which shows
//!   that number and file still belong together. (Without waiting operations
//!   there is no call to make.) If another thread changes the number between that and the call, plain
//!   blocking calls have the same race.
//!
//! # Many operations on one descriptor
//!
//! Thousands may wait for one descriptor: readers of a queue, acceptors of a listener. They wait in
//! lines ([`Line`]), in the order of their submission. An event concerns the front of a line only: its
//! operation is tried, and if that succeeds the next, until one would have to wait, as then would all
//! behind it. So there is one try for each success, and one more for each event, however long
//! the line is.
//!
//! *No wake-up is lost.* Outside of [`Watcher::happened`], each line that is not empty is armed
//! with the kernel, or an event about it is still to be collected:
//!
//! * An operation that joins a line arms the descriptor afterwards. Arming checks at once whether the
//!   descriptor is ready, so an earlier event is reported.
//! * An event disarms the descriptor, whatever it reports. `happened` arms it again for all lines that
//!   are not empty, also those that the event did not concern. An event between the last try and that
//!   is reported by the same check.
//! * No operation is woken and then fails to use the event: one that leaves the front has succeeded,
//!   or failed for good, and the next was tried after that. One that is cancelled leaves the line from
//!   any place in it, and the others wait as before. If the owner of a completion no longer wants it,
//!   what was read still counts as read.
//! * A hang-up or an error concerns every line: all operations whose calls no longer wait end at once.
//!
//! # Errors that stay
//!
//! epoll reports an error always, whether asked for or not. Some errors end no call: while a socket has notices in its
//! error queue (`IP_RECVERR`, `MSG_ZEROCOPY`), which only `recvmsg` with `MSG_ERRQUEUE` takes out, a read still waits
//! for data. Armed again, such a descriptor would be reported at once, over and over. So after [`VAIN`] events in a row
//! with an error that ended no operation, the descriptor is armed for changes (`EPOLLET`) in place of one report: that is
//! reported once more, and then for each thing that arrives. It stays armed, until an event has no error, or comes when no
//! operation waits. (Not after the first such event: a call may fail to notice the error for another reason, and there is no
//! change that would have it tried again.)

use std::io;
use std::os::fd::RawFd;

use rustc_hash::FxHashMap;

use super::line::Line;
use super::poller::{BELL, Change, Events, Poller};
use crate::idle::Idle;
use crate::op::{Completion, Completions, Op, Unsupported};
use crate::sys::acceptor::Acceptor;
use crate::sys::waiting::Waiting;

/// A name that is ignored: that of descriptor -1 in a generation that is never given.
const NO_NAME: u64 = u32::MAX as u64;
/// So many events in a row that ended no operation, though they had an error, have the descriptor armed for changes.
const VAIN: u8 = 16;
/// Events that are always reported.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

#[derive(Debug)]
pub(crate) struct Watcher {
    poller: Poller,
    /// The operations under way, by token.
    ops: FxHashMap<u64, Member>,
    watches: FxHashMap<RawFd, Watch>,
    /// Completions to hand out.
    done: Completions,
    /// The last generation given.
    generation: u32,
    /// The last place given in a line.
    place: u64,
    /// Accepts without waiting even if another process is faster.
    acceptor: Acceptor,
}

/// An operation in a line.
#[derive(Debug)]
struct Member {
    waiting: Waiting,
    line: usize,
    /// Its place, which increases along each line.
    place: u64,
}

/// A registered descriptor.
#[derive(Debug)]
struct Watch {
    generation: u32,
    /// The events that the kernel will report, 0 when disarmed.
    armed: u32,
    /// Whether it is armed for changes, and stays so: see the module.
    edges: bool,
    /// How many events in a row had an error and ended no operation, up to [`VAIN`].
    vain: u8,
    /// The operations that wait for it, in lines by kind of event.
    lines: [Line; LINES],
}

const LINES: usize = 3;
/// Operations that read, receive or accept.
const IN: usize = 0;
/// Operations that write or send.
const OUT: usize = 1;
/// Operations that are independent of each other: they poll, or receive urgent data. Each is tried
/// at each event.
const EACH: usize = 2;

/// The line in which an operation waits.
fn line_of(waiting: &Waiting) -> usize {
    match waiting.events as i32 {
        _ if waiting.is_poll() => EACH,
        libc::EPOLLIN => IN,
        libc::EPOLLOUT => OUT,
        _ => EACH,
    }
}

impl Watcher {
    /// Discards an epoll instance that belongs to the parent process: closing the child's descriptor
    /// does not change the instance.
    pub(crate) fn abandon(self) {
        // The tables are leaked: their owner may have been changing them.
        let Watcher { poller, ops, watches, done, generation: _, place: _, acceptor } = self;
        std::mem::forget((ops, watches, done));
        drop(poller);
        acceptor.abandon();
    }

    pub(crate) fn new(idle: &Idle) -> io::Result<Watcher> {
        Ok(Watcher::with(Poller::new(Some(idle.bell()))?))
    }

    /// A watcher that is not waited in: when [`fd`](Self::fd) is readable there are events to
    /// [collect](Self::collect).
    pub(crate) fn polled() -> io::Result<Watcher> {
        Ok(Watcher::with(Poller::new(None)?))
    }

    fn with(poller: Poller) -> Watcher {
        Watcher {
            poller,
            ops: FxHashMap::default(),
            watches: FxHashMap::default(),
            done: Completions::new(),
            generation: 0,
            place: 0,
            acceptor: Acceptor::none(),
        }
    }

    /// The instance's descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.poller.pollfd().fd
    }

    /// Makes accepts not wait even if another process takes the connection, if the kernel supports
    /// that.
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

    /// Accepts a connection if there is one; returns whether the operation has completed.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    pub(crate) unsafe fn accept(&mut self, token: u64, op: &Op) -> bool {
        let Some(mut waiting) = Waiting::new(op, self.acceptor.is_there()) else { return false };
        // SAFETY: the operation's memory is valid from its submission on.
        let result = unsafe { waiting.attempt(self.acceptor.as_mut()) };
        if let Some(result) = result {
            self.done.push_or_abort(Completion { token, result });
        }
        result.is_some()
    }

    /// # Safety
    /// As for [`Driver::submit`](crate::Driver::submit).
    pub(crate) unsafe fn submit(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        let mut waiting = Waiting::new(op, self.acceptor.is_there()).ok_or(Unsupported)?;
        if waiting.must_not_wait() {
            // SAFETY: the operation's memory is valid from its submission on.
            let result =
                unsafe { waiting.attempt(self.acceptor.as_mut()) }.unwrap_or(-libc::EAGAIN);
            self.done.push_or_abort(Completion { token, result });
            return Ok(());
        }
        let fd = waiting.fd;
        match self.watch(fd, waiting.events) {
            Ok(()) => {}
            Err(libc::EBADF) => {
                self.done.push_or_abort(Completion { token, result: -libc::EBADF });
                return Ok(());
            }
            // EPERM: epoll refuses files on disks. Others: there is no memory for another
            // registration.
            Err(_) => return Err(Unsupported),
        }
        let watch = self.watches.get_mut(&fd).expect("just registered");
        self.place += 1;
        let line = line_of(&waiting);
        watch.lines[line].join(self.place, token);
        self.ops.insert(token, Member { waiting, line, place: self.place });
        Ok(())
    }

    /// Cancels the operation; returns whether there was one.
    pub(crate) fn cancel(&mut self, token: u64) -> bool {
        let Some(Member { waiting, line, .. }) = self.ops.remove(&token) else {
            return false;
        };
        if let Some(watch) = self.watches.get_mut(&waiting.fd) {
            watch.lines[line].left(|place, token| stands(&self.ops, place, token));
        }
        self.done.push_or_abort(Completion { token, result: waiting.end(libc::ECANCELED) });
        true
    }

    pub(crate) fn poll(&mut self, out: &mut Completions) {
        if !self.ops.is_empty() {
            self.collect();
        }
        self.hand_out(out);
    }

    /// Fetches all events and makes the calls that they permit.
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

    /// Appends completions to `out`.
    #[inline]
    pub(crate) fn hand_out(&mut self, out: &mut Completions) {
        out.append(&mut self.done);
    }

    pub(crate) fn wait(
        &mut self,
        idle: &Idle,
        deadline: Option<u64>,
        out: &mut Completions,
    ) -> bool {
        if !self.done.is_empty() {
            self.poll(out);
            return false;
        }
        if self.ops.is_empty() {
            // Waking from a futex is cheaper.
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

    /// Arms `fd` for `events`, in addition to those it is armed for.
    fn watch(&mut self, fd: RawFd, events: u32) -> Result<(), i32> {
        let name = |generation: u32| u64::from(generation) << 32 | fd as u64;
        let shot = libc::EPOLLONESHOT as u32;
        if let Some(watch) = self.watches.get_mut(&fd) {
            let all = watch.armed | events;
            let how = if watch.edges { libc::EPOLLET as u32 } else { shot };
            match self.poller.control(Change::Modify, fd, all | how, name(watch.generation)) {
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
            // The check in `happened` has registered the file, under no name.
            Err(libc::EEXIST) => self.poller.control(Change::Modify, fd, events | shot, name)?,
            result => result?,
        }
        self.generation = generation;
        let watch =
            Watch { generation, armed: events, edges: false, vain: 0, lines: Default::default() };
        self.watches.insert(fd, watch);
        Ok(())
    }

    /// Ends the operations on a descriptor that was closed, or cannot be watched any more.
    fn unwatch(&mut self, fd: RawFd, errno: i32) {
        let Some(watch) = self.watches.remove(&fd) else {
            return;
        };
        for (place, token) in watch.lines.iter().flat_map(Line::places) {
            if !stands(&self.ops, place, token) {
                continue;
            }
            let member = self.ops.remove(&token).expect("an operation in line is under way");
            self.done.push_or_abort(Completion { token, result: member.waiting.end(errno) });
        }
    }

    /// Makes the calls that these events permit.
    fn note(&mut self, happened: &[libc::epoll_event]) {
        for event in happened {
            let (name, events) = (event.u64, event.events);
            // The bell's event has served its purpose by ending the wait.
            if name != BELL {
                self.happened(name as u32 as RawFd, (name >> 32) as u32, events);
            }
        }
    }

    fn happened(&mut self, fd: RawFd, generation: u32, events: u32) {
        let Some(watch) = self.watches.get_mut(&fd).filter(|w| w.generation == generation) else {
            return;
        };
        let is_idle = watch.lines.iter().all(Line::is_empty);
        let was_for_changes = watch.edges;
        watch.edges &= events & ALWAYS != 0 && !is_idle;
        if !watch.edges {
            watch.armed = 0;
        }
        if is_idle {
            if was_for_changes {
                // Reports once more at most.
                let _ = self.watch(fd, 0);
            }
            return;
        }
        match self.poller.control(Change::Add, fd, libc::EPOLLONESHOT as u32, NO_NAME) {
            Err(libc::EEXIST) => {}
            // The number is another file's now (which this has registered, see `watch`), or no file's.
            Ok(()) | Err(libc::EBADF) => return self.unwatch(fd, libc::EBADF),
            // A lack of memory, or the like: the call itself will show.
            Err(_) => {}
        }
        let (ops, done, acceptor) = (&mut self.ops, &mut self.done, &mut self.acceptor);
        // SAFETY: submitters keep the memory of their operations valid until the completion.
        let Served { ended, left } =
            unsafe { serve(&mut watch.lines, events, ops, done, acceptor) };
        watch.vain = match !ended && events & ALWAYS != 0 {
            true => watch.vain.saturating_add(1),
            false => 0,
        };
        watch.edges |= watch.vain >= VAIN;
        let Some(wanted) = left else { return };
        let is_armed = was_for_changes && watch.edges && wanted & !watch.armed == 0;
        if !is_armed {
            if let Err(errno) = self.watch(fd, wanted) {
                // Closed by another thread meanwhile, or a lack of memory. The operations must end,
                // as no event would be reported for them.
                self.unwatch(fd, errno);
            }
        }
    }
}

/// What became of the operations in a descriptor's lines.
struct Served {
    /// Whether one was done.
    ended: bool,
    /// What the others wait for, if there are any: for errors and hang-ups alone, if that is 0.
    left: Option<u32>,
}

/// Tries the operations that `events` concern.
///
/// # Safety
/// The memory of all operations in `lines` is valid.
#[inline]
unsafe fn serve(
    lines: &mut [Line; LINES],
    events: u32,
    ops: &mut FxHashMap<u64, Member>,
    done: &mut Completions,
    acceptor: &mut Acceptor,
) -> Served {
    let (mut ended, mut left) = (false, None);
    let mut waits_for = |asked: u32| left = Some(left.unwrap_or(0) | asked);
    for (line, asked) in [(IN, libc::EPOLLIN as u32), (OUT, libc::EPOLLOUT as u32)] {
        let line = &mut lines[line];
        let concerned = events & (asked | ALWAYS) != 0;
        let first = |ops: &FxHashMap<u64, Member>, line: &mut Line| {
            line.front(|place, token| stands(ops, place, token)).filter(|_| concerned)
        };
        while let Some(token) = first(ops, line) {
            // SAFETY: this function demands the same.
            if !unsafe { advance(ops, done, acceptor, token) } {
                break;
            }
            line.served();
            ended = true;
        }
        if !line.is_empty() {
            waits_for(asked);
        }
    }
    lines[EACH].retain(|place, token| {
        if !stands(ops, place, token) {
            return false;
        }
        let asked = ops[&token].waiting.events;
        // SAFETY: this function demands the same.
        let gone = events & (asked | ALWAYS) != 0 && unsafe { advance(ops, done, acceptor, token) };
        match gone {
            true => ended = true,
            false => waits_for(asked),
        }
        !gone
    });
    Served { ended, left }
}

/// Whether the operation with this token is the one that was given this place in a line.
fn stands(ops: &FxHashMap<u64, Member>, place: u64, token: u64) -> bool {
    ops.get(&token).is_some_and(|member| member.place == place)
}

/// Tries an operation under way; returns whether it is done.
///
/// # Safety
/// Its memory is valid.
unsafe fn advance(
    ops: &mut FxHashMap<u64, Member>,
    done: &mut Completions,
    acceptor: &mut Acceptor,
    token: u64,
) -> bool {
    let member = ops.get_mut(&token).expect("an operation in line is under way");
    // SAFETY: the operation's memory is valid.
    let Some(result) = (unsafe { member.waiting.attempt(acceptor.as_mut()) }) else {
        return false;
    };
    ops.remove(&token);
    done.push_or_abort(Completion { token, result });
    true
}
