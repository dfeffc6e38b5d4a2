//! The names in a header.

use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering;
use std::thread;

use carefree_ground::lock::Lock;

use crate::fiber::header::Header;
use crate::fiber::names::{KernelName, Names};
use crate::fiber::standard::{self, Prepared};

/// Held by what reads the name of a fiber without a counted reference, and while names are taken
/// from a header. (A report must not count a reference: the last one to be given back frees names, by
/// the program's allocator.) One of many, by the header.
static GLANCES: [Lock<()>; 64] = [const { Lock::new(()) }; 64];

/// Makes these locks new: in the child of a fork.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    for lock in &GLANCES {
        // SAFETY: the caller's promise.
        unsafe { lock.renew(()) };
    }
}

impl Header {
    /// Forgets all names, when no counted reference is left.
    pub(crate) fn drop_names(&self) {
        let names = self.names.load(Ordering::Relaxed);
        if !names.is_null() {
            {
                let _no_glances = self.glance().lock();
                self.names.store(ptr::null_mut(), Ordering::Relaxed);
            }
            // SAFETY: from `Names::given` or `ensure_names`; no reference to the header is
            // left that is counted, and others look at names with the lock held: those that had it
            // before are done, and others find none.
            drop(unsafe { Box::from_raw(names) });
        }
    }

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
        // SAFETY: names are freed after they were taken from the header under the lock.
        let names = unsafe { self.names.load(Ordering::Acquire).as_ref() };
        // The number is written before the names: a reader that sees these sees whose they are.
        let own = self.id.load(Ordering::Relaxed) == number;
        match names.filter(|_| own).and_then(|names| names.given.as_deref()) {
            Some(name) => write!(out, "{before}{name}{after}"),
            None => Ok(()),
        }
    }

    /// Has std make a handle for a new fiber, if it has a name. An allocator must not park the caller
    /// meanwhile.
    pub(crate) fn prepare_standard(&self) {
        let Some(names) = self.names() else { return };
        if let Some(prepared) = names.given.as_deref().and_then(standard::prepare) {
            let _ = names.standard.set(prepared.thread().clone());
            names.prepared.set(Some(prepared));
        }
    }

    /// What std has made ready for the calling fiber, which takes it once.
    #[inline(always)]
    pub(crate) fn take_prepared(&self) -> Option<Prepared> {
        self.names().and_then(|names| names.prepared.take())
    }

    pub(crate) fn names(&self) -> Option<&Names> {
        // SAFETY: written once, by the party that makes the fiber or by `ensure_names`, and freed with
        // the last counted reference.
        unsafe { self.names.load(Ordering::Acquire).as_ref() }
    }

    /// The names, `new` ones if there are none. An allocator must not park the caller meanwhile.
    pub(crate) fn ensure_names(&self, new: Names) -> &Names {
        if let Some(names) = self.names() {
            return names;
        }
        let new = Box::into_raw(Box::new(new));
        let set =
            self.names.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: made above, and not shared.
            drop(unsafe { Box::from_raw(new) });
        }
        self.names().expect("set by one or the other")
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.names().and_then(|names| names.given.as_deref())
    }

    /// std's handle to the fiber, if it is known.
    pub(crate) fn standard(&self) -> Option<&thread::Thread> {
        self.names().and_then(|names| names.standard.get())
    }

    /// Notes std's handle to the calling fiber or thread. An allocator must not park the caller
    /// meanwhile.
    pub(crate) fn note_standard(&self, handle: thread::Thread) {
        let names = self.ensure_names(Names::new(None, KernelName::default()));
        // The first one stays: a fiber has one handle of std's for all its life.
        let _ = names.standard.set(handle);
    }
}
