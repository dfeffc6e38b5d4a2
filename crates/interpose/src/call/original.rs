//! libc's own functions, behind ours of the same names.
//!
//! A function that this crate defines hides libc's from the whole process, from us too. The
//! dynamic loader still finds it, as the *next* one of that name after ours; so what another
//! library has put in between (an `LD_PRELOAD` of the user's) stays in the chain. In a library of another
//! program's, which comes after libc, ours hides nothing, but the library's own calls reach it, for its symbol
//! is protected: see `carefree_context::object`.
//!
//! Each original is looked up when the program starts, before `main` and so before there are
//! fibers: the loader takes a lock that does not know of fibers, so a fiber that asked while another one
//! is in the middle of a `dlopen` would block its carrier. A call that comes earlier still (from the
//! constructor of a library) looks its original up then.
//!
//! A sanitizer defines functions of the same names in the program itself, which record what the program
//! does to threads, locks and memory before they call libc's. Ours hides these as well. In such a program
//! they are the originals, under the names that sanitizers give them for this use (`__interceptor_read`).
//!
//! A static program has no loader to ask. There an original is a function that makes the system call,
//! if one call is all that libc's does. For others (`pthread_mutex_lock`) it is libc's own under the name
//! that libc uses itself (`__pthread_mutex_lock`); the public name is a weak alias of that in glibc, so ours
//! replaces it. Names that have neither (`getaddrinfo`) are left to libc.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(not(target_feature = "crt-static"))]
use carefree_context::object;
use carefree_ground::fatal;

/// The function that a call would reach without this crate. `F` is the type of a pointer to it.
#[derive(Debug)]
pub(crate) struct Original<F> {
    name: &'static CStr,
    /// The version of the symbol, if libc has several: the loader would return the oldest.
    #[cfg_attr(target_feature = "crt-static", expect(dead_code, reason = "there is one libc"))]
    version: Option<&'static CStr>,
    /// Used where the function cannot be found.
    fallback: Option<F>,
    /// A sanitizer's function, null if it has none of this name.
    #[cfg(carefree_sanitized)]
    interceptor: fn() -> *mut c_void,
    /// Its address; null until it was looked up.
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Original<F> {
    /// # Safety
    /// `F` is the type of a pointer to the C function `name`, and so is what `interceptor` returns.
    pub(crate) const unsafe fn new(
        name: &'static CStr,
        version: Option<&'static CStr>,
        fallback: Option<F>,
        #[cfg(carefree_sanitized)] interceptor: fn() -> *mut c_void,
    ) -> Self {
        assert!(size_of::<F>() == size_of::<*const c_void>());
        Original {
            name,
            version,
            fallback,
            #[cfg(carefree_sanitized)]
            interceptor,
            address: AtomicPtr::new(ptr::null_mut()),
            function: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> F {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = self.resolve();
            if address.is_null() {
                self.missing();
            }
        }
        // SAFETY: `F` is a pointer to a function, and this is that function or its stand-in, of the
        // same type.
        unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) }
    }

    /// Looks the function up; null if there is neither the function nor a fallback.
    #[cold]
    #[inline(never)]
    pub(crate) fn resolve(&self) -> *mut c_void {
        #[cfg(carefree_sanitized)]
        let mut address = (self.interceptor)();
        #[cfg(not(carefree_sanitized))]
        let mut address = ptr::null_mut::<c_void>();
        if address.is_null() {
            address = self.look_up();
        }
        if address.is_null() {
            if let Some(fallback) = self.fallback {
                // SAFETY: a pointer to a function is one to its code.
                address = unsafe { std::mem::transmute_copy::<F, *mut c_void>(&fallback) };
            }
        }
        // Another thread that looks it up at the same time finds the same.
        self.address.store(address, Ordering::Relaxed);
        address
    }

    #[cfg(not(target_feature = "crt-static"))]
    fn look_up(&self) -> *mut c_void {
        object::next(self.name, self.version)
    }

    #[cfg(target_feature = "crt-static")]
    fn look_up(&self) -> *mut c_void {
        ptr::null_mut()
    }

    #[cold]
    #[inline(never)]
    fn missing(&self) -> ! {
        let name = self.name.to_string_lossy();
        fatal::abort(format_args!("this program calls {name}, which its libc does not have"));
    }
}

