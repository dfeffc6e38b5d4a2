//! One carrier's access to the kernel: operations in, completions out.
//!
//! # Threads
//!
//! A driver belongs to the thread that made it, its *owner*: only the owner submits, cancels, polls
//! and waits. Other threads may call [`harvest`](Driver::harvest) while the owner computes; they
//! need a lock around the driver, as it takes `&mut self`. A [`Waker`] may be used by any thread at
//! any time.
//!
//! # Why the memory of an operation is safe
//!
//! The kernel may use an operation's buffers from [`submit`](Driver::submit) until its completion
//! is handed out, even if it was cancelled: a cancel only hastens the completion. So the submitter
//! must keep the memory valid until then. A parked fiber does, because its stack stays.

use std::io;
use std::mem;
use std::sync::Arc;

use carefree_ground::number;
use carefree_ground::own::{Shared, unboxed};

use crate::clock::{self, Virtual};
use crate::faults::{self, Layer};
use crate::idle::Idle;
use crate::op::{Completions, Op, Unsupported};
use crate::sys::epoll::Watcher;
use crate::sys::mock::Mock;
use crate::sys::uring::Ring;

/// The backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// io_uring: the kernel performs the operations.
    Uring,
    /// epoll: the kernel reports when operations can be performed without waiting, and the driver
    /// performs them. [`Unsupported`] are files on disks, `connect`, `fsync`, `open`, `splice`,
    /// futexes, `accept` from a listener that another process may have as well, and every `waitid`
    /// but for the end of one process. A write to an eventfd that had to wait ends with
    /// `-EOPNOTSUPP` when there is room for something: nothing says whether there is enough.
    Epoll,
    /// Like epoll, but time is [`Virtual`] and passes at once, and operations that are ready together
    /// complete in an order drawn from a seed.
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

/// One carrier's reactor. See the [module](self) for which threads may call what.
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
/// // SAFETY: the buffer is not used until the completion has come.
/// unsafe { driver.submit(7, &read) }.unwrap();
///
/// let mut done = carefree_reactor::Completions::new();
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
    idle: Shared<Idle>,
}

#[derive(Debug)]
enum Backend {
    Uring(Box<Ring>),
    Epoll(Box<Watcher>),
    Mock(Box<Mock>),
    /// A test's layer, which contains a driver.
    Layer(Box<dyn Layer>),
}

