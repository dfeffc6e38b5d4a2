//! Turns: what one fiber at a time may do with a file.
//!
//! The kernel holds a lock of the file's over a call that we make in several steps. So who makes the
//! steps has the file's turn meanwhile, and others of this process wait for it. A file is known by its
//! inode, for it may go by several numbers.
//!
//! Who has a turn is in a list, by a record in its own frame: the lists have no limit and allocate
//! nothing, since the program's allocator could park whoever has one locked.
//!
//! *No turn is missed.* Who waits asks whether the turn is taken as the lot's `validate`; who had it
//! leaves the list first and then unparks. See [`carefree_runtime::lot`].

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use carefree_context::kernel;
use carefree_context::lock::Lock;
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Outcome, Reason, lot};

use crate::parking::interruption;

/// A file, whatever its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
}

/// Who has a turn; it stays where it is while it is in a list.
struct Holder {
    file: Identity,
    next: Cell<*const Holder>,
}

/// Some of those who have turns.
struct List(*const Holder);

// SAFETY: the records in a list live while they are in it, and are reached under its lock only.
unsafe impl Send for List {}

const LISTS: usize = 64;
static TAKEN: [Lock<List>; LISTS] = [const { Lock::new(List(ptr::null())) }; LISTS];

impl List {
    fn has(&self, file: Identity) -> bool {
        let mut next = self.0;
        // SAFETY: a record in the list lives.
        while let Some(holder) = unsafe { next.as_ref() } {
            if holder.file == file {
                return true;
            }
            next = holder.next.get();
        }
        false
    }

    /// Puts `holder` in unless its file's turn is taken; whether it was put in.
    fn enter(&mut self, holder: &Holder) -> bool {
        if self.has(holder.file) {
            return false;
        }
        holder.next.set(self.0);
        self.0 = holder;
        true
    }

    fn leave(&mut self, holder: &Holder) {
        let next = holder.next.get();
        if ptr::eq(self.0, holder) {
            self.0 = next;
            return;
        }
        let mut before = self.0;
        // SAFETY: a record in the list lives.
        while let Some(other) = unsafe { before.as_ref() } {
            if ptr::eq(other.next.get(), holder) {
                other.next.set(next);
                return;
            }
            before = other.next.get();
        }
    }
}

impl Identity {
    fn of(fd: c_int) -> Result<Identity, c_int> {
        let mut status = MaybeUninit::<libc::stat>::uninit();
        let arguments = [fd as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0];
        // SAFETY: there is room for the answer; the layout is the kernel's own on 64-bit machines.
        unsafe { kernel::call(libc::SYS_fstat, arguments) }?;
        // SAFETY: the call has succeeded and so filled it.
        let status = unsafe { status.assume_init() };
        Ok(Identity { device: status.st_dev, inode: status.st_ino })
    }

    fn list(self) -> &'static Lock<List> {
        &TAKEN[self.inode as usize % LISTS]
    }

    /// Names the waits for its turn. Not an address that anybody could have, nor a name of `files`.
    fn key(self) -> usize {
        1 << 63 | 1 << 61 | (self.inode as usize & ((1 << 61) - 1))
    }
}

/// Calls `f` when it is the caller's turn with the file `fd`, which it is until `f` is over.
///
/// # Errors
/// `late` when it was others' turn until `deadline`; why the fiber was interrupted while it waited;
/// that there is no such file.
pub(crate) fn in_turn<R>(
    fd: c_int,
    reason: Reason,
    deadline: u64,
    late: c_int,
    f: impl FnOnce() -> R,
) -> Result<R, c_int> {
    struct Entered<'h>(&'h Holder);

    impl Drop for Entered<'_> {
        fn drop(&mut self) {
            let file = self.0.file;
            file.list().lock().leave(self.0);
            lot::unpark(file.key(), usize::MAX);
        }
    }

    let file = Identity::of(fd)?;
    let holder = Holder { file, next: Cell::new(ptr::null()) };
    while !file.list().lock().enter(&holder) {
        let is_taken = || file.list().lock().has(file);
        let until = Until { deadline, cancellable: true };
        let outcome = wait::park(file.key(), is_taken, reason, until);
        carefree_runtime::interrupted().map_err(interruption)?;
        if outcome == Outcome::TimedOut {
            return Err(late);
        }
    }
    let _entered = Entered(&holder);
    Ok(f())
}

/// In the child of a fork nobody has a turn.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn renew() {
            // SAFETY: the child has one thread, and that one was forking.
            TAKEN.iter().for_each(|list| unsafe { list.renew(List(ptr::null())) });
        }
        // SAFETY: the handler touches nothing but the lists.
        unsafe { libc::pthread_atfork(None, None, Some(renew)) };
    }
    mind_forks
};
