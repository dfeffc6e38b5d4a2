//! What the kernel keeps for each of its threads, and is remembered for a hosted one: see `affinity`, `lateness`,
//! `niceness` and `rights`.
//!
//! To the kernel it would be the carrier's. What a hosted thread creates in the kernel, a process or a thread that is
//! none but a thread, gets it as from a thread.

use std::ffi::{c_int, c_long};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI8, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use carefree_ground::kernel;

use crate::thread::processors::Set;

/// `IOPRIO_WHO_PROCESS`: one thread.
pub(super) const THREAD: usize = 1;
/// The kernel tells of `20 - niceness`, so that it is above 0.
pub(super) const BASE: c_int = 20;

/// What is kept for a hosted thread.
#[derive(Debug)]
pub(crate) struct Settings {
    /// From -20 to 19.
    pub(super) niceness: AtomicI8,
    /// Nanoseconds.
    pub(super) slack: AtomicU32,
    /// The slack that it began with, to which 0 sets it back.
    pub(super) first_slack: AtomicU32,
    /// As `ioprio_get` tells it.
    pub(super) file_priority: AtomicI32,
    /// Whether programs that it starts get no rights that it does not have (`PR_SET_NO_NEW_PRIVS`).
    pub(super) no_new_rights: AtomicBool,
    /// The processors that it has asked for: null, or a set that is never freed.
    processors: AtomicPtr<Set>,
}

/// What a thread has at one moment, and what it creates begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    niceness: i8,
    slack: u32,
    file_priority: i32,
    no_new_rights: bool,
    processors: Option<&'static Set>,
}

/// A system call that accesses no memory; 0 where it fails.
fn ask(number: c_long, arguments: [usize; 3]) -> usize {
    let [a, b, c] = arguments;
    // SAFETY: the calls here take numbers, and answer by one.
    unsafe { kernel::call(number, [a, b, c, 0, 0, 0]) }.unwrap_or(0)
}

impl Kept {
    /// What the calling kernel thread has.
    pub(super) fn of_kernel_thread() -> Kept {
        let process = libc::PRIO_PROCESS as usize;
        let priority = ask(libc::SYS_getpriority, [process, 0, 0]) as c_int;
        Kept {
            niceness: if priority == 0 { 0 } else { (BASE - priority) as i8 },
            slack: ask(libc::SYS_prctl, [libc::PR_GET_TIMERSLACK as usize, 0, 0]) as u32,
            file_priority: ask(libc::SYS_ioprio_get, [THREAD, 0, 0]) as i32,
            no_new_rights: ask(libc::SYS_prctl, [libc::PR_GET_NO_NEW_PRIVS as usize, 0, 0]) == 1,
            processors: None,
        }
    }

    /// Gives it to the calling kernel thread, which is the program's own.
    pub(crate) fn put_in_force(self) {
        let has = Kept::of_kernel_thread();
        if self.niceness != has.niceness {
            let process = libc::PRIO_PROCESS as usize;
            ask(libc::SYS_setpriority, [process, 0, self.niceness as usize]);
        }
        if self.slack != has.slack {
            ask(libc::SYS_prctl, [libc::PR_SET_TIMERSLACK as usize, self.slack as usize, 0]);
        }
        if self.file_priority != has.file_priority {
            ask(libc::SYS_ioprio_set, [THREAD, 0, self.file_priority as usize]);
        }
        if self.no_new_rights && !has.no_new_rights {
            get_no_new_rights();
        }
        if let Some(processors) = self.processors {
            // (If the process has lost all of them, it has others.)
            let _ = processors.give_to(0);
        }
    }
}

/// Has the calling kernel thread, and what that starts, get no rights that it does not have. That cannot be undone.
fn get_no_new_rights() {
    ask(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0]);
}

impl Settings {
    pub(crate) const fn new() -> Settings {
        Settings {
            niceness: AtomicI8::new(0),
            slack: AtomicU32::new(0),
            first_slack: AtomicU32::new(0),
            file_priority: AtomicI32::new(0),
            no_new_rights: AtomicBool::new(false),
            processors: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn kept(&self) -> Kept {
        Kept {
            niceness: self.niceness.load(Ordering::Relaxed),
            slack: self.slack.load(Ordering::Relaxed),
            file_priority: self.file_priority.load(Ordering::Relaxed),
            no_new_rights: self.no_new_rights.load(Ordering::Relaxed),
            processors: self.processors(),
        }
    }

    /// `None` if it has asked for none, nor its creators.
    pub(super) fn processors(&self) -> Option<&'static Set> {
        // SAFETY: null, or a set that is never freed.
        unsafe { self.processors.load(Ordering::Acquire).as_ref() }
    }

    pub(super) fn set_processors(&self, set: Option<&'static Set>) {
        let set = set.map_or(ptr::null(), ptr::from_ref);
        self.processors.store(set.cast_mut(), Ordering::Release);
    }

    /// A thread begins with what its creator has; without one, with what the calling kernel thread has.
    pub(crate) fn inherit(&self, creator: Option<&Settings>) {
        let kept = creator.map_or_else(Kept::of_kernel_thread, Settings::kept);
        self.niceness.store(kept.niceness, Ordering::Relaxed);
        self.slack.store(kept.slack, Ordering::Relaxed);
        self.first_slack.store(kept.slack, Ordering::Relaxed);
        self.file_priority.store(kept.file_priority, Ordering::Relaxed);
        self.no_new_rights.store(kept.no_new_rights, Ordering::Relaxed);
        self.set_processors(kept.processors);
    }

    /// The thread starts a program, or sandboxes all threads: what the kernel asks for then of the calling kernel thread is
    /// put in force. (A carrier keeps that: other threads that start programs from it get no new rights either.)
    pub(crate) fn before_program(&self) {
        if self.no_new_rights.load(Ordering::Relaxed) {
            get_no_new_rights();
        }
    }

    /// Calls `start`, which starts a program, with the thread's processors in force for the calling kernel thread: the
    /// program inherits them. `start` must not park.
    pub(crate) fn with_processors<T>(&self, start: impl FnOnce() -> T) -> T {
        let Some(processors) = self.processors() else { return start() };
        let before = Set::of_kernel_thread(0);
        let _ = processors.give_to(0);
        let started = start();
        if let Ok(before) = before {
            let _ = before.give_to(0);
        }
        started
    }
}