/// Stands in for a function of libc.
///
/// ```text
/// interpose! {
///     /// Reads from a file descriptor.
///     safe fn read(fd: c_int, buffer: User, length: usize) -> isize,
///         version "GLIBC_2.3.2",      // optional: which of libc's
///         // Optional, one of three: what a static program has in place of libc's function.
///         number SYS_read             // the system call that takes the same arguments
///         else raw_read               // a function of ours
///         linked "__read"             // libc's own by its other name in glibc
///     {
///         …                           // what a call on a fiber does
///     }
/// }
/// ```
///
/// All of them are `extern "C-unwind"`: `pthread_cancel` unwinds a thread that is within `read` through
/// our frame, and a C++ exception unwinds through `pthread_once`'s. So what is on the stack there must not
/// need to be dropped. A fallback has the same ABI.
///
/// Off a fiber, and within the runtime's own code, the call is passed on to libc's function. That
/// function can also be called by the name `read::original`, and ours, as a program calls it, by the name
/// `read::stand_in`.
///
/// A `safe fn` takes nothing but numbers and [`User`](crate::call::user::User)s. Its body is safe code, and
/// so is a call of its `original` or `stand_in`. The exported function is `unsafe` all the same: its callers
/// vouch for the pointers. Without `safe`, all of them are `unsafe`.
///
/// `anywhere` before all that: the body is used off a fiber as well. `lean` (before `anywhere`, if both):
/// the floating-point control words are left alone, because saving them takes as long as a whole call that
/// need not wait; what parks must save them ([`guarded`](crate::call::fiber::guarded)). `steady` in its place: a
/// hosted thread that was cancelled does not end at this call. `steady unless waits`: it does if `waits`, a function in
/// scope, says so of the second argument, a command. `quick`: both, for a call that never parks, but lets
/// a host handle signals.
macro_rules! interpose {
    (anywhere $($rest:tt)*) => {
        interpose! { @when (true) always guarded $($rest)* }
    };
    (steady anywhere $($rest:tt)*) => {
        interpose! { @when (true) always steady $($rest)* }
    };
    (steady unless $waits:ident anywhere $($rest:tt)*) => {
        interpose! { @when (true) always $waits $($rest)* }
    };
    (steady $($rest:tt)*) => {
        interpose! { @when ($crate::call::fiber::on_fiber()) never steady $($rest)* }
    };
    (quick $($rest:tt)*) => {
        interpose! { @when ($crate::call::fiber::on_fiber()) never quick $($rest)* }
    };
    (lean anywhere $($rest:tt)*) => {
        interpose! { @when (true) always lean $($rest)* }
    };
    (lean $($rest:tt)*) => {
        interpose! { @when ($crate::call::fiber::on_fiber()) never lean $($rest)* }
    };
    (@call guarded $call:expr) => { interpose! { @call_with begin again $call } };
    (@call steady $call:expr) => { interpose! { @call_with begin_steady again_steady $call } };
    (@call_with $begin:ident $again:ident $call:expr) => {{
        $crate::call::host::$begin();
        // C code may have set control words that are not for other fibers.
        let float = $crate::call::fiber::set_float();
        let result = loop {
            let result = $call;
            if !$crate::call::host::$again(&result) {
                break result;
            }
        };
        $crate::call::fiber::reset_float(float);
        result
    }};
    (@call quick $call:expr) => {{
        loop {
            let result = $call;
            if !$crate::call::host::again_quick(&result) {
                break result;
            }
        }
    }};
    (@call lean $call:expr) => { $call };
    (@call $waits:ident on_fiber($fd:ident, $command:ident, $argument:ident)) => {
        match $waits($command) {
            true => interpose! { @call guarded on_fiber($fd, $command, $argument) },
            false => interpose! { @call steady on_fiber($fd, $command, $argument) },
        }
    };
    (
        @when ($condition:expr) $inline:ident $float:ident
        $(#[$meta:meta])*
        safe fn $($rest:tt)*
    ) => {
        interpose! { @define ($condition) $inline $float [] $(#[$meta])* fn $($rest)* }
    };
    (
        @when ($condition:expr) $inline:ident $float:ident
        $(#[$meta:meta])*
        fn $($rest:tt)*
    ) => {
        interpose! { @define ($condition) $inline $float [unsafe] $(#[$meta])* fn $($rest)* }
    };
    // An argument of a safe one is a number or a `User`.
    (@check [unsafe] $($type:ty,)*) => {};
    (@check [] $($type:ty,)*) => {
        const _: fn() = || {
            #[allow(dead_code, reason = "there may be no arguments")]
            fn is_word<'u, T: Into<$crate::call::sys::Word<'u>>>() {}
            $(is_word::<$type>();)*
        };
    };
    (
        @define ($condition:expr) $inline:ident $float:ident [$($unsafety:tt)?]
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty
            $(, version $version:literal)? $(, else $fallback:path)? $(, number $number:ident)?
            $(, linked $linked:literal)?
        $body:block
    ) => {
        #[doc = concat!("libc's own `", stringify!($name), "`.")]
        pub(crate) mod $name {
            #[allow(unused_imports, reason = "some functions have no types of arguments")]
            use super::*;
            use $crate::call::original::Original;

            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;

            #[allow(unused_mut, unused_assignments, reason = "set where the caller says so")]
            static ORIGINAL: Original<Function> = {
                let name = match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                };
                let mut version: Option<&'static std::ffi::CStr> = None;
                $(version = match std::ffi::CStr::from_bytes_with_nul(
                    concat!($version, "\0").as_bytes(),
                ) {
                    Ok(version) => Some(version),
                    Err(_) => unreachable!(),
                };)?
                let fallback: Option<Function> = interpose! {
                    @fallback [$(else $fallback)? $(number $number)? $(linked $linked)?]
                        ($($argument: $type),*) -> $result
                };
                // SAFETY: the type is written beside the name, as the manual has it.
                unsafe {
                    Original::new(
                        name,
                        version,
                        fallback,
                        #[cfg(carefree_sanitized)]
                        interceptor,
                    )
                }
            };

            #[cfg(carefree_sanitized)]
            fn interceptor() -> *mut std::ffi::c_void {
                let address;
                // SAFETY: loads an entry of the table of addresses, which the linker makes for a
                // symbol that need not exist.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    std::arch::asm!(
                        concat!(".weak __interceptor_", stringify!($name)),
                        concat!(
                            "mov {}, qword ptr [rip + __interceptor_",
                            stringify!($name),
                            "@GOTPCREL]",
                        ),
                        out(reg) address,
                        options(nostack, preserves_flags, readonly, pure),
                    );
                    #[cfg(target_arch = "aarch64")]
                    std::arch::asm!(
                        concat!(".weak __interceptor_", stringify!($name)),
                        concat!("adrp {0}, :got:__interceptor_", stringify!($name)),
                        concat!(
                            "ldr {0}, [{0}, :got_lo12:__interceptor_",
                            stringify!($name),
                            "]",
                        ),
                        out(reg) address,
                        options(nostack, preserves_flags, readonly, pure),
                    );
                }
                address
            }

            /// Looks the original up when the program starts.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static AT_START: extern "C" fn() = {
                extern "C" fn at_start() {
                    ORIGINAL.resolve();
                }
                at_start
            };

            /// # Safety
            /// As for libc's function.
            #[inline(always)]
            #[allow(dead_code, reason = "a body may do without it")]
            pub(crate) $($unsafety)? fn original($($argument: $type),*) -> $result {
                // SAFETY: what was found has this name and this type. Where `original` is unsafe, its callers
                // vouch for the rest; where it is safe, it takes only numbers and `User`s, and what libc's
                // function does with these is what the program has asked for.
                unsafe { ORIGINAL.get()($($argument),*) }
            }

            /// # Safety
            /// As for libc's function; the caller is a fiber, if this is done on fibers only.
            #[inline($inline)]
            pub(super) $($unsafety)? fn on_fiber($($argument: $type),*) -> $result $body

            /// What a program gets that calls this function, for calls within this crate.
            ///
            /// # Safety
            /// As for libc's function.
            #[inline(always)]
            #[allow(dead_code, reason = "of the symbol alone, where that is not defined")]
            pub(crate) $($unsafety)? fn stand_in($($argument: $type),*) -> $result {
                // SAFETY: `on_fiber` and `original` ask for no more than this function does.
                $($unsafety)? {
                    if $condition {
                        interpose! { @call $float on_fiber($($argument),*) }
                    } else {
                        original($($argument),*)
                    }
                }
            }

            interpose! { @check [$($unsafety)?] $($type,)* }
        }

        interpose! { @symbol [$($fallback)? $($number)? $($linked)?] $name
            $(#[$meta])*
            ///
            /// # Safety
            /// As for libc's function of this name.
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // SAFETY: `stand_in` asks for what libc's function asks of its callers.
                $($unsafety)? { $name::stand_in($($argument),*) }
            }
        }
    };
    // What a static program has in place of libc's function.
    (@fallback [] $($rest:tt)*) => { None };
    (@fallback [else $fallback:path] $($rest:tt)*) => { Some($fallback) };
    (@fallback [number $number:ident] ($($parameters:tt)*) -> $result:ty) => {{
        system_call!(fn raw($($parameters)*) -> $result = $number);
        Some(raw)
    }};
    (@fallback [linked $linked:literal] $($rest:tt)*) => {{
        #[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
        {
            unsafe extern "C-unwind" {
                #[link_name = $linked]
                fn linked();
            }
            // SAFETY: libc's function by its other name, of the type beside this one.
            Some(unsafe { std::mem::transmute::<unsafe extern "C-unwind" fn(), Function>(linked) })
        }
        #[cfg(not(all(target_feature = "crt-static", target_env = "gnu")))]
        {
            let _ = $linked;
            None
        }
    }};
    // Without a stand-in for the original, a static program keeps libc's function.
    (@symbol [] $name:ident $item:item) => {
        #[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
        $item
        #[cfg(not(target_feature = "crt-static"))]
        std::arch::global_asm!(concat!(".protected ", stringify!($name)));
    };
    (@symbol [$linked:literal] $name:ident $item:item) => {
        #[cfg_attr(any(not(target_feature = "crt-static"), target_env = "gnu"), unsafe(no_mangle))]
        $item
        #[cfg(not(target_feature = "crt-static"))]
        std::arch::global_asm!(concat!(".protected ", stringify!($name)));
    };
    (@symbol [$fallback:path] $name:ident $item:item) => {
        #[unsafe(no_mangle)]
        $item
        #[cfg(not(target_feature = "crt-static"))]
        std::arch::global_asm!(concat!(".protected ", stringify!($name)));
    };
    ($($rest:tt)*) => {
        interpose! { @when ($crate::call::fiber::on_fiber()) never guarded $($rest)* }
    };
}
