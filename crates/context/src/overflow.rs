//! What a program says when a stack overflows: which fiber, how large its stack, and what to do.
//!
//! A guard turns an overflow into SIGSEGV (or SIGBUS). Without a handler the program would die with
//! nothing but that. [`install`] puts one in front of whoever handles the signal already, in most
//! programs the Rust standard library, which tells of the overflows of threads. It looks up the
//! faulting address: in a guard of ours it prints a line and aborts, as std does; any other fault
//! goes on to the earlier handler as if this one were not there. (But for SIGBUS where
//! a [`file`](mod@crate::file) is read that was cut short.)
//!
//! The handler cannot run on the stack that has overflowed. It asks for the kernel thread's
//! alternate signal stack; std gives its threads one, and [`ensure_alternate_stack`] gives one to
//! those that C code started.
//!
//! # What runs in the handler
//!
//! The thread was stopped anywhere, even inside malloc or with a lock held, so the handler calls
//! only what is async-signal-safe: `write`, `sigaction`, `abort`, system calls, and the lock-free
//! [`stack::find`]. It formats numbers by hand and allocates nothing. On a fiber it also runs under
//! the fiber's thread pointer. That is a complete thread-local block, in which `errno` is a plain
//! variable, so it makes no difference here.
//!
//! # What a guard cannot catch
//!
//! A guard catches code that touches it. Rust code always does, and so does C code compiled with
//! `-fstack-clash-protection`, as they touch every page of a large frame on the way down. Other C
//! code with a frame larger than the guard (64 KiB for the default stack size) may step over it
//! unseen. `CAREFREE_GUARD` makes guards larger; deep calls into such code belong on a large stack
//! ([`call_on_stack`](crate::coroutine::call_on_stack)), whose guard is 1 MiB.

use crate::file;
use crate::stack::{self, StackInfo, sys};
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Says who was running on a stack that has overflowed, such as `fiber 'name'`, by calling `say`
/// with one or more pieces of text.
///
/// It is called in a signal handler, on the alternate signal stack, while the thread is stopped
/// anywhere: it must do nothing but what is async-signal-safe. In particular it must not allocate
/// and must not lock, and it must not rely on data that the stopped thread may have been changing.
pub type Describer = unsafe fn(overflown: &StackInfo, say: &mut dyn FnMut(&[u8]));

static DESCRIBER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Says who is to describe the users of stacks; without it they are all called "coroutine".
///
/// ```
/// use carefree_context::{overflow, stack::StackInfo};
///
/// unsafe fn describe(_: &StackInfo, say: &mut dyn FnMut(&[u8])) {
///     say(b"worker ");
///     say(b"seven");
/// }
///
/// // SAFETY: `describe` allocates nothing, locks nothing, and reads nothing that changes.
/// unsafe { overflow::set_describer(describe) };
/// ```
///
/// # Safety
/// `describer` must be safe to call in a signal handler, for any stack that [`stack::find`] finds.
pub unsafe fn set_describer(describer: Describer) {
    DESCRIBER.store(describer as *mut (), Ordering::Release);
}

/// Makes stack overflows print who has overflowed which stack, and abort the program.
///
/// Does so once; later calls do nothing. A program that wants a handler for SIGSEGV or SIGBUS of
/// its own gets all its faults if it installed that earlier; if it does so later, it should hand on
/// faults that it does not know to the handler it found, as this one does.
///
/// The calling thread gets an alternate signal stack if it has none
/// ([`ensure_alternate_stack`]).
///
/// ```
/// carefree_context::overflow::install()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// When there is no memory for the alternate stack.
pub fn install() -> io::Result<()> {
    // Several may do it at once, and nobody waits for another, who may be missing in the child of a
    // fork: all find the same handler there, or ours.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.load(Ordering::Acquire) {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            install_for(signal)?;
        }
        INSTALLED.store(true, Ordering::Release);
    }
    ensure_alternate_stack()
}

/// The handlers there were before ours: of SIGSEGV, of SIGBUS. Each is set before our handler can
/// run, and what it points to is never freed.
static EARLIER: [AtomicPtr<libc::sigaction>; 2] =
    [AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut())];

fn earlier(signal: libc::c_int) -> &'static AtomicPtr<libc::sigaction> {
    &EARLIER[usize::from(signal == libc::SIGBUS)]
}

