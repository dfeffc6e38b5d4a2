//! A fiber's names: the one given by its `Builder`, the one that a kernel thread would have, and std's handle.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;
use std::thread;

use carefree_ground::lock::Lock;

use crate::fiber::standard::Prepared;

/// A thread's name as the kernel keeps it: cut to 15 bytes, and a NUL.
pub type KernelName = [u8; 16];

/// The names of a fiber that has any; its header points to them.
pub(crate) struct Names {
    /// The one given by [`Builder::name`](crate::Builder::name).
    pub(crate) given: Option<Box<str>>,
    /// What `pthread_getname_np` says.
    pub(crate) kernel: Lock<KernelName>,
    /// std's handle to the fiber, once it is known.
    pub(crate) standard: OnceLock<thread::Thread>,
    /// What std has prepared for the fiber, until that begins: see `standard`.
    pub(crate) prepared: Cell<Option<Prepared>>,
    /// The next ones in the list of an [`Ended`].
    next: Option<Box<Names>>,
}

/// Names of fibers that have ended, to be freed where the program's allocator may be called.
#[derive(Default)]
pub(crate) struct Ended(Option<Box<Names>>);

impl Ended {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Keeps `names`. Calls no allocator.
    pub(crate) fn push(&mut self, mut names: Box<Names>) {
        names.next = self.0.take();
        self.0 = Some(names);
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // One after the other: to drop the list as a whole would need a frame for each.
        while let Some(mut first) = self.0.take() {
            self.0 = first.next.take();
        }
    }
}

impl fmt::Debug for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ended").finish_non_exhaustive()
    }
}

impl Names {
    pub(crate) fn new(given: Option<Box<str>>, kernel: KernelName) -> Names {
        Names {
            given,
            kernel: Lock::new(kernel),
            standard: OnceLock::new(),
            prepared: Cell::new(None),
            next: None,
        }
    }

    /// The names of a fiber that is given one; to be freed by [`Box::from_raw`].
    pub(crate) fn given(name: Box<str>) -> *mut Names {
        let kernel = cut(&name);
        Box::into_raw(Box::new(Names::new(Some(name), kernel)))
    }
}

/// `name` as the kernel keeps it.
pub(crate) fn cut(name: &str) -> KernelName {
    let mut cut = KernelName::default();
    let length = name.len().min(cut.len() - 1);
    cut[..length].copy_from_slice(&name.as_bytes()[..length]);
    cut
}
