//! What the program is to inherit as this process has: Rust's start changes it before `main`.
//!
//! It opens /dev/null where a standard stream is closed, and ignores SIGPIPE, which `Command` then gives its default
//! action, whatever that was before.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const STREAMS: usize = 3;

static CLOSED: [AtomicBool; STREAMS] = [const { AtomicBool::new(false) }; STREAMS];
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Called before Rust's own start.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    extern "C" fn at_start() {
        for (fd, closed) in CLOSED.iter().enumerate() {
            // SAFETY: no memory is involved.
            let is_open = unsafe { libc::fcntl(fd as i32, libc::F_GETFD) } >= 0;
            closed.store(!is_open, Ordering::Relaxed);
        }
        // SAFETY: there is room for the answer, of which zeros are a valid one.
        let ignored = unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
            action.sa_sigaction == libc::SIG_IGN
        };
        PIPE_IGNORED.store(ignored, Ordering::Relaxed);
    }
    at_start
};

/// Has `command` begin with what this process began with.
pub(super) fn give(command: &mut Command) {
    let restore = || -> io::Result<()> {
        if PIPE_IGNORED.load(Ordering::Relaxed) {
            // SAFETY: no handler of this process's is concerned.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        for (fd, closed) in CLOSED.iter().enumerate() {
            if closed.load(Ordering::Relaxed) {
                // If the program cannot be started, that is said where it would have been without this.
                // SAFETY: Rust has opened /dev/null there, which nothing else uses.
                let _ = unsafe { libc::fcntl(fd as i32, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        Ok(())
    };
    // SAFETY: it makes system calls only, and this process has one thread.
    unsafe { command.pre_exec(restore) };
}
