//! A header's names: writing them for reports, which hold no reference, and for the fiber itself.

use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering;
use std::thread;

use carefree_ground::lock::Lock;

use crate::fiber::header::Header;
use crate::fiber::names::{KernelName, Names};
use crate::fiber::standard::{self, Prepared};

/// Locks under which a name is read without a counted reference, and under which names are taken from a
/// header. (A report must not count a reference: to give back the last one frees the names, by the program's
/// allocator, which may hang.) Each header has one of these.
static GLANCES: [Lock<()>; 64] = [const { Lock::new(()) }; 64];

/// Makes these locks new: in the child of a fork.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    for lock in &GLANCES {
        // SAFETY: there is one thread, and it does not have the lock.
        unsafe { lock.renew(()) };
    }
}

impl Header {
    /// Takes the names out, when no counted reference is left. To drop them calls the program's allocator.
    pub(crate) fn take_names(&self) -> Option<Box<Names>> {
        let names = self.names.load(Ordering::Relaxed);
        if names.is_null() {
            return None;
        }
        {
            let _no_glances = self.glance().lock();
            self.names.store(ptr::null_mut(), Ordering::Relaxed);
        }
        // SAFETY: `Names::given` or `ensure_names` has made it by a box. Users with a counted reference are gone.
        // Others read names under the lock only: they were done before it was taken here, or find null after.
        Some(unsafe { Box::from_raw(names) })
    }

    /// The header's lock among [`GLANCES`].
    fn glance(&self) -> &'static Lock<()> {
        let index = ptr::from_ref(self) as usize / size_of::<Header>();
        &GLANCES[index % GLANCES.len()]
    }

    /// Writes the name that was given to fiber `number`, if it has one and the header is still its
    /// own, with `before` and `after` around it. For callers without a counted reference.
    pub(crate) fn write_name(
        &self,
        number: u64,
        [before, after]: [&str; 2],
        out: &mut impl fmt::Write,
    ) -> fmt::Result {
        let _glance = self.glance().lock();
        // SAFETY: names that are in the header while this has the lock are freed later.
        let names = unsafe { self.names.load(Ordering::Acquire).as_ref() };
        // The number is written before the names, so it is right for the names that were read.
        let own = self.id.load(Ordering::Relaxed) == number;
        match names.filter(|_| own).and_then(|names| names.given.as_deref()) {
            Some(name) => write!(out, "{before}{name}{after}"),
            None => Ok(()),
        }
    }

    /// Has std make a handle for a new fiber, if that has a name. Allocates: the caller must be
    /// [`without_parking`](crate::fiber::current::without_parking).
    pub(crate) fn prepare_standard(&self) {
        let Some(names) = self.names() else { return };
        if let Some(prepared) = names.given.as_deref().and_then(standard::prepare) {
            let _ = names.standard.set(prepared.thread().clone());
            names.prepared.set(Some(prepared));
        }
    }

    /// Takes what std has prepared for the calling fiber.
    #[inline(always)]
    pub(crate) fn take_prepared(&self) -> Option<Prepared> {
        self.names().and_then(|names| names.prepared.take())
    }

    /// The names, for a caller with a counted reference.
    pub(crate) fn names(&self) -> Option<&Names> {
        // SAFETY: set once, when the fiber is made or by `ensure_names`, and freed with the last counted
        // reference.
        unsafe { self.names.load(Ordering::Acquire).as_ref() }
    }

    /// The names; if there are none, `new` becomes them. Allocates: the caller must be
    /// [`without_parking`](crate::fiber::current::without_parking).
    pub(crate) fn ensure_names(&self, new: Names) -> &Names {
        if let Some(names) = self.names() {
            return names;
        }
        let new = Box::into_raw(Box::new(new));
        let set =
            self.names.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: made by a box above, and not put into the header.
            drop(unsafe { Box::from_raw(new) });
        }
        self.names().expect("set here or by another thread")
    }

    /// The name given by the fiber's `Builder`, if any; of a thread, std's.
    pub(crate) fn name(&self) -> Option<&str> {
        self.names().and_then(|names| names.given.as_deref())
    }

    /// std's handle to the fiber, if it is known.
    pub(crate) fn standard(&self) -> Option<&thread::Thread> {
        self.names().and_then(|names| names.standard.get())
    }

    /// Notes std's handle to the calling fiber or thread. Allocates: the caller must be
    /// [`without_parking`](crate::fiber::current::without_parking), or a thread.
    pub(crate) fn note_standard(&self, handle: thread::Thread) {
        let names = self.ensure_names(Names::new(None, KernelName::default()));
        // If one was noted before, it is the same: a fiber has one handle of std's.
        let _ = names.standard.set(handle);
    }
}
