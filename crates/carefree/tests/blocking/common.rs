//! Helpers for the tests of all families.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carefree::{Runtime, TlsMode, platform, spawn};

/// Longer than any call in these tests takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// As a rule long enough for other fibers to begin to wait.
pub(crate) const MOMENT: Duration = Duration::from_millis(5);

/// Runs `f` as a fiber of a runtime with one carrier: if it blocks that, no other fiber runs.
pub(crate) fn on_one_carrier<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    Runtime::builder().carriers(1).build().unwrap().run(f)
}

/// So many fibers begin to wait one after the other; then as many events come, one after the other. Returns the numbers of
/// the fibers as they were served: as the kernel serves threads.
pub(crate) fn served(
    waiters: usize,
    wait: impl Fn() + Copy + Send + 'static,
    event: impl Fn() + Send + 'static,
) -> Vec<usize> {
    on_one_carrier(move || {
        let served = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..waiters)
            .map(|number| {
                let served = Arc::clone(&served);
                let waiter = spawn(move || {
                    wait();
                    served.lock().unwrap().push(number);
                });
                carefree::sleep(MOMENT);
                waiter
            })
            .collect();
        for count in 1..=waiters.len() {
            event();
            while served.lock().unwrap().len() < count {
                carefree::yield_now();
            }
        }
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        Arc::into_inner(served).unwrap().into_inner().unwrap()
    })
}

/// How often this thread has given up its processor by itself, as it does when it waits in the kernel.
fn waits_of_this_thread() -> i64 {
    // SAFETY: zeros are an answer, which is filled in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Makes a call that takes a while beside another fiber of the same carrier, and asserts that this
/// one gets on meanwhile.
///
/// On a machine that is busy elsewhere, what the call waits for may be there before it begins to wait:
/// its time may pass while the carrier has no processor. Then the carrier has not waited either. Where each fiber is
/// a thread, the kernel may not run the other one for as long as that.
pub(crate) fn while_another_runs<T>(call: impl FnOnce() -> T) -> T {
    let steps = Arc::new(AtomicUsize::new(0));
    let other = spawn({
        let steps = Arc::clone(&steps);
        move || {
            for _ in 0..4 {
                steps.fetch_add(1, Ordering::SeqCst);
                carefree::sleep(Duration::from_millis(1));
            }
        }
    });
    // It sleeps before the call begins, and so wakes up before a call that takes longer, however
    // late the carrier gets to either.
    while steps.load(Ordering::SeqCst) == 0 {
        carefree::yield_now();
    }
    let before = steps.load(Ordering::SeqCst);
    let waits = waits_of_this_thread();
    let value = call();
    let waits = waits_of_this_thread() - waits;
    assert!(
        steps.load(Ordering::SeqCst) > before || waits == 0 || platform().tls == TlsMode::Threads,
        "no other fiber ran while the carrier waited {waits} times"
    );
    other.join().unwrap();
    value
}

/// The `errno` that the last call of libc's left.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// -1 with an `errno` as `Err`.
pub(crate) fn checked(result: impl Into<i64>) -> Result<i64, i32> {
    match result.into() {
        -1 => Err(errno()),
        result => Ok(result),
    }
}

/// Runs `f` in a fiber that is cancelled once it waits. Returns what `f` returned.
pub(crate) fn cancelled<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let fiber = spawn(f);
    carefree::sleep(MOMENT);
    fiber.cancel();
    fiber.join().unwrap()
}

/// Runs `f` under a short [`carefree::timeout`], which it must exceed. Returns what `f` returned.
pub(crate) fn timed_out<T>(f: impl FnOnce() -> T) -> T {
    let mut value = None;
    assert!(carefree::timeout(MOMENT, || value = Some(f())).is_err());
    value.unwrap()
}

/// Both ends of a connection.
pub(crate) fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A pipe: the end to read from, and the end to write to.
pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: there is room for the answer, and the files are ours.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}
