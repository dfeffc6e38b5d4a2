//! Forks, and the programs that a thread starts.
//!
//! A program inherits the kernel thread's mask, which is the carrier's; so that of the calling thread is put
//! in force meanwhile.

use std::ffi::{c_char, c_int, c_void};

use carefree_runtime::hosted;
use libc::pid_t;

use crate::signal;
use crate::thread::record;

/// Installs the handlers of forks, once in a process.
pub(crate) fn prepare() {
    // SAFETY: functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
}

extern "C" fn before() {
    signal::note_fork();
}

extern "C" fn in_child() {
    if hosted::is_hosting() {
        hosted::renew();
        record::renew();
        signal::renew();
    }
}

type Strings = *const *const c_char;

stand_in! {
    /// `execve(2)`.
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe { next(path, arguments, environment) })
    }

    /// `execv(3)`.
    fn execv(path: *const c_char, arguments: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe { next(path, arguments) })
    }

    /// `execvp(3)`.
    fn execvp(file: *const c_char, arguments: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe { next(file, arguments) })
    }

    /// `execvpe(3)`.
    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe { next(file, arguments, environment) })
    }

    /// `fexecve(3)`.
    fn fexecve(file: c_int, arguments: Strings, environment: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe { next(file, arguments, environment) })
    }

    /// `posix_spawn(3)`.
    fn posix_spawn(
        process: *mut pid_t,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: Strings,
        environment: Strings,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe {
            next(process, path, actions, attributes, arguments, environment)
        })
    }

    /// `posix_spawnp(3)`.
    fn posix_spawnp(
        process: *mut pid_t,
        file: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: Strings,
        environment: Strings,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe {
            next(process, file, actions, attributes, arguments, environment)
        })
    }

    /// `popen(3)`.
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe { next(command, mode) })
    }
}
