//! Asking the kernel which files are ready, by the system call that a sandbox lets through.
//!
//! The newer calls take a set of signals and a time to the nanosecond; a sandbox may know only the
//! older ones, which some architectures have besides. A program's own call is made as libc makes it:
//! it is refused in a sandbox if a thread's is. What Carefree itself wants to know is asked in
//! whichever way is let through.

use std::ffi::c_int;

use libc::{epoll_event, pollfd, sigset_t, timespec};

use crate::call::answer::Answer;
use crate::call::sys;
use crate::call::sys::Number;
use crate::call::sys::Word;
use crate::call::user::User;
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

/// What there is of `file` at once, or if it is waited for: not for the program, but for us.
pub(crate) fn one(file: &mut pollfd, nanos: Option<u64>) -> Answer {
    let mut poll = |form| self::poll(form, User::lend(file), 1, nanos);
    either(poll(Form::Masked), || poll(Form::Plain))
}

/// Waits for `file` with these signals blocked, not for the program, but for us.
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
/// libc has made `select` by either system call, depending on its version.
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

/// Those of an epoll instance, in one of its forms, for so many nanoseconds, or for as long as it
/// takes.
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
