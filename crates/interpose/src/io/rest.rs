//! What is left of a call that reads or writes, when a part of its bytes has been moved.

use libc::{iovec, off_t};

use crate::call::answer::{Answer, or_so_far};
use crate::call::buffers::Buffers;
use crate::call::user::User;
use crate::io::call::{At, Call, Way};
use crate::wait::user_op::UserOp;

/// The rest of a call: its buffers without the part that was used, and the place in the file after that.
#[derive(Debug)]
pub(crate) struct Rest<'c> {
    /// The call as it was made.
    pub(crate) whole: &'c Call<'c>,
    pub(crate) buffers: Buffers<'c>,
    /// Bytes moved so far.
    pub(crate) done: usize,
}

impl<'c> Rest<'c> {
    /// All of a call, of which nothing has been done yet.
    #[inline]
    pub(crate) fn all(whole: &'c Call<'c>) -> Rest<'c> {
        Rest { whole, buffers: whole.given.buffers(), done: 0 }
    }

    /// Notes that `bytes` more have been moved, and some are left.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.buffers.advance(bytes);
        self.done += bytes;
    }

    /// What the whole call answers if that for the rest has this answer, and is the last one.
    pub(crate) fn or_so_far(&self, answer: Answer) -> Answer {
        or_so_far(self.done, answer)
    }

    /// The call for the rest.
    #[inline]
    pub(crate) fn call(&self) -> Call<'_> {
        Call { given: self.whole.given.rest(&self.buffers), at: self.at(), ..*self.whole }
    }

    /// The reactor's operation for the rest.
    pub(crate) fn operation(&self) -> UserOp<'_> {
        let Call { way, fd, flags, .. } = *self.whole;
        let offset = self.at().number() as u64;
        // A ring accepts this flag only for files that are polled by busy loops; elsewhere it has no effect.
        let flags = flags & !libc::RWF_HIPRI;
        let (iov, count) = (self.buffers.first(), self.buffers.count());
        // SAFETY: what a caller's description points to is the caller's.
        let base = |one: &iovec| unsafe { User::new(one.iov_base) };
        match (way, self.buffers.single().filter(|_| flags == 0)) {
            (Way::Read, Some(one)) => UserOp::read(fd, base(&one), one.iov_len, offset),
            (Way::Read, None) => UserOp::read_vectored(fd, iov, count, offset, flags),
            (Way::Write, Some(one)) => UserOp::write(fd, base(&one), one.iov_len, offset),
            (Way::Write, None) => UserOp::write_vectored(fd, iov, count, offset, flags),
        }
    }

    /// Where in the file the rest begins.
    #[inline]
    fn at(&self) -> At {
        match self.whole.at {
            At::Position => At::Position,
            At::Offset(offset) => At::Offset(offset + self.done as off_t),
        }
    }
}
