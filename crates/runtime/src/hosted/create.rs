//! Creating a hosted thread, and its end.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use carefree_context::arch;

use crate::api::life;
use crate::api::spawn;
use crate::carrier::carrier;
use crate::carrier::quiet::quiet;
use crate::fiber::current::without_parking;
use crate::fiber::furnish::{self, CLOSURE_MAX, Furnished};
use crate::fiber::header::{FiberRef, Kind, PINNED};
use crate::fiber::size;
use crate::fiber::split::Split;
use crate::hosted::thread::{HostedThread, Life, Record};
use crate::process::runtime;
use crate::protocol::generation;

/// Creates a hosted thread with `bytes` of stack, or the default, and a guard of `guard` bytes at least, or
/// of 1 MiB if it asks for more. `tell` is called with it before it runs, and must not wait. The caller has the right to join
/// it, or to [give it up](HostedThread::give_up).
///
/// # Errors
/// When there is no memory for its stack.
///
/// # Safety
/// `life`'s functions may be called with `host`, on another kernel thread.
pub unsafe fn create<H: 'static>(
    bytes: Option<usize>,
    guard: usize,
    host: H,
    life: &'static Life<H>,
    tell: impl FnOnce(HostedThread),
) -> io::Result<()> {
    const { assert!(size_of::<Record<H>>() <= CLOSURE_MAX && align_of::<H>() <= 16) };
    // Where `furnish::split_of` finds it.
    const { assert!(offset_of!(Record<H>, split) + size_of::<Split>() == size_of::<Record<H>>()) };
    let asked = bytes.map_or_else(|| Ok(size::default()), size::of).map_err(io::Error::from)?;
    let size = size::guarded(asked, guard);
    let here = carrier::here();
    let _quiet = quiet();
    // Before `tell`, after which this cannot fail any more.
    let elsewhere = match here {
        Some(_) => None,
        None => Some(without_parking(runtime::global)?),
    };
    let fiber = match here {
        Some(carrier) => spawn::allocate_here(carrier, size, None)?,
        None => spawn::allocate_elsewhere(size, None)?,
    };
    let stack = fiber.stack.load(Ordering::Relaxed);
    // SAFETY: the fiber is new and known to this function alone, and so is its stack, which has room for the
    // record below its own.
    unsafe {
        let record = life::closure::<Record<H>>(stack);
        record.write(Record { host, life, split: Split::new() });
        furnish::host(stack, fiber.as_ptr(), bytes.or_else(size::hosted_default));
        let furnished = Furnished::from_raw(stack);
        let tp = furnished.thread_pointer();
        // The stack stays the fiber's.
        let _ = furnished.into_raw();
        let context = arch::prepare_thread(record.cast(), tp, entry::<H>, fiber.as_ptr());
        fiber.context.get().write(context);
    }
    // From here on `registry::find_pinned` finds it, and reads the record.
    fiber.join.store(PINNED, Ordering::Release);
    tell(HostedThread(fiber));
    match here {
        Some(carrier) => {
            carrier::assign(fiber, carrier);
            carrier.spawned(fiber);
        }
        None => elsewhere.expect("it was looked for where there is no carrier").submit(fiber),
    }
    Ok(())
}

/// A hosted thread's first function.
///
/// # Safety
/// To be entered by the switch to a context that [`create`] has made for the same type, once.
unsafe extern "C" fn entry<H: 'static>(data: *mut u8) -> ! {
    // SAFETY: `create` has passed the fiber's `as_ptr`.
    let me = unsafe { FiberRef::from_ptr(data) };
    life::arrive(me);
    // SAFETY: `create` has written the record there; it stays until the stack is used again.
    let record = unsafe { &*life::closure::<Record<H>>(me.stack.load(Ordering::Relaxed)) };
    // SAFETY: `create`'s caller has said that this may be called.
    unsafe { (record.life.run)(&record.host) };
    life::end_thread_locals(me);
    if me.kind.get() == Kind::Thread {
        // It has forked, and this is the child.
        // SAFETY: `create`'s caller has said that this may be called after `run`.
        unsafe { (record.life.end_in_child)() };
        // It is the only thread.
        generation::end();
    }
    // SAFETY: `create`'s caller has said that this may be called after `run`.
    unsafe { (record.life.end)(&record.host) };
    life::finish(me)
}
