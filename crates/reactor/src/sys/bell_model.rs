//! The bell for loom: a ring is kept, and also ends a sleep that begins later.

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

    /// Sleeps, as a wait of a ring or epoll does, until the bell has rung since the last call.
    pub(crate) fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.listener.wait(rung).unwrap();
        }
        *rung = false;
    }
}
