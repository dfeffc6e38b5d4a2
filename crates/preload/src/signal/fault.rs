//! Handlers of faults (`SIGSEGV` and its kin), which the kernel calls amid what has caused them.
//!
//! The kernel knows the carrier: it blocks the fault on that one while the handler runs, and begins the handler on the
//! carrier's alternate stack, if the program's action asks for such a stack. But a thread that waits in its handler
//! leaves the carrier to others, whose handlers would begin on the same stack, and it may go on on another carrier. So
//! a function of ours stands in the kernel's table in place of the program's. It lets faults through again, as
//! for all that the carrier runs; and what the kernel has saved it moves to the thread's own alternate stack, or its
//! usual one if it has none, where the kernel would have put it for a thread. The program's handler runs there, and
//! leaves as it likes: by its return, by a jump or by an exit.
//!
//! What the thread blocks is kept in its [`Record`]. A fault that it blocks, as in a handler of the same one, ends the
//! program, as natively.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use libc::{sighandler_t, siginfo_t, ucontext_t};

use crate::signal::set::{FAULTS, RAISED, TERMINAL, bit, change_kernels, is_masked_as_ours};
use crate::signal::{alternate, beside, crash, deliver, post};
use crate::thread::are_kernels;
use crate::thread::record::{self, Record};

/// A program's action.
struct Action {
    handler: AtomicUsize,
    flags: AtomicUsize,
    mask: AtomicU64,
}

/// How many actions are kept for a signal: the last one counts. One that is just read is not written to, unless so many
/// others are set meanwhile.
const KEPT: usize = 16;

struct Actions {
    last: AtomicUsize,
    kept: [Action; KEPT],
}

/// Faults have small numbers.
const SIGNALS: usize = 32;

impl Action {
    const fn new() -> Action {
        Action {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
        }
    }
}

impl Actions {
    const fn new() -> Actions {
        Actions { last: AtomicUsize::new(0), kept: [const { Action::new() }; KEPT] }
    }
}

static ACTIONS: [Actions; SIGNALS] = [const { Actions::new() }; SIGNALS];

/// Whether the program's threads are to be fibers.
static STANDS_IN: AtomicBool = AtomicBool::new(false);

/// What stands in for handlers of what calls raise, and terminals send: see [`raised`](crate::signal::raised).
static ON_RAISED: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Has handlers that are set from now on called by ours: those of what calls raise or terminals send by `on_raised`.
pub(super) fn prepare(on_raised: sighandler_t) {
    ON_RAISED.store(on_raised, Ordering::Relaxed);
    STANDS_IN.store(true, Ordering::Relaxed);
}

impl Actions {
    fn get(&self) -> libc::sigaction {
        let kept = &self.kept[self.last.load(Ordering::Acquire) % KEPT];
        // SAFETY: zeros are an action; the kernel uses 8 bytes of a set.
        unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            action.sa_sigaction = kept.handler.load(Ordering::Relaxed);
            action.sa_flags = kept.flags.load(Ordering::Relaxed) as c_int;
            (&raw mut action.sa_mask).cast::<u64>().write(kept.mask.load(Ordering::Relaxed));
            action
        }
    }

    /// Whether this handler was set not long ago.
    fn has_had(&self, handler: sighandler_t) -> bool {
        self.kept.iter().any(|kept| kept.handler.load(Ordering::Relaxed) == handler)
    }

    fn set(&self, action: &libc::sigaction) {
        let place = self.last.load(Ordering::Relaxed).wrapping_add(1);
        let kept = &self.kept[place % KEPT];
        kept.handler.store(action.sa_sigaction, Ordering::Relaxed);
        kept.flags.store(action.sa_flags as usize, Ordering::Relaxed);
        // SAFETY: the kernel uses 8 bytes of a set.
        let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
        kept.mask.store(mask, Ordering::Relaxed);
        self.last.store(place, Ordering::Release);
    }
}

/// Where the action of a fault, or of what a call raises or a terminal sends, is kept; `None` for other signals.
fn actions_of(signal: c_int) -> Option<&'static Actions> {
    let kept = FAULTS | RAISED | TERMINAL;
    let is_kept = (1..SIGNALS as c_int).contains(&signal) && kept & bit(signal) != 0;
    is_kept.then(|| &ACTIONS[signal as usize])
}

/// Whether it is what stands in the kernel's table in place of the program's handlers.
pub(crate) fn is_ours(handler: sighandler_t) -> bool {
    handler == on_fault as *const () as usize
        || handler != libc::SIG_DFL && handler == ON_RAISED.load(Ordering::Relaxed)
}

