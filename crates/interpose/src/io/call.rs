//! Calls as the caller has made them: of `read`, `write` and their kin which one, where, with which
//! buffers; and those of sockets as they are.

use std::ffi::c_int;

use libc::{iovec, off_t};

use crate::call::answer::Answer;
use crate::call::buffers::Buffers;
use crate::call::sys;
use crate::call::sys::Number;
use crate::call::sys::Word;
use crate::call::user::User;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

/// Where in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// At its own position, which moves on.
    Position,
    /// There.
    Offset(off_t),
}

impl At {
    /// As `preadv2` and its kin have it, where -1 stands for the position.
    pub(crate) fn of_vectored(offset: off_t) -> At {
        if offset == -1 { At::Position } else { At::Offset(offset) }
    }

    /// As `preadv2` and the reactor have it.
    pub(crate) fn number(self) -> off_t {
        match self {
            At::Position => -1,
            At::Offset(offset) => offset,
        }
    }

    pub(crate) fn further(self, bytes: usize) -> At {
        match self {
            At::Position => At::Position,
            At::Offset(offset) => At::Offset(offset + bytes as off_t),
        }
    }
}

/// The descriptions of a call's buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    first: User<iovec>,
    count: c_int,
    /// They are not the caller's, who may be wrong about them.
    own: bool,
}

impl Given {
    pub(crate) fn array(first: User<iovec>, count: c_int) -> Given {
        Given { first, count, own: false }
    }

    /// One of our own making.
    pub(crate) fn one(buffer: &mut iovec) -> Given {
        Given { first: User::lend(buffer), count: 1, own: true }
    }

    /// What is left of it.
    pub(crate) fn rest(self, buffers: &Buffers) -> Given {
        Given { first: buffers.first(), count: buffers.count() as c_int, ..self }
    }

    /// The one buffer that a call without descriptions was given.
    pub(crate) fn single(&self) -> Option<iovec> {
        // SAFETY: our own, so it is there.
        self.own.then(|| unsafe { self.first.read_seen() })
    }
    pub(crate) fn buffers(self) -> Buffers {
        let mut buffers = Buffers::new(self.first, self.count as usize);
        if self.own {
            // SAFETY: it is there.
            unsafe { buffers.seen() };
        }
        buffers
    }

    /// Bytes of all of them together; none if they cannot be read, which the call will say.
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
pub(crate) struct Call {
    pub(crate) way: Way,
    pub(crate) fd: c_int,
    pub(crate) given: Given,
    pub(crate) at: At,
    /// The `RWF_` flags of `preadv2` and `pwritev2`.
    pub(crate) flags: c_int,
}

/// The most buffers the kernel takes.
const BUFFERS_MAX: c_int = libc::UIO_MAXIOV;

/// The flags that `preadv2` and `pwritev2` had when this was written: `RWF_HIPRI` to `RWF_DONTCACHE`.
const FLAGS: c_int = 0xff;

impl Call {
    /// A call that answers at once whatever the file, most often that it is wrong.
    pub(crate) fn never_waits(&self) -> bool {
        !(0..=BUFFERS_MAX).contains(&self.given.count)
            || matches!(self.at, At::Offset(offset) if offset < 0)
            || self.flags & !FLAGS != 0
            || self.flags & libc::RWF_NOWAIT != 0
            || self.given.single().is_some_and(|one| one.iov_len > isize::MAX as usize)
    }

    /// Whether its flags may make it wait for a disk though the bytes are in memory.
    pub(crate) fn flags_may_wait(&self) -> bool {
        self.flags & (libc::RWF_HIPRI | libc::RWF_SYNC | libc::RWF_DSYNC) != 0
    }

    /// The number of the call with all arguments: `preadv2` or `pwritev2`.
    fn latest(&self) -> Number {
        match self.way {
            Way::Read => Number::PREADV2,
            Way::Write => Number::PWRITEV2,
        }
    }

    fn latest_arguments(
        &self,
        first: User<iovec>,
        count: usize,
        at: At,
        flags: c_int,
    ) -> [Word; 6] {
        let fd = self.fd.into();
        // The upper half of the offset is for 32-bit machines.
        [fd, first.into(), count.into(), at.number().into(), 0usize.into(), flags.into()]
    }

    /// The call without waiting, of what is left of its buffers.
    pub(crate) fn at_once(&self, buffers: &Buffers, at: At) -> Answer {
        let flags = self.flags | libc::RWF_NOWAIT;
        sys::call(self.latest(), self.latest_arguments(buffers.first(), buffers.count(), at, flags))
    }

    /// The call as the caller has made it. It may wait.
    ///
    /// It is made again if a signal interrupted it before anything was done: signals end no fiber's
    /// calls.
    pub(crate) fn plainly(&self) -> Answer {
        let (number, arguments) = self.plain();
        loop {
            match sys::call(number, arguments) {
                Err(libc::EINTR) => {}
                answer => return answer,
            }
        }
    }

    /// The system call that this is.
    fn plain(&self) -> (Number, [Word; 6]) {
        let (fd, place, none) = (self.fd.into(), self.at.number().into(), 0usize.into());
        let Given { first, count, .. } = self.given;
        if self.flags != 0 {
            let arguments = self.latest_arguments(first, count as usize, self.at, self.flags);
            return (self.latest(), arguments);
        }
        // No later one than the caller's: a sandbox may not let it through, and what is wrong with
        // a buffer that was given without a description, they say in other words.
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
