//! Handlers of forks: the runtime's are installed before all others.

use std::ffi::{c_int, c_void};

/// A handler of forks.
type Handler = Option<unsafe extern "C" fn()>;

interpose! { lean anywhere
    /// What `pthread_atfork(3)` calls, of which each program and library has a copy. The runtime's handlers are
    /// installed before its first caller's: see [`carefree_runtime::install_fork_handlers`].
    fn __register_atfork(
        prepare: Handler,
        in_parent: Handler,
        in_child: Handler,
        library: *const c_void,
    ) -> c_int {
        carefree_runtime::install_fork_handlers();
        // SAFETY: the caller's arguments.
        unsafe { original(prepare, in_parent, in_child, library) }
    }
}
