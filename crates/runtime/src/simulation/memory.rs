//! Memory whose accesses the machine counts: std's atomics, a cell, a lock, with the interfaces of the real
//! ones. In a process without a machine they are nothing else than these.

use std::cell;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic;

use super::machine::{self, Access};

pub(crate) use std::sync::atomic::Ordering;

macro_rules! atomics {
    ($($name:ident $(<$parameter:ident>)? of $value:ty;)*) => { $(
        #[derive(Debug)]
        #[repr(transparent)]
        pub(crate) struct $name $(<$parameter>)? (atomic::$name $(<$parameter>)?);

        #[allow(dead_code, reason = "each has all of them, as std's have")]
        impl $(<$parameter>)? $name $(<$parameter>)? {
            pub(crate) const fn new(value: $value) -> Self {
                $name(atomic::$name::new(value))
            }

            #[inline]
            fn access(&self, access: Access, place: &Location<'static>) {
                machine::access(std::ptr::from_ref(self).addr(), access, place);
            }

            #[inline]
            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.access(Access::Read, Location::caller());
                self.0.load(order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.access(Access::Write, Location::caller());
                self.0.store(value, order);
            }

            #[inline]
            #[track_caller]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.access(Access::Change, Location::caller());
                self.0.swap(value, order)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.access(Access::Change, Location::caller());
                self.0.compare_exchange(current, new, success, failure)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            #[inline]
            #[track_caller]
            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(fetch);
                while let Some(new) = f(old) {
                    match self.compare_exchange(old, new, set, fetch) {
                        Ok(old) => return Ok(old),
                        Err(current) => old = current,
                    }
                }
                Err(old)
            }

            pub(crate) fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
        }
    )* };
}

atomics! {
    AtomicBool of bool;
    AtomicI32 of i32;
    AtomicU8 of u8;
    AtomicU32 of u32;
    AtomicU64 of u64;
    AtomicUsize of usize;
    AtomicPtr<T> of *mut T;
}

macro_rules! arithmetic {
    ($($name:ident of $value:ty: $($operation:ident)*;)*) => { $(
        #[allow(dead_code, reason = "each has all of them, as std's have")]
        impl $name { $(
            #[inline]
            #[track_caller]
            pub(crate) fn $operation(&self, value: $value, order: Ordering) -> $value {
                self.access(Access::Change, Location::caller());
                self.0.$operation(value, order)
            }
        )* }
    )* };
}

arithmetic! {
    AtomicBool of bool: fetch_and fetch_or;
    AtomicU8 of u8: fetch_add fetch_sub fetch_and fetch_or;
    AtomicU32 of u32: fetch_add fetch_sub fetch_and fetch_or fetch_min fetch_max;
    AtomicU64 of u64: fetch_add fetch_sub fetch_and fetch_or fetch_min fetch_max;
    AtomicUsize of usize: fetch_add fetch_sub fetch_and fetch_or fetch_min fetch_max;
}

macro_rules! defaults {
    ($($name:ident)*) => { $(
        impl Default for $name {
            fn default() -> Self {
                $name(Default::default())
            }
        }
    )* };
}

defaults!(AtomicBool AtomicU32 AtomicU64 AtomicUsize);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        AtomicPtr::new(std::ptr::null_mut())
    }
}

/// As std's.
pub(crate) fn fence(order: Ordering) {
    machine::fence();
    atomic::fence(order);
}

/// An access to a cell, or to its first line.
#[track_caller]
pub(crate) fn touch<T>(cell: *const T, access: Access) {
    machine::access(cell.addr(), access, Location::caller());
}

/// As `carefree_ground`'s; its waiters try again and again, as those do at first.
#[derive(Debug, Default)]
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: cell::UnsafeCell<T>,
}

// SAFETY: the lock gives access to its value to one thread at a time, so sharing it only moves the access
// between threads.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Lock { held: AtomicBool::new(false), value: cell::UnsafeCell::new(value) }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        while self.held.swap(true, Ordering::Acquire) {
            machine::pause();
        }
        Guard(self)
    }

    /// As the real one.
    ///
    /// # Safety
    /// No other thread has it.
    pub(crate) unsafe fn renew(&self, value: T) {
        // SAFETY: as this function demands.
        unsafe { *self.value.get() = value };
        self.held.store(false, Ordering::Release);
    }

    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        (!self.held.swap(true, Ordering::Acquire)).then(|| Guard(self))
    }
}

#[derive(Debug)]
pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}
