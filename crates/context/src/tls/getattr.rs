//! `pthread_getattr_np` for fibers: garbage collectors and stack-depth checks call it to find the
//! stack of the thread that they run on.
//!
//! libc's own function would answer from the block, which has the fiber's stack, but also asks the
//! kernel for the thread's affinity by its id. The kernel does not know a fiber's id. So this
//! definition interposes libc's: it answers for fibers and passes threads on.
//!
//! A fiber or thread that asks for itself is told of the stack that it is using: a coroutine, or a
//! call on a stack of its own, runs elsewhere than its fiber or thread. That stack is looked up by
//! the stack pointer. It is not recorded at each switch, so it cannot get out of step with
//! coroutines that are suspended within such calls.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::glibc::pthread_attr_setstack;
use super::ids::is_fiber_id;
use super::layout::Layout;
use crate::stack;

type GetAttributes = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;

/// What is known once there may be fibers.
struct Known {
    layout: &'static Layout,
    words: Option<Words>,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

/// Completes the attributes of a fiber that its host knows more of; returns an `errno`, or 0.
///
/// # Safety
/// The first argument is a fiber's `pthread_t`; the attributes are initialised.
pub type Complete = unsafe fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;

static COMPLETE: OnceLock<Complete> = OnceLock::new();

/// Has `complete` called for the attributes of each fiber that `pthread_getattr_np` tells.
pub fn complete_attributes(complete: Complete) {
    COMPLETE.get_or_init(|| complete);
}

/// Which words of a `pthread_attr_t` hold the stack's end and its length.
///
/// `pthread_attr_setstack` writes them, but refuses stacks shorter than a thread's minimum (16 KiB,
/// and more where vector registers are long). A fiber's may be shorter.
#[derive(Clone, Copy)]
struct Words {
    end: usize,
    size: usize,
}

impl Words {
    /// Finds the words by setting a stack with an unusual address and length.
    fn find() -> Option<Words> {
        const BASE: usize = 0x1234_5678_9000;
        const SIZE: usize = 0x7654_3000;
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised before use and destroyed after; the stack is only
        // stored in them, and not accessed.
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

    /// Writes a stack into attributes.
    ///
    /// # Safety
    /// The attributes are initialised.
    unsafe fn set(self, attributes: *mut libc::pthread_attr_t, base: *mut c_void, size: usize) {
        let words = attributes.cast::<usize>();
        // SAFETY: `find` has found both as words of such a structure.
        unsafe {
            words.add(self.end).write(base as usize + size);
            words.add(self.size).write(size);
        }
    }
}

#[cfg(target_feature = "crt-static")]
fn original() -> Option<GetAttributes> {
    unsafe extern "C" {
        // glibc's internal name; `pthread_getattr_np` is a weak alias of it.
        fn __pthread_getattr_np(
            thread: libc::pthread_t,
            attributes: *mut libc::pthread_attr_t,
        ) -> c_int;
    }
    Some(__pthread_getattr_np)
}

#[cfg(not(target_feature = "crt-static"))]
fn original() -> Option<GetAttributes> {
    static NEXT: OnceLock<usize> = OnceLock::new();
    let next = *NEXT.get_or_init(|| crate::object::next(c"pthread_getattr_np", None) as usize);
    // SAFETY: libc's function has this type; a null pointer is None.
    unsafe { std::mem::transmute::<usize, Option<GetAttributes>>(next) }
}

/// The address of the caller's frame.
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: only reads a register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    here
}

/// The stack in use here, if `thread` is the caller and the stack a coroutine's or a call's own, as
/// lowest address and length.
fn other_stack(thread: libc::pthread_t) -> Option<(usize, usize)> {
    // SAFETY: no preconditions.
    if thread != unsafe { libc::pthread_self() } {
        return None;
    }
    let stack = stack::find(stack_pointer())?;
    let base = stack.base + stack.guard;
    Some((base, stack.top - base))
}

/// Writes a stack into attributes.
///
/// # Safety
/// The attributes are initialised.
unsafe fn set(
    words: &Option<Words>,
    attributes: *mut libc::pthread_attr_t,
    base: usize,
    size: usize,
) -> c_int {
    let base = std::ptr::without_provenance_mut(base);
    // SAFETY: the attributes are initialised.
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

// The library or program that this is a part of calls this one, even if its host's calls find libc's.
#[cfg(not(target_feature = "crt-static"))]
std::arch::global_asm!(".protected pthread_getattr_np");

/// libc's `pthread_getattr_np`, which also knows fibers and coroutines.
///
/// # Safety
/// As for libc's: `thread` is a live thread or fiber, `attributes` is writable.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "libc's callers reach it by its symbol")]
pub unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attributes: *mut libc::pthread_attr_t,
) -> c_int {
    let known = KNOWN.get();
    if let Some(Known { layout, words }) = known {
        let low = (thread as usize).wrapping_sub(layout.pthread.start) as *const u8;
        // SAFETY: a pthread_t is the address of a live `struct pthread`, in which the three words
        // lie. A fiber's are not written while it lives. `attributes` is writable.
        unsafe {
            if is_fiber_id(low.add(layout.tid).cast::<u32>().read()) {
                let base = low.add(layout.stack_base).cast::<usize>().read();
                let size = low.add(layout.stack_size).cast::<usize>().read();
                let failed = libc::pthread_attr_init(attributes);
                if failed != 0 {
                    return failed;
                }
                let is_own = (base..base + size).contains(&stack_pointer());
                let away = if is_own { None } else { other_stack(thread) };
                let (base, size) = away.unwrap_or((base, size));
                let failed = set(words, attributes, base, size);
                return match COMPLETE.get() {
                    Some(complete) if failed == 0 => complete(thread, attributes),
                    _ => failed,
                };
            }
        }
    }
    let Some(function) = original() else { return libc::ENOSYS };
    // SAFETY: libc's function, with the arguments of a call of libc's function.
    let failed = unsafe { function(thread, attributes) };
    match known.and_then(|known| Some((known, other_stack(thread)?))) {
        // SAFETY: libc's function has initialised the attributes.
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
