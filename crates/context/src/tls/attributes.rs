//! `pthread_getattr_np` for fibers: garbage collectors and stack-depth checks ask it where the
//! stack of the thread they run on lies.
//!
//! libc's own would answer from the block, where the fiber's stack is noted, but on the way asks
//! the kernel for the thread's affinity by its id. The kernel does not know a fiber's id. So this
//! definition stands in front of libc's: it answers for fibers and hands over threads.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::block::is_fiber_id;
use super::layout::Layout;

type GetAttributes = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;

unsafe extern "C" {
    // Not in the libc crate for this target.
    pub(super) fn pthread_attr_setstack(
        attributes: *mut libc::pthread_attr_t,
        base: *mut c_void,
        size: usize,
    ) -> c_int;
}

/// What is known once there may be fibers.
struct Known {
    layout: &'static Layout,
    words: Option<Words>,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

/// Which words of a `pthread_attr_t` hold the stack's end and its length.
///
/// `pthread_attr_setstack` writes them, but refuses stacks shorter than it would start a thread on
/// (16 KiB, and more where vector registers are long). A fiber's may be shorter.
#[derive(Clone, Copy)]
struct Words {
    end: usize,
    size: usize,
}

impl Words {
    /// Finds them by setting a stack that no one else would have.
    fn find() -> Option<Words> {
        const BASE: usize = 0x1234_5678_9000;
        const SIZE: usize = 0x7654_3000;
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: initialised before use, destroyed after; the stack is noted, not touched.
        let words = unsafe {
            if libc::pthread_attr_init(attributes) != 0 {
                return None;
            }
            let failed =
                pthread_attr_setstack(attributes, std::ptr::without_provenance_mut(BASE), SIZE);
            let words = attributes.cast::<[usize; size_of::<libc::pthread_attr_t>() / 8]>().read();
            libc::pthread_attr_destroy(attributes);
            if failed != 0 {
                return None;
            }
            words
        };
        let only = |value| {
            let mut all = words.iter().enumerate().filter(|(_, word)| **word == value);
            let (index, _) = all.next()?;
            all.next().is_none().then_some(index)
        };
        Some(Words { end: only(BASE + SIZE)?, size: only(SIZE)? })
    }

    /// # Safety
    /// The attributes are initialised.
    unsafe fn set(self, attributes: *mut libc::pthread_attr_t, base: *mut c_void, size: usize) {
        let words = attributes.cast::<usize>();
        // SAFETY: both are words of the attributes, found as such.
        unsafe {
            words.add(self.end).write(base as usize + size);
            words.add(self.size).write(size);
        }
    }
}

#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
fn libcs() -> Option<GetAttributes> {
    unsafe extern "C" {
        // glibc's name for itself; `pthread_getattr_np` is a weak one for the same.
        fn __pthread_getattr_np(
            thread: libc::pthread_t,
            attributes: *mut libc::pthread_attr_t,
        ) -> c_int;
    }
    Some(__pthread_getattr_np)
}

#[cfg(not(all(target_feature = "crt-static", target_env = "gnu")))]
fn libcs() -> Option<GetAttributes> {
    static NEXT: OnceLock<usize> = OnceLock::new();
    let next = *NEXT.get_or_init(|| {
        // SAFETY: looks a C string up.
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_getattr_np".as_ptr()) as usize }
    });
    // SAFETY: libc's function has this type; a null pointer is None.
    unsafe { std::mem::transmute::<usize, Option<GetAttributes>>(next) }
}

/// libc's `pthread_getattr_np`, which also knows fibers.
///
/// # Safety
/// As for libc's: `thread` is a live thread or fiber, `attributes` may be written.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "libc's callers reach it by its symbol")]
pub unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attributes: *mut libc::pthread_attr_t,
) -> c_int {
    if let Some(Known { layout, words }) = KNOWN.get() {
        let low = (thread as usize).wrapping_sub(layout.pthread.start) as *const u8;
        // SAFETY: every pthread_t is the address of a `struct pthread`, in which these lie.
        unsafe {
            if is_fiber_id(low.add(layout.tid).cast::<u32>().read()) {
                let base = low.add(layout.stack_base).cast::<*mut c_void>().read();
                let size = low.add(layout.stack_size).cast::<usize>().read();
                let failed = libc::pthread_attr_init(attributes);
                if failed != 0 {
                    return failed;
                }
                return match words {
                    Some(words) => {
                        words.set(attributes, base, size);
                        0
                    }
                    None => pthread_attr_setstack(attributes, base, size),
                };
            }
        }
    }
    match libcs() {
        // SAFETY: the caller's promises.
        Some(function) => unsafe { function(thread, attributes) },
        None => libc::ENOSYS,
    }
}

/// Makes fibers known to [`pthread_getattr_np`].
pub(super) fn know(layout: &'static Layout) {
    KNOWN.get_or_init(|| Known { layout, words: Words::find() });
}
