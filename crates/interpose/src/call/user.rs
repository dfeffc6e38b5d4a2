//! Pointers that a stand-in was given.
//!
//! A program that calls `read` promises libc that its buffer may be written to, for as many bytes as it
//! says. libc does not touch the buffer but hands it to the kernel, which checks each address itself and
//! answers `EFAULT` for one that leads nowhere. The stand-ins do as libc does. A [`User`] is such a pointer
//! on its way from a stand-in's signature to a system call, an operation or libc's own function: it cannot
//! be followed, only handed on.
//!
//! # Why handing it on is sound
//!
//! The call does to memory what the program asked libc's function of the same name to do, and no more,
//! because the functions of this crate keep to three rules:
//!
//! * A length, a count or an offset beside a `User` is the one that came with it, or what is left of that
//!   after a part; and [`User::skip`] moves by what was done.
//! * A `User` is used for the call it was given to, and for others that libc's function could have been
//!   made of: `readv` for `read`, not `munmap`.
//! * It is not used after the stand-in has returned, or after what was lent by [`User::lend`] is gone. A
//!   thread of the offload pool is waited for, and an operation too, whatever ends its fiber's wait.
//!
//! For an object of libc's, such as a lock, the program has promised also that libc has set it up.
//!
//! So what takes a `User` need not be `unsafe`. What makes one is: see [`User::new`]. (A stand-in's own are
//! made by its callers, which is why a stand-in is `unsafe`.)
//!
//! What *is* looked at here has to be there: the kernel is asked first ([`User::read`], [`User::write`]),
//! or has read it before us ([`User::read_seen`]).

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;

use crate::call::memory;

/// A pointer that the caller of a stand-in has given, to one or several `T`.
///
/// In a stand-in's signature it is what a pointer is in C.
#[repr(transparent)]
pub struct User<T = c_void>(*mut T);

impl<T> Clone for User<T> {
    fn clone(&self) -> User<T> {
        *self
    }
}

impl<T> Copy for User<T> {}

impl<T> fmt::Debug for User<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl<T> PartialEq for User<T> {
    fn eq(&self, other: &User<T>) -> bool {
        ptr::eq(self.0, other.0)
    }
}

// SAFETY: the kernel and libc take it from any thread. A thread that makes a fiber's call does so while
// the fiber waits.
unsafe impl<T> Send for User<T> {}
// SAFETY: shared, it only hands out its address.
unsafe impl<T> Sync for User<T> {}

impl User {
    /// [`lend`](User::lend), for calls that take as many bytes at the most.
    pub(crate) fn lend_bytes(own: &mut [u8]) -> User {
        User(own.as_mut_ptr().cast())
    }
}

impl<T> User<T> {
    /// No memory: what C calls a null pointer.
    pub(crate) const NULL: User<T> = User(ptr::null_mut());

    /// A pointer for calls that are made in a program's stead.
    ///
    /// # Safety
    /// For the calls that it is given to, with the lengths beside it, it is what libc's functions of these
    /// names ask for, until they return.
    pub(crate) const unsafe fn new(pointer: *const T) -> User<T> {
        User(pointer.cast_mut())
    }

    /// Something of our own, for calls that are over while it is there and take a `T`.
    #[inline]
    pub(crate) fn lend(own: &mut T) -> User<T> {
        User(own)
    }

    /// [`lend`](User::lend), or no memory.
    #[inline]
    pub(crate) fn lend_some(own: &mut Option<T>) -> User<T> {
        own.as_mut().map_or(User::NULL, User::lend)
    }

    /// The pointer, for what takes one: the rules above are the caller's then.
    #[inline]
    pub(crate) const fn pointer(self) -> *mut T {
        self.0
    }

    /// The address, for the kernel.
    #[inline]
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The same address, of another type.
    #[inline]
    pub(crate) const fn cast<U>(self) -> User<U> {
        User(self.0.cast())
    }