fn install_for(signal: libc::c_int) -> io::Result<()> {
    let mut found = default_action();
    // SAFETY: writes to `found` only.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut found) };
    if found.sa_sigaction == on_fault as Handler as usize {
        return Ok(());
    }
    // What was there is learnt first, so that a fault right after the second call finds it.
    earlier(signal).store(Box::into_raw(Box::new(found)), Ordering::Release);
    let mut ours = default_action();
    ours.sa_sigaction = on_fault as Handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the structure is whole, and `on_fault` is a handler of the SA_SIGINFO kind.
    let result = unsafe { libc::sigaction(signal, &raw const ours, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zeros is SIG_DFL, no flags, an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
type PlainHandler = unsafe extern "C" fn(libc::c_int);

/// # Safety
/// Called by the kernel as a handler installed with SA_SIGINFO.
unsafe extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a whole siginfo_t. Positive codes are faults, and have an address;
    // others come from kill(2) and the like, and have something else in its place.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 {
        if let Some(slot) = stack::find(address).filter(|slot| slot.is_guard(address)) {
            report(&slot);
            // SAFETY: has no preconditions, and is async-signal-safe.
            unsafe { libc::abort() };
        }
        if signal == libc::SIGBUS && file::give_up(address) {
            return;
        }
    }
    // SAFETY: the same signal's arguments.
    unsafe { hand_on(signal, info, context) };
}

fn report(slot: &StackInfo) {
    let mut line = Line::new();
    line.say(b"\ncarefree: ");
    let describer = DESCRIBER.load(Ordering::Acquire);
    if describer.is_null() {
        line.say(b"a coroutine");
    } else {
        // SAFETY: only `set_describer` stores there, and it stores a `Describer`, which is safe to
        // call here, as its caller promised.
        unsafe {
            let describer: Describer = std::mem::transmute::<*mut (), Describer>(describer);
            describer(slot, &mut |piece| line.say(piece));
        }
    }
    line.say(b" has overflowed its stack of ");
    line.number((slot.size - slot.guard) / 1024);
    line.say(
        b" KiB: give fibers larger ones with Builder::stack_size(bytes), or all of them with ",
    );
    line.say(b"CAREFREE_STACK=bytes or RUST_MIN_STACK=bytes, a coroutine with ");
    line.say(b"coroutine_with_stack_size, a deep call with on_large_stack(bytes, f)\n");
    line.flush();
}

/// A line of text for standard error, collected so that other output does not get in between.
struct Line {
    text: [u8; 512],
    length: usize,
}

impl Line {
    fn new() -> Self {
        Line { text: [0; 512], length: 0 }
    }

    fn say(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.length == self.text.len() {
                self.flush();
            }
            self.text[self.length] = *byte;
            self.length += 1;
        }
    }

    fn number(&mut self, value: usize) {
        if value >= 10 {
            self.number(value / 10);
        }
        self.say(&[b'0' + (value % 10) as u8]);
    }

    fn flush(&mut self) {
        let mut rest = &self.text[..self.length];
        while !rest.is_empty() {
            // Straight to the kernel: libc's write may be one that parks fibers.
            match sys::write(libc::STDERR_FILENO, rest) {
                Ok(written @ 1..) => rest = &rest[written..],
                // There is nobody left to tell.
                _ => break,
            }
        }
        self.length = 0;
    }
}

/// Does with a signal what the kernel would have done with it, had our handler not been there.
///
/// # Safety
/// The arguments are those of a call of a handler installed with SA_SIGINFO.
unsafe fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let found = earlier(signal).load(Ordering::Acquire);
    // SAFETY: set before our handler was installed, to a structure that is never freed nor changed.
    let action = unsafe { *found };
    // SAFETY: as in `on_fault`.
    let fault = unsafe { (*info).si_code } > 0;
    match action.sa_sigaction {
        libc::SIG_IGN if !fault => {}
        // The kernel does not let a program ignore a fault: it would fault for ever.
        libc::SIG_DFL | libc::SIG_IGN => {
            let default = default_action();
            // SAFETY: both calls are async-signal-safe. After our return a fault happens again, and
            // then the program dies of it, with its registers as they were in the core dump. A
            // signal that was sent does not: it is sent once more, and delivered when our return
            // unblocks it.
            unsafe {
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if !fault {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            if action.sa_flags & libc::SA_RESETHAND != 0 {
                // Its one time is now; then there is nobody before us any more. (The box stays: a
                // handler cannot free it, and other threads may be looking at it.)
                earlier(signal).store(default_for_good(), Ordering::Release);
            }
            let mut mask = action.sa_mask;
            // SAFETY: the masks are whole, the calls async-signal-safe. The mask from before the
            // signal comes back when our handler returns, from `context`, as with any handler. The
            // handler is of the kind that its flags say.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, ptr::null_mut());
                if action.sa_flags & libc::SA_NODEFER != 0 {
                    libc::sigemptyset(&raw mut mask);
                    libc::sigaddset(&raw mut mask, signal);
                    libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const mask, ptr::null_mut());
                }
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: Handler = std::mem::transmute::<usize, Handler>(handler);
                    handler(signal, info, context);
                } else {
                    let handler: PlainHandler = std::mem::transmute::<usize, PlainHandler>(handler);
                    handler(signal);
                }
            }
        }
    }
}

