//! One carrier's access to the kernel: operations in, completions out.
//!
//! # Who may call what
//!
//! A driver belongs to the thread that made it, its *owner*: only the owner submits, cancels, polls
//! and waits. [`harvest`](Driver::harvest) is for other threads, while the owner computes; the
//! caller puts a lock around the driver for that, which is what `&mut` asks for. A [`Waker`] may be
//! used by anybody at any time.
//!
//! # Why the memory of an operation is safe
//!
//! An operation's buffers are in the kernel's hands from [`submit`](Driver::submit) until its
//! completion is handed out, also when it was cancelled: a cancel only hurries the completion. So
//! whoever submits keeps the memory until then. A parked fiber does by itself, for its stack stays.

use std::io;
use std::sync::Arc;

use crate::clock::{self, Virtual};
use crate::faults::{self, Layer};
use crate::idle::Idle;
use crate::op::{Completion, Op, Unsupported};
use crate::sys::epoll::Watcher;
use crate::sys::mock::Mock;
use crate::sys::uring::Ring;

/// The backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// io_uring: the kernel performs the operations.
    Uring,
    /// epoll: the kernel says when they can be performed without waiting, and the driver performs
    /// them. [`Unsupported`] are files on disks, `connect`, `fsync`, `open`, `splice`, futexes,
    /// `accept` where another process may have the listener as well, and of `waitid` all but the end
    /// of one process.
    Epoll,
    /// Like epoll, but time is [`Virtual`] and passes at once, and what completes together does so
    /// in an order drawn from a seed.
    Mock,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(match self {
            Kind::Uring => "io_uring",
            Kind::Epoll => "epoll",
            Kind::Mock => "mock",
        })
    }
}

/// One carrier's reactor. See the [module](self) for who may call what.
///
/// ```
/// use carefree_reactor::{Driver, Kind, Op, op::CURRENT};
/// use std::io::Write;
/// use std::os::{fd::AsRawFd, unix::net::UnixStream};
///
/// # fn main() -> std::io::Result<()> {
/// let (reader, mut writer) = UnixStream::pair()?;
/// let mut driver = Driver::new(Kind::Uring)?;
/// let mut buffer = [0u8; 16];
/// let read = Op::Read {
///     fd: reader.as_raw_fd(),
///     buffer: buffer.as_mut_ptr(),
///     length: buffer.len(),
///     offset: CURRENT,
/// };
/// // SAFETY: the buffer is left alone until the completion has come.
/// unsafe { driver.submit(7, &read) }.unwrap();
///
/// let mut done = Vec::new();
/// driver.poll(&mut done);
/// assert!(done.is_empty() && driver.pending() == 1);
/// writer.write_all(b"hello")?;
/// while done.is_empty() {
///     driver.wait(None, &mut done);
/// }
/// assert_eq!((done[0].token, done[0].result), (7, 5));
/// assert_eq!(&buffer[..5], b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Driver {
    backend: Backend,
    idle: Arc<Idle>,
}

#[derive(Debug)]
enum Backend {
    Uring(Box<Ring>),
    Epoll(Box<Watcher>),
    Mock(Box<Mock>),
    /// A test's, which has a driver of its own.
    Layer(Box<dyn Layer>),
}

/// The same call of whichever backend it is.
macro_rules! each {
    ($driver:expr, $backend:ident => $call:expr) => {
        match $driver {
            Backend::Uring($backend) => $call,
            Backend::Epoll($backend) => $call,
            Backend::Mock($backend) => $call,
            Backend::Layer($backend) => $call,
        }
    };
}

impl Driver {
    /// The largest token a caller may use; those above are the driver's own.
    pub const TOKEN_MAX: u64 = u64::MAX >> 1;

    /// A driver owned by the calling thread, with a bed of its own.
    ///
    /// # Errors
    /// What the kernel said when it refused: see [`choice`](crate::choice()) for what to use.
    pub fn new(kind: Kind) -> io::Result<Driver> {
        Driver::with_idle(kind, Arc::new(Idle::new()))
    }

