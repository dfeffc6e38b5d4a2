//! A layer between the runtime and its driver that behaves as a kernel may on a bad day.
//!
//! It loses no data: an operation that is to be short is submitted as a shorter one, one that is to fail is not
//! submitted, and a completion that is held is handed out later.
//!
//! # What it checks
//!
//! An operation's memory belongs to the kernel from the submission until the completion is handed out. While
//! the driver does not use it, a buffer to be read into is overwritten with junk, and restored before the
//! completion is handed out; a buffer to be written must be unchanged when the operation is done. A token is
//! the address of a record on a stack, so a token that comes again while it is under way shows that its fiber
//! has gone on.

use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;
use std::process;
use std::slice;
use std::time::Duration;

use carefree_reactor::faults::{self, Layer};
use carefree_reactor::{
    Completion, Completions, Driver, Idle, Kind, Op, Shared, Unsupported, clock,
};
use libc::{iovec, msghdr};

use crate::plan::{Fault, Plan, count};

/// Junk, which the fiber must never see.
const JUNK: u8 = 0xdb;
/// Bytes of an operation that are overwritten and compared, at most.
const LOOKED_AT: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Injector {
    inner: Driver,
    plan: Plan,
    random: fastrand::Rng,
    /// Visits so far.
    turn: u64,
    ops: HashMap<u64, Under>,
    postponed: Vec<(Due, u64)>,
    cancels: Vec<(Due, u64)>,
    held: Vec<(Due, Completion)>,
    /// Completions of the driver, taken at once.
    fresh: Completions,
}

/// An operation under way.
#[derive(Debug)]
struct Under {
    /// As it was submitted.
    op: Op,
    /// As the driver has it, if that differs.
    altered: Option<Altered>,
    /// The former content of the memory that it reads into, while junk is there.
    saved: Option<Vec<u8>>,
    /// Digest of what it writes.
    written: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Postponed,
    Submitted,
    Held,
}

/// The memory of a shorter operation, which must live as long as that.
#[derive(Debug)]
struct Altered {
    op: Op,
    _pieces: Box<[iovec]>,
    header: Option<Box<msghdr>>,
}

// SAFETY: the pointers are used while the submitters of the operation keep the memory valid, by
// whichever thread has the driver.
unsafe impl Send for Injector {}

/// The earlier of two deadlines.
#[derive(Clone, Copy, Debug)]
struct Due {
    turn: u64,
    time: u64,
}

/// Reports what is wrong and ends the process: a fiber's stack cannot be unwound from inside a driver.
fn fail(what: &str) -> ! {
    crate::say_failed(what);
    process::abort()
}

impl Injector {
    pub(crate) fn new(plan: Plan, nth: u32, idle: &Shared<Idle>) -> io::Result<Injector> {
        let seed = plan.seed.wrapping_add(u64::from(nth) << 48);
        Ok(Injector {
            inner: faults::bare(plan.kind, idle)?,
            plan,
            random: fastrand::Rng::with_seed(seed),
            turn: 0,
            ops: HashMap::new(),
            postponed: Vec::new(),
            cancels: Vec::new(),
            held: Vec::new(),
            fresh: Completions::new(),
        })
    }

    fn happens(&mut self, chance: u8) -> bool {
        self.random.u8(..) < chance
    }

    fn later(&mut self) -> Due {
        let turn = self.turn + self.random.u64(1..6);
        Due { turn, time: clock::after(Duration::from_micros(self.random.u64(1..400))) }
    }

    fn is_due(&self, due: Due, now: u64) -> bool {
        due.turn <= self.turn || due.time <= now
    }

    /// Hands out the completion of an operation that the driver never got.
    fn complete_soon(&mut self, token: u64, result: i32) {
        let due = if self.random.bool() { self.later() } else { Due { turn: 0, time: 0 } };
        self.held.push((due, Completion { token, result }));
    }

    /// Takes what is due from a list.
    fn take_due(&self, list: &mut Vec<(Due, u64)>, now: u64) -> Vec<u64> {
        let due: Vec<u64> = list
            .iter()
            .filter(|(due, _)| self.is_due(*due, now))
            .map(|&(_, token)| token)
            .collect();
        list.retain(|(_, token)| !due.contains(token));
        due
    }

