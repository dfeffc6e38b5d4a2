//! Lanes: the threads or fibers that make calls.

use std::thread;

/// The kind of all lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lanes {
    Threads,
    Fibers,
}

/// A lane that can be waited for.
#[derive(Debug)]
pub enum Handle<T> {
    Thread(thread::JoinHandle<T>),
    Fiber(carefree::JoinHandle<T>),
}

impl<T> Handle<T> {
    /// # Panics
    /// If the lane has.
    pub fn join(self) -> T {
        let value = match self {
            Handle::Thread(thread) => thread.join(),
            Handle::Fiber(fiber) => fiber.join(),
        };
        value.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Lanes {
    pub fn spawn<T: Send + 'static>(self, f: impl FnOnce() -> T + Send + 'static) -> Handle<T> {
        match self {
            Lanes::Threads => Handle::Thread(thread::spawn(move || {
                crate::storm::shelter();
                f()
            })),
            Lanes::Fibers => Handle::Fiber(carefree::spawn(f)),
        }
    }
}
