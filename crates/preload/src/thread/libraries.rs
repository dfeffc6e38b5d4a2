//! Libraries whose threads stay the kernel's.
//!
//! Go's runtime sets the mask, the alternate stack and the number of each of its threads by system calls of its
//! own, for the kernel thread that it finds itself on, and sends that one signals. So where a library in Go is
//! loaded later, the threads that start in it are no fibers. (Programs that begin with one: `start::has_go`.)
//!
//! The threads of GCC's OpenMP wait for each other, at each end of a loop, by system calls of its own. As a fiber,
//! each would keep a carrier, and would wait for the monitor to add that carrier first.
//!
//! A library tells by what it [exports](Exports).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_context::exports::Exports;
use carefree_context::loader;
use carefree_ground::lock::Lock;
use carefree_runtime::hosted;
use carefree_runtime::wait::without_parking;

/// Where threads have started from when there are hosted ones, and whether these stay the kernel's.
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

/// Whether `function`, with which a thread starts or which handles a signal, belongs to a library whose threads stay the
/// kernel's.
pub(crate) fn are_kernels(function: usize) -> bool {
    if !hosted::is_hosting() {
        return look_up(function).is_some_and(|(_, keeps)| keeps);
    }
    let known = without_parking(|| {
        let mut known = KNOWN.lock();
        if STALE.swap(false, Ordering::Acquire) {
            known.clear();
        }
        known.iter().find(|(range, _)| range.contains(&function)).map(|(_, keeps)| *keeps)
    });
    known.unwrap_or_else(|| {
        // (None has code that was made at run time.)
        let Some((range, keeps)) = look_up(function) else { return false };
        without_parking(|| KNOWN.lock().push((range, keeps)));
        keeps
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
                found = Some((range, exports.is_some_and(|all| is_go(&all) || is_openmp(&all))));
            }
            is_this
        });
        found
    })
}

fn is_go(exports: &Exports) -> bool {
    exports.has(c"_cgo_topofstack")
}

/// (LLVM's OpenMP has GCC's functions as well, and those of its own. It waits by libc's calls.)
fn is_openmp(exports: &Exports) -> bool {
    exports.has(c"GOMP_parallel") && !exports.has(c"__kmpc_fork_call")
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
