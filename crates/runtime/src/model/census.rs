//! The count of threads that wait. In the models nothing is looked for: loom reports what sleeps for ever.

use std::time::Duration;

use crate::protocol::sync::{AtomicUsize, Ordering};

pub(crate) const LOOK: Duration = Duration::from_secs(1);

loom::lazy_static! {
    static ref WAITING: AtomicUsize = AtomicUsize::new(0);
}

#[derive(Default)]
pub(crate) struct Seen;

pub(crate) fn look(_seen: &mut Seen) {}

pub(crate) fn thread_waits() {
    WAITING.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn thread_woken() {
    assert_ne!(WAITING.fetch_sub(1, Ordering::Relaxed), 0, "woken more often than it waited");
}

pub(crate) fn waiting() -> usize {
    WAITING.load(Ordering::Relaxed)
}
