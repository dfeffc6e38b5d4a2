//! A call of `read`, `write` or one of their kin, as the caller has made it: which one, where in the file,
//! with which buffers.

use std::ffi::c_int;

use libc::{iovec, off_t};

use crate::call::answer::Answer;
use crate::call::buffers::Buffers;
use crate::call::sys::{self, Number, Word};
use crate::call::user::User;

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

/// Where in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// At the file's own position, which moves.
    Position,
    /// At an offset.
    Offset(off_t),
}

impl At {
    /// From an argument of `preadv2` and its kin, where -1 stands for the position.
    pub(crate) fn of_vectored(offset: off_t) -> At {
        if offset == -1 { At::Position } else { At::Offset(offset) }
    }

    /// As an argument of `preadv2` and of the reactor's operations.
    pub(crate) fn number(self) -> off_t {
        match self {
            At::Position => -1,
            At::Offset(offset) => offset,
        }
    }
}

/// The descriptions of a call's buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<'u> {
    first: User<'u, iovec>,
    count: c_int,
    /// They are ours, so they can be read. A caller's may not be there.
    own: bool,
}

impl<'u> Given<'u> {
    pub(crate) fn array(first: User<'u, iovec>, count: c_int) -> Given<'u> {
        Given { first, count, own: false }
    }

    /// One that was made here, for a call without descriptions.
    pub(crate) fn one(buffer: &'u mut iovec) -> Given<'u> {
        Given { first: User::lend(buffer), count: 1, own: true }
    }

    /// The rest of them.
    pub(crate) fn rest(self, buffers: &'u Buffers<'u>) -> Given<'u> {
        Given { first: buffers.first(), count: buffers.count() as c_int, ..self }
    }

    /// The one buffer that a call without descriptions was given.
    pub(crate) fn single(&self) -> Option<iovec> {
        // SAFETY: our own, so it is there.
        self.own.then(|| unsafe { self.first.read_seen() })
    }

    /// What they describe, in order.
    pub(crate) fn buffers(self) -> Buffers<'u> {
        let mut buffers = Buffers::new(self.first, self.count as usize);
        if self.own {
            // SAFETY: the descriptions are of our own making, and are there for `'u`.
            unsafe { buffers.seen() };
        }
        buffers
    }

    /// The sum of their lengths; 0 if they cannot be read, which the call will report.
    pub(crate) fn length(self) -> usize {
        if let Some(one) = self.single() {
            return one.iov_len;
        }
        let mut buffers = self.buffers();
        if buffers.look().is_ok() { buffers.left() } else { 0 }
    }
}

/// A call that reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'u> {
    pub(crate) way: Way,
    pub(crate) fd: c_int,
    pub(crate) given: Given<'u>,
    pub(crate) at: At,
    /// The `RWF_` flags of `preadv2` and `pwritev2`.
    pub(crate) flags: c_int,
}

/// The most buffers the kernel takes.
const BUFFERS_MAX: c_int = libc::UIO_MAXIOV;

/// The flags that `preadv2` and `pwritev2` had when this was written: `RWF_HIPRI` to `RWF_DONTCACHE`.
const FLAGS: c_int = 0xff;

impl<'u> Call<'u> {
    /// Whether the call never waits, whatever the file: most often because it is invalid.
    pub(crate) fn never_waits(&self) -> bool {
        !(0..=BUFFERS_MAX).contains(&self.given.count)
            || matches!(self.at, At::Offset(offset) if offset < 0)
            || self.flags & !FLAGS != 0
            || self.flags & libc::RWF_NOWAIT != 0
            || self.given.single().is_some_and(|one| one.iov_len > isize::MAX as usize)
    }

    /// Whether its flags may make it wait for a disk even if the bytes are in memory.
    pub(crate) fn flags_may_wait(&self) -> bool {
        self.flags & (libc::RWF_HIPRI | libc::RWF_SYNC | libc::RWF_DSYNC) != 0
    }

    /// The call that takes all arguments: `preadv2` or `pwritev2`.
    fn latest(&self) -> Number {
        match self.way {
            Way::Read => Number::PREADV2,
            Way::Write => Number::PWRITEV2,
        }
    }

    fn latest_arguments(&self, flags: c_int) -> [Word<'u>; 6] {
        let (fd, place, none) = (self.fd.into(), self.at.number().into(), 0usize.into());
        let Given { first, count, .. } = self.given;
        // The upper half of the offset is for 32-bit machines.
        [fd, first.into(), (count as usize).into(), place, none, flags.into()]
    }

    /// Makes the call without waiting.
    pub(crate) fn at_once(&self) -> Answer {
        sys::call(self.latest(), self.latest_arguments(self.flags | libc::RWF_NOWAIT))
    }

    /// Makes the call as the caller has made it. It may wait.
    ///
    /// It is repeated if a signal interrupts it before anything was done: signals end no fiber's calls.
    pub(crate) fn plainly(&self) -> Answer {
        let (number, arguments) = self.plain();
        loop {
            match sys::call(number, arguments) {
                Err(libc::EINTR) => {}
                answer => return answer,
            }
        }
    }

    /// The system call, with its arguments.
    fn plain(&self) -> (Number, [Word<'u>; 6]) {
        let (fd, place, none) = (self.fd.into(), self.at.number().into(), 0usize.into());
        let Given { first, count, .. } = self.given;
        if self.flags != 0 {
            return (self.latest(), self.latest_arguments(self.flags));
        }
        // The caller's own, not a later one: a sandbox may refuse that, and it reports a wrong buffer that
        // was given without a description by another error.
        let (number, [buffer, length]) = match self.given.single() {
            Some(one) => {
                let number = match (self.way, self.at) {
                    (Way::Read, At::Position) => Number::READ,
                    (Way::Write, At::Position) => Number::WRITE,
                    (Way::Read, At::Offset(_)) => Number::PREAD64,
                    (Way::Write, At::Offset(_)) => Number::PWRITE64,
                };
                (number, [(one.iov_base as usize).into(), one.iov_len.into()])
            }
            None => {
                let number = match (self.way, self.at) {
                    (Way::Read, At::Position) => Number::READV,
                    (Way::Write, At::Position) => Number::WRITEV,
                    (Way::Read, At::Offset(_)) => Number::PREADV,
                    (Way::Write, At::Offset(_)) => Number::PWRITEV,
                };
                (number, [first.into(), (count as usize).into()])
            }
        };
        (number, [fd, buffer, length, place, none, none])
    }
}