/// What the kernel is to be given for an action of the program's, which is kept; `None` for what it is given as it is.
pub(crate) fn stand_in_for(signal: c_int, action: &libc::sigaction) -> Option<libc::sigaction> {
    let actions = actions_of(signal).filter(|_| STANDS_IN.load(Ordering::Relaxed))?;
    // (What is kept is the parent's, and the child has a table in the kernel of its own.)
    if beside::is_child() {
        return None;
    }
    let handler = action.sa_sigaction;
    let called_by = |handler: sighandler_t| {
        actions.set(action);
        let mut ours = *action;
        ours.sa_sigaction = handler;
        ours.sa_flags =
            (action.sa_flags | libc::SA_SIGINFO) & !(libc::SA_RESETHAND | libc::SA_NODEFER);
        Some(ours)
    };
    if bit(signal) & (RAISED | TERMINAL) != 0 {
        // (By default a process stops, whichever of its threads the kernel chooses.)
        let is_kernels =
            handler == libc::SIG_IGN || handler == libc::SIG_DFL && bit(signal) & TERMINAL != 0;
        return if is_kernels { None } else { called_by(ON_RAISED.load(Ordering::Relaxed)) };
    }
    // Go knows the kernel's alternate stack, and no other. (What has handled a crash sets the handler that was there
    // before: that is not looked for in the loader's list again, of which the thread that crashed may have the lock.)
    if matches!(handler, libc::SIG_DFL | libc::SIG_IGN)
        || !actions.has_had(handler) && are_kernels(handler)
    {
        return None;
    }
    called_by(on_fault as *const () as usize)
}

/// The action of the program's that is kept; `None` for signals of which none is.
pub(crate) fn kept(signal: c_int) -> Option<libc::sigaction> {
    actions_of(signal).map(Actions::get)
}

/// # Safety
/// Only the kernel calls it, as a handler with SA_SIGINFO.
unsafe extern "C-unwind" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(actions) = actions_of(signal) else { return };
    let action = actions.get();
    let context = context.cast::<ucontext_t>();
    // SAFETY: what the kernel has passed.
    unsafe {
        match record::current().filter(|_| !beside::is_one()) {
            Some((_, record)) if (*info).si_code > 0 => {
                if record.mask.load(Ordering::SeqCst) & bit(signal) != 0 {
                    return crash::on_crash(signal, info, context.cast());
                }
                if alternate::is_callers(&(*context).uc_stack) {
                    frame::go_on(record, signal, context);
                }
                call(record, &action, info, context, false);
            }
            // Sent to the process: for a thread that does not block it.
            _ if (*info).si_code <= 0 && is_for_dispatcher(context) => post::hand_over(&*info),
            _ => plainly(&action, signal, info, context),
        }
    }
}

/// Whether the dispatcher is to have a signal that was sent, and has interrupted what the kernel has saved there.
///
/// # Safety
/// What the kernel has passed.
unsafe fn is_for_dispatcher(context: *const ucontext_t) -> bool {
    // SAFETY: as this function demands; the kernel uses 8 bytes of a set.
    let mask = unsafe { (&raw const (*context).uc_sigmask).cast::<u64>().read() };
    !beside::is_one() && post::is_open() && is_masked_as_ours(mask)
}

/// Calls the program's handler as the kernel would have.
///
/// # Safety
/// What the kernel has passed.
pub(super) unsafe fn plainly(
    action: &libc::sigaction,
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
) {
    type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
    if matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        return;
    }
    // SAFETY: the program's handler, which takes these, or the first of them alone.
    unsafe {
        if action.sa_flags & libc::SA_RESETHAND != 0 {
            libc::sigaction(signal, &std::mem::zeroed(), std::ptr::null_mut());
        }
        if action.sa_flags & libc::SA_NODEFER != 0 {
            let with = (&raw const action.sa_mask).cast::<u64>().read();
            change_kernels(libc::SIG_UNBLOCK, Some(bit(signal) & !with));
        }
        let handler = std::mem::transmute::<usize, Handler>(action.sa_sigaction);
        handler(signal, info, context.cast());
    }
}

/// Calls the program's handler for the thread of `record`, on this stack: its alternate one if it `is_there`.
///
/// # Safety
/// What the kernel has passed.
unsafe fn call(
    record: &Record,
    action: &libc::sigaction,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
    is_there: bool,
) {
    // SAFETY: as this function demands; the kernel uses 8 bytes of a set.
    unsafe {
        // The kernel has the handler's mask in force; all carriers have this one.
        let carriers = (&raw const (*context).uc_sigmask).cast::<u64>().read();
        change_kernels(libc::SIG_SETMASK, Some(carriers));
        deliver::call(record, *info, action, Some(context.cast()), None, is_there);
        // The thread may be on another carrier than before. What the kernel puts in force must be that one's.
        (*context).uc_stack = alternate::kernels();
    }
}

