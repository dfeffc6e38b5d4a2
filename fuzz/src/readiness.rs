//! Calls that wait for one of several files.

use std::ffi::c_int;
use std::mem::{self, MaybeUninit};
use std::ptr;

use crate::call::{Lies, Moment, Step, Via};
use crate::going::{Going, patience_of};
use crate::outcome::{Answer, Outcome, make, outcome, plain};
use crate::system::errno;

/// The arena where lists of files and of events are put.
const EVENTS: usize = 1;

fn polled(going: &Going, files: &[(u8, i16)]) -> Vec<libc::pollfd> {
    let of = |(slot, events): &(u8, i16)| libc::pollfd {
        fd: going.world.fd(*slot),
        events: *events,
        revents: 0x55,
    };
    files.iter().map(of).collect()
}

fn answers(files: &[libc::pollfd]) -> String {
    let answers = files.iter().map(|file| format!(" {:#x}", file.revents));
    answers.collect()
}

pub(crate) fn poll(
    going: &Going,
    step: &Step,
    files: &[(u8, i16)],
    lies: Lies,
    moment: Moment,
) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    let mut list = polled(going, files);
    let bytes = size_of_val(list.as_slice());
    if lies == Lies::Well || list.is_empty() {
        let count = list.len() as libc::nfds_t;
        let answer = make!(step.via, poll, SYS_poll, list.as_mut_ptr(), count, patience);
        return outcome(answer, answers(&list));
    }
    let place = going.memory.place(EVENTS, bytes as u64, lies);
    if let Lies::AtEdge(there) = lies {
        let there = bytes.min(there as usize);
        // SAFETY: as many bytes are there.
        unsafe { ptr::copy_nonoverlapping(list.as_ptr().cast::<u8>(), place, there) };
    }
    let count = list.len() as libc::nfds_t;
    plain(make!(step.via, poll, SYS_poll, place.cast::<libc::pollfd>(), count, patience))
}

pub(crate) fn poll_masked(
    going: &Going,
    step: &Step,
    files: &[(u8, i16)],
    moment: Moment,
    masked: bool,
) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(patience) * 1_000_000 };
    let time = libc::timespec {
        tv_sec: time.tv_nsec / 1_000_000_000,
        tv_nsec: time.tv_nsec % 1_000_000_000,
    };
    let mut list = polled(going, files);
    let set = masked_signals();
    let mask = if masked { &raw const set } else { ptr::null() };
    let count = list.len() as libc::nfds_t;
    let first = list.as_mut_ptr();
    let answer = match step.via {
        Via::Function => make!(step.via, ppoll, SYS_ppoll, first, count, &raw const time, mask),
        // It writes the time that is left.
        Via::Number => {
            let mut time = time;
            // SAFETY: as `make` says; the kernel knows 64 signals.
            let result = unsafe {
                libc::syscall(libc::SYS_ppoll, first, count, &raw mut time, mask, 8usize)
            };
            if result < 0 { Err(errno()) } else { Ok(result) }
        }
    };
    outcome(answer, answers(&list))
}

