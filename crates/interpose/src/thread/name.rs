//! Names of threads as the kernel keeps them: a fiber has one of its own, not its carrier's.
//!
//! A program that reads `/proc` sees carriers, with their names.

use std::ffi::{CStr, c_char, c_int};

use carefree_ground::probe;
use carefree_runtime::kernel_name::{KernelName, kernel_name, set_kernel_name};

use crate::call::answer::answer;
use crate::call::fiber;
use crate::call::host;
use crate::call::user::User;

/// A `pthread_t`, which is the address of libc's record of the thread.
type Thread<'u> = User<'u>;

fn is_self(thread: Thread) -> bool {
    // SAFETY: it takes nothing, and tells an address.
    thread.address() == unsafe { libc::pthread_self() } as usize
}

/// The name in `bytes`, cut to the kernel's length.
fn cut(bytes: &[u8]) -> KernelName {
    let mut name = KernelName::default();
    let length = bytes.len().min(name.len() - 1);
    name[..length].copy_from_slice(&bytes[..length]);
    name
}

interpose! { steady anywhere
    /// `pthread_setname_np(3)`, also by a thread for a fiber.
    safe fn pthread_setname_np(thread: Thread, name: User<c_char>) -> c_int,
        linked "__pthread_setname_np"
    {
        let own = thread.address() as libc::pthread_t;
        // SAFETY: what the program has given: a thread, and a string.
        let named = host::get().and_then(|host| unsafe { (host.set_name)(own, name.pointer()) });
        if let Some(named) = named {
            return named;
        }
        if !is_self(thread) || !fiber::on_fiber() {
            return original(thread, name);
        }
        // SAFETY: the program has given a string, which libc's function would read unasked, and which stays
        // as it is until this returns.
        let bytes = unsafe { CStr::from_ptr(name.pointer()) }.to_bytes();
        if bytes.len() >= size_of::<KernelName>() {
            return libc::ERANGE;
        }
        set_kernel_name(cut(bytes));
        0
    }
}

interpose! { steady anywhere
    /// `pthread_getname_np(3)`, also by a thread for a fiber.
    safe fn pthread_getname_np(thread: Thread, place: User<c_char>, length: usize) -> c_int,
        linked "__pthread_getname_np"
    {
        let own = thread.address() as libc::pthread_t;
        // SAFETY: what the program has given: a thread, and `length` bytes to be written to.
        let named =
            host::get().and_then(|host| unsafe { (host.get_name)(own, place.pointer(), length) });
        if let Some(named) = named {
            return named;
        }
        let is_own = is_self(thread) && fiber::on_fiber();
        let name = if is_own { kernel_name() } else { None };
        let Some(name) = name else { return original(thread, place, length) };
        if length < name.len() {
            return libc::ERANGE;
        }
        // SAFETY: the program has given `length` bytes to be written to, which the name does not exceed, and
        // libc's function would write there unasked.
        unsafe { place.cast::<KernelName>().write_seen(name) };
        0
    }
}

/// The name of the calling fiber that is not its kernel thread's, where a call of `prctl` asks for it.
fn name(option: c_int) -> Option<KernelName> {
    if option != libc::PR_GET_NAME {
        return None;
    }
    let Some(host) = host::get() else { return kernel_name() };
    let mut name = KernelName::default();
    // SAFETY: the caller's own thread, and room for a name.
    let told =
        unsafe { (host.get_name)(libc::pthread_self(), name.as_mut_ptr().cast(), name.len()) };
    if told == Some(0) { Some(name) } else { kernel_name() }
}

/// Reads a name as the kernel does: up to a NUL, or as many bytes as it keeps.
///
/// # Errors
/// `EFAULT` if that cannot be read.
fn read(from: User<u8>) -> Result<KernelName, c_int> {
    let mut name = KernelName::default();
    for index in 0..name.len() - 1 {
        let place = from.after(index);
        if index == 0 || place.address() % probe::PAGE == 0 {
            place.check(1)?;
        }
        // SAFETY: `check` has found its page readable, for this byte or for an earlier one.
        name[index] = unsafe { place.read_seen() };
        if name[index] == 0 {
            break;
        }
    }
    Ok(name)
}

// (Variadic in C: see `syscall` for why that is the same.)
interpose! { steady
    /// `prctl(2)`. Its arguments are numbers or pointers, depending on the option.
    safe fn prctl(option: c_int, a: User, b: User, c: User, d: User) -> c_int, number SYS_prctl {
        let done = match (option, name(option)) {
            (libc::PR_SET_NAME, _) => read(a.cast()).map(|name| {
                // (The first thread's is also what others see of the process.)
                // SAFETY: takes nothing, and a string that ends with a NUL.
                let named = host::get().and_then(|host| unsafe {
                    (host.set_name)(libc::pthread_self(), name.as_ptr().cast())
                });
                if named.is_none() {
                    set_kernel_name(name);
                }
            }),
            (libc::PR_GET_NAME, Some(name)) => a.cast::<KernelName>().write(name),
            _ => {
                // What it concerns may be the calling thread alone.
                let given = [a, b, c, d].map(User::address);
                let arguments = [option as usize, given[0], given[1], given[2], given[3], 0];
                // SAFETY: the program makes this call, with these arguments, and vouches for it.
                let hosted = host::get()
                    .and_then(|host| unsafe { (host.call)(libc::SYS_prctl, arguments) });
                return hosted.map_or_else(|| original(option, a, b, c, d), |told| told as c_int);
            }
        };
        answer(done.map(|()| 0)) as c_int
    }
}
