//! Headers of messages that are built here: for the rest of a caller's message, or for its buffer.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::call::buffers::Buffers;
use crate::call::user::User;

/// A header in our own memory. Its pointers are a program's, or point to buffers' descriptions of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'u>(msghdr, PhantomData<User<'u>>);

impl<'u> Message<'u> {
    fn empty() -> Message<'u> {
        // SAFETY: zeros are a header without anything; its padding differs between libcs.
        Message(unsafe { MaybeUninit::zeroed().assume_init() }, PhantomData)
    }

    /// With one buffer, and without an address.
    pub(crate) fn of_one(buffer: &'u mut iovec) -> Message<'u> {
        let mut message = Message::empty();
        message.0.msg_iov = buffer;
        message.0.msg_iovlen = 1;
        message
    }

    /// With what is left in `buffers`, and without an address.
    pub(crate) fn of_buffers(buffers: &'u Buffers<'u>) -> Message<'u> {
        let mut message = Message::empty();
        // SAFETY: they are borrowed for as long as the header is used.
        unsafe { message.set_buffers(buffers) };
        message
    }

    /// A copy of a caller's header.
    ///
    /// # Safety
    /// It can be read, as for [`User::read_seen`].
    pub(crate) unsafe fn copied(message: User<'u, msghdr>) -> Message<'u> {
        // SAFETY: `copied` asks for what `read_seen` asks.
        Message(unsafe { message.read_seen() }, PhantomData)
    }

    pub(crate) fn header(&self) -> &msghdr {
        &self.0
    }

    /// Its buffers, not read yet.
    pub(crate) fn buffers(&self) -> Buffers<'u> {
        // SAFETY: a caller's pointer, or one to descriptions that stay.
        Buffers::new(unsafe { User::new(self.0.msg_iov) }, self.0.msg_iovlen as _)
    }

    /// Makes it the header for what is left in `buffers`.
    ///
    /// # Safety
    /// Until `buffers` is advanced or gone, or this is called again, whichever comes first, the header may be
    /// used; after that, not before this has been called again.
    pub(crate) unsafe fn set_buffers(&mut self, buffers: &Buffers) {
        self.0.msg_iov = buffers.first().pointer();
        self.0.msg_iovlen = buffers.count() as _;
    }

    pub(crate) fn set_address(&mut self, address: User<'u, sockaddr>, length: socklen_t) {
        self.0.msg_name = address.pointer().cast();
        self.0.msg_namelen = length;
    }

    /// Drops the address, which an earlier part was sent to or received from.
    pub(crate) fn without_address(&mut self) {
        self.0.msg_name = ptr::null_mut();
        self.0.msg_namelen = 0;
    }

    /// Drops the address and the control data, which went with an earlier part.
    pub(crate) fn only_bytes(&mut self) {
        self.without_address();
        self.0.msg_control = ptr::null_mut();
        self.0.msg_controllen = 0;
    }

    /// Room for control data, of which a call has told how much it has used.
    pub(crate) fn set_control_room(&mut self, room: usize) {
        self.0.msg_controllen = room as _;
    }

    /// Lends it to the kernel.
    pub(crate) fn lend(&mut self) -> User<'_, msghdr> {
        User::lend(&mut self.0)
    }
}
