//! `select`, `pselect`.

use std::ffi::{c_int, c_ulong};
use std::ptr;

use carefree_ground::probe;
use carefree_runtime::clock::NEVER;
use carefree_runtime::wait;
use libc::{sigset_t, timespec, timeval};

use crate::call::answer::{Answer, answer, set_errno};
use crate::call::sys::{self, Number};
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::poll::mask::{changes_signals, wait_hosted};
use crate::poll::several::{Wanted, Woken, left, nothing_yet, or_happened, park};
use crate::time::duration::{self, deadline};
use crate::wait::readiness::{self, Form};

extern "C-unwind" fn raw_select(
    count: c_int,
    read: User<libc::fd_set>,
    write: User<libc::fd_set>,
    except: User<libc::fd_set>,
    timeout: User<timeval>,
) -> c_int {
    // SAFETY: libc's function reads it unasked.
    let time = (!timeout.is_null()).then(|| unsafe { timeout.read_seen() });
    let time = time.map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 });
    let sets = [read, write, except].map(User::cast);
    answer(readiness::select(Form::Plain, count as usize, sets, time, User::NULL)) as c_int
}

extern "C-unwind" fn raw_pselect(
    count: c_int,
    read: User<libc::fd_set>,
    write: User<libc::fd_set>,
    except: User<libc::fd_set>,
    timeout: User<timespec>,
    mask: User<sigset_t>,
) -> c_int {
    // SAFETY: libc's function reads it unasked.
    let time = (!timeout.is_null()).then(|| unsafe { timeout.read_seen() });
    let sets = [read, write, except].map(User::cast);
    answer(readiness::select(Form::Masked, count as usize, sets, time, mask)) as c_int
}

interpose! {
    /// `select(2)`. As on Linux, `timeout` afterwards holds the time that is left.
    safe fn select(
        count: c_int,
        read: User<libc::fd_set>,
        write: User<libc::fd_set>,
        except: User<libc::fd_set>,
        timeout: User<timeval>,
    ) -> c_int, else raw_select {
        // SAFETY: libc's function reads it unasked.
        let time = (!timeout.is_null()).then(|| unsafe { timeout.read_seen() });
        let until = match time.as_ref().map(span_of_timeval) {
            None => NEVER,
            Some(Ok(nanos)) => duration::from_now(nanos),
            Some(Err(errno)) => {
                set_errno(errno);
                return -1;
            }
        };
        let selected = select_until(Form::Plain, count, [read, write, except], until);
        if !timeout.is_null() {
            let left = duration::timespec(duration::left(until));
            let left = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 };
            // SAFETY: libc's function writes to it unasked.
            unsafe { timeout.write_seen(left) };
        }
        answer(selected) as c_int
    }
}

interpose! {
    /// `pselect(2)`.
    safe fn pselect(
        count: c_int,
        read: User<libc::fd_set>,
        write: User<libc::fd_set>,
        except: User<libc::fd_set>,
        timeout: User<timespec>,
        mask: User<sigset_t>,
    ) -> c_int, else raw_pselect {
        let select =
            |deadline| select_until(Form::Masked, count, [read, write, except], deadline);
        if let Some(selected) = wait_hosted(mask, || deadline(timeout), select) {
            return answer(selected) as c_int;
        }
        if changes_signals(mask) {
            return offload(|| original(count, read, write, except, timeout, mask));
        }
        let selected = deadline(timeout).and_then(select);
        answer(selected) as c_int
    }
}

fn span_of_timeval(time: &timeval) -> Result<u64, c_int> {
    // libc accepts more microseconds than a second has.
    let seconds = time.tv_sec.checked_add(time.tv_usec / 1_000_000).ok_or(libc::EINVAL)?;
    duration::span(&timespec { tv_sec: seconds, tv_nsec: time.tv_usec % 1_000_000 * 1000 })
}

/// A word of a set.
type Bits = c_ulong;

/// The events of `poll` that `select` waits for in each of its three sets.
const EVENTS: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
    libc::POLLPRI,
];

/// Copies of the three sets: a set that is not given has none.
type Sets = [Vec<Bits>; 3];

/// A call of `select`, which the kernel may be asked several times.
struct Selection<'u> {
    form: Form,
    /// How many bits of each set are looked at.
    most: usize,
    /// The caller's sets: null where one is not given.
    given: [User<'u, Bits>; 3],
    /// What they had when the call began: the kernel overwrites the sets with its answer.
    asked: Sets,
}

/// `select` until `deadline`.
fn select_until(form: Form, count: c_int, sets: [User<libc::fd_set>; 3], deadline: u64) -> Answer {
    let call = Selection::new(form, count, sets)?;
    let mut wanted: Option<Vec<Wanted>> = None;
    loop {
        let mut answers = call.asked.clone();
        let tried = call.attempt(&mut answers, Some(0));
        match (tried, &wanted) {
            (Err(libc::EINTR), _) => continue,
            // All were there when the call began.
            (Err(libc::EBADF), Some(wanted)) => match closed_of(wanted) {
                // The number has another file by now.
                closed if closed.is_empty() => continue,
                closed => return call.end_with_closed(closed, wanted),
            },
            _ => {}
        }
        if tried != Ok(0) || nothing_yet(deadline) {
            return call.end(tried?, &answers);
        }
        let wanted = wanted.get_or_insert_with(|| call.wanted());
        match park(wanted, deadline) {
            Woken::Perhaps => {}
            Woken::Late => return call.end(0, &answers),
            Woken::Failed(errno) => {
                answers.clone_from(&call.asked);
                let selected = or_happened(errno, || call.attempt(&mut answers, Some(0)))?;
                return call.end(selected, &answers);
            }
            Woken::Closed(places) => {
                let closed = places.into_iter().map(|fd| fd as c_int).collect();
                return call.end_with_closed(closed, wanted);
            }
            Woken::Unsupported => {
                answers.clone_from(&call.asked);
                let left = left(deadline);
                let selected = offload(|| call.attempt(&mut answers, left))?;
                return call.end(selected, &answers);
            }
        }
    }
}

