//! Redirects the calls of the `io-uring` crate to the hooks for faults: a symbol of the program
//! takes precedence over libc's.

use carefree_reactor::faults;
use std::ffi::{c_int, c_long, c_void};

fn answer(result: Result<usize, i32>) -> isize {
    result.map(|value| value as isize).unwrap_or_else(|errno| {
        // SAFETY: this thread's own variable.
        unsafe { *libc::__errno_location() = errno };
        -1
    })
}

/// As libc's. It takes any number of arguments, which by the calling conventions of Linux is
/// no different from taking six.
#[unsafe(no_mangle)]
extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: as sound as the same call of libc's.
    answer(unsafe { faults::call(number, [a, b, c, d, e, f]) }) as c_long
}

#[unsafe(no_mangle)]
extern "C" fn mmap(
    address: usize,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let args = [address, length, protection as usize, flags as usize, fd as usize, offset as usize];
    // SAFETY: as sound as the same call of libc's.
    answer(unsafe { faults::call(libc::SYS_mmap, args) }) as *mut c_void
}
