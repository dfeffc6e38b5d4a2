//! A suspended computation as sanitizers know it.
//!
//! AddressSanitizer wants to hear the bounds of the stack that is switched to, and hands out, for
//! each computation that is left, what holds its locals (a "fake stack", where a use after return is
//! found). ThreadSanitizer has a fiber of its own for each computation, with its clock and calls. A
//! switch counts as synchronization there, since what one carrier's fibers do to their carrier's
//! state is ordered by nothing else; races between fibers that only ever ran on one carrier are not
//! seen, therefore.

#[cfg(any(carefree_asan, carefree_tsan))]
use std::ffi::c_void;
#[cfg(any(carefree_asan, carefree_tsan))]
use std::ptr;

/// What a sanitizer keeps of a computation while it is suspended; of size zero where there is none.
#[derive(Debug)]
#[repr(C)]
pub struct Mark {
    #[cfg(carefree_asan)]
    frames: *mut c_void,
    #[cfg(carefree_asan)]
    bottom: *const c_void,
    #[cfg(carefree_asan)]
    size: usize,
    #[cfg(carefree_asan)]
    ends: bool,
    #[cfg(carefree_tsan)]
    fiber: *mut c_void,
}

/// Where a mark is; of size zero where there is no sanitizer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkRef(#[cfg(any(carefree_asan, carefree_tsan))] *mut Mark);

impl MarkRef {
    #[inline(always)]
    pub(crate) fn to(_mark: &mut Mark) -> MarkRef {
        MarkRef(
            #[cfg(any(carefree_asan, carefree_tsan))]
            _mark,
        )
    }

    /// The mark of no computation.
    #[inline(always)]
    pub(crate) const fn none() -> MarkRef {
        MarkRef(
            #[cfg(any(carefree_asan, carefree_tsan))]
            ptr::null_mut(),
        )
    }

    #[inline(always)]
    pub(crate) fn get(self) -> *const Mark {
        #[cfg(any(carefree_asan, carefree_tsan))]
        return self.0;
        #[cfg(not(any(carefree_asan, carefree_tsan)))]
        std::ptr::dangling()
    }
}

#[cfg(carefree_asan)]
unsafe extern "C" {
    fn __sanitizer_start_switch_fiber(frames: *mut *mut c_void, bottom: *const c_void, size: usize);
    fn __sanitizer_finish_switch_fiber(
        frames: *mut c_void,
        bottom: *mut *const c_void,
        size: *mut usize,
    );
    fn __asan_unpoison_memory_region(address: *const c_void, size: usize);
}

#[cfg(carefree_tsan)]
unsafe extern "C" {
    fn __tsan_get_current_fiber() -> *mut c_void;
    fn __tsan_create_fiber(flags: u32) -> *mut c_void;
    fn __tsan_destroy_fiber(fiber: *mut c_void);
    fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: u32);
}

#[cfg(carefree_asan)]
std::thread_local! {
    /// The mark of the computation that is being left: the bounds of its stack are known on the other
    /// side only.
    static LEFT: std::cell::Cell<*mut Mark> = const { std::cell::Cell::new(ptr::null_mut()) };
}

impl Mark {
    /// Of the running computation, to be [left](leave) before it is used.
    #[inline(always)]
    pub(crate) const fn running() -> Mark {
        Mark {
            #[cfg(carefree_asan)]
            frames: ptr::null_mut(),
            #[cfg(carefree_asan)]
            bottom: ptr::null(),
            #[cfg(carefree_asan)]
            size: 0,
            #[cfg(carefree_asan)]
            ends: false,
            #[cfg(carefree_tsan)]
            fiber: ptr::null_mut(),
        }
    }

    /// Of a computation that is to begin on the stack that ends at `top`.
    #[inline(always)]
    pub(crate) fn new(_top: *mut u8) -> Mark {
        #[cfg_attr(not(any(carefree_asan, carefree_tsan)), expect(unused_mut))]
        let mut mark = Mark::running();
        #[cfg(carefree_asan)]
        {
            /// Of a stack that is not one of a pool's at least this much is there.
            const LEAST: usize = 4096;
            let limit = match crate::stack::find(_top as usize - 1) {
                Some(stack) => stack.base + stack.guard,
                None => _top as usize - LEAST,
            };
            mark.bottom = limit as *const c_void;
            mark.size = _top as usize - limit;
        }
        #[cfg(carefree_tsan)]
        {
            // SAFETY: it takes flags, of which it knows none.
            mark.fiber = unsafe { __tsan_create_fiber(0) };
        }
        mark
    }

    /// The computation will not be entered again after it is left the next time.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        #[cfg(carefree_asan)]
        {
            self.ends = true;
        }
    }

    /// The computation has been left for good, or will never be entered: its stack goes back.
    ///
    /// # Safety
    /// It was made by [`new`](Self::new), and is not used again.
    #[inline(always)]
    pub(crate) unsafe fn forget(&mut self) {
        #[cfg(carefree_asan)]
        // SAFETY: the stack is free, so that all of it may be written again: the frames that were
        // never returned from have left marks of their own.
        unsafe {
            __asan_unpoison_memory_region(self.bottom, self.size);
        }
        #[cfg(carefree_tsan)]
        // SAFETY: made by `new`, and not the running one, says the caller.
        unsafe {
            __tsan_destroy_fiber(self.fiber);
        }
    }
}

/// The caller is about to be suspended, and the computation of mark `to` to go on. Nothing but the
/// switch may lie between this and [`arrive`] on the other side, no call and no return: both are
/// always inlined for that.
///
/// # Safety
/// `from` is the caller's mark and `to` that of what is switched to.
#[inline(always)]
pub(crate) unsafe fn leave(_from: *mut Mark, _to: *const Mark) {
    #[cfg(carefree_asan)]
    // SAFETY: both are marks, says the caller.
    unsafe {
        LEFT.set(_from);
        let frames = if (*_from).ends { ptr::null_mut() } else { &raw mut (*_from).frames };
        __sanitizer_start_switch_fiber(frames, (*_to).bottom, (*_to).size);
    }
    #[cfg(carefree_tsan)]
    // SAFETY: as above.
    unsafe {
        (*_from).fiber = __tsan_get_current_fiber();
        __tsan_switch_to_fiber((*_to).fiber, 0);
    }
}

/// The computation of mark `own` goes on; null if it begins.
///
/// # Safety
/// `own` is the caller's mark, as it was left, or null.
#[inline(always)]
pub(crate) unsafe fn arrive(_own: *const Mark) {
    #[cfg(carefree_asan)]
    // SAFETY: the caller's promise; what was left is suspended, or gone for good, and then no mark is
    // noted.
    unsafe {
        let frames = if _own.is_null() { ptr::null_mut() } else { (*_own).frames };
        let (mut bottom, mut size) = (ptr::null(), 0);
        __sanitizer_finish_switch_fiber(frames, &raw mut bottom, &raw mut size);
        if let Some(left) = LEFT.take().as_mut() {
            (left.bottom, left.size) = (bottom, size);
        }
    }
}
