//! What `std::thread` and `carefree` have in common, so that a program written once runs on both.

use std::io;

use crate::answer::Failure;
use crate::limits;

/// The functions of `std::thread` that the lab's programs call.
pub(crate) trait Threads {
    type Handle<T>;
    type Thread: Send + Sync + 'static;

    fn spawn<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self::Handle<T>>;
    fn thread<T>(handle: &Self::Handle<T>) -> &Self::Thread;
    /// The value that the unit returned; `None` if it panicked.
    fn join<T>(handle: Self::Handle<T>) -> Option<T>;
    fn current() -> Self::Thread;
    fn unpark(thread: &Self::Thread);
    fn park();
    fn yield_now();

    /// The failure of a program that could start no more than `reached` of the units asked for.
    fn ran_out(reached: u64, asked: u64, error: &io::Error) -> Failure;

    /// Has `count` units do `work` at once, and returns what each of them returned.
    fn crowd<T: Send + 'static>(
        count: u64,
        work: impl Fn() -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Failure> {
        let mut handles = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        let mut failure = None;
        for reached in 0..count {
            match Self::spawn(work.clone()) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    failure = Some(Self::ran_out(reached, count, &error));
                    break;
                }
            }
        }
        // All of them are joined, whatever the first one returned.
        let joined: Vec<Option<T>> = handles.into_iter().map(Self::join).collect();
        let done: Option<Vec<T>> = joined.into_iter().collect();
        failure.map_or_else(|| done.ok_or_else(|| Failure::new("a unit panicked")), Err)
    }
}

/// The kernel's threads.
pub(crate) enum Kernel {}

/// Carefree's fibers.
pub(crate) enum Fibers {}

macro_rules! threads {
    ($type:ty, $($api:ident)::+, $ran_out:expr) => {
        impl Threads for $type {
            type Handle<T> = $($api)::+::JoinHandle<T>;
            type Thread = $($api)::+::Thread;

            fn spawn<T: Send + 'static>(
                work: impl FnOnce() -> T + Send + 'static,
            ) -> io::Result<Self::Handle<T>> {
                $($api)::+::Builder::new().spawn(work)
            }

            fn thread<T>(handle: &Self::Handle<T>) -> &Self::Thread {
                handle.thread()
            }

            fn join<T>(handle: Self::Handle<T>) -> Option<T> {
                handle.join().ok()
            }

            fn current() -> Self::Thread {
                $($api)::+::current()
            }

            fn unpark(thread: &Self::Thread) {
                thread.unpark();
            }

            fn park() {
                $($api)::+::park();
            }

            fn yield_now() {
                $($api)::+::yield_now();
            }

            fn ran_out(reached: u64, asked: u64, error: &io::Error) -> Failure {
                $ran_out(reached, asked, error)
            }
        }
    };
}

threads!(Kernel, std::thread, limits::threads_ran_out);
// The error itself names the limit and its knob.
threads!(Fibers, carefree, |reached, asked, error| {
    Failure::new(format!("fiber {} of {asked} could not be started: {error}", reached + 1))
});