impl<'u> Selection<'u> {
    /// Reads the sets.
    ///
    /// # Errors
    /// What is wrong with the arguments.
    fn new(
        form: Form,
        count: c_int,
        sets: [User<'u, libc::fd_set>; 3],
    ) -> Result<Selection<'u>, c_int> {
        let Ok(most) = usize::try_from(count) else { return Err(libc::EINVAL) };
        let most = if most > libc::FD_SETSIZE { most.min(numbers()) } else { most };
        let words = words_of(most);
        let given = sets.map(|set| set.cast::<Bits>());
        for set in given.iter().filter(|set| !set.is_null()) {
            set.check(words)?;
        }
        let asked = given.map(|set| {
            let word = |place| {
                // SAFETY: found above: a set that is given has as many bits as are to be looked at, in words.
                unsafe { set.after(place).read_seen() }
            };
            if set.is_null() { Vec::new() } else { (0..words).map(word).collect() }
        });
        Ok(Selection { form, most, given, asked })
    }

    /// Makes the call with copies of the caller's sets, which the kernel overwrites.
    fn attempt(&self, copies: &mut Sets, nanos: Option<u64>) -> Answer {
        let mut sets = [User::NULL; 3];
        for ((set, copy), given) in sets.iter_mut().zip(copies).zip(&self.given) {
            if !given.is_null() {
                // SAFETY: the copy has the bits that are looked at.
                *set = unsafe { User::new(copy.as_mut_ptr()) };
            }
        }
        readiness::select(self.form, self.most, sets, nanos.map(duration::timespec), User::NULL)
    }

    /// The call ends: the caller gets its answer, of `selected` files.
    fn end(&self, selected: usize, answers: &Sets) -> Answer {
        let words = words_of(self.most);
        for (set, answer) in self.given.iter().zip(answers).filter(|(set, _)| !set.is_null()) {
            let each_page = (0..words).step_by(probe::PAGE / size_of::<Bits>());
            for place in each_page.chain(words.checked_sub(1)) {
                // SAFETY: it is overwritten.
                unsafe { probe::check_writable(set.after(place).pointer()) }?;
            }
            // SAFETY: all pages of the set were just found writable, the program has given it to be written to,
            // and the answer has as many words.
            unsafe { ptr::copy_nonoverlapping(answer.as_ptr(), set.pointer(), words) };
        }
        Ok(selected)
    }

    /// The call ends because some of its files were closed while it waited: these are ready for all that was asked, as
    /// the kernel has it, and `select` says what the others are.
    fn end_with_closed(&self, mut closed: Vec<c_int>, wanted: &[Wanted]) -> Answer {
        loop {
            let mut answers = self.asked.clone();
            let mut ready = Vec::new();
            for (place, set) in answers.iter_mut().enumerate() {
                for &fd in &closed {
                    let (word, bit) =
                        (fd as usize / Bits::BITS as usize, 1 << (fd as u32 % Bits::BITS));
                    let bits = set.get_mut(word).filter(|bits| **bits & bit != 0);
                    if let Some(bits) = bits {
                        *bits &= !bit;
                        ready.push((place, word, bit));
                    }
                }
            }
            let selected = match self.attempt(&mut answers, Some(0)) {
                Ok(selected) => selected + ready.len(),
                // A signal interrupted the call though it did not wait.
                Err(libc::EINTR) => continue,
                // Another one is closed by now.
                Err(libc::EBADF) => {
                    closed.extend(closed_of(wanted));
                    closed.sort_unstable();
                    closed.dedup();
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            for (place, word, bit) in ready {
                answers[place][word] |= bit;
            }
            return self.end(selected, &answers);
        }
    }

    /// The files that are waited for, each with the events that its sets ask for.
    fn wanted(&self) -> Vec<Wanted> {
        let has = |set: &Vec<Bits>, fd: usize| {
            let word = set.get(fd / Bits::BITS as usize);
            word.is_some_and(|word| word >> (fd % Bits::BITS as usize) & 1 != 0)
        };
        let events_of = |fd| {
            let events = self.asked.iter().zip(EVENTS).filter(|(set, _)| has(set, fd));
            events.fold(0, |sum, (_, events)| sum | u32::from(events as u16))
        };
        (0..self.most)
            .map(|fd| Wanted::new(fd as c_int, events_of(fd), fd))
            .filter(|wanted| wanted.events != 0)
            .collect()
    }
}

/// How many words have so many bits.
fn words_of(bits: usize) -> usize {
    bits.div_ceil(Bits::BITS as usize)
}

fn is_open(fd: c_int) -> bool {
    sys::call(Number::FCNTL, [fd.into(), libc::F_GETFD.into()]) != Err(libc::EBADF)
}

/// Those of a call's files that are closed.
fn closed_of(wanted: &[Wanted]) -> Vec<c_int> {
    wanted.iter().map(|one| one.fd).filter(|fd| !is_open(*fd)).collect()
}

/// How many descriptors the process has room for now.
///
/// The kernel looks at no more bits of a set. So programs may pass the most that there could ever be
/// (`select(getdtablesize(), …)`), though their sets have fewer bits.
#[cold]
fn numbers() -> usize {
    let status = wait::without_parking(|| std::fs::read_to_string("/proc/self/status"));
    let size = status.ok().and_then(|status| {
        status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse().ok())
    });
    size.unwrap_or(libc::FD_SETSIZE)
}
