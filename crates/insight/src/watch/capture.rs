//! Where another thread is, and its stack: by interrupting it, or by looking while it sleeps.
//!
//! A thread that *runs* is sent a signal; the handler copies its registers and the top of its stack,
//! nothing else. A thread that *sleeps* in the kernel is not disturbed, for a signal would end some
//! calls with `EINTR`, and cut others short: its stack is read from outside.
//!
//! The signal is SIGURG, which is ignored by default and hardly ever sent; Go's runtime uses it for the same
//! reasons. A handler that the program has installed before gets all but the watchdog's own signals. One
//! that it installs later gets these, too, and a fiber that runs is not reported then.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carefree_context::stack;
use carefree_ground::mapped::Mapped;
use carefree_ground::nap;
use carefree_runtime::inspect::{self, FiberGlance};

use super::image::read_memory;
use super::unwind::{Copy, Registers};

const SIGNAL: libc::c_int = libc::SIGURG;
/// How much of a stack is copied: as a rule enough for all frames that a report shows.
const COPIED: usize = 64 * 1024;
/// Time between two looks for the answer.
const NAP: Duration = Duration::from_micros(50);
/// How long a thread has to answer. It may be busy in the kernel, or not get a processor.
const PATIENCE: Duration = Duration::from_millis(50);

/// A thread on a fiber, at one moment.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) fiber: FiberGlance,
    /// The fiber's number, by which to tell that the header is another's by now.
    pub(super) number: u64,
    pub(super) registers: Registers,
    bytes: Mapped<u8>,
}

impl Capture {
    pub(super) fn stack(&self) -> Copy<'_> {
        Copy { address: self.registers.stack_pointer(), bytes: &self.bytes }
    }
}

/// Where the handler writes its answer. There is one slot, for there is one watchdog.
struct Slot {
    /// The number of the request; in the lowest two bits, its state.
    state: AtomicU64,
    answer: UnsafeCell<Answer>,
}

/// There is no request, or it was withdrawn.
const IDLE: u64 = 0;
/// The handler is to answer.
const ASKED: u64 = 1;
/// The handler is writing.
const WRITING: u64 = 2;
/// The answer is there.
const DONE: u64 = 3;

struct Answer {
    /// None: the thread was not on a fiber.
    taken: Option<(FiberGlance, u64, Registers)>,
    length: usize,
    bytes: [u8; COPIED],
}

// SAFETY: the answer is the handler's while WRITING, the watchdog's else; `state` hands it over.
unsafe impl Sync for Slot {}

static SLOT: Slot = Slot {
    state: AtomicU64::new(IDLE),
    answer: UnsafeCell::new(Answer { taken: None, length: 0, bytes: [0; COPIED] }),
};

/// The handler that the program had installed before: null, or [`FOUND`].
static EARLIER: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

struct Found(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, by the one watchdog, before `EARLIER` points to it.
unsafe impl Sync for Found {}

static FOUND: Found = Found(UnsafeCell::new(MaybeUninit::uninit()));

/// Marks the watchdog's signals, in the field for an `errno`, which is 0 in others.
const MARK: i32 = 0x6361_7265;

/// What a queued signal carries, as the kernel lays it out; libc's type has no fields for it.
#[repr(C)]
struct Information {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    process: i32,
    user: u32,
    value: u64,
    rest: [u64; 12],
}

/// Interrupts `thread`, which runs, and says where it is; `None` if it is not on a fiber, or does
/// not answer.
pub(super) fn interrupt(thread: i32) -> Option<Capture> {
    // The one watchdog installs the handler; one in the child of a fork does what the parent's had
    // not come to.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    if !INSTALLED.load(Ordering::Relaxed) {
        if !install() {
            return None;
        }
        INSTALLED.store(true, Ordering::Relaxed);
    }
    let request = (REQUESTS.fetch_add(1, Ordering::Relaxed) + 1) << 2;
    SLOT.state.store(request | ASKED, Ordering::Release);
    // SAFETY: takes nothing.
    let (process, user) = unsafe { (libc::getpid(), libc::getuid()) };
    let information = Information {
        signal: SIGNAL,
        errno: MARK,
        code: libc::SI_QUEUE,
        padding: 0,
        process,
        user,
        value: request,
        rest: [0; 12],
    };
    // SAFETY: a whole siginfo_t; the signal has a handler.
    let refused = unsafe {
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, SIGNAL, &raw const information)
    };
    let asked = Instant::now();
    let mut answered = false;
    while refused == 0 && !answered && asked.elapsed() < PATIENCE {
        nap::sleep(NAP);
        answered = SLOT.state.load(Ordering::Acquire) == request | DONE;
    }
    if !answered {
        let state = &SLOT.state;
        let withdrawn =
            state.compare_exchange(request | ASKED, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if withdrawn.is_ok() {
            return None;
        }
        // It is being answered just now.
        while state.load(Ordering::Acquire) != request | DONE {
            std::thread::yield_now();
        }
    }
    // SAFETY: DONE: the handler has left it, and no other request is under way.
    let answer = unsafe { &*SLOT.answer.get() };
    let (fiber, number, registers) = answer.taken?;
    let mut bytes = Mapped::new();
    // Without memory there is no backtrace.
    bytes.extend(&answer.bytes[..answer.length]);
    Some(Capture { fiber, number, registers, bytes })
}

