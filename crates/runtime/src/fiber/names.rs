//! A fiber's names: the one given by its `Builder`, the one that a kernel thread would have, and std's handle.

use std::cell::Cell;
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
}

impl Names {
    pub(crate) fn new(given: Option<Box<str>>, kernel: KernelName) -> Names {
        Names {
            given,
            kernel: Lock::new(kernel),
            standard: OnceLock::new(),
            prepared: Cell::new(None),
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
