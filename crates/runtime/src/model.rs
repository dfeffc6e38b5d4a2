//! The world in which loom runs the real code of waiting and waking.
//!
//! `wait`, `lot`, `join`, `operation`, `waiters` and what they are made of are the real ones. Beneath them, in
//! `model/`, is a world with a thread of loom's for each fiber and each plain thread: a fiber that leaves
//! its stack does what its carrier would do next, and then sleeps until it is made ready. So loom itself
//! reports a fiber that sleeps for ever, as a deadlock; and what makes a fiber ready accesses a cell that
//! stands for its context, so loom reports it if that comes too early.

use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(test)]
pub(crate) use world::{World, as_fiber, bounded, run};

use crate::carrier::clock;

#[cfg(test)]
mod closing;
#[cfg(all(test, not(feature = "rejected-deque")))]
mod giving;
#[cfg(all(test, not(feature = "rejected-deque")))]
mod handing;
#[cfg(test)]
mod holding;
#[cfg(test)]
mod joining;
#[cfg(test)]
mod operating;
#[cfg(test)]
mod parking;
#[cfg(test)]
mod world;

/// A lock of the runtime's own.
#[derive(Debug)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Where a thread sleeps. (The real one has a model of its own.)
#[derive(Debug)]
pub(crate) struct Idle {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Idle {
    pub(crate) fn new() -> Idle {
        Idle { woken: Mutex::new(false), changed: Condvar::new() }
    }

    pub(crate) fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }

    pub(crate) fn wait(&self, deadline: Option<u64>) -> bool {
        let mut woken = self.woken.lock().unwrap();
        while !*woken && deadline.is_none_or(|deadline| clock::now() < deadline) {
            woken = self.changed.wait(woken).unwrap();
        }
        std::mem::take(&mut *woken)
    }

    /// Time has passed: a sleeper looks at the clock.
    pub(crate) fn pass(&self) {
        let _woken = self.woken.lock().unwrap();
        self.changed.notify_one();
    }
}
