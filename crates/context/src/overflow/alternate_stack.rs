//! Alternate signal stacks, on which the handler runs.

use std::cell::Cell;
use std::io;
use std::mem;
use std::ptr;

use crate::stack::sys;

/// Gives the calling kernel thread an alternate signal stack if it has none; it is freed when the
/// thread ends.
///
/// Threads of the Rust standard library have one already. To be called on threads that C code started
/// and that run coroutines.
///
/// ```
/// // On a thread of std: does nothing.
/// carefree_context::overflow::ensure_alternate_stack()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// When there is no memory for it.
pub fn ensure_alternate_stack() -> io::Result<()> {
    if has_none(&current_alternate()) {
        // In a thread that is ending, whose thread-locals are destroyed, the mapping is leaked.
        let map = mem::ManuallyDrop::new(AlternateStack::set(NO_STACK)?).map;
        let _ = OWN.try_with(|slot| slot.0.set(map));
    }
    Ok(())
}

thread_local! {
    /// Every fiber has its copy of this variable, so it holds the address alone.
    static OWN: Own = const { Own(Cell::new(ptr::null_mut())) };
}

/// The mapping of an [`AlternateStack`]; null if there is none.
struct Own(Cell<*mut libc::c_void>);

impl Drop for Own {
    fn drop(&mut self) {
        if !self.0.get().is_null() {
            drop(AlternateStack { map: self.0.get(), before: NO_STACK });
        }
    }
}

/// An alternate signal stack, in a mapping with a guard; dropped, the thread has the one that it had before. Dropped
/// on another kernel thread than the one that made it, it stays mapped.
///
/// [`ensure_alternate_stack`] frees one by a thread-local variable with a destructor, for which libc takes the loader's
/// lock; a thread that must not wait for that keeps one of these.
#[derive(Debug)]
pub struct AlternateStack {
    map: *mut libc::c_void,
    before: libc::stack_t,
}

/// What a thread has that has set none.
const NO_STACK: libc::stack_t =
    libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };

impl AlternateStack {
    /// One for the calling kernel thread, unless that has one as large. (Those of std's threads have a few pages, which
    /// suffice for std's own handler, but not for those of programs.)
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new() -> io::Result<Option<AlternateStack>> {
        let before = current_alternate();
        if !has_none(&before) && before.ss_size >= alternate_bytes() {
            return Ok(None);
        }
        AlternateStack::set(before).map(Some)
    }

    /// One for the calling kernel thread, which has `before`.
    fn set(before: libc::stack_t) -> io::Result<AlternateStack> {
        let page = sys::page_size();
        let bytes = mapped_bytes() - page;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, used for nothing else: its lowest page becomes a guard, the rest this
        // thread's alternate stack.
        unsafe {
            let map = libc::mmap(ptr::null_mut(), page + bytes, protection, flags, -1, 0);
            if map == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let base = map.byte_add(page);
            let request = libc::stack_t { ss_sp: base, ss_flags: 0, ss_size: bytes };
            if libc::mprotect(map, page, libc::PROT_NONE) != 0
                || libc::sigaltstack(&raw const request, ptr::null_mut()) != 0
            {
                let error = io::Error::last_os_error();
                libc::munmap(map, page + bytes);
                return Err(error);
            }
            Ok(AlternateStack { map, before })
        }
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        let (map, bytes) = (self.map, mapped_bytes());
        let current = current_alternate();
        // A fiber with thread-locals of its own may have made it on one kernel thread and end
        // on another, and the program may have set another stack since. Then the mapping may be in
        // use and is leaked.
        if !has_none(&current)
            && (map as usize..map as usize + bytes).contains(&(current.ss_sp as usize))
        {
            // SAFETY: what the thread had before is still there: it lasts until the thread ends. The memory is unmapped
            // only after the kernel has stopped using it. The kernel refuses that while the thread is on this stack.
            unsafe {
                if libc::sigaltstack(&raw const self.before, ptr::null_mut()) == 0 {
                    libc::munmap(map, bytes);
                }
            }
        }
    }
}

fn has_none(stack: &libc::stack_t) -> bool {
    stack.ss_flags & libc::SS_DISABLE != 0
}

fn current_alternate() -> libc::stack_t {
    let mut current = NO_STACK;
    // SAFETY: only writes to `current`.
    unsafe { libc::sigaltstack(ptr::null(), &raw mut current) };
    current
}

/// The size of the mapping for an alternate stack, whose lowest page is a guard.
fn mapped_bytes() -> usize {
    let page = sys::page_size();
    page + alternate_bytes().next_multiple_of(page)
}

/// The size of an alternate stack: what the kernel pushes for a signal (which depends on the
/// processor's registers), and room for the handler, a describer, and the handler that a signal is
/// passed on to: a program's, which may use as much as the alternate stacks that programs set commonly have. (It
/// takes memory only where it is used.)
fn alternate_bytes() -> usize {
    const ROOM: usize = 256 * 1024;
    const AT_MINSIGSTKSZ: libc::c_ulong = 51;
    // SAFETY: no preconditions.
    let least = unsafe { libc::getauxval(AT_MINSIGSTKSZ) } as usize;
    least.max(libc::MINSIGSTKSZ) + ROOM
}
