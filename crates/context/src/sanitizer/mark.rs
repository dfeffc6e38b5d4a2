//! A suspended computation as sanitizers know it.
//!
//! AddressSanitizer must be told the bounds of the stack that is switched to. For each computation
//! that is left it returns a "fake stack", which holds the computation's locals so that a use after
//! return is found. ThreadSanitizer represents each computation by a fiber of its own, with a clock
//! and a call stack. Each switch counts as synchronization: nothing else orders the accesses of a
//! carrier's fibers to their carrier's state. So races between fibers that only ever ran on one
//! carrier are not found.

#[cfg(any(carefree_asan, carefree_tsan))]
use std::ffi::c_void;
#[cfg(any(carefree_asan, carefree_tsan))]
use std::ptr;

/// A sanitizer's state of a suspended computation; of size zero without a sanitizer.
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

/// A pointer to a mark; of size zero without a sanitizer.
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

    /// Points to no mark.
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
    /// The mark of the computation that is being left: AddressSanitizer tells the bounds of its stack
    /// only after the switch, on the other side.
    static LEFT: std::cell::Cell<*mut Mark> = const { std::cell::Cell::new(ptr::null_mut()) };
}

impl Mark {
    /// A mark of the running computation. [`leave`] fills it in.
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

    /// A mark of a computation that will begin on the stack that ends at `top`.
    #[inline(always)]
    pub(crate) fn new(_top: *mut u8) -> Mark {
        #[cfg_attr(not(any(carefree_asan, carefree_tsan)), expect(unused_mut))]
        let mut mark = Mark::running();
        #[cfg(carefree_asan)]
        {
            /// Assumed size of a stack that does not come from a pool.
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
            // SAFETY: it has no preconditions; 0 is no flags.
            mark.fiber = unsafe { __tsan_create_fiber(0) };
        }
        mark
    }

    /// Notes that the computation will not be entered again after it is next left.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        #[cfg(carefree_asan)]
        {
            self.ends = true;
        }
    }

    /// Ends a computation that was left for good or never entered, before its stack is reused.
    ///
    /// # Safety
    /// The mark was made by [`new`](Self::new), and neither it nor the computation is used again.
    #[inline(always)]
    pub(crate) unsafe fn forget(&mut self) {
        #[cfg(carefree_asan)]
        // SAFETY: the stack is free, so all of it may be written again. Frames that never returned
        // have left parts of it poisoned.
        unsafe {
            __asan_unpoison_memory_region(self.bottom, self.size);
        }
        #[cfg(carefree_tsan)]
        // SAFETY: `new` made the fiber, and its computation is not running: it is never used again.
        unsafe {
            __tsan_destroy_fiber(self.fiber);
        }
    }
}

/// Announces the switch from the caller, of mark `from`, to the computation of mark `to`. Nothing
/// but the switch may lie between this and [`arrive`] on the other side, not even a call or a
/// return, which is why both are always inlined.
///
/// # Safety
/// `from` is the caller's mark and `to` that of the computation that is switched to; both are valid.
#[inline(always)]
pub(crate) unsafe fn leave(_from: *mut Mark, _to: *const Mark) {
    #[cfg(carefree_asan)]
    // SAFETY: both marks are valid, and `to`'s has the bounds of its stack: from `new`, or from
    // when it was left.
    unsafe {
        LEFT.set(_from);
        let frames = if (*_from).ends { ptr::null_mut() } else { &raw mut (*_from).frames };
        __sanitizer_start_switch_fiber(frames, (*_to).bottom, (*_to).size);
    }
    #[cfg(carefree_tsan)]
    // SAFETY: both marks are valid, and `to`'s has its fiber: from `new`, or from when it was left.
    unsafe {
        (*_from).fiber = __tsan_get_current_fiber();
        __tsan_switch_to_fiber((*_to).fiber, 0);
    }
}

/// Announces that the computation of mark `own` was switched to; null if this is its beginning.
///
/// # Safety
/// `own` is the caller's mark, as [`leave`] left it, or null.
#[inline(always)]
pub(crate) unsafe fn arrive(_own: *const Mark) {
    #[cfg(carefree_asan)]
    // SAFETY: `own` is valid or null, and its `frames` were stored when it was left. `LEFT` holds a
    // mark of a suspended computation, or null after one that has ended.
    unsafe {
        let frames = if _own.is_null() { ptr::null_mut() } else { (*_own).frames };
        let (mut bottom, mut size) = (ptr::null(), 0);
        __sanitizer_finish_switch_fiber(frames, &raw mut bottom, &raw mut size);
        if let Some(left) = LEFT.take().as_mut() {
            (left.bottom, left.size) = (bottom, size);
        }
    }
}

type Entry = unsafe extern "C" fn(data: *mut u8) -> !;

/// The stack, function and argument with which a fiber is to begin, given those that its creator
/// wants; and its mark. They differ only where a sanitizer must be told of the beginning.
///
/// # Safety
/// `top` is aligned to 16 bytes, and the 16 bytes below it are valid for writes.
#[inline(always)]
pub(crate) unsafe fn wrap_entry(
    top: *mut u8,
    entry: Entry,
    data: *mut u8,
) -> (*mut u8, Entry, *mut u8, Mark) {
    #[cfg(any(carefree_asan, carefree_tsan))]
    {
        /// `start` points to the entry and data that the creator wants.
        unsafe extern "C" fn begin(start: *mut u8) -> ! {
            // SAFETY: `wrap_entry` has stored the pair at `start`, and nothing has announced this
            // computation before.
            unsafe {
                arrive(ptr::null());
                let (entry, data) = start.cast::<(Entry, *mut u8)>().read();
                entry(data)
            }
        }
        let start = top.wrapping_sub(size_of::<(Entry, *mut u8)>());
        // SAFETY: the pair takes the 16 bytes below `top`, which are writable and aligned.
        unsafe { start.cast::<(Entry, *mut u8)>().write((entry, data)) };
        (start, begin, start, Mark::new(top))
    }
    #[cfg(not(any(carefree_asan, carefree_tsan)))]
    (top, entry, data, Mark::new(top))
}
