//! Threads that `std` would start for fibers with names: see [`carefree_runtime::standard`].
//!
//! Any other thread is started by libc, on a fiber as well as on a thread.

use std::ffi::{c_int, c_void};

#[cfg(not(target_feature = "crt-static"))]
use carefree_context::object;
use carefree_runtime::pthread;
use carefree_runtime::standard::{self, MARK, StartRoutine};

use crate::call::host;

type Thread = libc::pthread_t;
type Attributes = *const libc::pthread_attr_t;

interpose! { lean anywhere
    /// `pthread_create(3)`.
    fn pthread_create(
        thread: *mut Thread,
        attributes: Attributes,
        function: StartRoutine,
        data: *mut c_void,
    ) -> c_int, linked "__pthread_create" {
        // SAFETY: the program has given attributes that libc has set up, or a null pointer; room for a
        // `pthread_t`, which libc would write unasked; and a function that may be called with `data`.
        unsafe {
            let mut size = 0;
            if !attributes.is_null()
                && libc::pthread_attr_getstacksize(attributes, &raw mut size) == 0
                && size == MARK
                && standard::is_preparing()
            {
                standard::take(function, data);
                thread.write(standard::token() as Thread);
                return 0;
            }
            if let Some(host) = host::get() {
                if let Some(created) = (host.create)(thread, attributes, function, data) {
                    return created;
                }
            }
            original(thread, attributes, function, data)
        }
    }
}

interpose! { lean anywhere
    /// `pthread_detach(3)`.
    fn pthread_detach(thread: Thread) -> c_int, linked "__pthread_detach" {
        if thread == standard::token() as Thread || pthread::detach(thread as usize) {
            return 0;
        }
        // SAFETY: what the program has from libc, or from its host.
        unsafe {
            let detached = host::get().and_then(|host| (host.detach)(thread));
            detached.unwrap_or_else(|| original(thread))
        }
    }
}

/// Tells the runtime that these stand-ins are in place, if `std` calls them: it does if it is linked into the
/// same object, or if the whole process does.
#[cfg(not(target_feature = "crt-static"))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    extern "C" fn at_start() {
        let standard = std::thread::sleep as fn(_);
        if object::same_object(standard as *const c_void, at_start as *const c_void) {
            return standard::stand_in_is_there();
        }
        // SAFETY: looks C strings up.
        let called = [c"pthread_create", c"pthread_detach", c"pthread_join"]
            .map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize);
        let ours = [
            pthread_create as *const () as usize,
            pthread_detach as *const () as usize,
            crate::thread::join::pthread_join as *const () as usize,
        ];
        if called == ours {
            standard::stand_in_is_there();
        }
    }
    at_start
};
