//! The bell as loom sees it: rings are kept, and end a sleep that begins later as well.

use loom::sync::{Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    listener: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Bell { rung: Mutex::new(false), listener: Condvar::new() }
    }

    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.listener.notify_one();
    }

    /// What a ring's or epoll's wait does: sleeps until the bell has rung since the last time.
    pub(crate) fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.listener.wait(rung).unwrap();
        }
        *rung = false;
    }
}
