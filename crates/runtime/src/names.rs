//! What a fiber is called: by its `Builder`, by the kernel's measure, and by std.

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::thread;

use carefree_context::lock::Lock;

use crate::fiber::Header;
use crate::standard::{self, Prepared};
use crate::wait;

/// A thread's name as the kernel keeps it: cut to 15 bytes, and a NUL.
pub type KernelName = [u8; 16];

/// The names of a fiber that has any; the header points to them.
pub(crate) struct Names {
    /// The one given by [`Builder::name`](crate::Builder::name).
    given: Option<Box<str>>,
    /// What `pthread_getname_np` says.
    kernel: Lock<KernelName>,
    /// std's handle to the same fiber, once it is known.
    standard: OnceLock<thread::Thread>,
    /// What std has made ready, until the fiber begins.
    prepared: Cell<Option<Prepared>>,
}

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

impl Names {
    fn new(given: Option<Box<str>>, kernel: KernelName) -> Names {
        Names {
            given,
            kernel: Lock::new(kernel),
            standard: OnceLock::new(),
            prepared: Cell::new(None),
        }
    }
}

pub(crate) fn cut(name: &str) -> KernelName {
    let mut cut = KernelName::default();
    let length = name.len().min(cut.len() - 1);
    cut[..length].copy_from_slice(&name.as_bytes()[..length]);
    cut
}

impl Header {
    /// Gives a new fiber or thread its name.
    pub(crate) fn set_name(&self, name: Box<str>) {
        let kernel = cut(&name);
        let names = Box::into_raw(Box::new(Names::new(Some(name), kernel)));
        self.names.store(names, Ordering::Release);
    }

    /// Forgets all names, when no counted reference is left.
    pub(crate) fn drop_names(&self) {
        let names = self.names.load(Ordering::Relaxed);
        if !names.is_null() {
            {
                let _no_glances = self.glance().lock();
                self.names.store(ptr::null_mut(), Ordering::Relaxed);
            }
            // SAFETY: from `Box::into_raw`, here or in `ensure_names`; no reference to the header is
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

    /// Has std make a handle for a new fiber, if it has a name.
    pub(crate) fn prepare_standard(&self) {
        let Some(names) = self.names() else { return };
        // The caller is about to give the fiber to its own carrier: it must not move to another.
        let prepared = wait::without_parking(|| standard::prepare(names.given.as_deref()?));
        if let Some(prepared) = prepared {
            let _ = names.standard.set(prepared.thread().clone());
            names.prepared.set(Some(prepared));
        }
    }

    /// What std has made ready for the calling fiber, which takes it once.
    #[inline(always)]
    pub(crate) fn take_prepared(&self) -> Option<Prepared> {
        self.names().and_then(|names| names.prepared.take())
    }

    fn names(&self) -> Option<&Names> {
        // SAFETY: written once, by the party that makes the fiber or by `ensure_names`, and freed with
        // the last counted reference.
        unsafe { self.names.load(Ordering::Acquire).as_ref() }
    }

    /// The names, `new` ones if there are none.
    fn ensure_names(&self, new: Names) -> &Names {
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

    /// Notes std's handle to the calling fiber.
    pub(crate) fn note_standard(&self, handle: thread::Thread) {
        // The fiber may be about to park, and must not be parked for an allocator before.
        let names =
            wait::without_parking(|| self.ensure_names(Names::new(None, KernelName::default())));
        // The first one stays: a fiber has one handle of std's for all its life.
        let _ = names.standard.set(handle);
    }
}

/// The name of the calling fiber by the kernel's measure; `None` if it was never named, or on a plain
/// thread.
///
/// ```
/// use carefree_runtime::{Builder, names::kernel_name};
///
/// let named = Builder::new().name("a name of many letters".into()).spawn(kernel_name)?;
/// assert_eq!(&named.join().unwrap().unwrap(), b"a name of many \0");
/// assert_eq!(carefree_runtime::run(kernel_name), None);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn kernel_name() -> Option<KernelName> {
    let names = wait::current_fiber()?.header().names()?;
    let name = *names.kernel.lock();
    (name[0] != 0).then_some(name)
}

/// Renames the calling fiber as far as [`kernel_name`] goes, and nothing else; `false` on a plain
/// thread.
pub fn set_kernel_name(name: KernelName) -> bool {
    let Some(me) = wait::current_fiber() else { return false };
    // An allocator must not park a fiber that asks for its name in a place where it must not wait.
    let names = wait::without_parking(|| me.header().ensure_names(Names::new(None, name)));
    *names.kernel.lock() = name;
    true
}
