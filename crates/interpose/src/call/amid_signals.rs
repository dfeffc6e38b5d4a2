//! Calls that wait within libc and go on after each handler of signals.
//!
//! A thread of the pool makes such a call for a hosted thread, which handles its signals meanwhile. (Natively the handlers
//! run amid the call.) It does not wait for that thread itself but for another fiber that does: a handler may leave the
//! call, by a jump or by the thread's end, and what the pool's thread uses must stay until it has ended.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use carefree_runtime::wait::{self, Until, park};
use carefree_runtime::{Builder, Outcome, Reason, lot};

use crate::call::answer::set_errno;
use crate::call::host;

/// What the fibers share.
struct Call {
    result: AtomicI32,
    errno: AtomicI32,
    is_over: AtomicBool,
}

/// Has a thread that may block make a call. A hosted thread handles its signals meanwhile; neither they nor a cancellation
/// end the call.
pub(crate) fn offload(call: impl FnOnce() -> c_int + Copy + Send + 'static) -> c_int {
    if !host::is_hosted() || wait::holds_loader() {
        return carefree_runtime::offload(call);
    }
    let place = Call {
        result: AtomicI32::new(0),
        errno: AtomicI32::new(0),
        is_over: AtomicBool::new(false),
    };
    let shared = Arc::new(place);
    let key = Arc::as_ptr(&shared) as usize;
    let own = Arc::clone(&shared);
    let helper = Builder::new().name("waits within libc".into()).spawn(move || {
        // SAFETY: the address of the thread's own.
        let (result, errno) =
            carefree_runtime::offload(move || (call(), unsafe { *libc::__errno_location() }));
        own.result.store(result, Ordering::Relaxed);
        own.errno.store(errno, Ordering::Relaxed);
        own.is_over.store(true, Ordering::Release);
        lot::unpark(key, usize::MAX);
    });
    if helper.is_err() {
        return carefree_runtime::offload(call);
    }
    drop(helper);
    // A handler may leave this frame, which must have nothing to drop then.
    let shared = ManuallyDrop::new(shared);
    let waits = || !shared.is_over.load(Ordering::Acquire);
    while waits() {
        let until = Until { cancellable: host::is_interruptible(), ..Until::WOKEN_ONLY };
        if park(key, waits, Reason::Offload, until) == Outcome::Cancelled {
            host::handle_signals();
        }
    }
    let (result, errno) =
        (shared.result.load(Ordering::Relaxed), shared.errno.load(Ordering::Relaxed));
    drop(ManuallyDrop::into_inner(shared));
    set_errno(errno);
    result
}