    /// Submits what was postponed until now.
    fn hand_on(&mut self) {
        if self.postponed.is_empty() && self.cancels.is_empty() {
            return;
        }
        let now = clock::now();
        let mut postponed = std::mem::take(&mut self.postponed);
        for token in self.take_due(&mut postponed, now) {
            let under = self.ops.get_mut(&token).expect("it is under way");
            under.restore();
            under.stage = Stage::Submitted;
            // SAFETY: what the operation names is valid until its completion, as `submit` demands, which has
            // not been handed out.
            if unsafe { self.inner.submit(token, under.now()) }.is_err() {
                under.stage = Stage::Held;
                self.complete_soon(token, -libc::EAGAIN);
            }
        }
        self.postponed = postponed;
        let mut cancels = std::mem::take(&mut self.cancels);
        for token in self.take_due(&mut cancels, now) {
            self.inner.cancel(token);
        }
        self.cancels = cancels;
    }

    /// Takes the driver's completions, and hands out those that are due.
    fn hand_out(&mut self, out: &mut Completions) {
        let before = out.len();
        for mut done in std::mem::take(&mut self.fresh).iter().copied() {
            if done.result == -libc::ECANCELED && self.happens(self.plan.fail) {
                // The error for an operation that had begun.
                done.result = -libc::EINTR;
            }
            let Some(under) = self.ops.get_mut(&done.token) else {
                fail(&format!("a completion of an operation that is not under way: {done:?}"));
            };
            if under.stage != Stage::Submitted {
                fail(&format!("a second completion: {done:?} of {under:?}"));
            }
            under.stage = Stage::Held;
            under.is_done();
            self.cancels.retain(|&(_, token)| token != done.token);
            if self.happens(self.plan.hold) {
                count(Fault::Held);
                let under = self.ops.get_mut(&done.token).expect("just looked at");
                under.overwrite();
                let due = self.later();
                self.held.push((due, done));
            } else {
                out.push_or_abort(done);
            }
        }
        let now = clock::now();
        let (turn, held) = (self.turn, std::mem::take(&mut self.held));
        for (due, done) in held {
            match due.turn <= turn || due.time <= now {
                true => out.push_or_abort(done),
                false => self.held.push((due, done)),
            }
        }
        let handed = &mut out[before..];
        if handed.len() > 1 && self.plan.hold > 0 {
            count(Fault::Reordered);
            self.random.shuffle(handed);
        }
        for done in handed {
            let mut under = self.ops.remove(&done.token).expect("it is under way");
            under.restore();
            under.tell();
        }
    }

    /// The next moment at which something is due.
    fn next(&self) -> Option<u64> {
        let waiting = self.postponed.iter().chain(&self.cancels).map(|(due, _)| due.time);
        waiting.chain(self.held.iter().map(|(due, _)| due.time)).min()
    }

    /// The errors with which the kernel may answer `op` having done nothing.
    fn errors(&self, op: &Op) -> &'static [i32] {
        match op {
            Op::Send { .. } | Op::SendMessage { .. } => {
                &[libc::EINTR, libc::EINTR, libc::ENOMEM, libc::ENOBUFS]
            }
            // A connection that was begun goes on, whatever the call returns.
            Op::Connect { .. } => &[libc::EINTR],
            Op::WaitId { .. } | Op::FutexWait { .. } | Op::EpollWait { .. } => &[libc::EINTR],
            _ => &[libc::EINTR, libc::EINTR, libc::ENOMEM],
        }
    }
}

