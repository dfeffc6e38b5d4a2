//! Reports of stack overflows: which fiber, how large its stack, and what to do.
//!
//! A guard turns an overflow into SIGSEGV (or SIGBUS). Without a handler the program would die with
//! no explanation. [`install`] puts a handler in front of the existing one, in most programs that of
//! the Rust standard library, which reports the overflows of threads. It looks up the faulting
//! address: for a guard of a [`stack`] it prints a line and aborts, as std does; any other fault is passed
//! on to the earlier handler as if this one did not exist. (Except for SIGBUS in a mapped
//! [`mapped_file`] that was truncated.)
//!
//! The handler cannot run on the stack that has overflowed. It needs the kernel thread's
//! alternate signal stack; std gives its threads one, and [`ensure_alternate_stack`] gives one to
//! threads that C code started.
//!
//! # What runs in the handler
//!
//! The thread was stopped anywhere, even inside malloc or with a lock held, so the handler calls
//! only what is async-signal-safe: `write`, `sigaction`, `abort`, system calls, and the lock-free
//! [`stack::find`]. It formats numbers by hand and allocates nothing. On a fiber it runs under
//! the fiber's thread pointer, which points to a complete thread-local block in which `errno` is a plain
//! variable, so this makes no difference.
//!
//! # What a guard cannot catch
//!
//! A guard catches code that touches it. Rust code always does, and so does C code compiled with
//! `-fstack-clash-protection`, as they touch every page of a large frame on the way down. Other C
//! code with a frame larger than the guard (64 KiB for the default stack size) may step over it
//! undetected. `CAREFREE_GUARD` makes guards larger; deep calls into such code belong on a large stack
//! ([`call_on_stack`](crate::coroutine::call_on_stack)), whose guard is 1 MiB.

use crate::mapped_file;
use crate::stack::{self, StackInfo, sys};
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Describes the user of a stack that has overflowed, such as `fiber 'name'`, by calling `say`
/// with one or more pieces of text.
///
/// It is called in a signal handler, on the alternate signal stack, while the thread is stopped
/// anywhere, so it must be async-signal-safe. In particular it must not allocate
/// or lock, and must not rely on data that the stopped thread may have been changing.
pub type Describer = unsafe fn(overflown: &StackInfo, say: &mut dyn FnMut(&[u8]));

static DESCRIBER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets the function that describes the users of stacks. Without one, reports say "a coroutine".
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
/// `describer` must be sound to call in a signal handler, for any stack that [`stack::find`] finds.
pub unsafe fn set_describer(describer: Describer) {
    DESCRIBER.store(describer as *mut (), Ordering::Release);
}

/// Installs the handler that reports a stack overflow and aborts the program.
///
/// Later calls find it installed. If the program has installed handlers of its own for SIGSEGV or SIGBUS
/// before, they get all other faults; if it installs them later, they should pass faults that they do not
/// know on to the handler that they replace, as this one does.
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
    // Several threads may do this at once: each finds the earlier handler, or this one. None waits for
    // another, which might not exist any more in the child of a fork.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.load(Ordering::Acquire) {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            install_for(signal)?;
        }
        INSTALLED.store(true, Ordering::Release);
    }
    ensure_alternate_stack()
}

/// The earlier handlers of SIGSEGV and SIGBUS. Each is set before [`on_fault`] can run, and what it points
/// to is never freed.
static EARLIER: [AtomicPtr<libc::sigaction>; 2] =
    [AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut())];

fn earlier(signal: libc::c_int) -> &'static AtomicPtr<libc::sigaction> {
    &EARLIER[usize::from(signal == libc::SIGBUS)]
}