/// A [`default_action`] that lives for ever and needs no allocation.
fn default_for_good() -> *mut libc::sigaction {
    struct Shared(libc::sigaction);
    // SAFETY: it is never written.
    unsafe impl Sync for Shared {}
    // SAFETY: as in `default_action`.
    static DEFAULT: Shared = Shared(unsafe { std::mem::zeroed() });
    (&raw const DEFAULT.0).cast_mut()
}

/// Gives the calling kernel thread an alternate signal stack if it has none; it is freed when the
/// thread ends.
///
/// Threads of the Rust standard library have one already. Call it on carriers, and on threads that
/// C code started and that run coroutines.
///
/// ```
/// // On a thread of std's: nothing to do.
/// carefree_context::overflow::ensure_alternate_stack()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// When there is no memory for it.
pub fn ensure_alternate_stack() -> io::Result<()> {
    if current_alternate().ss_flags & libc::SS_DISABLE == 0 {
        return Ok(());
    }
    let page = sys::page_size();
    let bytes = alternate_bytes().next_multiple_of(page);
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping; its lowest page becomes a guard, the rest the alternate stack of this
    // thread, which nobody else knows of.
    unsafe {
        let map = libc::mmap(ptr::null_mut(), page + bytes, protection, flags, -1, 0);
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let alternate = AlternateStack { map, bytes: page + bytes };
        let base = map.byte_add(page);
        let request = libc::stack_t { ss_sp: base, ss_flags: 0, ss_size: bytes };
        if libc::mprotect(map, page, libc::PROT_NONE) != 0
            || libc::sigaltstack(&raw const request, ptr::null_mut()) != 0
        {
            let error = io::Error::last_os_error();
            libc::munmap(map, page + bytes);
            return Err(error);
        }
        // A thread that is ending has lost its thread-locals: then the mapping is left behind.
        let _ = ALTERNATE.try_with(|slot| slot.set(Some(alternate)));
    }
    Ok(())
}

thread_local! {
    static ALTERNATE: OwnAlternate = const { OwnAlternate(Cell::new(None)) };
}

#[derive(Clone, Copy)]
struct AlternateStack {
    map: *mut libc::c_void,
    bytes: usize,
}

struct OwnAlternate(Cell<Option<AlternateStack>>);

impl OwnAlternate {
    fn set(&self, alternate: Option<AlternateStack>) {
        self.0.set(alternate);
    }
}

impl Drop for OwnAlternate {
    fn drop(&mut self) {
        let Some(AlternateStack { map, bytes }) = self.0.get() else { return };
        let current = current_alternate();
        // A fiber with thread-locals of its own may have asked on one kernel thread and end on
        // another, and a program may have set another stack since. Then the mapping may be in use:
        // it stays.
        if current.ss_flags & libc::SS_DISABLE == 0
            && (map as usize..map as usize + bytes).contains(&(current.ss_sp as usize))
        {
            let disable =
                libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: the kernel lets go of the memory before it is unmapped. It refuses while the
            // thread is on it, and then it stays.
            unsafe {
                if libc::sigaltstack(&raw const disable, ptr::null_mut()) == 0 {
                    libc::munmap(map, bytes);
                }
            }
        }
    }
}

fn current_alternate() -> libc::stack_t {
    let mut current =
        libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    // SAFETY: writes to `current` only.
    unsafe { libc::sigaltstack(ptr::null(), &raw mut current) };
    current
}

/// What the kernel says it pushes for a signal (it depends on the processor's registers), and room
/// for the handler, a describer, and a handler that ours hands on to.
fn alternate_bytes() -> usize {
    const ROOM: usize = 32 * 1024;
    const AT_MINSIGSTKSZ: libc::c_ulong = 51;
    // SAFETY: getauxval has no preconditions.
    let least = unsafe { libc::getauxval(AT_MINSIGSTKSZ) } as usize;
    least.max(libc::MINSIGSTKSZ) + ROOM
}
