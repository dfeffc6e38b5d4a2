//! The list of this process's runtimes that have not ended.

use carefree_ground::fork_lock::ForkLock;
use carefree_ground::mapped::Mapped;

use crate::carrier::carrier::Shared;
use crate::protocol::sync::Ordering;

/// The address of the first runtime, or 0; each runtime has the address of the next. Nothing is
/// allocated under the lock, for reports must come even where the program's allocator hangs. But a visit may wait for that
/// allocator in what it calls.
static RUNTIMES: ForkLock<usize> = ForkLock::new(0);

/// Adds a runtime to the list, which it is taken out of before it is freed.
pub(crate) fn register(runtime: &Shared) {
    let mut first = RUNTIMES.lock();
    runtime.next.store(0, Ordering::Relaxed);
    let address = std::ptr::from_ref(runtime) as usize;
    match listed(*first).last() {
        Some(last) => last.next.store(address, Ordering::Relaxed),
        None => *first = address,
    }
}

/// Takes a runtime out of the list, if it is in there.
pub(crate) fn unregister(runtime: &Shared) {
    let address = std::ptr::from_ref(runtime) as usize;
    let mut first = RUNTIMES.lock();
    let next = runtime.next.load(Ordering::Relaxed);
    if *first == address {
        *first = next;
        return;
    }
    // In the child of a fork, the parent's runtimes are not in the list.
    let mut others = listed(*first);
    if let Some(before) = others.find(|other| other.next.load(Ordering::Relaxed) == address) {
        before.next.store(next, Ordering::Relaxed);
    }
}

/// The runtimes from the one at `address` on, which is in the list. The caller holds [`RUNTIMES`].
fn listed<'a>(address: usize) -> impl Iterator<Item = &'a Shared> {
    // SAFETY: a runtime in the list is there: before it is freed it takes itself out, for which it needs
    // the lock.
    let at = |address: usize| unsafe { (address as *const Shared).as_ref() };
    std::iter::successors(at(address), move |other| at(other.next.load(Ordering::Relaxed)))
}

/// Locks the list until it is [released](release), if it is free before long: see `process::fork`.
pub(crate) fn hold() {
    RUNTIMES.hold();
}

/// Unlocks the list.
///
/// # Safety
/// [`hold`] was called, on this thread or, in the child of a fork, on its parent's.
pub(crate) unsafe fn release() {
    // SAFETY: as this function demands.
    unsafe { RUNTIMES.release() };
}

/// Unlocks the list in the child of a fork, also if a thread of the parent's was visiting it.
///
/// # Safety
/// The caller is the only thread, and did not use the list when it forked.
pub(crate) unsafe fn reopen() {
    // SAFETY: as this function demands. Visits change nothing, and each change is one store of a word, before and after which
    // the list is whole.
    unsafe { RUNTIMES.reopen() };
}

/// Forgets the runtimes: in the child of a fork.
pub(crate) fn renew() {
    *RUNTIMES.lock() = 0;
}

/// Calls `visit` for each runtime in the list, which is locked meanwhile. `visit` must not allocate.
pub(crate) fn for_each(visit: impl FnMut(&Shared)) {
    let first = RUNTIMES.lock();
    listed(*first).for_each(visit);
}

/// A way to visit runtimes without the lock on their list. It keeps the memory that it needs for that,
/// which is not the program's allocator's; nor does a visitor own a part of a runtime, which it would have to
/// free as the last owner.
#[derive(Debug)]
pub(crate) struct Visits(Mapped<*const Shared>);

// SAFETY: it is empty but during a visit, which borrows it exclusively.
unsafe impl Send for Visits {}

impl Visits {
    /// Begins without memory.
    pub(crate) const fn new() -> Visits {
        Visits(Mapped::new())
    }

    /// Calls `visit` for each runtime in the list, as many as there is memory to note. None of them is freed before
    /// its visit is over.
    pub(crate) fn for_each(&mut self, mut visit: impl FnMut(&Shared)) {
        for_each(|runtime| {
            if self.0.push(runtime) {
                runtime.visit();
            }
        });
        for runtime in self.0.iter() {
            // SAFETY: it was in the list when it counted this visitor, and is not freed before `leave` below, which is
            // the last access.
            let runtime = unsafe { &**runtime };
            visit(runtime);
            runtime.leave();
        }
        self.0.truncate(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_last_owner_frees_a_runtime_after_the_visits() {
        let runtime = Shared::new("visited", 1, None);
        register(&runtime);
        let (weak, mut owner, mut freeing) = (Arc::downgrade(&runtime), Some(runtime), None);
        Visits::new().for_each(|visited| {
            if visited.name != "visited" {
                return;
            }
            let owned = owner.take();
            let last = freeing.insert(thread::spawn(move || drop(owned)));
            // It goes although it is visited...
            let late = Instant::now() + Duration::from_secs(10);
            while weak.strong_count() > 0 && Instant::now() < late {
                thread::yield_now();
            }
            assert_eq!(weak.strong_count(), 0, "a visitor owns a part");
            // ...and what is visited is there until then.
            thread::sleep(Duration::from_millis(5));
            assert!(!last.is_finished());
            assert_eq!(visited.carriers.len(), 1);
        });
        freeing.expect("it was in the list").join().expect("it does not panic");
    }
}
