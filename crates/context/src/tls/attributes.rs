//! `pthread_getattr_np` for fibers: garbage collectors and stack-depth checks ask it where the
//! stack of the thread they run on lies.
//!
//! libc's own would answer from the block, where the fiber's stack is noted, but on the way asks
//! the kernel for the thread's affinity by its id. The kernel does not know a fiber's id. So this
//! definition stands in front of libc's: it answers for fibers and hands over threads.
//!
//! Who asks for itself is told of the stack on which it asks: a coroutine, or a call on a stack of its
//! own, runs elsewhere than its fiber or thread. That is looked up by where the stack pointer is, and
//! not noted at each switch, so it cannot get out of step with coroutines that are suspended within
//! such calls.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::block::is_fiber_id;
use super::layout::Layout;
use crate::stack;

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

/// Where the caller's frame is.
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: reads a register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    here
}

/// The stack that is used here, if it is a coroutine's or a call's own, as lowest address and length.
fn elsewhere(thread: libc::pthread_t) -> Option<(usize, usize)> {
    // SAFETY: no preconditions.
    if thread != unsafe { libc::pthread_self() } {
        return None;
    }
    let stack = stack::find(stack_pointer())?;
    let base = stack.base + stack.guard;
    Some((base, stack.top - base))
}

/// Notes a stack in attributes that are initialised.
///
/// # Safety
/// They are.
unsafe fn set(
    words: &Option<Words>,
    attributes: *mut libc::pthread_attr_t,
    base: usize,
    size: usize,
) -> c_int {
    let base = std::ptr::without_provenance_mut(base);
    // SAFETY: the caller's promise.
    unsafe {
        match words {
            Some(words) => {
                words.set(attributes, base, size);
                0
            }
            None => pthread_attr_setstack(attributes, base, size),
        }
    }
}

/// libc's `pthread_getattr_np`, which also knows fibers and coroutines.
///
/// # Safety
/// As for libc's: `thread` is a live thread or fiber, `attributes` may be written.
#[cfg_attr(target_env = "gnu", unsafe(no_mangle))]
#[allow(unreachable_pub, reason = "libc's callers reach it by its symbol")]
pub unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attributes: *mut libc::pthread_attr_t,
) -> c_int {
    let known = KNOWN.get();
    if let Some(Known { layout, words }) = known {
        let low = (thread as usize).wrapping_sub(layout.pthread.start) as *const u8;
        // SAFETY: every pthread_t is the address of a `struct pthread`, in which these lie.
        unsafe {
            if is_fiber_id(low.add(layout.tid).cast::<u32>().read()) {
                let base = low.add(layout.stack_base).cast::<usize>().read();
                let size = low.add(layout.stack_size).cast::<usize>().read();
                let failed = libc::pthread_attr_init(attributes);
                if failed != 0 {
                    return failed;
                }
                let is_own = (base..base + size).contains(&stack_pointer());
                let away = if is_own { None } else { elsewhere(thread) };
                let (base, size) = away.unwrap_or((base, size));
                return set(words, attributes, base, size);
            }
        }
    }
    let Some(function) = libcs() else { return libc::ENOSYS };
    // SAFETY: the caller's promises.
    let failed = unsafe { function(thread, attributes) };
    match known.and_then(|known| Some((known, elsewhere(thread)?))) {
        // SAFETY: libc has initialised them.
        Some((known, (base, size))) if failed == 0 => unsafe {
            set(&known.words, attributes, base, size)
        },
        _ => failed,
    }
}

/// Makes fibers known to [`pthread_getattr_np`].
pub(super) fn know(layout: &'static Layout) {
    KNOWN.get_or_init(|| Known { layout, words: Words::find() });
}
