//! Threads that run goroutines, which a library in Go creates: they stay the kernel's.
//!
//! Go's runtime sets the mask, the alternate stack and the number of each of its threads by system calls of its
//! own, for the kernel thread that it finds itself on, and sends that one signals. So where such a library is
//! loaded later, the threads that start in it are no fibers. (Programs that begin with one: `start::has_go`.)
//!
//! A library tells by what it [exports](Exports).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_context::exports::Exports;
use carefree_context::loader;
use carefree_ground::lock::Lock;
use carefree_runtime::hosted;
use carefree_runtime::wait::without_parking;

/// Where threads have started from when there are hosted ones, and whether that is Go's.
static KNOWN: Lock<Vec<(Range<usize>, bool)>> = Lock::new(Vec::new());
/// Whether libraries have been loaded since: they may lie where others did.
static STALE: AtomicBool = AtomicBool::new(false);

/// In the child of a fork.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: as this function demands.
    unsafe { KNOWN.renew(Vec::new()) };
}

/// A library was loaded.
pub(crate) fn look_again() {
    STALE.store(true, Ordering::Release);
}

/// Whether a thread that starts with `function` is one of Go's, or a handler there.
pub(crate) fn are_run_by(function: usize) -> bool {
    if !hosted::is_hosting() {
        return look_up(function).is_some_and(|(_, is_go)| is_go);
    }
    let known = without_parking(|| {
        let mut known = KNOWN.lock();
        if STALE.swap(false, Ordering::Acquire) {
            known.clear();
        }
        known.iter().find(|(range, _)| range.contains(&function)).map(|(_, is_go)| *is_go)
    });
    known.unwrap_or_else(|| {
        // (None has code that was made at run time.)
        let Some((range, is_go)) = look_up(function) else { return false };
        without_parking(|| KNOWN.lock().push((range, is_go)));
        is_go
    })
}

#[cold]
fn look_up(function: usize) -> Option<(Range<usize>, bool)> {
    without_parking(|| {
        let mut found = None;
        loader::any_object(|info| {
            let range = extent(info);
            let is_this = range.contains(&function);
            if is_this {
                // SAFETY: the loader describes an object that is there.
                let exports = unsafe { Exports::of(info) };
                found = Some((range, exports.is_some_and(|all| all.has(c"_cgo_topofstack"))));
            }
            is_this
        });
        found
    })
}

/// From where to where an object lies.
fn extent(info: &libc::dl_phdr_info) -> Range<usize> {
    // SAFETY: the loader has just described it, in `look_up`.
    let loads =
        unsafe { loader::headers(info) }.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let parts = loads.map(|header| {
        let from = (info.dlpi_addr + header.p_vaddr) as usize;
        from..from + header.p_memsz as usize
    });
    parts.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}