/// Those of a storm are among them.
fn masked_signals() -> libc::sigset_t {
    // SAFETY: a set of signals of our own.
    unsafe {
        let mut set = MaybeUninit::zeroed().assume_init();
        for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH] {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

pub(crate) fn select_masked(going: &Going, step: &Step, read: &[u8], moment: Moment) -> Outcome {
    let patience = i64::from(patience_of(going, &step.call, moment));
    let fd = |slot: &u8| going.world.fd(*slot).min(UNUSED);
    let time = libc::timespec { tv_sec: patience / 1000, tv_nsec: patience % 1000 * 1_000_000 };
    // SAFETY: a set of our own, of numbers that it has room for.
    let mut set: libc::fd_set = unsafe { mem::zeroed() };
    // SAFETY: as above.
    read.iter().for_each(|slot| unsafe { libc::FD_SET(fd(slot), &mut set) });
    let count = read.iter().map(fd).max().map_or(0, |most| most + 1);
    let (mask, null) = (masked_signals(), ptr::null_mut::<libc::fd_set>());
    let (time, mask) = (&raw const time, &raw const mask);
    // The number takes the mask in another way.
    let answer =
        make!(Via::Function, pselect, SYS_pselect6, count, &raw mut set, null, null, time, mask);
    // SAFETY: as above.
    let is_there = |slot: &&u8| unsafe { libc::FD_ISSET(fd(slot), &set) };
    let more = match answer {
        Ok(_) => read.iter().filter(is_there).map(|slot| format!(" {slot}")).collect(),
        Err(_) => String::new(),
    };
    outcome(answer, more)
}

/// A number for a set that no file has.
const UNUSED: c_int = 900;

pub(crate) fn select(
    going: &Going,
    step: &Step,
    read: &[u8],
    write: &[u8],
    moment: Moment,
    lies: Lies,
) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    // SAFETY: sets of our own, of numbers that they have room for.
    let set = |slots: &[u8]| unsafe {
        let mut set: libc::fd_set = mem::zeroed();
        for slot in slots {
            libc::FD_SET(going.world.fd(*slot).min(UNUSED), &mut set);
        }
        set
    };
    let has = |set: &libc::fd_set, slots: &[u8]| {
        // SAFETY: as above.
        let is = |slot: &&u8| unsafe { libc::FD_ISSET(going.world.fd(**slot).min(UNUSED), set) };
        slots.iter().filter(is).map(|slot| format!(" {slot}")).collect::<String>()
    };
    let (mut reads, mut writes) = (set(read), set(write));
    let mut time = libc::timeval {
        tv_sec: i64::from(patience / 1000),
        tv_usec: i64::from(patience % 1000) * 1000,
    };
    let most = (read.iter().chain(write)).map(|slot| going.world.fd(*slot).min(UNUSED)).max();
    let count = most.map_or(0, |most| most + 1);
    let first = match lies {
        Lies::Null | Lies::Nowhere | Lies::ReadOnly => {
            going.memory.place(EVENTS, 128, lies).cast::<libc::fd_set>()
        }
        _ => &raw mut reads,
    };
    let null = ptr::null_mut::<libc::fd_set>();
    // Its number is not there on all processors.
    let answer = make!(
        Via::Function,
        select,
        SYS_pselect6,
        count,
        first,
        &raw mut writes,
        null,
        &raw mut time
    );
    let more = match answer {
        Ok(_) => format!(", read{}, write{}", has(&reads, read), has(&writes, write)),
        Err(_) => String::new(),
    };
    outcome(answer, more)
}

pub(crate) fn epoll_wait(
    going: &Going,
    step: &Step,
    epoll: u8,
    most: c_int,
    lies: Lies,
    moment: Moment,
) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    let bytes = (most.max(0) as usize * size_of::<libc::epoll_event>()) as u64;
    let place = going.memory.place(EVENTS, bytes, lies).cast::<libc::epoll_event>();
    let answer = make!(
        Via::Function,
        epoll_wait,
        SYS_epoll_pwait,
        going.world.fd(epoll),
        place,
        most,
        patience
    );
    seen_events(answer, place)
}

pub(crate) fn epoll_wait_masked(
    going: &Going,
    step: &Step,
    epoll: u8,
    most: c_int,
    moment: Moment,
) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    let bytes = (most as usize * size_of::<libc::epoll_event>()) as u64;
    let place = going.memory.place(EVENTS, bytes, Lies::Well).cast::<libc::epoll_event>();
    let set = masked_signals();
    let (epoll, set) = (going.world.fd(epoll), &raw const set);
    // The kernel knows 64 signals.
    let answer = make!(
        step.via, epoll_pwait, SYS_epoll_pwait, epoll, place, most, patience, set; 8usize
    );
    seen_events(answer, place)
}

fn seen_events(answer: Answer, place: *const libc::epoll_event) -> Outcome {
    let mut events = (0..answer.unwrap_or(0) as usize)
        // SAFETY: the kernel has written them.
        .map(|at| unsafe { place.add(at).read_unaligned() })
        .map(|event| {
            let (data, events) = (event.u64, event.events);
            format!(" {data}:{events:#x}")
        })
        .collect::<Vec<_>>();
    events.sort_unstable();
    outcome(answer, events.concat())
}
