//! Sets of signals, as the kernel has them: signal N is bit N-1.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use carefree_ground::kernel;
use carefree_runtime::wait::without_parking;
use libc::{siginfo_t, timespec};

/// The signal by which the dispatcher and carriers are interrupted. The first real-time signal that libc
/// leaves to programs; they are told that the next one is the first.
pub(crate) const OURS: c_int = 34;

/// The signal's bit.
pub(crate) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Whether there is a signal of this number.
pub(crate) fn is_signal(signal: c_int) -> bool {
    (1..=64).contains(&signal)
}

/// Whether libc keeps this signal for itself: for cancellation, and for `setuid` and its kin.
pub(crate) fn is_libcs(signal: c_int) -> bool {
    matches!(signal, 32 | 33)
}

/// Signals that the kernel raises in the middle of what has caused them.
pub(crate) const FAULTS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS);

/// Signals that the kernel sends to the thread whose call fails so.
pub(crate) const RAISED: u64 = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ);

/// What stops a process that uses its terminal from the background: the use fails in another way if it is blocked.
pub(crate) const TERMINAL: u64 = bit(libc::SIGTTIN) | bit(libc::SIGTTOU);

/// What a carrier does not block: faults, what its calls raise, and what stops the process; libc's own; and what
/// interrupts it.
pub(crate) const OPEN: u64 = FAULTS | RAISED | TERMINAL | bit(32) | bit(33) | bit(OURS);

/// Signals that no thread can block.
pub(crate) const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP) | bit(32) | bit(33);

/// Whether a thread that blocks this is one of ours. (Those of the program's that stay threads block what they like.)
pub(super) fn is_masked_as_ours(mask: u64) -> bool {
    mask | OPEN | UNBLOCKABLE == !0
}

/// Changes the calling kernel thread's mask; returns the one before.
pub(crate) fn change_kernels(how: c_int, set: Option<u64>) -> u64 {
    let mut before = 0u64;
    let set = set.as_ref().map_or(ptr::null(), ptr::from_ref) as usize;
    let arguments = [how as usize, set, (&raw mut before) as usize, size_of::<u64>(), 0, 0];
    // SAFETY: two sets of signals, of which the first may be missing.
    let _ = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
    before
}

/// Lets faults through, of which the kernel blocks one while it is handled: the calling thread leaves a handler in
/// another way than by its return, or asks for them there.
///
/// The kernel's mask is the carrier's. Natively the thread that left the handler so would have it blocked, and here
/// all that its carrier runs would end the process by their next fault.
pub(crate) fn open_faults(of: u64) {
    if of & FAULTS != 0 {
        change_kernels(libc::SIG_UNBLOCK, Some(of & FAULTS));
    }
}

/// What the program wants done on a signal.
pub(crate) fn action(signal: c_int) -> libc::sigaction {
    // SAFETY: zeros are an action, the default one; the call overwrites it.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, ptr::null(), &raw mut action);
        action
    }
}

/// Whether a signal is ignored by default.
pub(crate) fn is_ignored_by_default(signal: c_int) -> bool {
    matches!(signal, libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT)
}

/// Whether it is ignored where this is done on it.
pub(crate) fn ignores(signal: c_int, handler: libc::sighandler_t) -> bool {
    handler == libc::SIG_IGN || handler == libc::SIG_DFL && is_ignored_by_default(signal)
}

/// Whether it is ignored now.
pub(crate) fn is_ignored(signal: c_int) -> bool {
    ignores(signal, action(signal).sa_sigaction)
}

/// Has the kernel do by default what a signal does: ends the process, or stops it. Returns when it goes on.
pub(crate) fn act_by_default(signal: c_int) {
    let own = [std::process::id() as usize, number(), signal as usize, 0, 0, 0];
    // The kernel's `struct sigaction` of the default action: zeros.
    let default = [0usize; 4];
    let table = [signal as usize, default.as_ptr() as usize, 0, size_of::<u64>(), 0, 0];
    // SAFETY: the kernel reads the action; the other call accesses no memory.
    unsafe {
        if bit(signal) & RAISED != 0 {
            let _ = kernel::call(libc::SYS_rt_sigaction, table);
        }
        let _ = kernel::call(libc::SYS_tgkill, own);
    }
    let before = change_kernels(libc::SIG_UNBLOCK, Some(bit(signal)));
    change_kernels(libc::SIG_SETMASK, Some(before));
}

/// The kernel's number of the calling kernel thread.
pub(crate) fn number() -> usize {
    // SAFETY: takes nothing.
    unsafe { kernel::call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0)
}

/// Sends a kernel thread of this process the signal that interrupts it.
pub(crate) fn poke(thread: i32) -> bool {
    let arguments = [std::process::id() as usize, thread as usize, OURS as usize, 0, 0, 0];
    // SAFETY: accesses no memory.
    unsafe { kernel::call(libc::SYS_tgkill, arguments) }.is_ok()
}

/// Takes a signal of a set that is pending for the process or the calling kernel thread; waits for it, for so
/// many nanoseconds at most.
pub(crate) fn take_pending(set: u64, nanos: Option<i64>) -> Option<siginfo_t> {
    let mut info = MaybeUninit::<siginfo_t>::zeroed();
    let time = nanos.map(|tv_nsec| timespec { tv_sec: 0, tv_nsec });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref) as usize;
    let set = (&raw const set) as usize;
    let arguments = [set, info.as_mut_ptr() as usize, time, size_of::<u64>(), 0, 0];
    // SAFETY: a set, room for what has come, and a time or null.
    let taken = unsafe { kernel::call(libc::SYS_rt_sigtimedwait, arguments) };
    // SAFETY: zeros, or what the kernel has written.
    taken.is_ok().then(|| unsafe { info.assume_init() })
}

/// Calls `f` without a signal by which the kernel would end the process for what `f` does.
pub(crate) fn spared<T>(signal: c_int, f: impl FnOnce() -> T) -> T {
    // (A caller that parked might go on on another kernel thread.)
    without_parking(|| {
        let before = change_kernels(libc::SIG_BLOCK, Some(bit(signal)));
        let result = f();
        if before & bit(signal) == 0 {
            let _ = take_pending(bit(signal), Some(0));
        }
        change_kernels(libc::SIG_SETMASK, Some(before));
        result
    })
}

/// Sends the process a signal that one of its threads was told of.
pub(crate) fn give_to_process(info: &siginfo_t) {
    let signal = info.si_signo as usize;
    let arguments = [std::process::id() as usize, signal, ptr::from_ref(info) as usize, 0, 0, 0];
    // SAFETY: what was told of the signal.
    let _ = unsafe { kernel::call(libc::SYS_rt_sigqueueinfo, arguments) };
}

/// Sends a kernel thread of the process a signal of which this is told; false if there is no such thread, or no room.
pub(crate) fn give_to_thread(thread: i32, info: &siginfo_t) -> bool {
    let (process, signal) = (std::process::id() as usize, info.si_signo as usize);
    let arguments = [process, thread as usize, signal, ptr::from_ref(info) as usize, 0, 0];
    // SAFETY: what was told of the signal.
    unsafe { kernel::call(libc::SYS_rt_tgsigqueueinfo, arguments) }.is_ok()
}
