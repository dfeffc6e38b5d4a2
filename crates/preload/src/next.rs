//! libc's own functions, behind ours of the same names.
//!
//! They are looked up when the program starts. The loader takes its lock for that: the first threads of a program may
//! be created amid a library's constructor, by a thread that holds it and waits for threads of this library's.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use carefree_ground::fatal;

/// A function of libc's that one of ours hides.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address: the next one of that name after ours.
    ///
    /// # Aborts
    /// If there is none.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    /// Looks it up, before the program's code runs. (Not all libcs have all of them.)
    #[cold]
    pub(crate) fn prepare(&self) -> *mut c_void {
        // SAFETY: a string; the loader answers with an address or null.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let found = self.prepare();
        if found.is_null() {
            let name = self.name.to_string_lossy();
            fatal::abort(format_args!("this program calls {name}, which its libc does not have"));
        }
        found
    }
}

/// Defines functions of libc's names. `next(…)` in a body calls libc's own.
macro_rules! stand_in {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// As for libc's function of this name.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
                #[allow(dead_code, reason = "a body may do without it")]
                static NEXT: $crate::next::Next = $crate::next::Next::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no NUL"),
                    },
                );
                #[used]
                #[unsafe(link_section = ".init_array")]
                static AT_START: extern "C" fn() = {
                    extern "C" fn at_start() {
                        NEXT.prepare();
                    }
                    at_start
                };
                /// libc's function.
                #[allow(dead_code, reason = "a body may do without it")]
                unsafe fn next($($argument: $type),*) $(-> $result)? {
                    type Function = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
                    // SAFETY: the function of this name has this type.
                    unsafe {
                        std::mem::transmute::<*mut std::ffi::c_void, Function>(NEXT.address())(
                            $($argument),*
                        )
                    }
                }
                $body
            }
            // As those of `interpose`.
            std::arch::global_asm!(concat!(".protected ", stringify!($name)));
        )*
    };
}
