//! Fibers that wait on a file.

use std::ffi::c_int;

use carefree_runtime::waiters::{self, Seat};

use crate::descriptor::file::{File, holder};
use crate::descriptor::holder::Holder;
use crate::descriptor::kind::{Kind, look};
use crate::descriptor::option::option;
use crate::descriptor::table::file;

/// A fiber that waits on a file.
#[derive(Debug)]
pub(crate) struct Waiter<'s> {
    fd: c_int,
    file: Option<(&'static File, waiters::Waiter<'s>)>,
}

impl<'s> Waiter<'s> {
    /// Registers the calling fiber, at `seat`, as a waiter on `fd`; `None` if that is just being closed.
    #[inline]
    pub(crate) fn new(fd: c_int, seat: &'s Seat) -> Option<Waiter<'s>> {
        let Some(file) = file(fd) else { return Some(Waiter { fd, file: None }) };
        // SAFETY: this crate forgets no waiter, and makes one for each seat.
        let waiter = unsafe { file.waiters().enter(seat) }?;
        Some(Waiter { fd, file: Some((file, waiter)) })
    }

    /// Whether its file must not be held by a ring.
    #[inline]
    pub(crate) fn unheld(&self) -> bool {
        let holder = match &self.file {
            Some((file, _)) => file.holder(self.fd),
            None => holder(self.fd, look(self.fd).0.kind),
        };
        holder != Holder::Ring
    }

    /// Whether it is a device, which must not be held either.
    pub(crate) fn is_device(&self) -> bool {
        self.file.as_ref().is_some_and(|(file, _)| file.kind(self.fd) == Kind::Device)
    }

    /// Whether it came when others waited, and a ring would serve them all in another order. (Datagrams it has in order.)
    #[inline]
    pub(crate) fn is_behind_others(&self) -> bool {
        self.file.as_ref().is_some_and(|(file, waiter)| {
            !waiter.came_alone()
                && match file.kind(self.fd) {
                    Kind::Pipe | Kind::Stream => true,
                    Kind::Socket => option(self.fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM),
                    Kind::Regular | Kind::Device | Kind::Unknown => false,
                }
        })
    }

    /// Whether the file is still there to wait on.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.file.as_ref().is_none_or(|(_, waiter)| waiter.holds())
    }
}