fn install_for(signal: libc::c_int) -> io::Result<()> {
    let mut found = default_action();
    // SAFETY: only writes to `found`.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut found) };
    if found.sa_sigaction == on_fault as Handler as usize {
        return Ok(());
    }
    // Stored first, so that a fault right after the second call of `sigaction` finds it.
    earlier(signal).store(Box::into_raw(Box::new(found)), Ordering::Release);
    let mut ours = default_action();
    ours.sa_sigaction = on_fault as Handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the structure is complete, and `on_fault` is a handler with SA_SIGINFO's arguments.
    let result = unsafe { libc::sigaction(signal, &raw const ours, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zeros is a valid value: SIG_DFL, no flags, an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
type PlainHandler = unsafe extern "C" fn(libc::c_int);

/// # Safety
/// Only the kernel calls it, as a handler with SA_SIGINFO.
unsafe extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a complete siginfo_t. Positive codes are faults, which have an address;
    // other codes come from kill(2) and the like, and the address is only used after the check below.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 {
        if let Some(slot) = stack::find(address).filter(|slot| slot.is_guard(address)) {
            report(&slot);
            // SAFETY: no preconditions; async-signal-safe.
            unsafe { libc::abort() };
        }
        if signal == libc::SIGBUS && mapped_file::give_up(address) {
            return;
        }
    }
    // SAFETY: the kernel's arguments, unchanged.
    unsafe { pass_on(signal, info, context) };
}

fn report(slot: &StackInfo) {
    let mut line = Line::new();
    line.say(b"\ncarefree: ");
    let describer = DESCRIBER.load(Ordering::Acquire);
    if describer.is_null() {
        line.say(b"a coroutine");
    } else {
        // SAFETY: only `set_describer` stores there. It stores a `Describer`, and requires that it is sound
        // to call in a signal handler.
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

/// A line of text for standard error, collected so that it is written by one call.
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
            // By a system call: libc's write may be interposed by one that parks fibers.
            match sys::write(libc::STDERR_FILENO, rest) {
                Ok(written @ 1..) => rest = &rest[written..],
                // There is nowhere else to report.
                _ => break,
            }
        }
        self.length = 0;
    }
}

/// Handles a signal as if [`on_fault`] had not been installed.
///
/// # Safety
/// The arguments are those that the kernel passed to a handler with SA_SIGINFO.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let found = earlier(signal).load(Ordering::Acquire);
    // SAFETY: set before `on_fault` was installed, to a structure that is never freed or changed.
    let action = unsafe { *found };
    // SAFETY: the kernel passes a complete siginfo_t.
    let fault = unsafe { (*info).si_code } > 0;
    match action.sa_sigaction {
        libc::SIG_IGN if !fault => {}
        // The kernel does not let a program ignore a fault: it would fault for ever.
        libc::SIG_DFL | libc::SIG_IGN => {
            let default = default_action();
            // A fault happens again after this handler has returned, and then kills the program, with the
            // registers of the fault in the core dump. A signal that was sent does not come again: it is
            // raised once more, and delivered when the return unblocks it.
            // SAFETY: both calls are async-signal-safe.
            unsafe {
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if !fault {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            if action.sa_flags & libc::SA_RESETHAND != 0 {
                // The earlier handler runs once, now; from then on there is none. (Its box is leaked: a
                // handler must not free memory, and other threads may be reading it.)
                earlier(signal).store(default_for_good(), Ordering::Release);
            }
            let mut mask = action.sa_mask;
            // When `on_fault` returns, the kernel restores the mask from before the signal, from `context`.
            // SAFETY: the masks are complete and the calls async-signal-safe. The handler takes the
            // arguments that its flags say.
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

/// A [`default_action`] in static memory.
fn default_for_good() -> *mut libc::sigaction {
    struct Shared(libc::sigaction);
    // SAFETY: never written.
    unsafe impl Sync for Shared {}
    // SAFETY: all zeros is a valid value: SIG_DFL, no flags, an empty mask.
    static DEFAULT: Shared = Shared(unsafe { std::mem::zeroed() });
    (&raw const DEFAULT.0).cast_mut()
}

/// Gives the calling kernel thread an alternate signal stack if it has none; it is freed when the
/// thread ends.
///
/// Threads of the Rust standard library have one already. To be called on carriers, and on threads that
/// C code started and that run coroutines.
///
/// ```
/// // On a thread of std: does nothing.
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
    // SAFETY: a new mapping, used for nothing else: its lowest page becomes a guard, the rest this thread's
    // alternate stack.
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
        // In a thread that is ending, whose thread-locals are destroyed, the mapping is leaked.
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
        // A fiber with thread-locals of its own may have called this on one kernel thread and end on
        // another, and the program may have set another stack since. Then the mapping may be in use and
        // is leaked.
        if current.ss_flags & libc::SS_DISABLE == 0
            && (map as usize..map as usize + bytes).contains(&(current.ss_sp as usize))
        {
            let disable =
                libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: the memory is unmapped only after the kernel has stopped using it. The kernel refuses
            // that while the thread is on this stack.
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
    // SAFETY: only writes to `current`.
    unsafe { libc::sigaltstack(ptr::null(), &raw mut current) };
    current
}

/// The size of an alternate stack: what the kernel pushes for a signal (which depends on the processor's
/// registers), and room for the handler, a describer, and the handler that a signal is passed on to.
fn alternate_bytes() -> usize {
    const ROOM: usize = 32 * 1024;
    const AT_MINSIGSTKSZ: libc::c_ulong = 51;
    // SAFETY: no preconditions.
    let least = unsafe { libc::getauxval(AT_MINSIGSTKSZ) } as usize;
    least.max(libc::MINSIGSTKSZ) + ROOM
}