fn install() -> bool {
    // SAFETY: all zeros is SIG_DFL, no flags, an empty mask.
    let mut found: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: `found` is written to.
    if unsafe { libc::sigaction(SIGNAL, ptr::null(), &raw mut found) } != 0 {
        return false;
    }
    if found.sa_sigaction == on_signal as Handler as usize {
        return true;
    }
    if found.sa_sigaction != libc::SIG_DFL && found.sa_sigaction != libc::SIG_IGN {
        // SAFETY: nothing else has it yet: the handler that is ours is installed once.
        let earlier = unsafe { (*FOUND.0.get()).write(found) };
        EARLIER.store(earlier, Ordering::Release);
    }
    let mut ours = found;
    ours.sa_sigaction = on_signal as Handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `on_signal` is a handler of the SA_SIGINFO kind.
    unsafe { libc::sigaction(SIGNAL, &raw const ours, ptr::null_mut()) == 0 }
}

type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
type PlainHandler = unsafe extern "C" fn(libc::c_int);

/// Runs anywhere, also within malloc and between two stacks: it calls nothing of libc's, allocates
/// nothing and locks nothing.
///
/// # Safety
/// Called by the kernel as a handler installed with SA_SIGINFO.
unsafe extern "C" fn on_signal(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a whole siginfo_t, of which a queued signal's fields are a part.
    let Information { code, errno, value: request, .. } =
        unsafe { information.cast::<Information>().read() };
    if code != libc::SI_QUEUE || errno != MARK {
        // SAFETY: the arguments of a handler.
        return unsafe { hand_on(signal, information, context) };
    }
    let begun = SLOT.state.compare_exchange(
        request | ASKED,
        request | WRITING,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    if begun.is_err() {
        // It has come when the answer is not waited for any more.
        return;
    }
    // SAFETY: WRITING: it is this handler's.
    let answer = unsafe { &mut *SLOT.answer.get() };
    // SAFETY: the third argument of a handler.
    let registers = unsafe { Registers::from_signal(context) };
    // SAFETY: the interrupted thread waits for this handler, so its stack stays.
    answer.taken = unsafe { running_fiber(&registers, answer) };
    SLOT.state.store(request | DONE, Ordering::Release);
}

/// What runs here, if it is a fiber on its own stack, which is copied then.
///
/// # Safety
/// The registers are those of the interrupted caller.
unsafe fn running_fiber(
    registers: &Registers,
    answer: &mut Answer,
) -> Option<(FiberGlance, u64, Registers)> {
    let pointer = registers.stack_pointer() as usize;
    let (fiber, found) = inspect::running_at(pointer)?;
    answer.length = (found.top - pointer).min(COPIED);
    // SAFETY: from the stack pointer to the top, the stack is memory.
    unsafe {
        copy(pointer as *const u8, answer.bytes.as_mut_ptr(), answer.length);
    }
    Some((fiber, fiber.number(), *registers))
}

/// Copies memory as it is. By instructions of its own, for a sanitizer would find that what lies between
/// the locals of a frame is not to be read.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[cfg(target_arch = "x86_64")]
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: both ranges are valid, as this function demands; the direction flag is clear in functions.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") length => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(target_arch = "aarch64")]
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: this function demands the same.
    unsafe { ptr::copy_nonoverlapping(from, to, length) };
}

/// # Safety
/// The arguments are a handler's.
unsafe fn hand_on(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let earlier = EARLIER.load(Ordering::Acquire);
    // SAFETY: null, or what `EARLIER` was set to, which is neither freed nor written again.
    let Some(earlier) = (unsafe { earlier.as_ref() }) else { return };
    // SAFETY: what the program had installed as its handler, called as it asked for.
    unsafe {
        if earlier.sa_flags & libc::SA_SIGINFO != 0 {
            std::mem::transmute::<usize, Handler>(earlier.sa_sigaction)(
                signal,
                information,
                context,
            );
        } else {
            std::mem::transmute::<usize, PlainHandler>(earlier.sa_sigaction)(signal);
        }
    }
}

/// Reads the stack of `fiber`, whose carrier sleeps in the kernel, from outside.
///
/// The thread may wake meanwhile; then what is read is of two moments, and the backtrace perhaps
/// wrong. The caller looks afterwards whether it has.
pub(super) fn look_at(
    fiber: FiberGlance,
    number: u64,
    program_counter: u64,
    stack_pointer: u64,
) -> Capture {
    let registers = Registers::new(program_counter, stack_pointer);
    let top = stack::find(stack_pointer as usize).map_or(0, |stack| stack.top);
    let length = top.saturating_sub(stack_pointer as usize).min(COPIED);
    let mut bytes = Mapped::new();
    // Not by plain reads: the stack may be given back to the kernel while we read.
    let _ = bytes.fill(length, |room| {
        let length = length.min(room.len());
        Ok::<_, ()>(read_memory(stack_pointer, &mut room[..length]))
    });
    Capture { fiber, number, registers, bytes }
}