impl Layer for Injector {
    unsafe fn submit(&mut self, token: u64, op: &Op, unheld: bool) -> Result<(), Unsupported> {
        if let Some(under) = self.ops.get(&token) {
            fail(&format!("{op:?} where {under:?} is under way: its fiber has gone on"));
        }
        if self.happens(self.plan.refuse) && is_offloaded(op) {
            count(Fault::Refused);
            let may_say_again =
                !matches!(op, Op::Sync { .. } | Op::Open { .. } | Op::Splice { .. });
            if !may_say_again || self.random.bool() {
                return Err(Unsupported);
            }
            self.ops.insert(token, Under::new(op, None, Stage::Held));
            self.complete_soon(token, -libc::EAGAIN);
            return Ok(());
        }
        if self.happens(self.plan.fail) {
            count(Fault::Failed);
            let errors = self.errors(op);
            let errno = errors[self.random.usize(0..errors.len())];
            let mut under = Under::new(op, None, Stage::Held);
            under.overwrite();
            self.ops.insert(token, under);
            self.complete_soon(token, -errno);
            return Ok(());
        }
        let mut altered = None;
        if self.happens(self.plan.short) {
            // SAFETY: what the operation names is valid, as `submit` demands.
            altered = unsafe { shorten(op, &mut self.random) };
            if altered.is_some() {
                count(Fault::Short);
            }
        }
        let mut under = Under::new(op, altered, Stage::Submitted);
        if !unheld && self.plan.kind == Kind::Uring && self.happens(self.plan.postpone) {
            count(Fault::Postponed);
            under.stage = Stage::Postponed;
            under.overwrite();
            self.ops.insert(token, under);
            let due = self.later();
            self.postponed.push((due, token));
            return Ok(());
        }
        let op = under.now();
        // SAFETY: what the operation names is valid until its completion, as `submit` demands; what an altered
        // one names lives in `under`.
        unsafe {
            match unheld {
                true => self.inner.submit_unheld(token, op),
                false => self.inner.submit(token, op),
            }
        }?;
        self.ops.insert(token, under);
        Ok(())
    }

    fn cancel(&mut self, token: u64) {
        let Some(stage) = self.ops.get(&token).map(|under| under.stage) else { return };
        let later = self.happens(self.plan.dawdle);
        match stage {
            Stage::Held => count(Fault::LateForCancel),
            Stage::Postponed if !later => {
                self.postponed.retain(|&(_, other)| other != token);
                self.ops.get_mut(&token).expect("just looked at").stage = Stage::Held;
                self.complete_soon(token, -libc::ECANCELED);
            }
            _ if later => {
                count(Fault::Dawdled);
                // A cancel is not submitted before its operation.
                let of = self.postponed.iter().find(|&&(_, other)| other == token);
                let after = of.map_or(Due { turn: 0, time: 0 }, |&(due, _)| due);
                let due = self.later();
                let due = Due { turn: due.turn + after.turn, time: due.time.max(after.time + 1) };
                self.cancels.push((due, token));
            }
            _ => self.inner.cancel(token),
        }
    }

    fn poll(&mut self, out: &mut Completions) {
        self.turn += 1;
        self.hand_on();
        self.inner.poll(&mut self.fresh);
        self.hand_out(out);
    }

    fn peek(&mut self, out: &mut Completions) {
        self.turn += 1;
        self.inner.peek(&mut self.fresh);
        self.hand_out(out);
    }

    fn hand_over(&mut self) {
        self.hand_on();
        self.inner.hand_over();
    }

    fn wait(&mut self, deadline: Option<u64>, out: &mut Completions) -> bool {
        let before = out.len();
        self.poll(out);
        if out.len() > before {
            return false;
        }
        if self.happens(self.plan.start) {
            count(Fault::WokenForNothing);
            return false;
        }
        let deadline = deadline.into_iter().chain(self.next()).min();
        let woken = self.inner.wait(deadline, &mut self.fresh);
        self.turn += 1;
        self.hand_on();
        self.hand_out(out);
        woken
    }

    fn pending(&self) -> usize {
        self.ops.len()
    }

    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    fn abandon(self: Box<Self>) {
        let Injector { inner, ops, .. } = *self;
        std::mem::forget(ops);
        inner.abandon();
    }
}

impl Under {
    fn new(op: &Op, altered: Option<Altered>, stage: Stage) -> Under {
        let mut under = Under { op: *op, altered, saved: None, written: 0, stage };
        under.written = under.digest();
        under
    }

    /// The operation as the driver is to have it.
    fn now(&self) -> &Op {
        self.altered.as_ref().map_or(&self.op, |altered| &altered.op)
    }

    /// Puts junk where it reads into.
    fn overwrite(&mut self) {
        let mut saved = Vec::new();
        for piece in pieces(&self.op, Way::In) {
            // SAFETY: the memory is the operation's until its completion is handed out.
            let memory = unsafe { slice::from_raw_parts_mut(piece.0 as *mut u8, piece.1) };
            saved.extend_from_slice(memory);
            memory.fill(JUNK);
        }
        self.saved = Some(saved);
    }

