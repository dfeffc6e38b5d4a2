//! The watchdog: reports fibers that keep others from running.
//!
//! A carrier runs other fibers whenever its fiber waits or yields. A fiber that computes for long, or makes
//! a call that blocks the kernel thread, holds up the ready fibers, the timers and the I/O of its carrier.
//! One thread of the process looks for that, twice per threshold (`CAREFREE_WATCH`), and reports on
//! standard error which fiber it is, and where.
//!
//! # What is looked at
//!
//! Carriers count their switches. If a carrier's count has not changed since the last look, the kernel is
//! asked for its times, and again when a threshold has passed. Then its fiber
//!
//! * *runs too long* if its carrier has used that much processor time since;
//! * *blocks* if its carrier sleeps in the kernel, on a fiber's stack, and has neither run nor waited
//!   for a processor for that much time since; or for ten times as long, if what it waits for is a
//!   lock of libc's own, such as malloc's.
//!
//! So a carrier that merely does not get a processor, on a busy machine, is not reported; and one
//! that is in its own context, asleep because there is nothing to do, is not on a fiber's stack.
//!
//! Meanwhile other carriers run what waits there, added ones if need be: a report is advice.
//!
//! # Neither allocator nor loader
//!
//! The program may hang in its allocator, with the allocator's lock held, and the report should say so. So
//! the watchdog calls neither the global allocator nor malloc nor the loader, and takes no lock under which
//! one of these is called: its memory is mapped ([`carefree_ground::mapped`]). The same goes for the thread
//! that prints its reports ([`desk`]). `tests/allocator.rs` checks both.
//!
//! # What it costs
//!
//! Running fibers: nothing. A carrier that wakes looks whether the watchdog rests, and wakes it. The
//! watchdog rests while all carriers sleep, so an idle process stays idle.

mod backtrace;
mod capture;
#[cfg(test)]
mod damage;
mod desk;
mod image;
mod kernel;
mod name;
mod report;
mod rooms;
mod symbols;
mod thread;
mod unwind;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carefree_context::stack;
use carefree_ground::mapped::Mapped;
use carefree_ground::usage;
use carefree_reactor::{Idle, clock};
use carefree_runtime::inspect::{self, CarrierGlance, Visits, lookout};

use capture::Capture;
use desk::Desk;
use image::Images;
use report::{Limiter, Report, Subject, Trouble};
use thread::start_thread;
pub(crate) use thread::threads;

/// How many thresholds a carrier may wait for a lock of libc's own, such as malloc's. (If the lock's holder
/// does not get a processor, the program is not to blame.)
const WITHIN_LIBC: u32 = 10;
/// How often the watchdog asks a carrier where it is. (One that does not answer delays the looks at
/// others.)
const ASKED_AT_MOST: u32 = 200;
/// No watchdog.
const OFF: u64 = 0;

static ASKED: AtomicU64 = AtomicU64::new(OFF);
static STARTED: AtomicBool = AtomicBool::new(false);

/// Reads `CAREFREE_WATCH`.
///
/// # Errors
/// When it is neither a number of milliseconds nor `off`.
pub(crate) fn configure() -> io::Result<()> {
    const MOST: u64 = 3_600_000;
    let Some(text) = carefree_settings::text("CAREFREE_WATCH") else {
        return Ok(());
    };
    let asked = match text.parse() {
        Ok(milliseconds @ 1..=MOST) => milliseconds * 1_000_000,
        _ if text == "off" => OFF,
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "CAREFREE_WATCH={text} is neither `off` nor a number of milliseconds from 1 to \
                     {MOST}"
                ),
            ));
        }
    };
    ASKED.store(asked, Ordering::Relaxed);
    Ok(())
}

/// Has the carriers of a runtime that has been started watched. Where no thread can be had, there is no
/// watchdog.
pub(crate) fn start() {
    let threshold = ASKED.load(Ordering::Relaxed);
    if threshold == OFF {
        return;
    }
    if !STARTED.swap(true, Ordering::SeqCst) {
        let bed: &'static Idle = Box::leak(Box::new(Idle::new()));
        lookout::WATCHDOG.set(bed);
        let desk = Desk::start();
        start_thread("carefree-watch", move || Watchdog::new(threshold, desk).watch(bed));
    }
}

