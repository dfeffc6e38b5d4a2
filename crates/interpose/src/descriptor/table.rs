//! The table of file descriptors.

use std::alloc::{self, Layout};
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use carefree_ground::number;

use crate::descriptor::file::File;
use crate::descriptor::process;

/// How many files a chunk of the table describes.
const CHUNK: usize = 512;
/// Enough chunks for the most descriptors that the kernel gives a process by default (`fs.nr_open`).
/// Numbers beyond have no record; fibers wait on them all the same.
const CHUNKS: usize = (1 << 20) / CHUNK;

static TABLE: [AtomicPtr<[File; CHUNK]>; CHUNKS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];

/// What is known of `fd`, if anything is.
#[inline]
pub(crate) fn known(fd: c_int) -> Option<&'static File> {
    let index = usize::try_from(fd).ok()?;
    let chunk = TABLE.get(index / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: chunks are never freed.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % CHUNK])
}

/// The record of `fd`, made if there is none; `None` for numbers beyond the table, and without memory.
#[inline]
pub(crate) fn file(fd: c_int) -> Option<&'static File> {
    known(fd).or_else(|| enter(fd))
}

#[cold]
fn enter(fd: c_int) -> Option<&'static File> {
    let slot = TABLE.get(usize::try_from(fd).ok()? / CHUNK)?;
    let layout = Layout::new::<[File; CHUNK]>();
    // SAFETY: of a size that is not 0.
    let new = unsafe { alloc::alloc(layout) }.cast::<[File; CHUNK]>();
    if new.is_null() {
        // Not an error to report: to write that memory is out would lead here again.
        return None;
    }
    // Built in place, one by one: a chunk is too large for a fiber's stack.
    for index in 0..CHUNK {
        // SAFETY: there is room for so many.
        unsafe { new.cast::<File>().add(index).write(File::new()) };
    }
    if slot.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: allocated just above, and not published. There is nothing in it to drop.
        unsafe { alloc::dealloc(new.cast(), layout) };
    }
    known(fd)
}

/// Whether fibers wait on `fd`, or it is being closed.
#[inline]
pub(crate) fn is_waited_on(fd: c_int) -> bool {
    known(fd).is_some_and(|file| file.waiters().is_waited_on())
}

/// Prepares for `fd` to be closed: fibers that wait on it give up, and what is known of it is
/// forgotten. False if another thread or fiber is closing it already, and if it is Carefree's own.
#[inline]
pub(crate) fn prepare_to_close(fd: c_int) -> bool {
    if number::is_own(fd) && !process::is_beside_parent() {
        return false;
    }
    known(fd).is_none_or(|file| file.prepare_to_close(process::is_beside_parent()))
}

/// Calls `close` with the ends of each range of numbers from `first` to `last` between those that are Carefree's own,
/// until it returns -1. Returns what it has returned last, or 0.
pub(crate) fn around_own(
    mut first: u32,
    last: u32,
    mut close: impl FnMut(u32, u32) -> c_int,
) -> c_int {
    let is_beside_parent = process::is_beside_parent();
    loop {
        let own = number::first_own(first, last).filter(|_| !is_beside_parent);
        let Some(own) = own else { return close(first, last) };
        if first < own && close(first, own - 1) == -1 {
            return -1;
        }
        if own == last {
            return 0;
        }
        first = own + 1;
    }
}

/// [`prepare_to_close`] for all from `first` to `last`.
pub(crate) fn prepare_to_close_range(first: u32, last: u32) {
    let (first, end) = (first as usize, (last as usize).saturating_add(1));
    let beside_parent = process::is_beside_parent();
    let chunks = TABLE.iter().enumerate().take(end.div_ceil(CHUNK)).skip(first / CHUNK);
    for (index, slot) in chunks {
        let begin = index * CHUNK;
        let range = begin.max(first)..(begin + CHUNK).min(end);
        // SAFETY: chunks are never freed.
        let Some(chunk) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        for fd in range {
            // One that another thread is closing at the same time is left to that.
            chunk[fd % CHUNK].prepare_to_close(beside_parent);
        }
    }
}

/// The child of a fork has none of the fibers that wait in its parent, so there is none to drive out.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        process::adopt();
        // SAFETY: the handler touches nothing but atomics.
        unsafe { libc::pthread_atfork(None, None, Some(forget_waiters)) };
    }
    mind_forks
};

unsafe extern "C" fn forget_waiters() {
    process::adopt();
    for chunk in &TABLE {
        // SAFETY: chunks are never freed.
        for file in unsafe { chunk.load(Ordering::Acquire).as_ref() }.into_iter().flatten() {
            // SAFETY: the child has one thread, and that one was forking.
            unsafe { file.waiters().renew() };
        }
    }
}
