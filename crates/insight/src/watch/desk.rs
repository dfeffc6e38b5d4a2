//! Reports on their way from the watchdog to the thread that prints them.
//!
//! To find the names for a backtrace may take most of a second, in a large program that is not optimized.
//! So another thread does it, and the watchdog goes on; reports for which there is no room are counted. The
//! room for a few reports and the thread are there from the start: to hand over a report asks for no memory.
//!
//! # Why no report is lost
//!
//! The watchdog alone adds reports, so where it has seen room, there is room until it adds one. It adds
//! a report under the lock, and wakes the reporter thereafter. The reporter takes what is there, and
//! waits when it has found nothing under the lock. A report that is added after that look comes with a wake
//! after the reporter's last wait; [`Idle`] keeps it, so it ends the next wait at once, and the reporter
//! looks again. One wake may stand for several reports, for the reporter takes all before it waits. Each
//! thread holds the lock only while it moves a report, so the watchdog never waits for printing.

use std::sync::atomic::Ordering;

use carefree_ground::lock::Lock;
use carefree_reactor::Idle;

use super::report::{PER_SECOND, REPORTS, Report};
use super::thread::start_thread;

/// The most reports that wait to be printed.
const PLACES: usize = PER_SECOND as usize;

pub(super) struct Desk {
    /// Where the reporter sleeps.
    bed: Idle,
    waiting: Lock<Waiting>,
}

/// Reports in the order in which they came: the oldest at `first`, the others behind it, around the end.
struct Waiting {
    first: usize,
    places: [Option<Report>; PLACES],
}

impl Waiting {
    const fn new() -> Waiting {
        Waiting { first: 0, places: [const { None }; PLACES] }
    }

    fn free(&self) -> Option<usize> {
        let mut places = (0..PLACES).map(|behind| (self.first + behind) % PLACES);
        places.find(|place| self.places[*place].is_none())
    }

    fn take(&mut self) -> Option<Report> {
        let report = self.places[self.first].take()?;
        self.first = (self.first + 1) % PLACES;
        Some(report)
    }
}

impl Desk {
    /// Starts the thread that prints; `None` if there is none to be had. The desk is never freed.
    pub(super) fn start() -> Option<&'static Desk> {
        let desk: &'static Desk =
            Box::leak(Box::new(Desk { bed: Idle::new(), waiting: Lock::new(Waiting::new()) }));
        start_thread("carefree-report", move || desk.print_all()).then_some(desk)
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.lock().free().is_some()
    }

    /// Hands a report over; whether there was room for it.
    pub(super) fn put(&self, report: Report) -> bool {
        let mut waiting = self.waiting.lock();
        let Some(place) = waiting.free() else { return false };
        waiting.places[place] = Some(report);
        drop(waiting);
        self.bed.wake();
        true
    }

    fn print_all(&self) -> ! {
        loop {
            // In a statement of its own, so that the lock is free while the report is printed.
            let report = self.waiting.lock().take();
            match report {
                Some(report) => print(report),
                None => {
                    self.bed.wait(None);
                }
            }
        }
    }
}

/// Prints a report, and counts it.
pub(super) fn print(report: Report) {
    report.print();
    REPORTS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_taken_in_order_and_make_room() {
        let mut waiting = Waiting::new();
        let put = |waiting: &mut Waiting, number| {
            let place = waiting.free()?;
            waiting.places[place] = Some(Report::of_nothing(number));
            Some(())
        };
        let take = |waiting: &mut Waiting| waiting.take().map(|report| report.left_out);
        assert_eq!(take(&mut waiting), None);
        for number in 0..PLACES as u64 {
            assert!(put(&mut waiting, number).is_some());
        }
        assert!(put(&mut waiting, 99).is_none(), "there is room for no more");
        // Around the end, twice.
        for number in 0..2 * PLACES as u64 {
            assert_eq!(take(&mut waiting), Some(number));
            assert!(put(&mut waiting, number + PLACES as u64).is_some());
        }
        assert_eq!((0..PLACES).filter_map(|_| take(&mut waiting)).count(), PLACES);
        assert_eq!(take(&mut waiting), None);
    }
}
