//! What the watchdog prints, and how often.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use super::backtrace::{self, Words};
use super::unwind::Frame;

/// The same place is reported once in this time.
const AGAIN: Duration = Duration::from_secs(60);
/// Reports a second, at most.
const PER_SECOND: u32 = 4;
/// Places remembered; with more, all are forgotten and reported anew.
const PLACES: usize = 1024;

/// What is the matter with a fiber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It runs and runs.
    Runs,
    /// It sleeps in the kernel, there: see [`describe`](super::kernel::describe).
    Blocks(String),
}

/// Lets few reports through.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    places: HashMap<u64, Instant>,
    /// When the second under way began, and the reports in it.
    second: Option<Instant>,
    looked: u32,
    /// Not reported since the last report.
    left_out: u64,
}

impl Limiter {
    /// Whether there is room for another report now. It is counted even if it turns out to be of a
    /// place that was reported already, for finding that out is the dear part.
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
        if self.places.get(&place).is_some_and(|last| now - *last < AGAIN) {
            self.left_out += 1;
            return None;
        }
        if self.places.len() >= PLACES {
            self.places.clear();
        }
        self.places.insert(place, now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Who is reported.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) number: u64,
    pub(super) name: Option<String>,
    pub(super) since: Duration,
    pub(super) trouble: Trouble,
}

/// Prints a report to standard error.
pub(super) fn print(subject: &Subject, frames: &[Frame], left_out: u64) {
    let text = text(subject, &backtrace::words(frames), left_out);
    // One write, so that it is not torn; not `eprintln`, whose lock a fiber may hold.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn text(subject: &Subject, backtrace: &Words, left_out: u64) -> String {
    let mut text = format!("carefree: fiber {}", subject.number);
    if let Some(name) = &subject.name {
        let _ = write!(text, " '{name}'");
    }
    let since = subject.since.as_millis();
    let help = match &subject.trouble {
        Trouble::Blocks(place) => {
            let _ = writeln!(text, " has blocked its carrier for {since} ms, {place}");
            "no other fiber runs there meanwhile: make this call within carefree::offload"
        }
        Trouble::Runs => {
            let _ = writeln!(text, " has run for {since} ms without letting others run");
            "call carefree::yield_now now and then, or compute within carefree::offload"
        }
    };
    for (index, line) in backtrace.lines.iter().enumerate() {
        let _ = writeln!(text, "  {index:2}: {line}");
    }
    if backtrace.nameless {
        let _ = writeln!(
            text,
            "  (the names were stripped: `addr2line -ifCe FILE PLACE` knows them of the file before \
             that)"
        );
    }
    if left_out > 0 {
        let _ =
            writeln!(text, "  ({left_out} more of this kind were not reported since the last one)");
    }
    let _ = writeln!(text, "  {help}; CAREFREE_WATCH=MILLISECONDS|off sets how patient this is");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_reported_once_in_a_minute() {
        let mut limiter = Limiter::default();
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
        let mut limiter = Limiter::default();
        let now = Instant::now();
        assert_eq!((0..100).filter(|_| limiter.may_look(now)).count(), PER_SECOND as usize);
        let later = now + Duration::from_secs(1);
        assert!(limiter.may_look(later));
        assert_eq!(limiter.admit(7, later), Some(100 - u64::from(PER_SECOND)));
    }

    #[test]
    fn the_words_of_a_report() {
        let since = Duration::from_millis(23);
        let trouble = Trouble::Blocks("in read on descriptor 5".into());
        let subject = Subject { number: 12, name: Some("worker".into()), since, trouble };
        let lines = vec!["one".to_owned(), "two".to_owned()];
        let backtrace = Words { lines: lines.clone(), nameless: false };
        let said = text(&subject, &backtrace, 0);
        assert!(said.starts_with(
            "carefree: fiber 12 'worker' has blocked its carrier for 23 ms, in read on descriptor 5\n"
        ));
        assert!(said.contains("   0: one\n   1: two\n"), "{said}");
        assert!(said.contains("carefree::offload") && said.contains("CAREFREE_WATCH"));
        assert!(!said.contains("not reported") && !said.contains("addr2line"));
        let stripped = Words { lines, nameless: true };
        assert!(text(&subject, &stripped, 0).contains("addr2line"));

        let subject = Subject { number: 3, name: None, since, trouble: Trouble::Runs };
        let said = text(&subject, &Words::default(), 9);
        assert!(said.starts_with("carefree: fiber 3 has run for 23 ms"), "{said}");
        assert!(said.contains("carefree::yield_now") && said.contains("9 more"), "{said}");
    }
}
