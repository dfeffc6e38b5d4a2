//! `poll`, `select`, `epoll_wait` and their kin: waiting for one of several files.
//!
//! A call is tried without waiting. If nothing is ready, the fiber parks until the reactor says that
//! something has happened on one of the files, and the call is tried again: the kernel's own answer
//! is what the caller gets, and what another has taken meanwhile is waited for again.
//!
//! A file that is closed while a fiber waits for it is reported as one that is not open (`POLLNVAL`,
//! `EBADF`). On a thread it would be waited for as if nothing had happened.
//!
//! With a signal mask of its own, a call is made by a thread that may block, for it is that thread's
//! signals that the call is about.

use std::ffi::{c_int, c_ulong};
use std::ptr;

use carefree_ground::kernel;
use carefree_reactor::Op;
use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::operation::{self, Ended, Wait};
use carefree_runtime::waiters::Seat;
use carefree_runtime::{Reason, wait, yield_now};
use libc::{epoll_event, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::fiber::{answer, set_errno};
use crate::files::Waiter;
use crate::glance::Form;
use crate::parking::{Answer, interruption};
use crate::span::{self, deadline, deadline_of_millis};
use crate::undisturbed::offload;
use crate::{glance, memory};

/// Bytes of the kernel's set of signals.
const SIGNALS: usize = 8;

unsafe extern "C-unwind" fn raw_poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let nanos = u64::try_from(timeout).ok().map(|millis| millis * 1_000_000);
    // SAFETY: the caller's promise.
    answer(unsafe { glance::poll(Form::Plain, files, count as usize, nanos) }) as c_int
}

unsafe extern "C-unwind" fn raw_ppoll(
    files: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // The kernel says in it how much time is left, libc does not.
    // SAFETY: the caller's promise.
    let copy = unsafe { timeout.as_ref() }.copied();
    // SAFETY: as above.
    answer(unsafe { glance::ppoll(files, count as usize, copy, mask) }) as c_int
}

unsafe extern "C-unwind" fn raw_select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let time = unsafe { timeout.as_ref() }
        .map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 });
    let sets = [read as usize, write as usize, except as usize];
    // SAFETY: as above.
    answer(unsafe { glance::select(Form::Plain, count as usize, sets, time, ptr::null()) }) as c_int
}

unsafe extern "C-unwind" fn raw_pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let time = unsafe { timeout.as_ref() }.copied();
    let sets = [read as usize, write as usize, except as usize];
    // SAFETY: as above.
    answer(unsafe { glance::select(Form::Masked, count as usize, sets, time, mask) }) as c_int
}

unsafe extern "C-unwind" fn raw_epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let nanos = u64::try_from(timeout).ok().map(|millis| millis * 1_000_000);
    // SAFETY: the caller's promise.
    answer(unsafe { glance::epoll(Form::Plain, epoll, events, most, nanos) }) as c_int
}

unsafe extern "C-unwind" fn raw_epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let arguments =
        [epoll as usize, events as usize, most as usize, timeout as usize, mask as usize, SIGNALS];
    // SAFETY: the caller's promise.
    answer(unsafe { kernel::call(libc::SYS_epoll_pwait, arguments) }) as c_int
}

unsafe extern "C-unwind" fn raw_epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let arguments =
        [epoll as usize, events as usize, most as usize, timeout as usize, mask as usize, SIGNALS];
    // SAFETY: the caller's promise.
    answer(unsafe { kernel::call(libc::SYS_epoll_pwait2, arguments) }) as c_int
}

interpose! {
    /// `poll(2)`.
    fn poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int, else raw_poll {
        // SAFETY: the caller's promise.
        let polled = unsafe { poll_until(Form::Plain, files, count, deadline_of_millis(timeout)) };
        answer(polled) as c_int
    }
}

