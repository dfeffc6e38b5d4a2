//! Signals that hit all kernel threads of the process, again and again.
//!
//! They interrupt no call of a fiber (docs/blocking.md), so the threads that fibers are compared with
//! block them.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How the handler of the signals is installed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Storm {
    /// With `SA_RESTART`.
    Restarting,
    /// Without it.
    Interrupting,
}

const BETWEEN: Duration = Duration::from_micros(300);

fn number(storm: Storm) -> i32 {
    match storm {
        Storm::Restarting => libc::SIGUSR1,
        Storm::Interrupting => libc::SIGUSR2,
    }
}

/// Installs the handlers. Once a process.
pub(crate) fn prepare() {
    extern "C" fn handler(_: i32) {}
    for storm in [Storm::Restarting, Storm::Interrupting] {
        let mut action = libc::sigaction {
            sa_sigaction: handler as extern "C" fn(i32) as usize,
            // SAFETY: a set of no signals is all zeros.
            sa_mask: unsafe { MaybeUninit::zeroed().assume_init() },
            sa_flags: 0,
            sa_restorer: None,
        };
        // A fiber's stack may have no room for a signal's frame.
        action.sa_flags = libc::SA_ONSTACK;
        if storm == Storm::Restarting {
            action.sa_flags |= libc::SA_RESTART;
        }
        // SAFETY: the handler does nothing.
        unsafe { libc::sigaction(number(storm), &action, std::ptr::null_mut()) };
    }
}

/// Keeps the signals from the calling thread.
pub(crate) fn shelter() {
    // SAFETY: a set of signals of our own.
    unsafe {
        let mut set = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::sigaddset(&mut set, libc::SIGUSR2);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Signals that are sent until it is dropped.
#[derive(Debug)]
pub(crate) struct Blowing {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

pub(crate) fn blow(storm: Storm) -> Blowing {
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    let thread = thread::spawn(move || {
        shelter();
        // SAFETY: it asks for a number.
        let own = unsafe { libc::gettid() };
        let process = std::process::id() as i32;
        while !seen.load(Ordering::Relaxed) {
            let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
            for task in tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok()) {
                if task != own {
                    // SAFETY: numbers; a thread that has ended is an error.
                    unsafe { libc::syscall(libc::SYS_tgkill, process, task, number(storm)) };
                }
            }
            thread::sleep(BETWEEN);
        }
    });
    Blowing { over, thread: Some(thread) }
}

impl Drop for Blowing {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
