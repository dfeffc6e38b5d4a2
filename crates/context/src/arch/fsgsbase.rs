//! Whether programs may set the thread pointer by an instruction.
//!
//! On aarch64 they always may. On x86-64 it takes Linux 5.9 and a processor with `wrfsbase`; elsewhere
//! the kernel does it, by a system call.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicIsize, AtomicU8, Ordering};

/// The bit of `AT_HWCAP2` by which the kernel allows programs to use `wrfsbase`.
#[cfg(target_arch = "x86_64")]
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// Whether `wrfsbase` may be used: [`UNKNOWN`], [`NO`], [`YES`] or [`WITH_GS`].
///
/// [`switch_thread`](super::switch_thread) compares with `YES`: below, as long as the answer is not known, it
/// makes the system call, which is slow but always right; above, each side has its own GS base as well.
/// [`prepare_thread`](super::prepare_thread) finds the answer, so it is known before there is a fiber to switch to.
#[cfg(target_arch = "x86_64")]
pub(super) static FSGSBASE: AtomicU8 = AtomicU8::new(UNKNOWN);
#[cfg(target_arch = "x86_64")]
const UNKNOWN: u8 = 0;
#[cfg(target_arch = "x86_64")]
const NO: u8 = 1;
#[cfg(target_arch = "x86_64")]
pub(super) const YES: u8 = 2;
#[cfg(target_arch = "x86_64")]
const WITH_GS: u8 = 3;

/// Where each thread and fiber has a word for its GS base while it does not run, from the thread pointer on: only valid with
/// [`WITH_GS`].
#[cfg(target_arch = "x86_64")]
pub(super) static GS_OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Whether the thread pointer can be set without a system call.
///
/// What a switch costs with it and without: `cargo run --release -p carefree-context --example
/// switch_costs`.
#[inline(always)]
pub fn fsgsbase() -> bool {
    #[cfg(target_arch = "x86_64")]
    return match FSGSBASE.load(Ordering::Relaxed) {
        UNKNOWN => ask_kernel(),
        known => known >= YES,
    };
    #[cfg(target_arch = "aarch64")]
    return true;
}

#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
fn ask_kernel() -> bool {
    // SAFETY: getauxval only reads what the kernel handed to the process at its start.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    let answer = if hwcap2 & HWCAP2_FSGSBASE != 0 { YES } else { NO };
    // A concurrent `force_no_fsgsbase` wins.
    match FSGSBASE.compare_exchange(UNKNOWN, answer, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => answer == YES,
        Err(known) => known >= YES,
    }
}

/// Has each fiber with its own thread-local storage keep the GS base that it sets, from now on. On x86-64 that is a register
/// of threads for which ABI and libc have no use: some emulators and sandboxes point it at their memory. To read it at
/// each switch takes about a nanosecond, so this is for programs in other languages than Rust.
///
/// It is without effect where [`fsgsbase`] is false, and on aarch64, which has no such register.
///
/// # Safety
/// `offset` is that of a [`thread_word`](crate::thread_word) which nothing else uses, and is the same in all calls.
pub unsafe fn keep_gs(offset: isize) {
    #[cfg(target_arch = "x86_64")]
    if fsgsbase() {
        // A switch reads it only where it has seen `WITH_GS`.
        GS_OFFSET.store(offset, Ordering::Relaxed);
        // (A concurrent `force_no_fsgsbase` wins.)
        let _ = FSGSBASE.compare_exchange(YES, WITH_GS, Ordering::Release, Ordering::Relaxed);
    }
    #[cfg(target_arch = "aarch64")]
    let _ = offset;
}

/// The caller's GS base, if fibers [keep it](keep_gs); else 0.
#[inline]
pub fn gs_base() -> usize {
    #[cfg(target_arch = "x86_64")]
    if FSGSBASE.load(Ordering::Relaxed) == WITH_GS {
        let base;
        // SAFETY: reads a register; the kernel allows the instruction, as `keep_gs` has found.
        unsafe {
            core::arch::asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags));
        }
        return base;
    }
    0
}

/// Sets the caller's GS base, if fibers [keep it](keep_gs).
///
/// # Safety
/// What the caller does by it is sound with this base: one that another thread of the program had, say.
#[inline]
pub unsafe fn set_gs_base(base: usize) {
    #[cfg(target_arch = "x86_64")]
    if FSGSBASE.load(Ordering::Relaxed) == WITH_GS {
        // SAFETY: as this function demands; the kernel allows the instruction, as `keep_gs` has found.
        unsafe {
            core::arch::asm!("wrgsbase {}", in(reg) base, options(nomem, nostack, preserves_flags));
        }
    }
    #[cfg(target_arch = "aarch64")]
    let _ = base;
}

/// Makes every later switch set the thread pointer by the system call, as on a machine without
/// `wrfsbase`. This cannot be undone; any thread may call it at any time. On aarch64 it does nothing.
pub fn force_no_fsgsbase() {
    #[cfg(target_arch = "x86_64")]
    FSGSBASE.store(NO, Ordering::Relaxed);
}