    /// Restores the memory that has junk.
    fn restore(&mut self) {
        let Some(saved) = self.saved.take() else { return };
        let mut from = 0;
        for piece in pieces(&self.op, Way::In) {
            // SAFETY: the memory is the operation's until its completion is handed out.
            let memory = unsafe { slice::from_raw_parts_mut(piece.0 as *mut u8, piece.1) };
            if memory.iter().any(|&byte| byte != JUNK) {
                fail(&format!("the memory of {:?} was touched while it was under way", self.op));
            }
            memory.copy_from_slice(&saved[from..from + piece.1]);
            from += piece.1;
        }
    }

    /// The driver is done with it.
    fn is_done(&self) {
        if self.digest() != self.written {
            fail(&format!("what {:?} writes was changed while it was under way", self.op));
        }
    }

    fn digest(&self) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325u64;
        for piece in pieces(&self.op, Way::Out) {
            // SAFETY: the memory is the operation's until its completion is handed out.
            for &byte in unsafe { slice::from_raw_parts(piece.0 as *const u8, piece.1) } {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        digest
    }

    /// Copies what the kernel wrote to the header of a shorter operation to the caller's header.
    fn tell(&self) {
        let (Some(altered), Op::ReceiveMessage { message, .. }) = (&self.altered, self.op) else {
            return;
        };
        let header = altered.header.as_ref().expect("a message has one");
        // SAFETY: the memory is the operation's until its completion is handed out.
        let message = unsafe { &mut *message };
        message.msg_namelen = header.msg_namelen;
        message.msg_controllen = header.msg_controllen;
        message.msg_flags = header.msg_flags;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// The memory that `op` reads into or writes from: addresses and lengths.
fn pieces(op: &Op, wanted: Way) -> Vec<(usize, usize)> {
    // SAFETY: the lists are the operation's until its completion is handed out.
    let of = |iov: *const iovec, count: usize| unsafe {
        let list = if count == 0 { &[] } else { slice::from_raw_parts(iov, count) };
        list.iter().map(|piece| (piece.iov_base as usize, piece.iov_len)).collect::<Vec<_>>()
    };
    let (way, pieces) = match *op {
        Op::Read { buffer, length, .. } | Op::Receive { buffer, length, .. } => {
            (Way::In, vec![(buffer as usize, length)])
        }
        Op::Write { buffer, length, .. } | Op::Send { buffer, length, .. } => {
            (Way::Out, vec![(buffer as usize, length)])
        }
        Op::ReadVectored { iov, count, .. } => (Way::In, of(iov, count)),
        Op::WriteVectored { iov, count, .. } => (Way::Out, of(iov, count)),
        Op::ReceiveMessage { message, .. } => {
            // SAFETY: the lists are the operation's until its completion is handed out.
            let message = unsafe { &*message };
            (Way::In, of(message.msg_iov, message.msg_iovlen as _))
        }
        Op::SendMessage { message, .. } => {
            // SAFETY: the lists are the operation's until its completion is handed out.
            let message = unsafe { &*message };
            (Way::Out, of(message.msg_iov, message.msg_iovlen as _))
        }
        _ => return Vec::new(),
    };
    let total: usize = pieces.iter().map(|piece| piece.1).sum();
    if way == wanted && total <= LOOKED_AT { pieces } else { Vec::new() }
}

/// Whether an operation that the driver refuses is made by a thread instead.
fn is_offloaded(op: &Op) -> bool {
    use Op::{Connect, EpollWait, FutexWait, Poll, WaitId};
    let is_waited_for_otherwise = matches!(
        op,
        Poll { .. } | EpollWait { .. } | FutexWait { .. } | WaitId { .. } | Connect { .. }
    );
    !is_waited_for_otherwise
}

/// The kind of file that `op` transfers through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    Pipe,
    Stream,
    File,
    /// A part would be a whole message.
    Other,
}

fn through(fd: RawFd) -> Through {
    // SAFETY: plain old data, which the kernel writes to.
    let kind = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut stat);
        stat.st_mode & libc::S_IFMT
    };
    let mut of_socket = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: plain old data, which the kernel writes to.
    unsafe {
        let at = (&raw mut of_socket).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, at, &raw mut length);
    }
    match kind {
        libc::S_IFIFO => Through::Pipe,
        libc::S_IFREG => Through::File,
        libc::S_IFSOCK if of_socket == libc::SOCK_STREAM => Through::Stream,
        _ => Through::Other,
    }
}

