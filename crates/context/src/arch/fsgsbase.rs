//! Whether programs may set the thread pointer by an instruction.
//!
//! On aarch64 they always may. On x86-64 it takes Linux 5.9 and a processor with `wrfsbase`; elsewhere
//! the kernel does it, by a system call.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicU8, Ordering};

/// The bit of `AT_HWCAP2` by which the kernel allows programs to use `wrfsbase`.
#[cfg(target_arch = "x86_64")]
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// Whether `wrfsbase` may be used: [`UNKNOWN`], [`YES`] or [`NO`].
///
/// [`switch_thread`](super::switch_thread) only compares with `YES`: until the answer is known it
/// makes the system call, which is slow but always right. [`prepare_thread`](super::prepare_thread)
/// finds the answer, so it is known before there is a fiber to switch to.
#[cfg(target_arch = "x86_64")]
pub(super) static FSGSBASE: AtomicU8 = AtomicU8::new(UNKNOWN);
#[cfg(target_arch = "x86_64")]
const UNKNOWN: u8 = 0;
#[cfg(target_arch = "x86_64")]
pub(super) const YES: u8 = 1;
#[cfg(target_arch = "x86_64")]
const NO: u8 = 2;

/// Whether the thread pointer can be set without a system call.
///
/// What a switch costs with it and without: `cargo run --release -p carefree-context --example
/// switch_costs`.
#[inline(always)]
pub fn fsgsbase() -> bool {
    #[cfg(target_arch = "x86_64")]
    return match FSGSBASE.load(Ordering::Relaxed) {
        UNKNOWN => ask_kernel(),
        known => known == YES,
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
        Err(known) => known == YES,
    }
}

/// Makes every later switch set the thread pointer by the system call, as on a machine without
/// `wrfsbase`. This cannot be undone; any thread may call it at any time. On aarch64 it does nothing.
pub fn force_no_fsgsbase() {
    #[cfg(target_arch = "x86_64")]
    FSGSBASE.store(NO, Ordering::Relaxed);
}