/// Forgets the watchdog: in the child of a fork, where the next runtime starts one.
pub(crate) fn renew() {
    STARTED.store(false, Ordering::SeqCst);
    thread::renew();
}

/// Reports printed so far.
pub(crate) fn reports() -> u64 {
    report::REPORTS.load(Ordering::Relaxed)
}

fn all_sleep() -> bool {
    let mut all = true;
    inspect::for_each_runtime(|runtime| {
        all &= runtime.has_stopped() || runtime.all_sleep();
    });
    all
}

/// What is known of a carrier that has not switched since.
#[derive(Clone, Copy, Debug)]
struct Track {
    /// The carrier's address.
    carrier: usize,
    thread: i32,
    switches: u64,
    /// When that count was first seen.
    since: Instant,
    base: Option<Base>,
    /// How often the watchdog has tried to find out where it is.
    asked: u32,
    /// It has been dealt with.
    settled: bool,
}

/// A carrier's times when it was found not to have switched.
#[derive(Clone, Copy, Debug)]
struct Base {
    at: Instant,
    cpu: u64,
    ran_and_waited: Option<(u64, u64)>,
}

impl Track {
    /// For a carrier that is seen for the first time, or that has switched since the last look.
    fn of(carrier: CarrierGlance<'_>) -> Track {
        Track {
            carrier: carrier.address(),
            thread: carrier.thread(),
            switches: carrier.switches(),
            since: Instant::now(),
            base: None,
            asked: 0,
            settled: false,
        }
    }

    /// Whether it is `carrier`'s, and that has not switched since.
    fn is_of(&self, carrier: CarrierGlance<'_>) -> bool {
        self.thread == carrier.thread() && self.switches == carrier.switches()
    }
}

/// Findings of one look, at most: the limiter allows for no more.
const FINDINGS: usize = report::PER_SECOND as usize;

struct Watchdog {
    threshold: Duration,
    /// Those of the last look, in its order.
    tracks: Mapped<Track>,
    visits: Visits,
    limiter: Limiter,
    /// Where the thread that prints gets its reports. Without that thread, the watchdog prints.
    desk: Option<&'static Desk>,
}

/// What a report is made from, when the look is over and keeps no runtime any more.
struct Finding {
    capture: Capture,
    trouble: Trouble,
    since: Duration,
}

impl Watchdog {
    fn new(threshold: u64, desk: Option<&'static Desk>) -> Watchdog {
        Watchdog {
            threshold: Duration::from_nanos(threshold),
            tracks: Mapped::new(),
            visits: Visits::new(),
            limiter: Limiter::new(),
            desk,
        }
    }

    fn watch(mut self, bed: &Idle) {
        loop {
            lookout::WATCHDOG.rest(bed, || {
                let all = all_sleep();
                if all {
                    self.tracks.truncate(0);
                }
                all
            });
            let next = clock::after(self.threshold / 2);
            while clock::now() < next {
                bed.wait(Some(next));
            }
            self.look();
        }
    }

    fn look(&mut self) {
        let before = std::mem::replace(&mut self.tracks, Mapped::new());
        let mut findings: [Option<Finding>; FINDINGS] = [const { None }; FINDINGS];
        let mut visits = std::mem::replace(&mut self.visits, Visits::new());
        visits.for_each_carrier(|carrier| {
            // As a rule it is at the same index as in the last look.
            let address = carrier.address();
            let place = self.tracks.len().min(before.len());
            let (earlier, later) = before.split_at(place);
            let known = later.iter().chain(earlier).find(|track| track.carrier == address);
            let mut track = Track::of(carrier);
            let found = match known {
                Some(known) if known.is_of(carrier) && !carrier.sleeps() => {
                    track = *known;
                    self.look_at(carrier, &mut track)
                }
                _ => None,
            };
            // Without memory for it, the carrier is seen for the first time by the next look.
            self.tracks.push(track);
            let Some(found) = found else { return };
            match findings.iter_mut().find(|place| place.is_none()) {
                Some(free) => *free = Some(found),
                // There may be more than the limiter lets through: some were let through earlier.
                None => self.limiter.leave_out(),
            }
        });
        self.visits = visits;
        findings.iter().flatten().for_each(|finding| self.report(finding));
    }

