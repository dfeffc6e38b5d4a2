//! Reports come when the program's allocator hangs: the watchdog's, that of a deadlock, and dumps.
//!
//! This program's allocator, Rust's and C's, has a gate. A case closes it: from then on every thread
//! that asks for memory, or gives some back, waits or spins for ever, as where a fiber is stuck with
//! the allocator's lock. Each case is a process of its own, started from this program's `main`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::{black_box, spin_loop};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree_insight::{dump, dump_to};
use carefree_runtime::{
    Builder, JoinHandle, metrics, park, park_timeout, run, scope, sleep, spawn,
};

const CASE: &str = "CAREFREE_TEST_CASE";
/// Seconds that a case has to say its words.
const PATIENCE: u32 = 120;

const OPEN: u8 = 0;
/// A thread that comes to the gate sleeps in the kernel.
const WAITS: u8 = 1;
/// A thread that comes to the gate uses its processor.
const SPINS: u8 = 2;

static GATE: AtomicU8 = AtomicU8::new(OPEN);
/// Whether the calls of the runtime's own threads that watch are counted.
static COUNTS: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The threads that ask for nothing: the watchdog, and the one that prints for it.
const WATCHING: [&str; 2] = ["carefree-watch", "carefree-report"];

fn pass() {
    if COUNTS.load(Ordering::Relaxed) {
        let mut name = [0u8; 16];
        // SAFETY: room for a thread's name.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        if WATCHING.iter().any(|watching| name.starts_with(watching.as_bytes())) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    }
    loop {
        match GATE.load(Ordering::Relaxed) {
            OPEN => return,
            SPINS => spin_loop(),
            _ => {
                // SAFETY: it takes nothing.
                unsafe { libc::pause() };
            }
        }
    }
}

struct Gated;

#[global_allocator]
static ALLOCATOR: Gated = Gated;

// SAFETY: the system's allocator, behind a gate.
unsafe impl GlobalAlloc for Gated {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        pass();
        // SAFETY: `System.alloc` demands the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        pass();
        // SAFETY: `alloc` has got the pointer from `System`, for the same layout.
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
        // SAFETY: libc's function, with the arguments of its replacement.
        unsafe { __libc_malloc(size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
        pass();
        // SAFETY: libc's function, with the arguments of its replacement.
        unsafe { __libc_calloc(count, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
        pass();
        // SAFETY: libc's function, with the arguments of its replacement.
        unsafe { __libc_realloc(pointer, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn free(pointer: *mut c_void) {
        pass();
        // SAFETY: libc's function, with the arguments of its replacement.
        unsafe { __libc_free(pointer) }
    }
}

/// Name, what it does, what it must say.
type Case = (&'static str, fn(), &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "a_fiber_spins",
        a_fiber_spins,
        &["'the spinner' has run for", "allocator::spin_in_the_allocator", "allocator.rs:"],
    ),
    ("a_fiber_sleeps", a_fiber_sleeps, &["'the sleeper' has blocked its carrier", "in pause"]),
    (
        "a_fiber_spins_in_the_loader",
        a_fiber_spins_in_the_loader,
        &["'the spinner' has run for", "allocator::spin_in_the_loader"],
    ),
    (
        "a_fiber_sleeps_amid_many",
        a_fiber_sleeps_amid_many,
        &["'the sleeper' has blocked its carrier", "in pause"],
    ),
    (
        "a_second_report",
        a_second_report,
        &["'the first' has run for", "'the second' has run for", "allocator::another_place"],
    ),
    (
        "a_deadlock",
        a_deadlock,
        &["carefree: deadlock: every fiber waits", "'the waiter' is parked", "waits for another"],
    ),
    ("a_dump", a_dump, &["carriers,", "'the waiter' is parked until", "end of the dump"]),
    ("nothing_is_asked_for", nothing_is_asked_for, &["has run for", "allocations: 0."]),
];

/// Starts the runtime, and waits until the threads that watch are there and done with what is allocated
/// for a new thread: until they sleep where they do when there is nothing to do.
fn be_watched() {
    run(|| ());
    // Not as libc waits, for the allocator's lock say.
    let sleep = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let (call, operation) = (libc::SYS_futex.to_string(), format!("{sleep:#x}"));
    let sleeps = |name: &str| {
        std::fs::read_dir("/proc/self/task").unwrap().flatten().any(|task| {
            let of = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let doing = of("syscall");
            let mut words = doing.split_whitespace();
            of("comm").trim_end() == name
                && words.next() == Some(&call)
                && words.nth(1) == Some(&operation)
        })
    };
    let watching = || WATCHING.into_iter().chain(["carefree-mon"]);
    until("the watchdog and the monitor are there", || watching().all(sleeps));
}

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name.into()).spawn(f).unwrap()
}

#[inline(never)]
fn ask_for_memory() {
    black_box(Box::new(black_box(7)));
}

#[inline(never)]
fn spin_in_the_allocator() {
    GATE.store(SPINS, Ordering::Relaxed);
    ask_for_memory();
    black_box(());
}

#[inline(never)]
fn sleep_in_the_allocator() {
    GATE.store(WAITS, Ordering::Relaxed);
    ask_for_memory();
    black_box(());
}

/// The loader's lock is held meanwhile.
#[inline(never)]
fn spin_in_the_loader() {
    unsafe extern "C" fn visit(
        _: *mut libc::dl_phdr_info,
        _: usize,
        _: *mut libc::c_void,
    ) -> libc::c_int {
        spin_in_the_allocator();
        1
    }
    // SAFETY: the function takes what it is given.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
    black_box(());
}

fn wait_for_ever() -> ! {
    loop {
        // SAFETY: it takes nothing.
        unsafe { libc::pause() };
    }
}

fn a_fiber_spins() {
    be_watched();
    let _stuck = named("the spinner", spin_in_the_allocator);
    wait_for_ever();
}

fn a_fiber_sleeps() {
    be_watched();
    let _stuck = named("the sleeper", sleep_in_the_allocator);
    wait_for_ever();
}

fn a_fiber_spins_in_the_loader() {
    be_watched();
    let _stuck = named("the spinner", spin_in_the_loader);
    wait_for_ever();
}

/// Others begin, wait and end meanwhile, until they come to the gate in some place of the runtime's.
fn a_fiber_sleeps_amid_many() {
    be_watched();
    for _ in 0..2 {
        drop(spawn(|| {
            scope(|scope| {
                for round in 0u32.. {
                    scope.spawn(move || sleep(Duration::from_micros(u64::from(round % 200))));
                    carefree_runtime::yield_now();
                }
            });
        }));
    }
    std::thread::sleep(Duration::from_millis(20));
    let _stuck = named("the sleeper", sleep_in_the_allocator);
    wait_for_ever();
}

#[inline(never)]
fn another_place() {
    ask_for_memory();
    black_box(());
}

fn a_second_report() {
    be_watched();
    let _first = named("the first", || {
        // The second one runs on another carrier.
        while GATE.load(Ordering::Relaxed) == OPEN {
            spin_loop();
        }
        spin_in_the_allocator();
    });
    let _second = named("the second", || {
        GATE.store(SPINS, Ordering::Relaxed);
        another_place();
    });
    wait_for_ever();
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed().as_secs() < PATIENCE.into(), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_deadlock() {
    // A thread that has not begun when the gate closes waits there, and could be one that wakes a fiber.
    be_watched();
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

#[inline(never)]
fn compute_until_reported(count: u64) {
    until_spinning(|| metrics().reports >= count);
}

fn until_spinning(mut done: impl FnMut() -> bool) {
    while !done() {
        for n in 0..1000 {
            black_box(n);
        }
    }
}

fn nothing_is_asked_for() {
    be_watched();
    COUNTS.store(true, Ordering::Relaxed);
    named("one", || compute_until_reported(1)).join().unwrap();
    named("two", || until_spinning(|| metrics().reports >= 2)).join().unwrap();
    named("three", || {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        unsafe { libc::pipe(ends.as_mut_ptr()) };
        while metrics().reports < 3 {
            let mut poll = libc::pollfd { fd: ends[0], events: libc::POLLIN, revents: 0 };
            // SAFETY: one record.
            unsafe { libc::poll(&raw mut poll, 1, 100) };
        }
    })
    .join()
    .unwrap();
    COUNTS.store(false, Ordering::Relaxed);
    eprintln!("allocations: {}.", COUNT.load(Ordering::Relaxed));
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let case = CASES.iter().find(|case| case.0 == name).expect("a case");
        // SAFETY: takes a number. The process ends by itself if it is not killed.
        unsafe { libc::alarm(PATIENCE) };
        carefree_insight::register();
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
        .env("CAREFREE_WATCH", "10")
        // What a program may have for its fibers' sake.
        .env("RUST_MIN_STACK", "16384")
        .env("CAREFREE_STACK", "256K")
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