/// The same operation for fewer bytes, if it may be done in parts.
///
/// # Safety
/// The operation's memory is valid.
unsafe fn shorten(op: &Op, random: &mut fastrand::Rng) -> Option<Altered> {
    let fd = match *op {
        Op::Read { fd, .. } | Op::ReadVectored { fd, flags: 0, .. } => fd,
        Op::Write { fd, .. } | Op::WriteVectored { fd, flags: 0, .. } => fd,
        Op::Receive { fd, flags, .. } | Op::ReceiveMessage { fd, flags, .. }
            if flags & libc::MSG_PEEK == 0 =>
        {
            fd
        }
        Op::Send { fd, .. } | Op::SendMessage { fd, .. } => fd,
        Op::Splice { from, .. } => from,
        _ => return None,
    };
    let through = through(fd);
    let mut few = |most: usize| match random.u8(0..3) {
        0 => 1,
        1 => random.usize(1..=most.min(16)),
        _ => random.usize(1..=most),
    };
    let simple = |op| Some(Altered { op, _pieces: Box::default(), header: None });
    if let Op::Splice { from, from_offset, to, to_offset, length, flags } = *op {
        let length = (length > 1).then(|| few(length - 1))?;
        return simple(Op::Splice { from, from_offset, to, to_offset, length, flags });
    }
    if through == Through::Other {
        return None;
    }
    let writes = matches!(op, Op::Write { .. } | Op::WriteVectored { .. });
    let all: Vec<(usize, usize)> =
        pieces(op, Way::In).into_iter().chain(pieces(op, Way::Out)).collect();
    let total: usize = all.iter().map(|piece| piece.1).sum();
    // A pipe takes a short write whole, and a write to a file is not split.
    if total < 2
        || (writes && through == Through::File)
        || (writes && through == Through::Pipe && total <= libc::PIPE_BUF)
    {
        return None;
    }
    let bytes = few(total - 1);
    let mut left = bytes;
    let mut list = Vec::new();
    for (base, length) in all {
        if left > 0 && length > 0 {
            list.push(iovec { iov_base: base as *mut _, iov_len: length.min(left) });
            left -= length.min(left);
        }
    }
    let mut list = list.into_boxed_slice();
    let (iov, count) = (list.as_mut_ptr(), list.len());
    let mut header = None;
    let op = match *op {
        Op::Read { fd, buffer, offset, .. } => Op::Read { fd, buffer, length: bytes, offset },
        Op::Write { fd, buffer, offset, .. } => Op::Write { fd, buffer, length: bytes, offset },
        Op::Receive { fd, buffer, flags, .. } => Op::Receive { fd, buffer, length: bytes, flags },
        Op::Send { fd, buffer, flags, .. } => Op::Send { fd, buffer, length: bytes, flags },
        Op::ReadVectored { fd, offset, flags, .. } => {
            Op::ReadVectored { fd, iov, count, offset, flags }
        }
        Op::WriteVectored { fd, offset, flags, .. } => {
            Op::WriteVectored { fd, iov, count, offset, flags }
        }
        Op::ReceiveMessage { fd, message, flags } => {
            // SAFETY: the message is valid, as this function demands.
            let mut shorter = Box::new(unsafe { *message });
            (shorter.msg_iov, shorter.msg_iovlen) = (iov, count as _);
            let message = &raw mut *header.insert(shorter).as_mut();
            Op::ReceiveMessage { fd, message, flags }
        }
        Op::SendMessage { fd, message, flags } => {
            // SAFETY: the message is valid, as this function demands.
            let mut shorter = Box::new(unsafe { *message });
            (shorter.msg_iov, shorter.msg_iovlen) = (iov, count as _);
            let message = &raw const *header.insert(shorter).as_ref();
            Op::SendMessage { fd, message, flags }
        }
        _ => return None,
    };
    Some(Altered { op, _pieces: list, header })
}