    /// A driver owned by the calling thread, which shares `idle` with it: a wake-up ends a wait in
    /// either.
    ///
    /// # Errors
    /// As for [`new`](Driver::new).
    pub fn with_idle(kind: Kind, idle: Arc<Idle>) -> io::Result<Driver> {
        if let Some(hooks) = faults::hooks() {
            if let Some(layer) = (hooks.layer)(kind, &idle)? {
                return Ok(Driver { backend: Backend::Layer(layer), idle });
            }
        }
        Driver::bare(kind, idle)
    }

    /// [`with_idle`](Driver::with_idle) without a test's layer.
    pub(crate) fn bare(kind: Kind, idle: Arc<Idle>) -> io::Result<Driver> {
        idle.bell().hang()?;
        let backend = match kind {
            Kind::Uring => Backend::Uring(Box::new(Ring::new()?)),
            Kind::Epoll => Backend::Epoll(Box::new(Watcher::new(&idle)?)),
            Kind::Mock => return Driver::mock(0, Arc::new(Virtual::new()), idle),
        };
        Ok(Driver { backend, idle })
    }

    /// A driver of the kind [`Kind::Mock`]: the order of completions is drawn from `seed`, and
    /// waiting for a deadline sets `clock` forward instead of sleeping.
    ///
    /// # Errors
    /// As for [`new`](Driver::new).
    pub fn mock(seed: u64, clock: Arc<Virtual>, idle: Arc<Idle>) -> io::Result<Driver> {
        idle.bell().hang()?;
        let mock = Box::new(Mock::new(seed, clock, &idle)?);
        Ok(Driver { backend: Backend::Mock(mock), idle })
    }

    /// The time on the clock that deadlines refer to: [`clock::now`], but for the mock its own.
    pub fn now(&self) -> u64 {
        match &self.backend {
            Backend::Uring(_) | Backend::Epoll(_) | Backend::Layer(_) => clock::now(),
            Backend::Mock(mock) => mock.now(),
        }
    }

    /// Which backend this is.
    pub fn kind(&self) -> Kind {
        match &self.backend {
            Backend::Uring(_) => Kind::Uring,
            Backend::Epoll(_) => Kind::Epoll,
            Backend::Mock(_) => Kind::Mock,
            Backend::Layer(layer) => layer.kind(),
        }
    }

    /// Begins an operation; its completion will carry `token`, which must be at most
    /// [`TOKEN_MAX`](Driver::TOKEN_MAX) and of no other operation under way.
    ///
    /// Never blocks, and need not enter the kernel: the next [`poll`](Driver::poll) or
    /// [`wait`](Driver::wait) hands over all that has been submitted. Takes any number of
    /// operations. Meant for calls that were tried without waiting ([`Op::attempt`]) and would have had
    /// to wait: descriptors are waited for first. What a call answers at once, an error say, a
    /// backend need not notice: reading a pipe's writing end may wait for ever.
    ///
    /// # Errors
    /// [`Unsupported`] when the backend cannot wait for it; nothing has happened then.
    ///
    /// # Safety
    /// What the operation's pointers name stays valid, and unused by others as the system call
    /// demands, until the completion has been handed out.
    pub unsafe fn submit(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        debug_assert!(token <= Driver::TOKEN_MAX, "token {token:#x} is the driver's own");
        match &mut self.backend {
            // SAFETY: the caller's promise, in each.
            Backend::Uring(ring) => unsafe { ring.submit(token, op) },
            // SAFETY: as above.
            Backend::Epoll(watcher) => unsafe { watcher.submit(token, op) },
            // SAFETY: as above.
            Backend::Mock(mock) => unsafe { mock.submit(token, op) },
            // SAFETY: as above.
            Backend::Layer(layer) => unsafe { layer.submit(token, op, false) },
        }
    }

    /// As [`submit`](Driver::submit), but the kernel holds the operation's file no longer than the
    /// process lives. It may hold that of another one for some milliseconds more (io_uring), in which
    /// an address is in use and a lock taken: so this is for listeners, sockets of messages, devices,
    /// and whatever is locked. It costs more, and waits for what epoll can wait for.
    ///
    /// # Errors
    /// As for [`submit`](Driver::submit).
    ///
    /// # Safety
    /// As for [`submit`](Driver::submit).
    pub unsafe fn submit_unheld(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        debug_assert!(token <= Driver::TOKEN_MAX, "token {token:#x} is the driver's own");
        match &mut self.backend {
            // SAFETY: the caller's promise.
            Backend::Uring(ring) => unsafe { ring.submit_unheld(token, op) },
            // SAFETY: as above.
            Backend::Epoll(watcher) => unsafe { watcher.submit(token, op) },
            // SAFETY: as above.
            Backend::Mock(mock) => unsafe { mock.submit(token, op) },
            // SAFETY: as above.
            Backend::Layer(layer) => unsafe { layer.submit(token, op, true) },
        }
    }

