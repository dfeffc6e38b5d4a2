//! Reports come when the program's allocator hangs: that of a deadlock, and dumps.
//!
//! This program's allocator, Rust's and C's, has a gate. A case closes it: from then on every thread
//! that asks for memory, or gives some back, waits for ever, as where a fiber is stuck with the
//! allocator's lock. Each case is a process of its own, started from this program's `main`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use carefree_runtime::{Builder, JoinHandle, dump, dump_to, park, park_timeout, spawn};

const CASE: &str = "CAREFREE_TEST_CASE";
/// Seconds that a case has to say its words.
const PATIENCE: u32 = 120;

const OPEN: u8 = 0;
/// Who comes sleeps in the kernel.
const WAITS: u8 = 1;

static GATE: AtomicU8 = AtomicU8::new(OPEN);

fn pass() {
    while GATE.load(Ordering::Relaxed) != OPEN {
        // SAFETY: it takes nothing.
        unsafe { libc::pause() };
    }
}

struct Gated;

#[global_allocator]
static ALLOCATOR: Gated = Gated;

// SAFETY: the system's allocator, behind a gate.
unsafe impl GlobalAlloc for Gated {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        pass();
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        pass();
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// C's allocator: these definitions take the place of libc's, for the whole process.
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
mod c {
    use std::ffi::c_void;

    use super::pass;

    unsafe extern "C" {
        fn __libc_malloc(size: usize) -> *mut c_void;
        fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
        fn __libc_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
        fn __libc_free(pointer: *mut c_void);
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
        pass();
        // SAFETY: libc's own.
        unsafe { __libc_malloc(size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
        pass();
        // SAFETY: as above.
        unsafe { __libc_calloc(count, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
        pass();
        // SAFETY: as above; the pointer is the caller's.
        unsafe { __libc_realloc(pointer, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn free(pointer: *mut c_void) {
        pass();
        // SAFETY: as above.
        unsafe { __libc_free(pointer) }
    }
}

/// Name, what it does, what it must say.
type Case = (&'static str, fn(), &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "a_deadlock",
        a_deadlock,
        &["carefree: deadlock: every fiber waits", "'the waiter' is parked", "waits for another"],
    ),
    ("a_dump", a_dump, &["carriers,", "'the waiter' is parked until", "end of the dump"]),
];

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name.into()).spawn(f).unwrap()
}

#[inline(never)]
fn ask_for_memory() {
    black_box(Box::new(black_box(7)));
}

#[inline(never)]
fn sleep_in_the_allocator() {
    GATE.store(WAITS, Ordering::Relaxed);
    ask_for_memory();
    black_box(());
}

fn wait_for_ever() -> ! {
    loop {
        // SAFETY: it takes nothing.
        unsafe { libc::pause() };
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed().as_secs() < PATIENCE.into(), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_deadlock() {
    // Where the main thread waits is made when it first does.
    park_timeout(Duration::from_millis(1));
    let waiter = named("the waiter", park);
    let joiner = spawn(move || waiter.join().unwrap());
    until("they wait", || {
        let dump = dump();
        // The carriers are done with what they do before they sleep.
        let asleep = dump.contains("2 carriers, 2 of them asleep");
        asleep && dump.contains("'the waiter' is parked") && dump.contains("waits for another")
    });
    GATE.store(WAITS, Ordering::Relaxed);
    joiner.join().unwrap();
}

fn a_dump() {
    let _waiter = named("the waiter", park);
    until("it waits", || dump().contains("'the waiter' is parked"));
    let stuck = named("the sleeper", sleep_in_the_allocator);
    until("the gate is closed", || GATE.load(Ordering::Relaxed) != OPEN);
    dump_to(std::io::stderr()).unwrap();
    let end = b"end of the dump\n";
    // SAFETY: the kernel reads the text.
    unsafe { libc::write(libc::STDERR_FILENO, end.as_ptr().cast(), end.len()) };
    std::mem::forget(stuck);
    wait_for_ever();
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let case = CASES.iter().find(|case| case.0 == name).expect("a case");
        // SAFETY: it takes a number: the process ends by itself if nobody reads what it says.
        unsafe { libc::alarm(PATIENCE) };
        case.1();
        return ExitCode::SUCCESS;
    }
    for (name, _, words) in CASES {
        check(name, words);
    }
    println!("\ntest result: ok. {} passed; 0 failed", CASES.len());
    ExitCode::SUCCESS
}

fn check(name: &str, words: &[&str]) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CASE, name)
        .env("CAREFREE_CARRIERS", "2")
        .env("CAREFREE_WATCH", "off")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let all = loop {
        if words.iter().all(|word| said.contains(word)) {
            break true;
        }
        if stderr.read_line(&mut said).unwrap() == 0 {
            break false;
        }
    };
    let _ = child.kill();
    let status = child.wait().unwrap();
    assert!(all, "{name}: {status}, and not all of {words:?}:\n{said}");
    println!("test {name} ... ok");
}
