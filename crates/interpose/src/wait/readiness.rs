//! Asking the kernel which files are ready.
//!
//! The newer calls take a set of signals and a time in nanoseconds; a sandbox may allow only the older
//! ones, which some architectures have as well. A program's own call is made as libc makes it, so a sandbox
//! refuses it if it would refuse a thread's. For what Carefree itself wants to know, both are tried.

use std::ffi::c_int;

use libc::{epoll_event, pollfd, sigset_t, timespec};

use crate::call::answer::Answer;
use crate::call::sys::{self, Number, Word};
use crate::call::user::User;
use crate::time::duration;

/// Bytes of the kernel's set of signals.
pub(crate) const SIGNALS: usize = 8;

/// Which function of its kind the program has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Without a set of signals: the older system call, where the architecture has one.
    Plain,
    /// With a set of signals: the newer system call.
    Masked,
    /// `epoll_pwait2`.
    Precise,
}

/// Whether a poll that found `events` would find them again at once, though a call still waits for `wanted`: those are
/// notices in a socket's error queue, say, which only a call for that queue takes out.
pub(crate) fn is_vain(events: usize, wanted: i16) -> bool {
    events != 0 && events & wanted as usize == 0
}

/// Whether an old kernel or a sandbox has refused the system call: of their own, these calls fail with
/// none of these errors.
fn is_refusal(answer: Answer) -> bool {
    matches!(answer, Err(libc::ENOSYS | libc::EPERM | libc::EACCES))
}

/// The answer of `newer`; if that was refused, the answer of `older`, unless that is refused as well.
fn either(newer: Answer, older: impl FnOnce() -> Answer) -> Answer {
    if !is_refusal(newer) {
        return newer;
    }
    let older = older();
    if is_refusal(older) { newer } else { older }
}

/// Nanoseconds as milliseconds for the kernel, rounded up so that the call is not back too early.
fn millis(nanos: Option<u64>) -> c_int {
    nanos.map_or(-1, |nanos| c_int::try_from(nanos.div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

/// `poll` in one of its forms, for so many nanoseconds, or for as long as it takes.
pub(crate) fn poll(form: Form, files: User<pollfd>, count: usize, nanos: Option<u64>) -> Answer {
    #[cfg(target_arch = "x86_64")]
    if form == Form::Plain {
        let arguments = [files.into(), count.into(), millis(nanos).into()];
        return sys::call(Number::POLL, arguments);
    }
    let _ = form;
    let time = nanos.map(duration::timespec);
    ppoll(files, count, time, User::NULL)
}

/// `ppoll` for so long, with these signals blocked, if given.
pub(crate) fn ppoll(
    files: User<pollfd>,
    count: usize,
    mut time: Option<timespec>,
    mask: User<sigset_t>,
) -> Answer {
    let time = User::lend_some(&mut time);
    let arguments = [files.into(), count.into(), time.into(), mask.into(), SIGNALS.into()];
    sys::call(Number::PPOLL, arguments)
}

/// Polls `file` for our own use.
pub(crate) fn one(file: &mut pollfd, nanos: Option<u64>) -> Answer {
    let mut poll = |form| self::poll(form, User::lend(file), 1, nanos);
    either(poll(Form::Masked), || poll(Form::Plain))
}

/// Waits for `file`, with these signals blocked, for our own use.
pub(crate) fn one_with_mask(file: &mut pollfd, mask: u64) -> Answer {
    let mut mask = mask;
    let mask = User::lend(&mut mask).cast();
    either(ppoll(User::lend(file), 1, None, mask), || {
        let fd = file.fd as usize;
        let mut set = vec![0u64; fd / 64 + 1];
        set[fd / 64] |= 1 << (fd % 64);
        // As many bits as are looked at.
        let sets = [User::lend(&mut set[0]), User::NULL, User::NULL];
        select(Form::Masked, fd + 1, sets, None, mask)
    })
}

/// `select` or, with a set of signals, `pselect`.
///
/// Depending on its version, libc makes `select` by either system call.
pub(crate) fn select(
    form: Form,
    most: usize,
    sets: [User<u64>; 3],
    time: Option<timespec>,
    mask: User<sigset_t>,
) -> Answer {
    // The kernel says in it how much time is left, libc does not.
    let mut copy = time;
    let copy = User::lend_some(&mut copy);
    let mut mask = [mask.address(), SIGNALS];
    let mask = User::lend(&mut mask);
    let [read, write, except] = sets.map(Word::from);
    let arguments = [most.into(), read, write, except, copy.into(), mask.into()];
    let newer = sys::call(Number::PSELECT6, arguments);
    #[cfg(target_arch = "x86_64")]
    if form == Form::Plain {
        return either(newer, || {
            let mut time = time.map(|time| libc::timeval {
                tv_sec: time.tv_sec,
                // Rounded up; the kernel lets it be a whole second.
                tv_usec: (time.tv_nsec + 999) / 1000,
            });
            let time = User::lend_some(&mut time);
            let arguments = [most.into(), read, write, except, time.into()];
            sys::call(Number::SELECT, arguments)
        });
    }
    let _ = form;
    newer
}

/// `epoll_wait` in one of its forms, for so many nanoseconds, or for as long as it takes.
pub(crate) fn epoll(
    form: Form,
    epoll: c_int,
    events: User<epoll_event>,
    most: c_int,
    nanos: Option<u64>,
) -> Answer {
    let call = |number: Number, time: Word| {
        let arguments =
            [epoll.into(), events.into(), most.into(), time, 0usize.into(), SIGNALS.into()];
        sys::call(number, arguments)
    };
    match form {
        #[cfg(target_arch = "x86_64")]
        Form::Plain => call(Number::EPOLL_WAIT, millis(nanos).into()),
        Form::Precise => {
            let mut time = nanos.map(duration::timespec);
            call(Number::EPOLL_PWAIT2, User::lend_some(&mut time).into())
        }
        _ => call(Number::EPOLL_PWAIT, millis(nanos).into()),
    }
}

/// Whether one of `events` has occurred on `fd`, or `fd` cannot be polled.
pub(crate) fn is_ready(fd: c_int, events: i16) -> bool {
    look(fd, events) != Ok(0)
}

/// Whether the connection `fd` is shut down in both directions. An error that it keeps for its next call
/// is left there.
pub(crate) fn is_hung_up(fd: c_int) -> bool {
    look(fd, 0).is_ok_and(|there| there & libc::POLLHUP != 0)
}

/// Whether the peer has closed its direction of the connection `fd`.
pub(crate) fn is_half_closed(fd: c_int) -> bool {
    look(fd, libc::POLLRDHUP).is_ok_and(|there| there & libc::POLLRDHUP != 0)
}

/// Which of `events` have occurred, and errors.
pub(crate) fn look(fd: c_int, events: i16) -> Result<i16, c_int> {
    let mut file = pollfd { fd, events, revents: 0 };
    loop {
        match one(&mut file, Some(0)) {
            // A signal interrupted the call even though it does not wait.
            Err(libc::EINTR) => {}
            polled => return polled.map(|_| file.revents),
        }
    }
}