    /// Asks for the end of the operation submitted under `token`. Its completion still comes: with
    /// `-ECANCELED` (or `-EINTR` for one that had begun), or with its result if that was faster.
    /// Nothing happens when no such operation is under way.
    pub fn cancel(&mut self, token: u64) {
        each!(&mut self.backend, backend => {
            backend.cancel(token);
        })
    }

    /// Hands over what was submitted and appends what is done to `out`. Enters the kernel only when
    /// there is something to hand over or to fetch.
    pub fn poll(&mut self, out: &mut Vec<Completion>) {
        each!(&mut self.backend, backend => backend.poll(out))
    }

    /// As [`poll`](Driver::poll), but when nothing is done sleeps until something is, until a
    /// wake-up, or until `deadline`: nanoseconds on the clock of [`clock::now`],
    /// `None` for no limit. Returns whether a wake-up ended it (the token was taken). May also
    /// return early for no reason.
    pub fn wait(&mut self, deadline: Option<u64>, out: &mut Vec<Completion>) -> bool {
        match &mut self.backend {
            Backend::Uring(ring) => ring.wait(&self.idle, deadline, out),
            Backend::Epoll(watcher) => watcher.wait(&self.idle, deadline, out),
            Backend::Mock(mock) => mock.wait(&self.idle, deadline, out),
            Backend::Layer(layer) => layer.wait(deadline, out),
        }
    }

    /// [`poll`](Driver::poll) on behalf of the owner, who computes: for another thread, which should
    /// live on, as what it hands over to io_uring is cancelled when it ends. With operations on
    /// sockets and pipes the kernel needs the processor of who handed them over for a moment, at the
    /// latest at its next timer interrupt; what is done is seen after that.
    pub fn harvest(&mut self, out: &mut Vec<Completion>) {
        self.poll(out);
    }

    /// Ends the wait under way or the next one. Cheap to make and to keep.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.idle))
    }

    /// Operations submitted whose completion has not been handed out.
    pub fn pending(&self) -> usize {
        each!(&self.backend, backend => backend.pending())
    }

    /// Lets go of a driver in the child of a `fork`: closes the child's descriptors and touches
    /// nothing that the parent's driver uses. (Dropping it there would cancel and await operations
    /// that are the parent's.) The child's next driver needs an [`Idle`] of its own as well: the old
    /// one's bell is the parent's. See [`after_fork`].
    pub fn abandon(self) {
        match self.backend {
            Backend::Uring(ring) => ring.abandon(),
            Backend::Epoll(watcher) => watcher.abandon(),
            Backend::Mock(mock) => mock.abandon(),
            Backend::Layer(layer) => layer.abandon(),
        }
    }
}

/// Tells this crate that the process is about to fork, and so will have its descriptors in common with
/// another. To be called before each `fork`, by any thread.
pub fn before_fork() {
    crate::sys::before_fork();
}

/// Makes this crate usable in the child of a `fork`, which has a copy of the parent's memory but one
/// thread. To be called there before anything else of the crate; drivers are then
/// [abandoned](Driver::abandon) one by one.
///
/// # Safety
/// The caller is the only thread of the child, and was in no call of this crate when it forked.
pub unsafe fn after_fork() {
    // SAFETY: the caller's promise.
    unsafe { crate::sys::after_fork() };
}

/// Wakes the owner of a [`Driver`].
///
/// ```
/// use carefree_reactor::{Driver, Kind};
/// # fn main() -> std::io::Result<()> {
/// let mut driver = Driver::new(Kind::Uring)?;
/// let waker = driver.waker();
/// std::thread::spawn(move || waker.wake());
/// while !driver.wait(None, &mut Vec::new()) {}
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Waker(Arc<Idle>);

impl Waker {
    /// Ends the wait under way, or else the next one. No system call unless the owner sleeps or is
    /// about to.
    pub fn wake(&self) {
        self.0.wake();
    }
}
