//! Helpers of the tests.

use std::sync::mpsc;
use std::time::Duration;

use carefree_runtime::Runtime;

/// Longer than anything takes here, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Whether each fiber has its own thread-local storage here. If not, fibers share their carrier's
/// handle of `std::thread::current`, and `std::thread::park` does not work for them.
pub(crate) fn own_tls() -> bool {
    carefree_context::tls::mode().layout().is_some()
}

/// Runs `f` as a fiber, first on one carrier, then on two. Fails if it takes too long, because it may hang.
pub(crate) fn on_fibers(f: impl Fn() + Send + Sync + Copy + 'static) {
    for carriers in [1, 2] {
        let (send, receive) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            Runtime::builder().carriers(carriers).build().unwrap().run(f);
            send.send(()).unwrap();
        });
        match receive.recv_timeout(LONG) {
            Ok(()) => thread.join().unwrap(),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs with {carriers} carriers"),
            Err(_) => std::panic::resume_unwind(thread.join().unwrap_err()),
        }
    }
}

/// A fiber or a thread.
pub(crate) enum Unit<T> {
    Fiber(carefree_runtime::JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl<T: Send + 'static> Unit<T> {
    /// Every third is a thread.
    pub(crate) fn mixed(number: usize, f: impl FnOnce() -> T + Send + 'static) -> Unit<T> {
        if number % 3 == 2 {
            Unit::Thread(std::thread::spawn(f))
        } else {
            Unit::Fiber(carefree_runtime::spawn(f))
        }
    }

    pub(crate) fn join(self) -> T {
        let result = match self {
            Unit::Fiber(handle) => handle.join(),
            Unit::Thread(handle) => carefree_runtime::offload(|| handle.join()),
        };
        result.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}