interpose! {
    /// `ppoll(2)`.
    fn ppoll(
        files: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int, else raw_ppoll {
        if changes_signals(mask) {
            // SAFETY: the caller's promise, and the caller waits.
            return unsafe { offload(|| original(files, count, timeout, mask)) };
        }
        // SAFETY: the caller's promise.
        let poll = |deadline| unsafe { poll_until(Form::Masked, files, count, deadline) };
        let polled = deadline(timeout).and_then(poll);
        answer(polled) as c_int
    }
}

interpose! {
    /// `select(2)`. As Linux has it, `timeout` says afterwards how much of it is left.
    fn select(
        count: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        timeout: *mut timeval,
    ) -> c_int, else raw_select {
        // SAFETY: the caller's promise.
        let until = match unsafe { timeout.as_ref() }.map(span_of_timeval) {
            None => NEVER,
            Some(Ok(nanos)) => span::from_now(nanos),
            Some(Err(errno)) => {
                set_errno(errno);
                return -1;
            }
        };
        // SAFETY: as above.
        let selected = unsafe { select_until(Form::Plain, count, [read, write, except], until) };
        // SAFETY: as above.
        if let Some(timeout) = unsafe { timeout.as_mut() } {
            let left = span::timespec(span::left(until));
            *timeout = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 };
        }
        answer(selected) as c_int
    }
}

interpose! {
    /// `pselect(2)`.
    fn pselect(
        count: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int, else raw_pselect {
        if changes_signals(mask) {
            // SAFETY: the caller's promise, and the caller waits.
            return unsafe { offload(|| original(count, read, write, except, timeout, mask)) };
        }
        // SAFETY: the caller's promise.
        let select =
            |deadline| unsafe { select_until(Form::Masked, count, [read, write, except], deadline) };
        let selected = deadline(timeout).and_then(select);
        answer(selected) as c_int
    }
}

interpose! {
    /// `epoll_wait(2)`.
    fn epoll_wait(
        epoll: c_int,
        events: *mut epoll_event,
        most: c_int,
        timeout: c_int,
    ) -> c_int, else raw_epoll_wait {
        let deadline = deadline_of_millis(timeout);
        // SAFETY: the caller's promise.
        answer(unsafe { epoll_until(Form::Plain, epoll, events, most, deadline) }) as c_int
    }
}

interpose! {
    /// `epoll_pwait(2)`.
    fn epoll_pwait(
        epoll: c_int,
        events: *mut epoll_event,
        most: c_int,
        timeout: c_int,
        mask: *const sigset_t,
    ) -> c_int, else raw_epoll_pwait {
        if changes_signals(mask) {
            // SAFETY: the caller's promise, and the caller waits.
            return unsafe { offload(|| original(epoll, events, most, timeout, mask)) };
        }
        let deadline = deadline_of_millis(timeout);
        // SAFETY: the caller's promise.
        answer(unsafe { epoll_until(Form::Masked, epoll, events, most, deadline) }) as c_int
    }
}

interpose! {
    /// `epoll_pwait2(2)`.
    fn epoll_pwait2(
        epoll: c_int,
        events: *mut epoll_event,
        most: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int, else raw_epoll_pwait2 {
        if changes_signals(mask) {
            // SAFETY: the caller's promise, and the caller waits.
            return unsafe { offload(|| original(epoll, events, most, timeout, mask)) };
        }
        // SAFETY: the caller's promise.
        let wait = |deadline| unsafe { epoll_until(Form::Precise, epoll, events, most, deadline) };
        let waited = deadline(timeout).and_then(wait);
        answer(waited) as c_int
    }
}

/// Whether signals would be blocked or let through by `mask` that are not already.
fn changes_signals(mask: *const sigset_t) -> bool {
    if mask.is_null() {
        return false;
    }
    if memory::check(mask.cast::<u64>(), 1).is_err() {
        // The call says so.
        return true;
    }
    let mut now = 0u64;
    let arguments = [libc::SIG_BLOCK as usize, 0, (&raw mut now) as usize, SIGNALS, 0, 0];
    // SAFETY: there is room for the answer.
    let asked = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
    // SAFETY: it can be read, and the kernel uses as much of a set of signals.
    asked.is_err() || now != unsafe { mask.cast::<u64>().read_unaligned() }
}

/// Nothing was ready and the caller does not want to wait: who asks in a loop lets others run.
fn nothing_yet(deadline: u64) -> bool {
    let over = deadline <= clock::now();
    if over {
        yield_now();
    }
    over
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
        match glance::one(&mut file, Some(0)) {
            // Some signal, even though it does not wait.
            Err(libc::EINTR) => {}
            polled => return polled.map(|_| file.revents),
        }
    }
}

/// What a call waits for.
struct Wanted {
    fd: c_int,
    events: u32,
    /// Where in the caller's list.
    place: usize,
    /// The reactor cannot wait for it: it never has such an event.
    hopeless: bool,
}

/// How waiting for several files ended.
enum Woken {
    /// Something may be ready.
    Perhaps,
    /// Those at these places are being closed.
    Closed(Vec<usize>),
    Late,
    Failed(c_int),
    /// The reactor cannot do it.
    Unsupported,
}

/// Parks until something may have happened on one of the files in `wanted`.
fn park(wanted: &mut [Wanted], deadline: u64) -> Woken {
    match wanted {
        [one] if !one.hopeless => park_on_one(one, deadline),
        _ => park_on_several(wanted, deadline),
    }
}

fn park_on_one(one: &mut Wanted, deadline: u64) -> Woken {
    let seat = Seat::new();
    let Some(waiter) = Waiter::new(one.fd, &seat) else { return Woken::Closed(vec![one.place]) };
    let holds = || waiter.holds();
    let unheld = waiter.unheld();
    let how = Wait { reason: Reason::Poll, deadline, holds: &holds, unheld };
    // SAFETY: it points to nothing.
    match unsafe { operation::perform(&Op::Poll { fd: one.fd, events: one.events }, &how) } {
        Ended::Done(result) => learn([(one, Some(result))]),
        Ended::Late => Woken::Late,
        Ended::Interrupted(why) => Woken::Failed(interruption(why)),
        Ended::Pointless => Woken::Closed(vec![one.place]),
        Ended::Unsupported => Woken::Unsupported,
    }
}

/// What the reactor's answers say of the files they are about, and of the call.
fn learn<'w>(answers: impl IntoIterator<Item = (&'w mut Wanted, Option<i32>)>) -> Woken {
    let (mut happened, mut without_memory) = (false, false);
    for (one, result) in answers {
        match result.map_or(0, |result| -result) {
            // It is asked again: the file may well have such events.
            0 | libc::EINTR | libc::ECANCELED => {}
            libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC => without_memory = true,
            errno => {
                one.hopeless = errno > 0;
                happened = true;
            }
        }
    }
    if without_memory && !happened { Woken::Failed(libc::ENOMEM) } else { Woken::Perhaps }
}