/// What the kernel has saved, on another stack.
#[cfg(target_arch = "x86_64")]
mod frame {
    use super::*;
    use std::arch::global_asm;

    /// The kernel's `struct rt_sigframe`: where a handler returns to, its context, what is told of the signal.
    const BYTES: usize = 8 + CONTEXT + size_of::<siginfo_t>();
    /// The kernel's `struct ucontext`, which is shorter than libc's.
    const CONTEXT: usize = 304;
    /// What functions may use below their stacks' ends.
    const RED_ZONE: usize = 128;
    /// What our functions take of the stack between the kernel's frame and the program's handler, and some more.
    const OURS: usize = 4096;

    /// Goes on at the program's handler, on the alternate stack of the thread of `record`, or on the stack that was
    /// interrupted. Returns where the alternate stack has no room for what the kernel has saved and our functions: such a
    /// handler stays on the carrier's, and may not wait.
    ///
    /// # Safety
    /// What the kernel has passed, to a handler that it has begun on the carrier's alternate stack.
    pub(super) unsafe fn go_on(record: &Record, signal: c_int, context: *mut ucontext_t) {
        let place = context.cast::<u8>().wrapping_sub(8);
        // SAFETY: as this function demands. Where a stack that was interrupted has no room, the kernel would have had
        // none either: the fault of this writing, which is blocked, ends the program.
        unsafe {
            let registers = &mut (*context).uc_mcontext;
            let stack = registers.gregs[libc::REG_RSP as usize] as usize;
            let other = alternate::range_for(record, stack);
            let end = other.as_ref().map_or(stack - RED_ZONE, |other| other.end);
            let floats = registers.fpregs.cast::<u8>();
            let bytes = if floats.is_null() { 0 } else { bytes_of(floats) };
            let floats_moved = (end - bytes) & !63;
            let moved = ((floats_moved - BYTES) & !15) - 8;
            if other.is_some_and(|other| moved < other.start + OURS) {
                return;
            }
            let at = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
            at(floats_moved).copy_from_nonoverlapping(floats, bytes);
            if bytes != 0 {
                registers.fpregs = at(floats_moved).cast();
            }
            at(moved).copy_from_nonoverlapping(place, BYTES);
            carefree_go_on(moved, on_moved as *const () as usize, signal);
        }
    }

    /// The bytes of floating-point state there, of which the program has room for (`struct _fpx_sw_bytes`).
    ///
    /// # Safety
    /// What the kernel has saved.
    unsafe fn bytes_of(floats: *mut u8) -> usize {
        const OLD: usize = 512;
        const MAGIC: u32 = 0x4650_5853;
        // SAFETY: as this function demands.
        unsafe {
            let told = floats.add(464).cast::<u32>();
            if told.read() == MAGIC { told.add(1).read() as usize } else { OLD }
        }
    }

    /// The handler on the thread's stack. It returns to where the kernel's would have, which has the kernel restore
    /// what lies there.
    unsafe extern "C-unwind" fn on_moved(
        signal: c_int,
        info: *mut siginfo_t,
        context: *mut ucontext_t,
    ) {
        let (Some(actions), Some((_, record))) = (actions_of(signal), record::current()) else {
            return;
        };
        // SAFETY: what the kernel has passed, in another place.
        unsafe { call(record, &actions.get(), info, context, true) };
    }

    unsafe extern "C-unwind" {
        /// Begins a handler of `signal` whose frame lies at `frame`.
        fn carefree_go_on(frame: usize, handler: usize, signal: c_int) -> !;
    }

    global_asm!(
        ".text",
        ".balign 16",
        ".globl carefree_go_on",
        ".hidden carefree_go_on",
        ".type carefree_go_on, @function",
        "carefree_go_on:",
        ".cfi_startproc",
        "mov rsp, rdi",
        "mov rax, rsi",
        "mov edi, edx",
        "lea rsi, [rsp + 8 + {context}]",
        "lea rdx, [rsp + 8]",
        "jmp rax",
        ".cfi_endproc",
        ".size carefree_go_on, . - carefree_go_on",
        context = const CONTEXT,
    );
}

/// What the kernel has saved stays where it is: a handler that waits there may find its stack in use.
#[cfg(not(target_arch = "x86_64"))]
mod frame {
    use super::*;

    /// Does nothing.
    ///
    /// # Safety
    /// None is needed.
    pub(super) unsafe fn go_on(_: &Record, _: c_int, _: *mut ucontext_t) {}
}