    /// Looks at a carrier that has not switched since the last look.
    fn look_at(&mut self, carrier: CarrierGlance<'_>, track: &mut Track) -> Option<Finding> {
        let now = Instant::now();
        let (thread, switches) = (track.thread, track.switches);
        let Some(base) = track.base else {
            let cpu = usage::of_thread(thread)?;
            let ran_and_waited = kernel::ran_and_waited(thread);
            track.base = Some(Base { at: now, cpu, ran_and_waited });
            return None;
        };
        if now - base.at < self.threshold {
            return None;
        }
        if track.settled {
            return None;
        }
        let since = now - track.since;
        let ran = Duration::from_nanos(usage::of_thread(thread)?.saturating_sub(base.cpu));
        if ran >= self.threshold {
            if !self.may_ask(track, now) {
                return None;
            }
            // Without an answer the next look asks again: on a busy machine the thread may not get a
            // processor in time.
            let capture = capture::interrupt(thread)?;
            track.settled = true;
            // If it has switched meanwhile, the capture may be of another fiber.
            let same = carrier.switches() == switches;
            return same.then_some(Finding { capture, trouble: Trouble::Runs, since });
        }
        let asleep = kernel::asleep(thread)?;
        let (ran, waited) = kernel::ran_and_waited(thread)?;
        let (ran_before, waited_before) = base.ran_and_waited?;
        let busy = Duration::from_nanos(
            ran.saturating_sub(ran_before) + waited.saturating_sub(waited_before),
        );
        let slept = now.saturating_duration_since(base.at).saturating_sub(busy);
        let patience = match kernel::waits_within_libc(&asleep) {
            true => self.threshold * WITHIN_LIBC,
            false => self.threshold,
        };
        // If it is in the same call as before the times were read, these are complete.
        if slept < patience || kernel::asleep(thread)? != asleep {
            return None;
        }
        let stack = stack::find(asleep.stack_pointer as usize)?;
        if !self.may_ask(track, now) {
            return None;
        }
        let (fiber, number) = inspect::fiber_on(carrier, stack.base)?;
        let capture = capture::look_at(fiber, number, asleep.program_counter, asleep.stack_pointer);
        let same = carrier.switches() == switches && kernel::asleep(thread)? == asleep;
        let trouble = Trouble::Blocks(asleep);
        // Otherwise that call has ended, and the next look may find another.
        track.settled = same;
        same.then_some(Finding { capture, trouble, since })
    }

    /// Whether to ask a carrier where it is. If not, its report is counted as left out. The limiter counts a
    /// carrier that is asked several times once.
    fn may_ask(&mut self, track: &mut Track, now: Instant) -> bool {
        let may = match track.asked {
            0 => self.limiter.may_look(now),
            ASKED_AT_MOST => {
                self.limiter.leave_out();
                false
            }
            _ => true,
        };
        track.asked += 1;
        track.settled = !may;
        may
    }

    fn report(&mut self, finding: &Finding) {
        let Finding { capture, trouble, since } = finding;
        let mut images = Images::read();
        let frames = unwind::walk(capture.registers, &capture.stack(), &mut images);
        let mut place = DefaultHasher::new();
        match trouble {
            // Each capture of a computation is elsewhere; its outermost functions are the same.
            Trouble::Runs => frames.iter().rev().take(4).for_each(|f| f.function.hash(&mut place)),
            Trouble::Blocks(_) => frames.iter().for_each(|frame| frame.address.hash(&mut place)),
        }
        if frames.is_empty() {
            trouble_code(trouble).hash(&mut place);
        }
        // Asked before the place is noted as reported.
        if self.desk.is_some_and(|desk| !desk.has_room()) {
            return self.limiter.leave_out();
        }
        let Some(left_out) = self.limiter.admit(place.finish(), Instant::now()) else { return };
        let subject = Subject::new(capture.fiber, capture.number, *since, *trouble);
        let report = Report { subject, frames, images, left_out };
        match self.desk {
            Some(desk) => {
                let handed_over = desk.put(report);
                debug_assert!(handed_over, "there was room");
            }
            None => desk::print(report),
        }
    }
}

/// What stands for the place of a trouble without a backtrace: a number for each kind.
fn trouble_code(trouble: &Trouble) -> Option<i64> {
    match trouble {
        Trouble::Runs => None,
        Trouble::Blocks(place) => place.call.map(|(number, _)| number),
    }
}
