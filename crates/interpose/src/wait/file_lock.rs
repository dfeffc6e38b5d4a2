//! Locks between this process's fibers: one at a time does something with a file.
//!
//! The kernel holds a lock of its own over a call that is made here in several steps. So the fiber that
//! makes the steps holds the file's lock meanwhile, and the process's other fibers wait for it. And of
//! the fibers that wait for the same `flock` or `fcntl` lock, or for a message of the same POSIX queue, only the one
//! that holds the lock here asks the kernel ([`file::lock`](crate::file::lock)). A file is known by its inode, because several numbers
//! can refer to it.
//!
//! A lock exists while a fiber holds it: as an entry in that fiber's frame, which is in a list. The lists
//! have no limit and allocate nothing; the program's allocator could park a fiber while that holds a list
//! locked. Waiters form a ring with the holder, in the order of their arrival. A holder that leaves hands
//! the lock to the next in the ring, which takes over its place in the list: each release wakes one
//! waiter, and no newcomer can take the lock before that one.
//!
//! *No hand-over is missed.* The lock is handed over under the list's lock, and then the new holder is
//! unparked, whose `validate` in the lot asks whether it holds the lock ([`carefree_runtime::lot`]). A
//! waiter whose wait ends otherwise leaves the ring under the list's lock as well; if it has become the
//! holder by then, it hands the lock on.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::lock::Lock;
use carefree_reactor::clock::NEVER;
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Outcome, Reason, clock, lot};

use crate::call::answer::check_cut;
use crate::call::host;
use crate::call::sys;

/// A file, whatever its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: libc::dev_t,
    inode: libc::ino_t,
}

/// What the lock is held for. Locks for different purposes do not exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A call in several steps.
    Steps,
    /// Waiting for a message (`POLLIN`), or for room for one.
    Turn { events: i16 },
    /// Asking the kernel for a lock: the command, the kind, and the range.
    Lock { command: c_int, kind: c_int, start: i64, length: i64 },
}

/// What names a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileLock {
    pub(crate) file: FileId,
    pub(crate) purpose: Purpose,
}

/// A fiber that holds a lock or waits for it. It does not move between [`enter`](Entry::enter) and
/// [`leave`](Entry::leave).
struct Entry {
    lock: FileLock,
    /// Whether it holds the lock: set under the list's lock, and never cleared.
    holds: AtomicBool,
    /// The neighbours in the ring, which is the holder and its waiters in their order.
    next: Cell<*const Entry>,
    previous: Cell<*const Entry>,
    /// The next holder in the list.
    next_holder: Cell<*const Entry>,
}

/// The holders of some locks.
struct Holders(*const Entry);

// SAFETY: entries in a list and its rings live as long as they are in there, and are reached only under
// the list's lock.
unsafe impl Send for Holders {}

const LISTS: usize = 1024;
static HELD: [Lock<Holders>; LISTS] = [const { Lock::new(Holders(ptr::null())) }; LISTS];

impl FileId {
    pub(crate) fn of(fd: c_int) -> Result<FileId, c_int> {
        let status = sys::status(fd)?;
        Ok(FileId { device: status.st_dev, inode: status.st_ino })
    }

    /// A number that two files rarely have in common.
    pub(crate) fn hash(self) -> u64 {
        (self.inode ^ self.device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl FileLock {
    fn list(self) -> &'static Lock<Holders> {
        let more = match self.purpose {
            Purpose::Lock { start, length, .. } => (start ^ length.rotate_left(32)) as u64,
            Purpose::Turn { events } => events as u64,
            Purpose::Steps => 0,
        };
        let hash = (self.file.hash() ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &HELD[(hash >> 32) as usize % LISTS]
    }
}

impl Holders {
    /// The holder of `lock`.
    fn holder(&self, lock: FileLock) -> Option<&Entry> {
        let mut next = self.0;
        // SAFETY: an entry in the list lives.
        while let Some(entry) = unsafe { next.as_ref() } {
            if entry.lock == lock {
                return Some(entry);
            }
            next = entry.next_holder.get();
        }
        None
    }

    /// Puts `new` into the list in place of `old`; just removes `old` if `new` is null.
    fn replace(&mut self, old: &Entry, new: *const Entry) {
        let mut following = old.next_holder.get();
        // SAFETY: an entry that waits in a ring lives.
        if let Some(new) = unsafe { new.as_ref() } {
            new.next_holder.set(following);
            following = new;
        }
        if ptr::eq(self.0, old) {
            self.0 = following;
            return;
        }
        let mut before = self.0;
        // SAFETY: an entry in the list lives.
        while let Some(entry) = unsafe { before.as_ref() } {
            if ptr::eq(entry.next_holder.get(), old) {
                entry.next_holder.set(following);
                return;
            }
            before = entry.next_holder.get();
        }
    }
}

impl Entry {
    fn new(lock: FileLock) -> Entry {
        let [next, previous, next_holder] = [const { Cell::new(ptr::null()) }; 3];
        Entry { lock, holds: AtomicBool::new(false), next, previous, next_holder }
    }

    fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }

    /// Takes the lock, or joins the end of the ring.
    fn enter(&self) -> Entered<'_> {
        let mut list = self.lock.list().lock();
        match list.holder(self.lock) {
            Some(holder) => {
                let last = holder.previous.get();
                self.next.set(holder);
                self.previous.set(last);
                holder.previous.set(self);
                // SAFETY: entries in the ring live; the last may be the holder itself.
                unsafe { (*last).next.set(self) };
            }
            None => {
                self.next.set(self);
                self.previous.set(self);
                self.next_holder.set(list.0);
                self.holds.store(true, Ordering::Relaxed);
                list.0 = self;
            }
        }
        Entered(self)
    }

    /// Leaves the ring, and hands over the lock if it is the holder.
    fn leave(&self) {
        let mut list = self.lock.list().lock();
        let (next, previous) = (self.next.get(), self.previous.get());
        // SAFETY: entries in the ring live.
        unsafe {
            (*previous).next.set(next);
            (*next).previous.set(previous);
        }
        if !self.holds() {
            return;
        }
        if ptr::eq(next, self) {
            return list.replace(self, ptr::null());
        }
        list.replace(self, next);
        // SAFETY: `next` is another fiber's entry. It stays at least until that fiber is told that it holds the
        // lock, or takes `list`, which this one still has.
        unsafe { (*next).holds.store(true, Ordering::Release) };
        drop(list);
        // The entry may be gone by now. Then another one with the same address is woken, if any, and asks
        // again whether it holds its lock: keys of this form are used for nothing else.
        lot::unpark(Entry::key(next), 1);
    }

    /// The key that an entry's fiber waits by: no address, and no key of `file::lock`'s.
    fn key(entry: *const Entry) -> usize {
        1 << 63 | 1 << 61 | entry as usize
    }
}

/// An entry that leaves when this is dropped.
struct Entered<'e>(&'e Entry);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Parameters of a wait for a lock.
pub(crate) struct LockWait {
    pub(crate) reason: Reason,
    pub(crate) deadline: u64,
    /// The `errno` if the lock is not had by the deadline.
    pub(crate) late: c_int,
    /// After how many nanoseconds, each time, the waiter looks whether it can do without the lock.
    pub(crate) looks: u64,
    /// Whether no hosted thread is cancelled at it.
    pub(crate) steady: bool,
}

