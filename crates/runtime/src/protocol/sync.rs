//! The atomics the protocols are written with: std's, or loom's when their models are checked
//! (`RUSTFLAGS="--cfg loom" cargo test -p carefree-runtime --release`), and a fence of unequal
//! halves.

#[cfg(loom)]
pub(crate) use crate::model::{Idle, Lock};
#[cfg(not(loom))]
pub(crate) use carefree_ground::lock::Lock;
#[cfg(not(loom))]
pub(crate) use carefree_reactor::Idle;
#[cfg(loom)]
pub(crate) use loom::{
    cell::{Cell, UnsafeCell},
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
};
#[cfg(not(loom))]
pub(crate) use std::{
    cell::Cell,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
};

/// A constant function where no model is checked: loom makes its atomics when a model runs.
macro_rules! const_fn {
    ($(#[$note:meta])* $seen:vis fn $name:ident() -> $value:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$note])*
        $seen const fn $name() -> $value $body
        #[cfg(loom)]
        $(#[$note])*
        $seen fn $name() -> $value $body
    };
}
pub(crate) use const_fn;

/// What loom's cell is called with, over std's.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// What loom's cell has no such thing as: for what is in no model.
    #[inline(always)]
    pub(crate) const fn get(&self) -> *mut T {
        self.0.get()
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn get_mut(&self) -> MutPtr<T> {
        MutPtr(self.0.get())
    }
}

/// What loom's cell is asked for where a closure would not be inlined, over std's.
#[cfg(not(loom))]
pub(crate) struct MutPtr<T>(*mut T);

#[cfg(not(loom))]
impl<T> MutPtr<T> {
    /// # Safety
    /// Nothing else uses the value meanwhile.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "it is loom's signature")]
    pub(crate) unsafe fn deref(&self) -> &mut T {
        // SAFETY: the cell's own address, and the caller's promise.
        unsafe { &mut *self.0 }
    }
}

/// The cheap half of a fence: for the side that comes often.
///
/// A [`light`] fence by one thread and a [`heavy`] one by another order like two
/// `fence(SeqCst)`: if what one of them stored before its fence is not seen by the other after
/// its own, then the reverse is. Two light fences order nothing between them.
///
/// The heavy half is `membarrier(2)`, which interrupts every processor that runs a thread of this
/// process and makes it execute a full fence; so the light half need only keep the compiler from
/// moving memory accesses across it. Without that system call both are plain `SeqCst` fences.
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(loom))]
    if membarrier::ready() {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        return;
    }
    fence(Ordering::SeqCst);
}

/// The dear half, a system call (`cargo run --release -p carefree-context --example switch_costs`
/// prints its cost): for the side that comes rarely. See [`light`].
pub(crate) fn heavy() {
    #[cfg(not(loom))]
    if membarrier::ready() {
        membarrier::everywhere();
        return;
    }
    fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
pub(crate) mod membarrier {
    //! Whether fences are of unequal halves.

    use carefree_ground::membarrier;

    use super::{AtomicBool, Ordering};

    static READY: AtomicBool = AtomicBool::new(false);

    /// Registers this process. Must be called before any pair of fences is relied upon, and
    /// never while one is: the answer of [`ready`] must not change under a protocol's feet.
    /// `CAREFREE_MEMBARRIER=off` forces plain fences.
    pub(crate) fn register() {
        if carefree_settings::setting("CAREFREE_MEMBARRIER").is_some_and(|v| v == "off") {
            return;
        }
        READY.store(membarrier::register().is_ok(), Ordering::SeqCst);
    }

    #[inline(always)]
    pub(crate) fn ready() -> bool {
        READY.load(Ordering::Relaxed)
    }

    pub(crate) fn everywhere() {
        // Registered, so the kernel has no reason to refuse; and if it does, going on would be
        // unsound.
        if let Err(errno) = membarrier::everywhere() {
            panic!("membarrier: {}", std::io::Error::from_raw_os_error(errno));
        }
    }
}
