//! Several buffers as one, of which a part has been used.

use std::ffi::c_int;

use libc::iovec;

use crate::call::pipe::Pipe;
use crate::call::sys::{self, Number};
use crate::call::user::User;

/// The most that one call moves. A buffer that is longer may reach beyond what a process can address:
/// the calls without a list of buffers refuse that, and those with one cut its length first, as a
/// socket's own do.
pub(crate) const LONGEST: usize = 0x7fff_f000;

/// All processes can address more than this.
const NEAR: usize = 1 << 46;

/// The buffers of a call, without the part of them that was used.
///
/// Usually a call uses all or ends early, so they are copied only when a part was used. And usually the
/// kernel reads their descriptions before we do, and so checks whether they can be read.
pub(crate) struct Buffers<'u> {
    first: User<'u, iovec>,
    count: usize,
    /// Bytes left in them; `None` while their descriptions have not been read.
    left: Option<usize>,
    copy: Vec<iovec>,
}

impl<'u> Buffers<'u> {
    /// `count` descriptions at `first`, as the caller says: not read yet.
    pub(crate) fn new(first: User<'u, iovec>, count: usize) -> Buffers<'u> {
        Buffers { first, count, left: None, copy: Vec::new() }
    }

    /// Looks at the descriptions of a message's buffers, and whether the kernel would take them.
    ///
    /// # Errors
    /// What is wrong with them: the kernel says so before it asks the socket.
    pub(crate) fn look_for_message(&mut self) -> Result<(), c_int> {
        if self.count > libc::UIO_MAXIOV as usize {
            return Err(libc::EMSGSIZE);
        }
        self.look()?;
        if self.reach_far() { self.ask() } else { Ok(()) }
    }

    /// Reads the descriptions, which the kernel has not read yet, unless that has been done.
    ///
    /// # Errors
    /// `EFAULT` if they are not there.
    pub(crate) fn look(&mut self) -> Result<(), c_int> {
        if self.left.is_none() {
            self.first.check(self.count)?;
            // SAFETY: `check` has found them readable.
            unsafe { self.seen() };
        }
        Ok(())
    }

    /// Reads the descriptions, unless that has been done.
    ///
    /// # Safety
    /// They are there: the kernel has read them, or they are of our own making.
    pub(crate) unsafe fn seen(&mut self) {
        if self.left.is_none() {
            // SAFETY: they are there, as `seen` asks.
            let all = unsafe { slice(self.first, self.count) };
            self.left = Some(all.iter().fold(0usize, |sum, one| sum.saturating_add(one.iov_len)));
        }
    }

    pub(crate) fn first(&self) -> User<'_, iovec> {
        self.first
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes left.
    ///
    /// # Panics
    /// If they have not been read.
    pub(crate) fn left(&self) -> usize {
        self.left.expect("the buffers were looked at")
    }

    /// Those left, once they have been read.
    fn all(&self) -> &[iovec] {
        // SAFETY: looked at, so they are there, or our own copy.
        if self.left.is_some() { unsafe { slice(self.first, self.count) } } else { &[] }
    }

    /// The buffer that is left, if it is only one and has been read.
    pub(crate) fn single(&self) -> Option<iovec> {
        if let [one] = self.all() { Some(*one) } else { None }
    }

    /// The first of those left, once they have been read.
    pub(crate) fn front(&self) -> Option<iovec> {
        self.all().first().copied()
    }

    /// Whether one is longer than any memory, which the kernel refuses.
    pub(crate) fn is_absurd(&self) -> bool {
        self.left() > isize::MAX as usize
            && self.all().iter().any(|one| one.iov_len > isize::MAX as usize)
    }

    /// Whether one may end beyond what a process can address, a limit that only the kernel knows.
    fn reach_far(&self) -> bool {
        let far = |one: &iovec| {
            (one.iov_base as usize).checked_add(one.iov_len).is_none_or(|end| end >= NEAR)
        };
        self.all().iter().any(far)
    }

    /// Asks the kernel whether it accepts the descriptions, by a read from an empty pipe.
    #[cold]
    fn ask(&self) -> Result<(), c_int> {
        let Ok(empty) = Pipe::new() else { return Ok(()) };
        let arguments = [empty.from.fd().into(), self.first.into(), self.count.into()];
        match sys::call(Number::READV, arguments) {
            Err(errno @ (libc::EFAULT | libc::EINVAL)) => Err(errno),
            _ => Ok(()),
        }
    }

    /// The first `used` bytes have been used.
    pub(crate) fn advance(&mut self, used: usize) {
        self.left = Some(self.left() - used.min(self.left()));
        let mut rest = self.all().to_vec();
        let mut used = used;
        let whole = rest.iter().take_while(|one| {
            let fits = one.iov_len <= used;
            used -= if fits { one.iov_len } else { 0 };
            fits
        });
        let whole = whole.count();
        rest.drain(..whole);
        if let Some(first) = rest.first_mut() {
            first.iov_base = first.iov_base.wrapping_byte_add(used);
            first.iov_len -= used;
        }
        self.copy = rest;
        // SAFETY: our own. It stays until the next `advance`, which sets `first` anew, or the end of this; and
        // `first()` gives it out for no longer than it borrows this.
        self.first = unsafe { User::new(self.copy.as_ptr()) };
        self.count = self.copy.len();
    }
}

/// # Safety
/// `first` points to `count` buffers' descriptions, or `count` is 0.
unsafe fn slice<'a>(first: User<'_, iovec>, count: usize) -> &'a [iovec] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: not null and not empty, so `count` descriptions lie there, as this function asks.
    unsafe { std::slice::from_raw_parts(first.pointer(), count) }
}

impl std::fmt::Debug for Buffers<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Buffers").field("count", &self.count).field("left", &self.left).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// The bytes that `buffers` has left, one after the other.
    fn content(buffers: &Buffers) -> Vec<u8> {
        // SAFETY: made from arrays of the tests.
        unsafe { slice(buffers.first, buffers.count) }
            .iter()
            // SAFETY: each describes a text of the tests.
            .flat_map(|one| unsafe {
                std::slice::from_raw_parts(one.iov_base.cast::<u8>(), one.iov_len).to_vec()
            })
            .collect()
    }

    #[test]
    fn what_was_used_is_left_out_wherever_it_ends() {
        let mut texts = [b"ab".to_vec(), b"".to_vec(), b"cde".to_vec(), b"f".to_vec()];
        let all = texts
            .each_mut()
            .map(|text| iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() });
        for first in 0..=6 {
            for second in 0..=6 - first {
                // SAFETY: the array outlives it.
                let mut buffers = Buffers::new(unsafe { User::new(all.as_ptr()) }, all.len());
                assert_eq!(buffers.look(), Ok(()));
                assert_eq!(buffers.left(), 6);
                buffers.advance(first);
                buffers.advance(second);
                assert_eq!(content(&buffers), &b"abcdef"[first + second..]);
                assert_eq!(buffers.left(), 6 - first - second);
            }
        }
        let mut none = Buffers::new(User::NULL, 0);
        assert_eq!(none.look(), Ok(()));
        assert_eq!((none.left(), content(&none)), (0, Vec::new()));
        // SAFETY: the kernel is asked whether there are any.
        let mut nowhere = Buffers::new(unsafe { User::new(ptr::dangling()) }, 2);
        assert_eq!(nowhere.look(), Err(libc::EFAULT));
    }
}
