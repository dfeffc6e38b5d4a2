//! `execl` and its kin, which Rust cannot define as they are in C: with any number of arguments.
//!
//! By the calling conventions of the processors that this is for, arguments of a variadic function lie where
//! those of any other function do. So each function here has more parameters than callers have arguments, and
//! uses them up to the null pointer that ends the arguments. The others are words of the caller's stack, of
//! which a thread always has as many.

use std::ffi::{c_char, c_int};

use crate::process::{execv, execve, execvp};
use crate::thread::record::set_errno;

type Text = *const c_char;

/// The most arguments that are passed on, with the null pointer; for more the call fails with `E2BIG`.
const MOST: usize = 40;

macro_rules! variadic {
    ($($(#[$meta:meta])* fn $name:ident => $then:expr;)*) => {
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// As for libc's function of this name.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name(
            path: Text,
            a0: Text, a1: Text, a2: Text, a3: Text, a4: Text,
            a5: Text, a6: Text, a7: Text, a8: Text, a9: Text,
            a10: Text, a11: Text, a12: Text, a13: Text, a14: Text,
            a15: Text, a16: Text, a17: Text, a18: Text, a19: Text,
            a20: Text, a21: Text, a22: Text, a23: Text, a24: Text,
            a25: Text, a26: Text, a27: Text, a28: Text, a29: Text,
            a30: Text, a31: Text, a32: Text, a33: Text, a34: Text,
            a35: Text, a36: Text, a37: Text, a38: Text, a39: Text,
            ) -> c_int {
                let arguments: [Text; MOST] = [
                a0, a1, a2, a3, a4, a5, a6, a7, a8, a9,
                a10, a11, a12, a13, a14, a15, a16, a17, a18, a19,
                a20, a21, a22, a23, a24, a25, a26, a27, a28, a29,
                a30, a31, a32, a33, a34, a35, a36, a37, a38, a39,
                ];
                let Some(count) = arguments.iter().position(|argument| argument.is_null()) else {
                    set_errno(libc::E2BIG);
                    return -1;
                };
                let then: unsafe fn(Text, &[Text; MOST], usize) -> c_int = $then;
                // SAFETY: the caller's arguments.
                unsafe { then(path, &arguments, count) }
            }
            // As those of `interpose`.
            std::arch::global_asm!(concat!(".protected ", stringify!($name)));
        )*
    };
}

variadic! {
    /// `execl(3)`.
    fn execl => |path, arguments, _| unsafe {
        // SAFETY: the caller's arguments, which end by a null pointer.
        execv(path, arguments.as_ptr())
    };
    /// `execlp(3)`.
    fn execlp => |file, arguments, _| unsafe {
        // SAFETY: as for `execl`.
        execvp(file, arguments.as_ptr())
    };
    /// `execle(3)`.
    fn execle => |path, arguments, count| unsafe {
        // SAFETY: as for `execl`; after the null pointer comes the environment.
        match arguments.get(count + 1) {
            Some(environment) => execve(path, arguments.as_ptr(), environment.cast()),
            None => {
                set_errno(libc::E2BIG);
                -1
            }
        }
    };
}
