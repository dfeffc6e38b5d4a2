//! The process's first thread becomes a fiber.
//!
//! ```text
//!              before                                  after
//!   first kernel thread: main's frames      first kernel thread: the host's function, on a stack of ours
//!                                           a carrier:           main's frames, as a fiber
//! ```
//!
//! The switch saves main's context in a header as that of any fiber that leaves its stack, and enters a new
//! context on a furnished stack. That one submits main to the runtime, and a carrier enters it, with main's
//! own thread pointer. So main's thread-local storage, its `pthread_t` and what libc knows of it stay.
//!
//! The kernel's view of the first kernel thread stays, too, and must not disagree with libc's: the kernel
//! would write the number of that thread's processor into main's restartable-sequences area, from where main
//! reads that of its own. So the registration is taken back, and libc asks the kernel instead.

use std::io;
use std::ptr;
use std::sync::atomic::Ordering;

use carefree_context::stack::{StackSizeError, setting};
use carefree_context::{arch, tls};

use crate::carrier::carrier;
use crate::carrier::meter;
use crate::fiber::current::set_current;
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::idle;
use crate::fiber::registry;
use crate::fiber::sequences;
use crate::fiber::size;
use crate::hosted::thread::{self, HostedThread};
use crate::process::runtime;
use crate::process::shortage;
use crate::protocol::reason::Reason;

/// The largest guard, in bytes, below the stacks of threads that ask for no larger one. libc's have a page. For a
/// guard of 1 MiB, as large stacks have elsewhere, the kernel takes longer than for all else that a new stack
/// costs it (`cargo run --release -p carefree-context --example cold_stacks`).
pub(super) const GUARD: usize = 64 << 10;

/// Makes stacks of `bytes` the default, with small guards. To be called before the first fiber; sizes that the
/// environment asks for stay.
///
/// # Errors
/// When no stack has as many bytes.
pub fn set_default_stack(bytes: usize) -> Result<(), StackSizeError> {
    let set = size::set_default(bytes);
    // Larger ones keep theirs.
    setting::limit_guards(size::default().bytes(), GUARD);
    set
}

/// Has the handling of faults left to the program. To be called before [`adopt`].
pub fn leave_faults() {
    runtime::leave_faults();
}

/// Sets how many carriers there are where `CAREFREE_CARRIERS` does not say. To be called before [`adopt`].
pub fn set_default_carriers(carriers: usize) {
    runtime::set_default_carriers(carriers);
}

/// What the new context on the first kernel thread is told.
struct Start {
    main: FiberRef,
    rest: fn() -> !,
}

/// Makes the calling thread, the process's first, a hosted thread, of which the host keeps `data`; its kernel
/// thread calls `rest`. Returns on a carrier.
///
/// # Errors
/// When fibers cannot have thread-local storage of their own here, or there is no memory or no thread for a
/// runtime. Then the caller stays a thread.
///
/// # Safety
/// The caller is the process's first thread, and no fiber. It is not within code that relies on its
/// kernel thread's identity. `data` is never freed.
pub unsafe fn adopt<H>(data: &'static H, rest: fn() -> !) -> io::Result<HostedThread> {
    runtime::prepare_process();
    let tls::Mode::Own(layout) = tls::mode() else {
        let why = match tls::mode() {
            tls::Mode::Own(_) => String::new(),
            tls::Mode::Shared(why) | tls::Mode::Threads(why) => why.clone(),
        };
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    };
    let runtime = runtime::global()?;
    let stack = idle::take(size::default(), shortage::acquire)?;
    let main = match registry::header() {
        Ok(header) => header,
        Err(error) => {
            idle::put(stack);
            return Err(error);
        }
    };
    // One reference is its own, one that of the right to join it: so the header is never used again.
    main.begin(Kind::Fiber, registry::number(), None, 2);
    main.stack.store(ptr::null_mut(), Ordering::Relaxed);
    main.reason.store(Reason::Runs as u8, Ordering::Relaxed);
    carrier::assign(main, &runtime.carriers[0]);
    // SAFETY: no preconditions.
    let pthread = unsafe { libc::pthread_self() } as usize;
    // SAFETY: the caller is the process's first thread, which libc has started.
    if let Some(area) = unsafe { sequences::take_back(arch::thread_pointer()) } {
        /// The number of the processor, for which libc asks the kernel then.
        const FAILED: u32 = -2i32 as u32;
        // SAFETY: the area is the calling thread's, and the kernel does not write to it any more. Its second
        // word is the number of the processor.
        unsafe { area.cast::<u32>().add(1).write_volatile(FAILED) };
    }
    set_current(Some(main));
    let tp = stack.thread_pointer();
    meter::note_main();
    let mut start = Start { main, rest };
    // SAFETY: the new context has a stack and a block to itself, which it keeps for ever. `start` lies in this
    // frame, which stays until main is run again: after `first` has read it. The calling thread is main, and
    // its context is entered by the carrier that takes it from where `first` submits it.
    unsafe {
        let own = arch::prepare_thread(stack.into_raw().cast(), tp, first, (&raw mut start).cast());
        thread::begin(layout, pthread, main, ptr::from_ref(data).cast_mut().cast());
        arch::switch_thread::<true>(main.context.get(), &raw const own);
    }
    carrier::of(main).entered(main);
    main.plain.set(0);
    Ok(HostedThread(main))
}

/// The first function of the new context on the first kernel thread.
///
/// # Safety
/// To be entered by the switch in [`adopt`], once.
unsafe extern "C" fn first(data: *mut u8) -> ! {
    // SAFETY: `adopt` passes a pointer to its `Start`, and is suspended.
    let Start { main, rest } = unsafe { data.cast::<Start>().read() };
    if let Some(layout) = tls::mode().layout() {
        // SAFETY: the caller has just begun, on a block of this layout.
        unsafe { layout.enter() };
    }
    runtime::global().expect("adopt has started it").submit(main);
    rest()
}
