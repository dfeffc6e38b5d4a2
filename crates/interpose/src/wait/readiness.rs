//! Asking the kernel which files are ready, by the system call that a sandbox lets through.
//!
//! The newer calls take a set of signals and a time to the nanosecond; a sandbox may know only the
//! older ones, which some architectures have besides. A program's own call is made as libc makes it:
//! it is refused in a sandbox if a thread's is. What Carefree itself wants to know is asked in
//! whichever way is let through.

use std::ffi::c_int;
use std::ptr;

use carefree_ground::kernel;
use libc::{c_long, epoll_event, pollfd, sigset_t, timespec};

use crate::call::answer::Answer;
use crate::time::duration;

/// Bytes of the kernel's set of signals.
const SIGNALS: usize = 8;

/// Which of the functions of one kind the program has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The one without a set of signals: an older system call, where the architecture has that.
    Plain,
    /// With a set of signals: a newer system call.
    Masked,
    /// `epoll_pwait2`.
    Precise,
}

/// Whether it is the system call that was refused, by an old kernel or a sandbox. These calls fail
/// with none of these errors of their own.
fn is_refusal(answer: Answer) -> bool {
    matches!(answer, Err(libc::ENOSYS | libc::EPERM | libc::EACCES))
}

/// What `newer` answers, or if that is refused what `older` does, unless that is refused as well.
fn either(newer: Answer, older: impl FnOnce() -> Answer) -> Answer {
    if !is_refusal(newer) {
        return newer;
    }
    let older = older();
    if is_refusal(older) { newer } else { older }
}

/// A time in nanoseconds as milliseconds for the kernel, rounded up: not to be back before the time.
fn millis(nanos: Option<u64>) -> c_int {
    nanos.map_or(-1, |nanos| c_int::try_from(nanos.div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

/// `poll` in one of its forms, for so many nanoseconds, or for as long as it takes.
///
/// # Safety
/// As for libc's.
pub(crate) unsafe fn poll(
    form: Form,
    files: *mut pollfd,
    count: usize,
    nanos: Option<u64>,
) -> Answer {
    #[cfg(target_arch = "x86_64")]
    if form == Form::Plain {
        let arguments = [files as usize, count, millis(nanos) as usize, 0, 0, 0];
        // SAFETY: the caller's promise.
        return unsafe { kernel::call(libc::SYS_poll, arguments) };
    }
    let _ = form;
    let time = nanos.map(duration::timespec);
    // SAFETY: the caller's promise.
    unsafe { ppoll(files, count, time, ptr::null()) }
}

/// # Safety
/// As for libc's.
pub(crate) unsafe fn ppoll(
    files: *mut pollfd,
    count: usize,
    time: Option<timespec>,
    mask: *const sigset_t,
) -> Answer {
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let arguments = [files as usize, count, time as usize, mask as usize, SIGNALS, 0];
    // SAFETY: the caller's promise.
    unsafe { kernel::call(libc::SYS_ppoll, arguments) }
}

/// What there is of `file` at once, or if it is waited for: not for the program, but for us.
pub(crate) fn one(file: &mut pollfd, nanos: Option<u64>) -> Answer {
    let mut poll = |form| {
        // SAFETY: an array of one.
        unsafe { self::poll(form, file, 1, nanos) }
    };
    either(poll(Form::Masked), || poll(Form::Plain))
}

/// Waits for `file` with these signals blocked, not for the program, but for us.
pub(crate) fn one_with_mask(file: &mut pollfd, mask: u64) -> Answer {
    let mask = &raw const mask;
    // SAFETY: an array of one, and a set of signals.
    either(unsafe { ppoll(file, 1, None, mask.cast()) }, || {
        let mut set = vec![0u64; file.fd as usize / 64 + 1];
        set[file.fd as usize / 64] |= 1 << (file.fd % 64);
        let mask = [mask as usize, SIGNALS];
        let arguments = [file.fd as usize + 1, set.as_mut_ptr() as usize, 0, 0, 0];
        let [most, read, write, except, time] = arguments;
        let arguments = [most, read, write, except, time, mask.as_ptr() as usize];
        // SAFETY: a set that has the bit, and a set of signals, which live until the call returns.
        unsafe { kernel::call(libc::SYS_pselect6, arguments) }
    })
}

/// `select` or, with a set of signals, `pselect`.
///
/// libc has made `select` by either system call, depending on its version.
///
/// # Safety
/// As for libc's.
pub(crate) unsafe fn select(
    form: Form,
    most: usize,
    sets: [usize; 3],
    time: Option<timespec>,
    mask: *const sigset_t,
) -> Answer {
    // The kernel says in it how much time is left, libc does not.
    let mut copy = time;
    let copy = copy.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let mask = [mask as usize, SIGNALS];
    let arguments = [most, sets[0], sets[1], sets[2], copy as usize, mask.as_ptr() as usize];
    // SAFETY: the caller's promise.
    let newer = unsafe { kernel::call(libc::SYS_pselect6, arguments) };
    #[cfg(target_arch = "x86_64")]
    if form == Form::Plain {
        return either(newer, || {
            let mut time = time.map(|time| libc::timeval {
                tv_sec: time.tv_sec,
                // Rounded up; the kernel lets it be a whole second.
                tv_usec: (time.tv_nsec + 999) / 1000,
            });
            let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
            let arguments = [most, sets[0], sets[1], sets[2], time as usize, 0];
            // SAFETY: the caller's promise.
            unsafe { kernel::call(libc::SYS_select, arguments) }
        });
    }
    let _ = form;
    newer
}

/// Those of an epoll instance, in one of its forms, for so many nanoseconds, or for as long as it
/// takes.
///
/// # Safety
/// As for libc's.
pub(crate) unsafe fn epoll(
    form: Form,
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    nanos: Option<u64>,
) -> Answer {
    let call = |number: c_long, time: usize| {
        let arguments = [epoll as usize, events as usize, most as usize, time, 0, SIGNALS];
        // SAFETY: the caller's promise.
        unsafe { kernel::call(number, arguments) }
    };
    match form {
        #[cfg(target_arch = "x86_64")]
        Form::Plain => call(libc::SYS_epoll_wait, millis(nanos) as usize),
        Form::Precise => {
            let time = nanos.map(duration::timespec);
            let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
            call(libc::SYS_epoll_pwait2, time as usize)
        }
        _ => call(libc::SYS_epoll_pwait, millis(nanos) as usize),
    }
}

/// Whether one of `events` is there, or `fd` is wrong.
pub(crate) fn is_ready(fd: c_int, events: i16) -> bool {
    look(fd, events) != Ok(0)
}

/// Whether the connection `fd` is over in both directions. An error that it has for its next call is
/// left to that.
pub(crate) fn is_hung_up(fd: c_int) -> bool {
    look(fd, 0).is_ok_and(|there| there & libc::POLLHUP != 0)
}

/// Which of `events` are there at once, and what is wrong.
pub(crate) fn look(fd: c_int, events: i16) -> Result<i16, c_int> {
    let mut file = pollfd { fd, events, revents: 0 };
    loop {
        match one(&mut file, Some(0)) {
            // Some signal, even though it does not wait.
            Err(libc::EINTR) => {}
            polled => return polled.map(|_| file.revents),
        }
    }
}