    /// What comes after so many bytes, which have been dealt with.
    #[inline]
    pub(crate) fn skip(self, bytes: usize) -> User<T> {
        User(self.0.wrapping_byte_add(bytes))
    }

    /// What comes after so many `T`.
    #[inline]
    pub(crate) fn after(self, count: usize) -> User<T> {
        User(self.0.wrapping_add(count))
    }

    /// Whether `count` values can be read.
    ///
    /// # Errors
    /// `EFAULT` if not.
    pub(crate) fn check(self, count: usize) -> Result<(), c_int> {
        memory::check(self.0, count)
    }
}

/// Data of C's of which any bytes are a value.
///
/// # Safety
/// It has no invalid values.
pub unsafe trait Plain: Copy {}

// SAFETY: numbers.
unsafe impl Plain for c_int {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: a pointer, which to have is no danger.
unsafe impl<T> Plain for User<T> {}
// SAFETY: structures of numbers and pointers.
unsafe impl Plain for libc::timespec {}
// SAFETY: as above.
unsafe impl Plain for libc::timeval {}
// SAFETY: as above.
unsafe impl Plain for libc::pollfd {}
// SAFETY: as above.
unsafe impl Plain for libc::sembuf {}
// SAFETY: as above.
unsafe impl Plain for libc::flock {}
// SAFETY: as above.
unsafe impl Plain for libc::iovec {}
// SAFETY: as above.
unsafe impl Plain for libc::msghdr {}
// SAFETY: as above.
unsafe impl Plain for libc::mmsghdr {}
// SAFETY: as above.
unsafe impl Plain for libc::siginfo_t {}

impl<T: Plain> User<T> {
    /// The value, if it can be read. It need not be aligned: the kernel does not ask for that either.
    ///
    /// # Errors
    /// `EFAULT` if it cannot.
    pub(crate) fn read(self) -> Result<T, c_int> {
        self.check(1)?;
        // SAFETY: just found.
        Ok(unsafe { self.read_seen() })
    }

    /// The value, unasked.
    ///
    /// # Safety
    /// It can be read: the kernel has read it in this call already, or [`check`](User::check) has found it.
    pub(crate) unsafe fn read_seen(self) -> T {
        // SAFETY: it can be read, and the program has promised to leave it alone during the call. Any bytes
        // are a value.
        unsafe { self.0.read_unaligned() }
    }

    /// Writes `value`, if that is possible.
    ///
    /// # Errors
    /// `EFAULT` if it is not.
    pub(crate) fn write(self, value: T) -> Result<(), c_int> {
        // SAFETY: all of it is overwritten just below.
        unsafe { memory::check_writable(self.0) }?;
        // SAFETY: just found.
        unsafe { self.write_seen(value) };
        Ok(())
    }

    /// Writes `value`, unasked.
    ///
    /// # Safety
    /// It can be written: the kernel has read or written it in this call already, or libc's function would
    /// write it unasked as well.
    pub(crate) unsafe fn write_seen(self, value: T) {
        // SAFETY: the program has given it to be written to in this call.
        unsafe { self.0.write_unaligned(value) }
    }
}

/// Makes of an argument of `syscall` what the function of the call's name takes.
///
/// # Safety
/// For a pointer: as for [`User::new`].
pub(crate) unsafe fn word<T: FromWord>(word: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { T::from_word(word) }
}

/// What [`word`] makes.
pub(crate) trait FromWord {
    /// # Safety
    /// For a pointer: as for [`User::new`].
    unsafe fn from_word(word: usize) -> Self;
}

impl<T> FromWord for User<T> {
    unsafe fn from_word(word: usize) -> User<T> {
        // SAFETY: the caller's promise.
        unsafe { User::new(word as *const T) }
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl FromWord for $number {
            unsafe fn from_word(word: usize) -> $number {
                word as $number
            }
        }
    )*};
}

numbers! { i32 u32 i64 u64 usize }