/// Calls the same method of each backend.
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
    /// The largest token that a caller may use; the driver uses those above.
    pub const TOKEN_MAX: u64 = u64::MAX >> 1;

    /// A driver owned by the calling thread, with an [`Idle`] of its own.
    ///
    /// # Errors
    /// The kernel's error if it refuses the backend: see [`choice`](crate::choice()) for which to use.
    pub fn new(kind: Kind) -> io::Result<Driver> {
        Driver::with_idle(kind, Shared::new(Idle::new()))
    }

    /// A driver owned by the calling thread that uses `idle`: a wake-up ends a wait in either.
    ///
    /// # Errors
    /// As for [`new`](Driver::new).
    pub fn with_idle(kind: Kind, idle: Shared<Idle>) -> io::Result<Driver> {
        if let Some(hooks) = faults::hooks() {
            if let Some(layer) = (hooks.layer)(kind, &idle)? {
                return Ok(Driver { backend: Backend::Layer(layer), idle });
            }
        }
        Driver::bare(kind, idle)
    }

    /// [`with_idle`](Driver::with_idle) without a test's layer.
    pub(crate) fn bare(kind: Kind, idle: Shared<Idle>) -> io::Result<Driver> {
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
    pub fn mock(seed: u64, clock: Arc<Virtual>, idle: Shared<Idle>) -> io::Result<Driver> {
        idle.bell().hang()?;
        let mock = Box::new(Mock::new(seed, clock, &idle)?);
        Ok(Driver { backend: Backend::Mock(mock), idle })
    }

    /// The time on the clock that deadlines refer to: [`clock::now`], or the mock's own clock.
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
    /// [`wait`](Driver::wait) submits everything to it. The number of operations is not limited.
    /// Meant for calls that were tried without waiting ([`Op::attempt`]) and would have had to
    /// wait: backends wait for the descriptor first. A backend need not notice what the call would
    /// return at once, such as an error: reading a pipe's writing end may wait for ever.
    ///
    /// # Errors
    /// [`Unsupported`] when the backend cannot wait for the operation, which then was not begun.
    ///
    /// # Safety
    /// The memory that the operation's pointers refer to stays valid, and not otherwise used as far
    /// as the system call requires, until the completion is handed out.
    pub unsafe fn submit(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        debug_assert!(token <= Driver::TOKEN_MAX, "token {token:#x} is the driver's own");
        match &mut self.backend {
            // SAFETY: the operation's memory stays valid until its completion is handed out, which
            // is what each backend requires.
            Backend::Uring(ring) => unsafe { ring.submit(token, op) },
            // SAFETY: the same.
            Backend::Epoll(watcher) => unsafe { watcher.submit(token, op) },
            // SAFETY: the same.
            Backend::Mock(mock) => unsafe { mock.submit(token, op) },
            // SAFETY: the same.
            Backend::Layer(layer) => unsafe { layer.submit(token, op, false) },
        }
    }

    /// [`submit`](Driver::submit) for an operation whose file the kernel must not hold longer than
    /// the process lives. io_uring may hold the files of other operations for some milliseconds
    /// more, in which a listener's address is still in use or a lock still taken. So this is for
    /// listeners, datagram sockets, devices, and locked files. It costs more, and supports what
    /// epoll supports.
    ///
    /// # Errors
    /// As for [`submit`](Driver::submit).
    ///
    /// # Safety
    /// As for [`submit`](Driver::submit).
    pub unsafe fn submit_unheld(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        debug_assert!(token <= Driver::TOKEN_MAX, "token {token:#x} is the driver's own");
        match &mut self.backend {
            // SAFETY: the operation's memory stays valid until its completion is handed out, which
            // is what each backend requires.
            Backend::Uring(ring) => unsafe { ring.submit_unheld(token, op) },
            // SAFETY: the same.
            Backend::Epoll(watcher) => unsafe { watcher.submit(token, op) },
            // SAFETY: the same.
            Backend::Mock(mock) => unsafe { mock.submit(token, op) },
            // SAFETY: the same.
            Backend::Layer(layer) => unsafe { layer.submit(token, op, true) },
        }
    }

    /// Cancels the operation submitted under `token`. Its completion still comes: with
    /// `-ECANCELED` (or `-EINTR` for one that had begun), or with its result if that was faster.
    /// Does nothing if no such operation is under way.
    pub fn cancel(&mut self, token: u64) {
        each!(&mut self.backend, backend => {
            backend.cancel(token);
        })
    }

    /// Passes submitted operations to the kernel and appends completions to `out`. Enters the
    /// kernel only if there is something to pass or to fetch.
    pub fn poll(&mut self, out: &mut Completions) {
        each!(&mut self.backend, backend => backend.poll(out))
    }

    /// Appends completions to `out` that are known without entering the kernel, and leaves it to the next
    /// [`hand_over`](Driver::hand_over), [`poll`](Driver::poll) or [`wait`](Driver::wait) to pass operations to it.
    pub fn peek(&mut self, out: &mut Completions) {
        match &mut self.backend {
            Backend::Uring(ring) => ring.peek(out),
            // Only the kernel knows.
            Backend::Epoll(_) => {}
            Backend::Mock(mock) => mock.poll(out),
            Backend::Layer(layer) => layer.peek(out),
        }
    }

    /// Passes submitted operations to the kernel, if it does not have them yet.
    pub fn hand_over(&mut self) {
        match &mut self.backend {
            Backend::Uring(ring) => ring.hand_over(),
            // They have been passed to it when they were submitted, or are none of the kernel's.
            Backend::Epoll(_) | Backend::Mock(_) => {}
            Backend::Layer(layer) => layer.hand_over(),
        }
    }

    /// [`poll`](Driver::poll) that, if there is no completion, sleeps until there is one, until a
    /// wake-up, or until `deadline`: nanoseconds on the clock of [`clock::now`],
    /// `None` for no limit. Returns whether a wake-up ended it (the token was taken). May also
    /// return early for no reason.
    pub fn wait(&mut self, deadline: Option<u64>, out: &mut Completions) -> bool {
        match &mut self.backend {
            Backend::Uring(ring) => ring.wait(&self.idle, deadline, out),
            Backend::Epoll(watcher) => watcher.wait(&self.idle, deadline, out),
            Backend::Mock(mock) => mock.wait(&self.idle, deadline, out),
            Backend::Layer(layer) => layer.wait(deadline, out),
        }
    }

    /// [`poll`](Driver::poll) by another thread while the owner computes. That thread should live
    /// on: operations that it passes to io_uring are cancelled when it ends. To complete an
    /// operation on a socket or pipe, the kernel briefly needs the thread that passed it on, at the
    /// latest at the next timer interrupt there; the completion is visible after that.
    pub fn harvest(&mut self, out: &mut Completions) {
        self.poll(out);
    }

    /// A waker for this driver, which is cheap to make and to keep.
    pub fn waker(&self) -> Waker {
        Waker(self.idle.clone())
    }

    /// The number of submitted operations whose completions have not been handed out.
    pub fn pending(&self) -> usize {
        each!(&self.backend, backend => backend.pending())
    }

    /// Discards a driver in the child of a `fork`: closes the child's descriptors and touches
    /// nothing that the parent's driver uses. (Dropping it there would cancel and await the parent's
    /// operations.) The child's next driver needs a new [`Idle`] as well: the old one's bell is the
    /// parent's. See [`after_fork`].
    ///
    /// Its memory is leaked: the program's allocator may be locked for the fork.
    pub fn abandon(self) {
        let Driver { backend, idle } = self;
        mem::forget(idle);
        match backend {
            Backend::Uring(ring) => unboxed(ring).abandon(),
            Backend::Epoll(watcher) => unboxed(watcher).abandon(),
            Backend::Mock(mock) => unboxed(mock).abandon(),
            Backend::Layer(layer) => layer.abandon(),
        }
    }
}

/// Notes that the process is about to fork, and so will share its descriptors with another. To be
/// called before each `fork`, by any thread.
pub fn before_fork() {
    crate::sys::before_fork();
}

/// Makes this crate usable in the child of a `fork`, which has a copy of the parent's memory but
/// only one thread. To be called there before anything else of this crate; each driver is then
/// [abandoned](Driver::abandon).
///
/// # Safety
/// The caller is the only thread of the child, and was in no call of this crate when it forked.
pub unsafe fn after_fork() {
    // The parent's bells stay open here. What closes all that it has inherited closes them as well.
    number::forget_all();
    // SAFETY: there is one thread, and it was not inside an attempt when it forked.
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
/// while !driver.wait(None, &mut carefree_reactor::Completions::new()) {}
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Waker(Shared<Idle>);

impl Waker {
    /// Ends the wait under way, or else the next one. No system call unless the owner sleeps or is
    /// about to.
    pub fn wake(&self) {
        self.0.wake();
    }
}
