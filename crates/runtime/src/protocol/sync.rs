//! What the protocols are written with: std's atomics, or loom's when their models are run
//! (`RUSTFLAGS="--cfg loom" cargo test -p carefree-runtime --release --lib`), or those of a machine that is
//! simulated (`simulation`); and a pair of fences of which one is cheap.

#[cfg(loom)]
pub(crate) use crate::model::{Idle, Lock};
#[cfg(simulated)]
pub(crate) use crate::simulation::{
    Idle, clock, give_way,
    memory::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Lock,
        Ordering, fence,
    },
    pause,
};
#[cfg(not(any(loom, simulated)))]
pub(crate) use carefree_ground::lock::Lock;
#[cfg(not(any(loom, simulated)))]
pub(crate) use carefree_reactor::{Idle, clock};
#[cfg(loom)]
pub(crate) use loom::hint::spin_loop as pause;
#[cfg(loom)]
pub(crate) use loom::{
    cell::{Cell, UnsafeCell},
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
};
#[cfg(not(loom))]
pub(crate) use std::cell::Cell;
#[cfg(not(any(loom, simulated)))]
pub(crate) use std::hint::spin_loop as pause;
#[cfg(not(any(loom, simulated)))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// A function that is `const`, but not under loom, whose atomics are made while a model runs.
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

/// std's cell with the interface of loom's.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    #[cfg_attr(simulated, track_caller)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        #[cfg(simulated)]
        crate::simulation::memory::touch(self.0.get(), crate::simulation::machine::Access::Read);
        f(self.0.get())
    }

    /// Not in loom's interface: for cells that are in no model.
    #[inline(always)]
    pub(crate) const fn get(&self) -> *mut T {
        self.0.get()
    }

    #[inline(always)]
    #[cfg_attr(simulated, track_caller)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(simulated)]
        crate::simulation::memory::touch(self.0.get(), crate::simulation::machine::Access::Write);
        f(self.0.get())
    }

    #[inline(always)]
    #[cfg_attr(simulated, track_caller)]
    pub(crate) fn get_mut(&self) -> MutPtr<T> {
        #[cfg(simulated)]
        crate::simulation::memory::touch(self.0.get(), crate::simulation::machine::Access::Write);
        MutPtr(self.0.get())
    }
}

/// What loom's cell returns for `get_mut`: for code in which a closure would not be inlined.
#[cfg(not(loom))]
pub(crate) struct MutPtr<T>(*mut T);

#[cfg(not(loom))]
impl<T> MutPtr<T> {
    /// # Safety
    /// Nothing else uses the value meanwhile.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "it is loom's signature")]
    pub(crate) unsafe fn deref(&self) -> &mut T {
        // SAFETY: the pointer is that of a cell, which outlives this; and nothing else uses the value.
        unsafe { &mut *self.0 }
    }
}

/// The cheap fence of a pair, for the side that comes often.
///
/// A [`light`] fence by one thread and a [`heavy`] one by another order as two `fence(SeqCst)` do: what
/// one of the two threads has stored before its fence is seen by the other after its own. (At least one
/// of them sees the other's.) Two light fences do not order each other.
///
/// The heavy half is `membarrier(2)`, which interrupts every processor that runs a thread of this
/// process and makes it execute a full fence; so the light half need only keep the compiler from
/// moving memory accesses across it. Without that system call both are plain `SeqCst` fences.
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(loom))]
    if membarrier::ready() || cfg!(simulated) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        return;
    }
    fence(Ordering::SeqCst);
}

/// The dear fence of a pair, for the side that comes rarely: a system call, whose cost `cargo run
/// --release -p carefree-context --example switch_costs` prints. See [`light`].
pub(crate) fn heavy() {
    #[cfg(simulated)]
    crate::simulation::machine::membarrier();
    #[cfg(not(any(loom, simulated)))]
    if membarrier::ready() {
        membarrier::everywhere();
        return;
    }
    fence(Ordering::SeqCst);
}

/// Lets the thread give up its processor. Not by libc's function, for which Carefree has its own: that would
/// let another fiber run here, amid what the caller does.
#[cfg(not(any(loom, simulated)))]
pub(crate) fn give_way() {
    carefree_ground::nap::yield_processor();
}

#[cfg(loom)]
pub(crate) fn give_way() {
    loom::thread::yield_now();
}

#[cfg(not(loom))]
pub(crate) mod membarrier {
    //! Whether the kernel makes the heavy fence.

    use carefree_ground::{fatal, membarrier};

    use super::{AtomicBool, Ordering};

    static READY: AtomicBool = AtomicBool::new(false);

    /// Registers this process. To be called before the first fence, and not again until another
    /// process begins by a fork: both sides of a pair must get the same answer from [`ready`].
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
        // A registered process is not refused, unless by a seccomp filter that came later. Then going on would be
        // unsound: the other threads have left out their fences.
        if let Err(errno) = membarrier::everywhere() {
            fatal::abort(format_args!(
                "the kernel refused membarrier with errno {errno}: has the program set a seccomp filter \
                 after its first fiber? Let the filter allow membarrier, or set CAREFREE_MEMBARRIER=off"
            ));
        }
    }
}
