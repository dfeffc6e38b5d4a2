//! `select`, `pselect`.

use std::ffi::{c_int, c_ulong};
use std::ptr;

use carefree_runtime::clock::NEVER;
use carefree_runtime::wait;
use libc::{sigset_t, timespec, timeval};

use crate::call::answer::{Answer, answer, set_errno};
use crate::call::memory;
use crate::call::uninterrupted::offload;
use crate::poll::mask::changes_signals;
use crate::poll::several::{Wanted, Woken, left, nothing_yet, park};
use crate::time::duration::{self, deadline};
use crate::wait::readiness::{self, Form};

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
    answer(unsafe { readiness::select(Form::Plain, count as usize, sets, time, ptr::null()) })
        as c_int
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
    answer(unsafe { readiness::select(Form::Masked, count as usize, sets, time, mask) }) as c_int
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
            Some(Ok(nanos)) => duration::from_now(nanos),
            Some(Err(errno)) => {
                set_errno(errno);
                return -1;
            }
        };
        // SAFETY: as above.
        let selected = unsafe { select_until(Form::Plain, count, [read, write, except], until) };
        // SAFETY: as above.
        if let Some(timeout) = unsafe { timeout.as_mut() } {
            let left = duration::timespec(duration::left(until));
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
    duration::span(&timespec { tv_sec: seconds, tv_nsec: time.tv_usec % 1_000_000 * 1000 })
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
    unsafe { readiness::select(form, most, pointers, nanos.map(duration::timespec), ptr::null()) }
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
