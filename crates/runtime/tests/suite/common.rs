//! Helpers of the tests.

use std::hint::black_box;
use std::panic;
use std::sync::Once;
use std::time::{Duration, Instant};

use carefree_context::tls;
pub(crate) use carefree_testing::again::{in_a_process, in_forced_mode, is_child, text};

/// Longer than a test may take. A test that hangs is ended by its own limit, which grows on a busy machine
/// and reports what waits for what.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// Longer than any wait in a test, for waits that the test cuts short.
pub(crate) const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether each fiber has its own thread-local storage here, and may migrate.
pub(crate) fn own_tls() -> bool {
    tls::mode().layout().is_some()
}

/// Panics on purpose, and keeps the message off the terminal.
pub(crate) fn panic_on_purpose() -> ! {
    quiet();
    panic::panic_any("on purpose")
}

/// Keeps panics that say `on purpose` off the terminal.
pub(crate) fn quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let former = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Payloads that are no text are all on purpose.
            let payload = info.payload();
            let said = match payload.downcast_ref::<&str>() {
                Some(text) => text,
                None => payload.downcast_ref::<String>().map_or("on purpose", String::as_str),
            };
            if !(said.contains("on purpose") || said == "a scoped thread panicked") {
                former(info);
            }
        }));
    });
}

/// Calls `done` until it returns true, and lets other fibers run meanwhile.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "waited too long until {what}");
        carefree_runtime::sleep(Duration::from_micros(200));
    }
}

/// Runs `f`, which might hang, on a thread of its own, and fails if that takes too long.
pub(crate) fn within_reason<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || send.send(f()).unwrap());
    match receive.recv_timeout(LONG) {
        Ok(value) => value,
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => carefree_testing::print_and_abort(
            std::thread::current().name().unwrap_or("a test"),
            " hangs",
        ),
        Err(_) => panic::resume_unwind(thread.join().unwrap_err()),
    }
}

/// A small random number generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The kernel's, in which it tells of memory.
pub(crate) fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Limits the process to `room` bytes of mappings beyond those that it has.
pub(crate) fn limit_address_space(room: usize) {
    // The heap grows beforehand and keeps what it has, because not only stacks need room.
    // SAFETY: calls with numbers.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
    }
    drop(black_box((0..8).map(|_| vec![1u8; 8 << 20]).collect::<Vec<_>>()));
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mapped = statm.split(' ').next().unwrap().parse::<u64>().unwrap() * page_size();
    let limit = mapped + room as u64;
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: a whole structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}
