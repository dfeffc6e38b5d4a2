//! System calls by safe functions.
//!
//! [`call`] is for those that go to memory only where a pointer among their arguments leads: there a
//! pointer is a [`User`], about which see there. The others fill in something of our own.

use std::ffi::{c_int, c_long, c_uint};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use carefree_ground::kernel;

use crate::call::answer::Answer;
use crate::call::user::User;

/// A system call that reads and writes no memory but what its pointers lead to, and leaves the address
/// space and the thread as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(c_long);

macro_rules! numbers {
    ($($(#[$cfg:meta])? $name:ident = $number:ident;)*) => {
        impl Number {
            $($(#[$cfg])? pub(crate) const $name: Number = Number(libc::$number);)*
        }
    };
}

numbers! {
    ACCEPT4 = SYS_accept4;
    CLOSE = SYS_close;
    CONNECT = SYS_connect;
    EPOLL_PWAIT = SYS_epoll_pwait;
    EPOLL_PWAIT2 = SYS_epoll_pwait2;
    EVENTFD2 = SYS_eventfd2;
    FCNTL = SYS_fcntl;
    FDATASYNC = SYS_fdatasync;
    FLOCK = SYS_flock;
    FSYNC = SYS_fsync;
    MQ_TIMEDRECEIVE = SYS_mq_timedreceive;
    MQ_TIMEDSEND = SYS_mq_timedsend;
    MSGRCV = SYS_msgrcv;
    MSGSND = SYS_msgsnd;
    LSEEK = SYS_lseek;
    OPENAT = SYS_openat;
    PIDFD_OPEN = SYS_pidfd_open;
    PPOLL = SYS_ppoll;
    PREAD64 = SYS_pread64;
    PREADV = SYS_preadv;
    PREADV2 = SYS_preadv2;
    PSELECT6 = SYS_pselect6;
    PWRITE64 = SYS_pwrite64;
    PWRITEV = SYS_pwritev;
    PWRITEV2 = SYS_pwritev2;
    READ = SYS_read;
    READV = SYS_readv;
    RECVFROM = SYS_recvfrom;
    RECVMMSG = SYS_recvmmsg;
    RECVMSG = SYS_recvmsg;
    RT_SIGTIMEDWAIT = SYS_rt_sigtimedwait;
    SEMTIMEDOP = SYS_semtimedop;
    SENDFILE = SYS_sendfile;
    SENDMMSG = SYS_sendmmsg;
    SENDMSG = SYS_sendmsg;
    SENDTO = SYS_sendto;
    SIGNALFD4 = SYS_signalfd4;
    SOCKET = SYS_socket;
    SPLICE = SYS_splice;
    TEE = SYS_tee;
    VMSPLICE = SYS_vmsplice;
    WAIT4 = SYS_wait4;
    WAITID = SYS_waitid;
    WRITE = SYS_write;
    WRITEV = SYS_writev;
    #[cfg(target_arch = "x86_64")] EPOLL_WAIT = SYS_epoll_wait;
    #[cfg(target_arch = "x86_64")] POLL = SYS_poll;
    #[cfg(target_arch = "x86_64")] SELECT = SYS_select;
}

/// An argument of a system call: a number, or what the caller of a stand-in has pointed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'u>(usize, PhantomData<User<'u>>);

impl Word<'_> {
    #[inline]
    pub(crate) fn number(self) -> usize {
        self.0
    }
}

impl From<usize> for Word<'_> {
    #[inline]
    fn from(number: usize) -> Self {
        Word(number, PhantomData)
    }
}

impl From<c_int> for Word<'_> {
    #[inline]
    fn from(number: c_int) -> Self {
        Word(number as usize, PhantomData)
    }
}

impl From<c_uint> for Word<'_> {
    #[inline]
    fn from(number: c_uint) -> Self {
        Word(number as usize, PhantomData)
    }
}

impl From<i64> for Word<'_> {
    #[inline]
    fn from(number: i64) -> Self {
        Word(number as usize, PhantomData)
    }
}

impl From<u64> for Word<'_> {
    #[inline]
    fn from(number: u64) -> Self {
        Word(number as usize, PhantomData)
    }
}

impl<'u, T> From<User<'u, T>> for Word<'u> {
    #[inline]
    fn from(pointer: User<'u, T>) -> Word<'u> {
        Word(pointer.address(), PhantomData)
    }
}

/// Makes a system call with these arguments, and zeros for the rest of the six.
#[inline]
pub(crate) fn call<const N: usize>(number: Number, given: [Word; N]) -> Answer {
    const { assert!(N <= 6) };
    let mut arguments = [0; 6];
    for (argument, word) in arguments.iter_mut().zip(given) {
        *argument = word.number();
    }
    // SAFETY: the pointers among the arguments are `User`s, and what the call does there is what the
    // program has asked for; it does nothing to other memory.
    unsafe { kernel::call(number.0, arguments) }
}

/// The mode and access of an open file (`F_GETFL`).
pub(crate) fn mode(fd: c_int) -> Result<c_int, c_int> {
    call(Number::FCNTL, [fd.into(), libc::F_GETFL.into()]).map(|mode| mode as c_int)
}

/// Sets an open file's mode (`F_SETFL`).
pub(crate) fn set_mode(fd: c_int, mode: c_int) -> Answer {
    call(Number::FCNTL, [fd.into(), libc::F_SETFL.into(), mode.into()])
}

/// What an open file is.
pub(crate) fn status(fd: c_int) -> Result<libc::stat, c_int> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    let arguments = [fd as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: there is room for the answer, whose layout is the kernel's own on 64-bit machines.
    unsafe { kernel::call(libc::SYS_fstat, arguments) }?;
    // SAFETY: the call has succeeded and so filled it.
    Ok(unsafe { status.assume_init() })
}

/// Asks a file a question whose answer is a number.
pub(crate) fn ioctl_number(fd: c_int, question: usize) -> Result<c_int, c_int> {
    let mut number: c_int = 0;
    let arguments = [fd as usize, question, &raw mut number as usize, 0, 0, 0];
    // SAFETY: there is room for the answer.
    unsafe { kernel::call(libc::SYS_ioctl, arguments) }.map(|_: usize| number)
}
