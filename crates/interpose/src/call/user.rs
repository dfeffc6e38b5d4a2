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
//! * It is not used after the stand-in has returned: its lifetime ends with the stand-in's arguments. What is
//!   lent by [`User::lend`] stays borrowed as long. A thread of the offload pool is waited for, and an
//!   operation too, whatever ends its fiber's wait.
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
use std::marker::PhantomData;
use std::ptr;

use carefree_ground::probe;
use carefree_runtime::kernel_name::KernelName;

/// A pointer that the caller of a stand-in has given, to one or several `T`.
///
/// In a stand-in's signature it is what a pointer is in C. The kernel and libc's functions may use it during
/// `'u`.
#[repr(transparent)]
pub struct User<'u, T = c_void>(*mut T, PhantomData<&'u ()>);

impl<T> Clone for User<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for User<'_, T> {}

impl<T> fmt::Debug for User<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl<T> PartialEq for User<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

// SAFETY: the kernel and libc take it from any thread. A thread that makes a fiber's call does so while
// the fiber waits.
unsafe impl<T> Send for User<'_, T> {}
// SAFETY: shared, it only hands out its address.
unsafe impl<T> Sync for User<'_, T> {}

impl<'u> User<'u> {
    /// [`lend`](User::lend), for calls that take as many bytes at the most.
    pub(crate) fn lend_bytes(own: &'u mut [u8]) -> User<'u> {
        User(own.as_mut_ptr().cast(), PhantomData)
    }
}

impl<'u, T> User<'u, T> {
    /// No memory: what C calls a null pointer.
    pub(crate) const NULL: User<'u, T> = User(ptr::null_mut(), PhantomData);

    /// A pointer for calls that are made in a program's stead.
    ///
    /// # Safety
    /// During `'u`, for the calls that it is given to, with the lengths beside it, it is what libc's functions
    /// of these names ask for.
    pub(crate) const unsafe fn new(pointer: *const T) -> User<'u, T> {
        User(pointer.cast_mut(), PhantomData)
    }

    /// Something of our own, for calls that take a `T`. It stays borrowed until the last of them is over.
    #[inline]
    pub(crate) fn lend(own: &'u mut T) -> User<'u, T> {
        User(own, PhantomData)
    }

    /// [`lend`](User::lend), for calls that take as many.
    pub(crate) fn lend_slice(own: &'u mut [T]) -> User<'u, T> {
        User(own.as_mut_ptr(), PhantomData)
    }

    /// [`lend`](User::lend), or no memory.
    #[inline]
    pub(crate) fn lend_some(own: &'u mut Option<T>) -> User<'u, T> {
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
    pub(crate) const fn cast<U>(self) -> User<'u, U> {
        User(self.0.cast(), PhantomData)
    }

    /// What comes after so many bytes, which have been dealt with.
    #[inline]
    pub(crate) fn skip(self, bytes: usize) -> User<'u, T> {
        User(self.0.wrapping_byte_add(bytes), PhantomData)
    }

    /// What comes after so many `T`.
    #[inline]
    pub(crate) fn after(self, count: usize) -> User<'u, T> {
        User(self.0.wrapping_add(count), PhantomData)
    }

    /// Whether `count` values can be read.
    ///
    /// # Errors
    /// `EFAULT` if not.
    pub(crate) fn check(self, count: usize) -> Result<(), c_int> {
        probe::check(self.0, count)
    }
}

/// Data of C's of which any bytes are a value.
///
/// # Safety
/// It has no invalid values.
pub unsafe trait Plain: Copy {}

/// Implements [`Plain`] for numbers, and for structures of C's that consist of nothing else but numbers and
/// pointers.
macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        // SAFETY: it consists of numbers and raw pointers, and any bytes are a value of these.
        unsafe impl Plain for $type {}
    )*};
}

plain! {
    c_int, u8, u32, i64, u64, KernelName,
    libc::timespec, libc::timeval, libc::pollfd, libc::sembuf, libc::flock, libc::iovec, libc::msghdr,
    libc::mmsghdr, libc::siginfo_t, libc::stack_t,
}

// SAFETY: any bytes are an address, and to have one does no harm. What it leads to is the program's promise,
// as for the pointer that it was read through, and for as long.
unsafe impl<T> Plain for User<'_, T> {}
// SAFETY: any bytes are an address, and to have one does no harm.
unsafe impl<T> Plain for *mut T {}

impl<T: Plain> User<'_, T> {
    /// The value, if it can be read. It need not be aligned: the kernel does not ask for that either.
    ///
    /// # Errors
    /// `EFAULT` if it cannot.
    pub(crate) fn read(self) -> Result<T, c_int> {
        self.check(1)?;
        // SAFETY: `check` has found it readable.
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
        unsafe { probe::check_writable(self.0) }?;
        // SAFETY: `check_writable` has found it writable.
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

/// An argument of `syscall`, as the function of the call's name takes it: a number, or a pointer.
pub(crate) trait FromWord {
    /// # Safety
    /// For a pointer: as for [`User::new`].
    unsafe fn from_word(word: usize) -> Self;
}

/// Makes of an argument of `syscall` what the function of the call's name takes.
///
/// # Safety
/// For a pointer: as for [`User::new`].
pub(crate) unsafe fn word<T: FromWord>(word: usize) -> T {
    // SAFETY: both functions ask for the same, and here `T` is what the caller has chosen.
    unsafe { T::from_word(word) }
}

impl<T> FromWord for User<'_, T> {
    unsafe fn from_word(word: usize) -> Self {
        // SAFETY: `from_word` asks of a pointer what `User::new` asks.
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