fn park_on_several(wanted: &mut [Wanted], deadline: u64) -> Woken {
    let seats: Vec<_> = wanted.iter().map(|_| Seat::new()).collect();
    let mut waiters = Vec::with_capacity(wanted.len());
    let mut ops = Vec::with_capacity(wanted.len());
    let mut closed = Vec::new();
    for (one, seat) in wanted.iter().zip(&seats) {
        match Waiter::new(one.fd, seat) {
            Some(waiter) => waiters.push(waiter),
            None => closed.push(one.place),
        }
        if !one.hopeless {
            ops.push(Op::Poll { fd: one.fd, events: one.events });
        }
    }
    if !closed.is_empty() {
        return Woken::Closed(closed);
    }
    let holds = || waiters.iter().all(Waiter::holds);
    let unheld = waiters.iter().any(Waiter::unheld);
    let how = Wait { reason: Reason::Poll, deadline, holds: &holds, unheld };
    let mut results = Vec::new();
    // SAFETY: they point to nothing.
    match unsafe { operation::perform_any(&ops, &how, &mut results) } {
        Ended::Done(_) => {
            let submitted = wanted.iter_mut().filter(|one| !one.hopeless);
            learn(submitted.zip(results))
        }
        Ended::Late => Woken::Late,
        Ended::Interrupted(why) => Woken::Failed(interruption(why)),
        Ended::Pointless => {
            let closed = (wanted.iter().zip(&waiters)).filter(|(_, waiter)| !waiter.holds());
            Woken::Closed(closed.map(|(one, _)| one.place).collect())
        }
        Ended::Unsupported => Woken::Unsupported,
    }
}

