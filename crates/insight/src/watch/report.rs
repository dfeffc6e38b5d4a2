//! What the watchdog prints, and how often.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use carefree_ground::mapped::Mapped;
use carefree_ground::text::Text;
use carefree_runtime::inspect::FiberGlance;

use super::backtrace;
use super::image::Images;
use super::kernel::Asleep;
use super::unwind::Frames;

/// The same place is reported once in so much time.
const AGAIN: Duration = Duration::from_secs(60);
/// Reports printed.
pub(super) static REPORTS: AtomicU64 = AtomicU64::new(0);
/// The most reports in a second.
pub(super) const PER_SECOND: u32 = 4;
/// Places that are noted; when there are more, all are forgotten.
const PLACES: usize = 1024;

/// What is the matter with a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It runs for too long.
    Runs,
    /// It sleeps in the kernel, in this call.
    Blocks(Asleep),
}

/// Limits the number of reports.
#[derive(Debug)]
pub(super) struct Limiter {
    /// Each with the time of its last report.
    places: Mapped<(u64, Instant)>,
    /// When the second under way began, and the reports in it.
    second: Option<Instant>,
    looked: u32,
    /// Reports left out since the last one.
    left_out: u64,
}

impl Limiter {
    pub(super) const fn new() -> Limiter {
        Limiter { places: Mapped::new(), second: None, looked: 0, left_out: 0 }
    }

    /// Whether a carrier may be asked where it is, for another report in this second. That counts even if
    /// the place turns out to have been reported already, for the asking is what costs.
    pub(super) fn may_look(&mut self, now: Instant) -> bool {
        if self.second.is_none_or(|second| now - second >= Duration::from_secs(1)) {
            self.second = Some(now);
            self.looked = 0;
        }
        if self.looked == PER_SECOND {
            self.left_out += 1;
            return false;
        }
        self.looked += 1;
        true
    }

    /// Whether `place` is to be reported, and how many reports were left out before.
    pub(super) fn admit(&mut self, place: u64, now: Instant) -> Option<u64> {
        match self.places.iter_mut().find(|known| known.0 == place) {
            Some((_, last)) if now - *last < AGAIN => {
                self.left_out += 1;
                return None;
            }
            Some((_, last)) => *last = now,
            None => {
                if self.places.len() >= PLACES {
                    self.places.truncate(0);
                }
                self.places.push((place, now));
            }
        }
        Some(std::mem::take(&mut self.left_out))
    }

    /// Counts a report that is not made after all.
    pub(super) fn leave_out(&mut self) {
        self.left_out += 1;
    }
}

/// Which fiber a report is of, and what it does.
#[derive(Debug)]
pub(super) struct Subject {
    number: u64,
    /// A space and the name in quotation marks, or empty.
    name: Text,
    since: Duration,
    trouble: Trouble,
}

impl Subject {
    /// Of fiber `number`. If it has ended meanwhile, its name is lost.
    pub(super) fn new(
        fiber: FiberGlance,
        number: u64,
        since: Duration,
        trouble: Trouble,
    ) -> Subject {
        let mut name = Text::new();
        let _ = fiber.write_name(number, [" '", "'"], &mut name);
        Subject { number, name, since, trouble }
    }
}

/// A report that is to be printed.
pub(super) struct Report {
    pub(super) subject: Subject,
    pub(super) frames: Frames,
    pub(super) images: Images,
    /// Reports that were left out before this one.
    pub(super) left_out: u64,
}

impl Report {
    /// Prints it to standard error.
    pub(super) fn print(mut self) {
        let words = |text: &mut Text| backtrace::words(&self.frames, &mut self.images, text);
        // One write, so that it is not torn.
        text(&self.subject, words, self.left_out).print();
    }

    #[cfg(test)]
    pub(super) fn of_nothing(left_out: u64) -> Report {
        let (since, trouble) = (Duration::ZERO, Trouble::Runs);
        let subject = Subject { number: 0, name: Text::new(), since, trouble };
        Report { subject, frames: Frames::new(), images: Images::read(), left_out }
    }
}

