//! `execl` and its kin, which Rust cannot define as they are in C: with any number of arguments.
//!
//! By the calling conventions of the processors that this is for, arguments of a variadic function lie where
//! those of any other function do. So each function here has more parameters than most callers have arguments, and
//! uses them up to the null pointer that ends the arguments. The others are words of the caller's stack, of
//! which a thread always has as many. Where a caller has more arguments, they are read from its stack.

use std::ffi::{c_char, c_int};
use std::ptr;

use carefree_ground::mapped::Mapped;

use crate::caller::Caller;
use crate::process::{execv, execve, execvp};
use crate::thread::record::set_errno;

type Text = *const c_char;

/// What is done with a path and the arguments behind it, of which so many come before the null pointer.
type Then = unsafe fn(Text, *const Text, usize) -> c_int;

/// Parameters of each function, besides the path.
const MOST: usize = 40;

/// Those of them that are passed in registers.
const IN_REGISTERS: usize = if cfg!(target_arch = "x86_64") { 5 } else { 7 };

/// A call of `function` with more arguments than it has parameters, of which `first` are the first.
///
/// # Safety
/// The caller's, which end by a null pointer, and are what `then` demands.
#[cold]
#[inline(never)]
unsafe fn many(function: *const (), path: Text, first: &[Text; MOST], then: Then) -> c_int {
    let Some(caller) = Caller::of(function) else {
        set_errno(libc::E2BIG);
        return -1;
    };
    // (From the kernel: this may be in the child of a `vfork`, or of a fork of a process with threads.)
    let mut all = Mapped::default();
    let mut has_room = all.extend(&first[..IN_REGISTERS]);
    let mut place = ptr::with_exposed_provenance::<Text>(caller.stack());
    let mut count = IN_REGISTERS;
    // SAFETY: as this function demands: there they lie, and after the null pointer comes what `execle` has there, or
    // another word of the caller's stack.
    unsafe {
        loop {
            let argument = place.read();
            has_room &= all.push(argument);
            place = place.add(1);
            if argument.is_null() {
                break;
            }
            count += 1;
        }
        has_room &= all.push(place.read());
        if !has_room {
            set_errno(libc::ENOMEM);
            return -1;
        }
        then(path, all.as_ptr(), count)
    }
}

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
                let then: Then = $then;
                // (After the null pointer comes one more, of `execle`.)
                let count = arguments[..MOST - 1].iter().position(|argument| argument.is_null());
                // SAFETY: the caller's arguments.
                unsafe {
                    match count {
                        Some(count) => then(path, arguments.as_ptr(), count),
                        None => many($name as *const (), path, &arguments, then),
                    }
                }
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
        execv(path, arguments)
    };
    /// `execlp(3)`.
    fn execlp => |file, arguments, _| unsafe {
        // SAFETY: as for `execl`.
        execvp(file, arguments)
    };
    /// `execle(3)`.
    fn execle => |path, arguments, count| unsafe {
        // SAFETY: as for `execl`; after the null pointer comes the environment.
        execve(path, arguments, arguments.add(count + 1).read().cast())
    };
}
