//! The dynamic loader's lock, as far as waits depend on it: what it is, the crate that stands in for libc's functions
//! knows.

use std::sync::OnceLock;

/// How the lock is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Loader {
    /// Whether the calling fiber or thread holds it.
    pub is_callers: fn() -> bool,
}

static LOADER: OnceLock<Loader> = OnceLock::new();

/// To be called once the lock is known.
pub fn set_loader(loader: Loader) {
    LOADER.get_or_init(|| loader);
}

/// Whether the caller loads or unloads a library, and is in its constructor or destructor. It makes calls itself that
/// another thread would make, for that might need the lock.
pub fn holds_loader() -> bool {
    LOADER.get().is_some_and(|loader| (loader.is_callers)())
}

/// Whether the lock is known: a library was loaded while there were fibers, and others may be.
pub(crate) fn is_known() -> bool {
    LOADER.get().is_some()
}