/// `poll` until `deadline`.
///
/// # Safety
/// As for libc's.
unsafe fn poll_until(form: Form, files: *mut pollfd, count: nfds_t, deadline: u64) -> Answer {
    let mut wanted: Option<Vec<Wanted>> = None;
    loop {
        // SAFETY: the caller's promise.
        let tried = unsafe { glance::poll(form, files, count as usize, Some(0)) };
        if tried == Err(libc::EINTR) {
            // A signal came, though the call did not wait. Signals end no fiber's calls.
            continue;
        }
        if tried == Err(libc::EFAULT) && !nothing_yet(deadline) {
            // What can be read and not be written is told of when the wait is over.
            memory::check(files, count as usize)?;
            // SAFETY: the caller's promise.
            return unsafe { poll_elsewhere(form, files, count, deadline) };
        }
        if tried != Ok(0) || nothing_yet(deadline) {
            return tried;
        }
        let wanted = wanted.get_or_insert_with(|| {
            let of = |place| {
                // SAFETY: the kernel has found them there, and does not ask for alignment.
                let file = unsafe { files.add(place).read_unaligned() };
                let events = u32::from(file.events as u16);
                Wanted { fd: file.fd, events, place, hopeless: false }
            };
            (0..count as usize).map(of).filter(|wanted| wanted.fd >= 0).collect()
        });
        match park(wanted, deadline) {
            Woken::Perhaps => {}
            Woken::Late => return Ok(0),
            Woken::Failed(errno) => return Err(errno),
            Woken::Closed(places) => {
                for &place in &places {
                    // SAFETY: as above, and they are the caller's to be written.
                    unsafe {
                        (&raw mut (*files.add(place)).revents).write_unaligned(libc::POLLNVAL);
                    }
                }
                return Ok(places.len());
            }
            Woken::Unsupported => {
                // SAFETY: the caller's promise.
                return unsafe { poll_elsewhere(form, files, count, deadline) };
            }
        }
    }
}

/// `poll` until `deadline` by a thread that may block.
///
/// # Safety
/// As for libc's.
unsafe fn poll_elsewhere(form: Form, files: *mut pollfd, count: nfds_t, deadline: u64) -> Answer {
    let left = left(deadline);
    // SAFETY: the caller's promise, and the caller waits.
    unsafe { offload(|| glance::poll(form, files, count as usize, left)) }
}

/// How many nanoseconds it is until `deadline`, if that ever comes.
fn left(deadline: u64) -> Option<u64> {
    (deadline != NEVER).then(|| span::left(deadline))
}

/// # Safety
/// `first` points to `count` values, or `count` is 0.
unsafe fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first, count) }
}

fn span_of_timeval(time: &timeval) -> Result<u64, c_int> {
    // libc lets the microseconds be more than a second.
    let seconds = time.tv_sec.checked_add(time.tv_usec / 1_000_000).ok_or(libc::EINVAL)?;
    span::span(&timespec { tv_sec: seconds, tv_nsec: time.tv_usec % 1_000_000 * 1000 })
}

type Word = c_ulong;

/// What `select` waits for in each of its three sets, as `poll` names it.
const EVENTS: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
    libc::POLLPRI,
];

/// `select` until `deadline`.
///
/// # Safety
/// As for libc's.
unsafe fn select_until(
    form: Form,
    count: c_int,
    sets: [*mut libc::fd_set; 3],
    deadline: u64,
) -> Answer {
    let Ok(most) = usize::try_from(count) else { return Err(libc::EINVAL) };
    let most = if most > libc::FD_SETSIZE { most.min(numbers()) } else { most };
    let words = most.div_ceil(Word::BITS as usize);
    let sets = sets.map(|set| set.cast::<Word>());
    for set in sets.iter().filter(|set| !set.is_null()) {
        memory::check(set.cast_const(), words)?;
    }
    // The kernel overwrites what it is asked.
    let asked = sets.map(|set| {
        // SAFETY: a set that is given has at least as many bits as are to be looked at, in words, and
        // they can be read.
        if set.is_null() { &[] } else { unsafe { slice(set.cast_const(), words) } }.to_vec()
    });
    let give = |answers: &[Vec<Word>; 3]| {
        for (set, answer) in sets.iter().zip(answers).filter(|(set, _)| !set.is_null()) {
            let each_page = (0..words).step_by(memory::PAGE / size_of::<Word>());
            for place in each_page.chain(words.checked_sub(1)) {
                // SAFETY: it is overwritten.
                unsafe { memory::check_writable(set.add(place)) }?;
            }
            // SAFETY: as above, and they are the caller's to be written.
            unsafe { ptr::copy_nonoverlapping(answer.as_ptr(), *set, words) };
        }
        Ok(())
    };
    let mut wanted: Option<Vec<Wanted>> = None;
    loop {
        let mut answers = asked.clone();
        let tried = try_select(form, most, &sets, &mut answers, Some(0));
        if tried == Err(libc::EINTR) {
            continue;
        }
        if tried != Ok(0) || nothing_yet(deadline) {
            let selected = tried?;
            return give(&answers).map(|()| selected);
        }
        let wanted = wanted.get_or_insert_with(|| wanted_of(most, &asked));
        match park(wanted, deadline) {
            Woken::Perhaps => {}
            Woken::Late => return give(&answers).map(|()| 0),
            Woken::Failed(errno) => return Err(errno),
            Woken::Closed(_) => return Err(libc::EBADF),
            Woken::Unsupported => {
                let mut answers = asked.clone();
                let left = left(deadline);
                // SAFETY: the caller waits.
                let selected =
                    unsafe { offload(|| try_select(form, most, &sets, &mut answers, left)) }?;
                return give(&answers).map(|()| selected);
            }
        }
    }
}