/// The text of a report. `backtrace` adds its lines, and returns whether functions without names are among
/// them.
fn text(subject: &Subject, backtrace: impl FnOnce(&mut Text) -> bool, left_out: u64) -> Text {
    let Subject { number, name, .. } = subject;
    let mut text = Text::of(format_args!("carefree: fiber {number}{name}"));
    let since = subject.since.as_millis();
    let help = match &subject.trouble {
        Trouble::Blocks(place) => {
            text.say(format_args!(" has blocked its carrier for {since} ms, {place}\n"));
            "no other fiber runs on this carrier meanwhile: make this call within carefree::offload"
        }
        Trouble::Runs => {
            text.say(format_args!(" has run for {since} ms without letting others run\n"));
            "call carefree::yield_now now and then, or compute within carefree::offload"
        }
    };
    if backtrace(&mut text) {
        text.say(format_args!(
            "  (the names were stripped: `addr2line -ifCe FILE PLACE` knows them of the file before \
             that)\n"
        ));
    }
    if left_out > 0 {
        text.say(format_args!(
            "  ({left_out} more of this kind were not reported since the last one)\n"
        ));
    }
    text.say(format_args!("  {help}; CAREFREE_WATCH=MILLISECONDS|off sets how patient this is\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::tests::fiber_of;
    use carefree_runtime::{Builder, park};

    #[test]
    fn a_place_is_reported_once_in_a_minute() {
        let mut limiter = Limiter::new();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(limiter.admit(1, at(0)), Some(0));
        assert_eq!(limiter.admit(1, at(1)), None);
        assert_eq!(limiter.admit(1, at(59)), None);
        assert_eq!(limiter.admit(2, at(59)), Some(2), "another place, and what was left out");
        assert_eq!(limiter.admit(1, at(60)), Some(0));
    }

    #[test]
    fn there_are_few_a_second() {
        let mut limiter = Limiter::new();
        let now = Instant::now();
        assert_eq!((0..100).filter(|_| limiter.may_look(now)).count(), PER_SECOND as usize);
        let later = now + Duration::from_secs(1);
        assert!(limiter.may_look(later));
        assert_eq!(limiter.admit(7, later), Some(100 - u64::from(PER_SECOND)));
    }

    #[test]
    fn the_words_of_a_report() {
        let since = Duration::from_millis(23);
        let read = Asleep {
            call: Some((libc::SYS_read, [5, 0, 0, 0, 0, 0])),
            stack_pointer: 0,
            program_counter: 0,
        };
        let worker = Builder::new().name("worker".into()).spawn(park).unwrap();
        let (fiber, number) = fiber_of(&worker);
        let subject = Subject::new(fiber, number, since, Trouble::Blocks(read));
        let words = |nameless| {
            move |text: &mut Text| {
                text.say(format_args!("   0: one\n   1: two\n"));
                nameless
            }
        };
        let said = text(&subject, words(false), 0);
        let how = "has blocked its carrier for 23 ms, in read on descriptor 5";
        assert!(said.starts_with(&format!("carefree: fiber {number} 'worker' {how}\n")), "{said}");
        assert!(said.contains("   0: one\n   1: two\n"), "{said}");
        assert!(said.contains("carefree::offload") && said.contains("CAREFREE_WATCH"));
        assert!(!said.contains("not reported") && !said.contains("addr2line"));
        assert!(text(&subject, words(true), 0).contains("addr2line"));

        let subject = Subject::new(fiber, number, since, Trouble::Runs);
        let said = text(&subject, |_| false, 9);
        assert!(said.starts_with(&format!("carefree: fiber {number} 'worker' has run for 23 ms")));
        assert!(said.contains("carefree::yield_now") && said.contains("9 more"), "{said}");
        // Another fiber's name is not shown.
        let other = number + 1;
        let subject = Subject::new(fiber, other, since, Trouble::Runs);
        let said = text(&subject, |_| false, 9);
        assert!(said.starts_with(&format!("carefree: fiber {other} has run for 23 ms")), "{said}");
        worker.thread().unpark();
        worker.join().unwrap();
    }
}