/// Calls `f` with the lock held. While it waits for the lock it calls `look` now and then, whose answer
/// serves as well.
///
/// # Errors
/// `late` if the lock is not had by the deadline; why the fiber was interrupted while it waited.
pub(crate) fn with_lock_unless<R>(
    lock: FileLock,
    wait: &LockWait,
    mut look: impl FnMut() -> Option<R>,
    f: impl FnOnce() -> R,
) -> Result<R, c_int> {
    let &LockWait { reason, deadline, late, looks, steady } = wait;
    let entry = Entry::new(lock);
    let _entered = entry.enter();
    while !entry.holds() {
        let next_look = clock::now().saturating_add(looks);
        let until =
            Until { deadline: deadline.min(next_look), cancellable: host::can_be_cut(steady) };
        let outcome = wait::park(Entry::key(&entry), || !entry.holds(), reason, until);
        count(outcome);
        check_cut(outcome, steady)?;
        if outcome == Outcome::TimedOut && !entry.holds() {
            if deadline <= clock::now() {
                return Err(late);
            }
            if let Some(answer) = look() {
                return Ok(answer);
            }
        }
    }
    Ok(f())
}

/// Calls `f` with the lock of the file `fd` held.
///
/// # Errors
/// As for [`with_lock_unless`]; that there is no such file.
pub(crate) fn with_file_lock<R>(
    fd: c_int,
    reason: Reason,
    deadline: u64,
    late: c_int,
    f: impl FnOnce() -> R,
) -> Result<R, c_int> {
    let lock = FileLock { file: FileId::of(fd)?, purpose: Purpose::Steps };
    let wait = LockWait { reason, deadline, late, looks: NEVER, steady: false };
    with_lock_unless(lock, &wait, || None, f)
}

/// Calls `f` with each lock that is held. It must not park, nor take such locks.
pub(crate) fn for_each_held(mut f: impl FnMut(FileLock)) {
    for list in &HELD {
        let list = list.lock();
        let mut next = list.0;
        // SAFETY: an entry in the list lives.
        while let Some(entry) = unsafe { next.as_ref() } {
            f(entry.lock);
            next = entry.next_holder.get();
        }
    }
}

/// How many waits, for these locks and between polls, an unpark has ended.
#[cfg(test)]
pub(crate) static WAKES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Counts the wakes, in this crate's own tests.
#[inline(always)]
pub(crate) fn count(_outcome: Outcome) {
    #[cfg(test)]
    if _outcome == Outcome::Unparked {
        WAKES.fetch_add(1, Ordering::SeqCst);
    }
}

/// How many locks are held.
#[cfg(test)]
pub(crate) fn held() -> usize {
    let mut count = 0;
    for_each_held(|_| count += 1);
    count
}

/// How many fibers wait for locks.
#[cfg(test)]
pub(crate) fn waiting() -> usize {
    let mut count = 0;
    for list in &HELD {
        let list = list.lock();
        let mut first = list.0;
        // SAFETY: an entry stays while it is in a list, and leaves it under `list`, which is locked here.
        while let Some(entry) = unsafe { first.as_ref() } {
            let mut next = entry.next.get();
            while !ptr::eq(next, entry) {
                count += 1;
                // SAFETY: and so does the next one in the ring, while `list` is locked.
                next = unsafe { (*next).next.get() };
            }
            first = entry.next_holder.get();
        }
    }
    count
}

/// In the child of a fork no lock is held.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn renew() {
            // SAFETY: the child has one thread, and that one was forking.
            HELD.iter().for_each(|list| unsafe { list.renew(Holders(ptr::null())) });
        }
        // SAFETY: the handler touches nothing but the lists.
        unsafe { libc::pthread_atfork(None, None, Some(renew)) };
    }
    mind_forks
};