/// How many file descriptors there is room for now.
///
/// The kernel looks at no more of a set, and so lets programs name the most there could ever be
/// (`select(getdtablesize(), …)`), which is more than a set of theirs has room for.
#[cold]
fn numbers() -> usize {
    let status = wait::without_parking(|| std::fs::read_to_string("/proc/self/status"));
    let size = status.ok().and_then(|status| {
        status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse().ok())
    });
    size.unwrap_or(libc::FD_SETSIZE)
}

/// `select` with copies of the caller's sets.
fn try_select(
    form: Form,
    most: usize,
    given: &[*mut Word; 3],
    copies: &mut [Vec<Word>; 3],
    nanos: Option<u64>,
) -> Answer {
    let mut pointers = [0; 3];
    for ((pointer, copy), given) in pointers.iter_mut().zip(copies).zip(given) {
        *pointer = if given.is_null() { 0 } else { copy.as_mut_ptr() as usize };
    }
    // SAFETY: the sets have the bits that are looked at.
    unsafe { glance::select(form, most, pointers, nanos.map(span::timespec), ptr::null()) }
}

fn wanted_of(most: usize, sets: &[Vec<Word>; 3]) -> Vec<Wanted> {
    let has = |set: &Vec<Word>, fd: usize| {
        let word = set.get(fd / Word::BITS as usize);
        word.is_some_and(|word| word >> (fd % Word::BITS as usize) & 1 != 0)
    };
    let events_of = |fd| {
        let events = sets.iter().zip(EVENTS).filter(|(set, _)| has(set, fd));
        events.fold(0, |sum, (_, events)| sum | u32::from(events as u16))
    };
    (0..most)
        .map(|fd| Wanted { fd: fd as c_int, events: events_of(fd), place: fd, hopeless: false })
        .filter(|wanted| wanted.events != 0)
        .collect()
}

/// `epoll_wait` until `deadline`.
///
/// # Safety
/// As for libc's.
unsafe fn epoll_until(
    form: Form,
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    deadline: u64,
) -> Answer {
    let read = u32::from(libc::POLLIN as u16);
    let mut wanted = [Wanted { fd: epoll, events: read, place: 0, hopeless: false }];
    loop {
        // SAFETY: the caller's promise.
        let tried = unsafe { glance::epoll(form, epoll, events, most, Some(0)) };
        if tried == Err(libc::EINTR) {
            continue;
        }
        if tried != Ok(0) || nothing_yet(deadline) {
            return tried;
        }
        match park(&mut wanted, deadline) {
            Woken::Perhaps => {}
            Woken::Late => return Ok(0),
            Woken::Failed(errno) => return Err(errno),
            Woken::Closed(_) => return Err(libc::EBADF),
            Woken::Unsupported => {
                let left = left(deadline);
                // SAFETY: the caller's promise, and the caller waits.
                return unsafe { offload(|| glance::epoll(form, epoll, events, most, left)) };
            }
        }
    }
}
