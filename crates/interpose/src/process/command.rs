//! `system`, `pclose`: commands of the shell.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use carefree_ground::lock::Lock;
use carefree_runtime::hosted::{self, HostedThread};
use carefree_runtime::offload;
use libc::pid_t;

use crate::call::amid_signals;
use crate::call::answer::set_errno;
use crate::call::fiber;
use crate::call::host::{self, Host};
use crate::call::user::User;
use crate::descriptor;
use crate::file::close::number_of;
use crate::process::wait::{wait_for_child, wait4};

interpose! {
    /// `system(3)`, on a thread that may block; that of a hosted thread, which may be cancelled meanwhile, is
    /// waited for here.
    safe fn system(command: User<c_char>) -> c_int, linked "__libc_system" {
        match host::get().filter(|_| host::is_hosted() && !command.is_null()) {
            Some(host) => run(host, command),
            None => offload(|| original(command)),
        }
    }
}

/// What `SIGINT` and `SIGQUIT` did before the first of the calls of `system` that are under way, and how many are.
struct Ignored {
    calls: u32,
    before: [libc::sigaction; 2],
}

// SAFETY: plain data.
unsafe impl Send for Ignored {}

static IGNORED: Lock<Ignored> = Lock::new(Ignored {
    calls: 0,
    // SAFETY: zeros are actions, the default ones.
    before: unsafe { std::mem::zeroed() },
});

const KEYS: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// Ignores what keys send, as the command handles it; returns the set of those that were not ignored before.
fn ignore_keys() -> libc::sigset_t {
    let mut ignored = IGNORED.lock();
    ignored.calls += 1;
    // SAFETY: zeros are an action, of which the handler is set, and a set; there is room for what was before.
    unsafe {
        let mut heard = std::mem::zeroed();
        for (index, key) in KEYS.into_iter().enumerate() {
            if ignored.calls == 1 {
                let mut ignore = std::mem::zeroed::<libc::sigaction>();
                ignore.sa_sigaction = libc::SIG_IGN;
                libc::sigaction(key, &raw const ignore, &raw mut ignored.before[index]);
            }
            if ignored.before[index].sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&raw mut heard, key);
            }
        }
        heard
    }
}

/// Undoes [`ignore_keys`].
fn hear_keys() {
    let mut ignored = IGNORED.lock();
    ignored.calls -= 1;
    if ignored.calls == 0 {
        for (before, key) in ignored.before.iter().zip(KEYS) {
            // SAFETY: the action that there was.
            unsafe { libc::sigaction(key, before, ptr::null_mut()) };
        }
    }
}

/// Runs a command, which blocks the signals that the caller does. That blocks `SIGCHLD` as well meanwhile: no
/// handler of the program's is to wait for the command in its place. If the calling thread is cancelled, the
/// command is ended.
fn run(host: &Host, command: User<c_char>) -> c_int {
    let heard = ignore_keys();
    let mask = (host.mask)();
    (host.set_mask)(mask | 1 << (libc::SIGCHLD - 1));
    let status = match start(mask, &heard, command) {
        Ok(child) => await_end(child),
        Err(errno) => {
            // As if the shell had said so.
            set_errno(errno);
            127 << 8
        }
    };
    hear_keys();
    (host.set_mask)(mask);
    // A cancelled thread ends here, whatever the status of the command is that it has ended.
    host::again(&());
    status
}

fn start(mask: u64, heard: &libc::sigset_t, command: User<c_char>) -> Result<pid_t, c_int> {
    let arguments =
        [c"sh".as_ptr().cast_mut(), c"-c".as_ptr().cast_mut(), command.pointer(), ptr::null_mut()];
    let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
    let mut child = 0;
    let mut attributes = MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialised first, and destroyed at last. Zeros are a set, of which the kernel
    // uses 8 bytes. The arguments are strings, of which the program has given the last.
    unsafe {
        let mut blocked = std::mem::zeroed::<libc::sigset_t>();
        (&raw mut blocked).cast::<u64>().write(mask);
        let failed = libc::posix_spawnattr_init(attributes);
        if failed != 0 {
            return Err(failed);
        }
        libc::posix_spawnattr_setsigmask(attributes, &raw const blocked);
        libc::posix_spawnattr_setsigdefault(attributes, heard);
        libc::posix_spawnattr_setflags(attributes, flags as _);
        let failed = libc::posix_spawn(
            &raw mut child,
            c"/bin/sh".as_ptr(),
            ptr::null(),
            attributes,
            arguments.as_ptr(),
            environ,
        );
        libc::posix_spawnattr_destroy(attributes);
        if failed != 0 { Err(failed) } else { Ok(child) }
    }
}

unsafe extern "C" {
    static environ: *const *mut c_char;
}

/// The status of a child at its end, or -1. Signals are handled meanwhile.
fn await_end(child: pid_t) -> c_int {
    let mut status = 0;
    loop {
        match wait_for_child(child, User::lend(&mut status), 0, User::NULL) {
            Ok(_) => return status,
            Err(libc::EINTR) if hosted::current().is_some_and(HostedThread::is_cancelled) => {
                // SAFETY: accesses no memory; the child was not waited for, so the number is its.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // No wait of this thread's lasts any more.
                offload(|| wait4::original(child, User::lend(&mut status), 0, User::NULL));
                return status;
            }
            Err(libc::EINTR) => host::handle_signals(),
            Err(errno) => {
                set_errno(errno);
                return -1;
            }
        }
    }
}

interpose! { anywhere
    /// `pclose(3)`: fibers that wait on the stream's file end their calls with `EBADF` first. On a fiber, a
    /// thread that may block makes the call; signals are handled meanwhile.
    safe fn pclose(stream: User<c_void>) -> c_int, linked "__new_pclose" {
        let fd = number_of(stream.cast());
        descriptor::prepare_to_close(fd);
        if !fiber::on_fiber() {
            let status = original(stream);
            descriptor::closed(fd);
            return status;
        }
        let stream = stream.address();
        let status = amid_signals::offload(move || {
            // SAFETY: the program has given the stream away to be closed: nothing uses it until this call has ended,
            // nor if a handler leaves the call before.
            original(unsafe { User::new(std::ptr::with_exposed_provenance::<c_void>(stream)) })
        });
        descriptor::closed(fd);
        host::settle(libc::SIGCHLD);
        status
    }
}
