//! Deadlocks of fibers in locks of `std` and of C are reported, and other long waits are not.
//!
//! Each case runs in a process of its own, started from this program's `main`: any thread of a test
//! harness could wake a fiber.

use std::cell::UnsafeCell;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use carefree_interpose as _;
use carefree_runtime::{Builder, sleep};

const CASE: &str = "CAREFREE_TEST_CASE";

/// A name, the program, and what standard error must contain if it is a deadlock.
type Case = (&'static str, fn(), &'static [&'static str]);

const CASES: &[Case] = &[
    ("two_mutexes", two_mutexes, &["carefree: deadlock", "'ab' waits for a lock", "'ba' waits"]),
    ("one_mutex_of_c", one_mutex_of_c, &["carefree: deadlock", "'it' waits for a pthread mutex"]),
    (
        "one_semaphore_of_c",
        one_semaphore_of_c,
        &["carefree: deadlock", "'it' waits for a POSIX semaphore"],
    ),
    (
        "the_other_handle",
        the_other_handle,
        &["carefree: deadlock", "ended by Carefree's unpark, not by that of a handle of std's"],
    ),
    ("parked_by_std", parked_by_std, &["carefree: deadlock", "parked by std::thread::park"]),
    ("a_semaphore_that_a_handler_posts", a_semaphore_that_a_handler_posts, &[]),
    ("a_wait_that_a_handler_ends", a_wait_that_a_handler_ends, &[]),
    ("a_thread_in_the_kernel", a_thread_in_the_kernel, &[]),
    ("a_wait_with_a_limit", a_wait_with_a_limit, &[]),
];

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> carefree_runtime::JoinHandle<()> {
    Builder::new().name(name.into()).spawn(f).unwrap()
}

/// Each of two fibers holds a mutex and waits for the other's.
fn two_mutexes() {
    let [a, b] = [0, 1].map(|_| Arc::new(Mutex::new(())));
    let nested = |first: &Arc<Mutex<()>>, second: &Arc<Mutex<()>>| {
        let (first, second) = (Arc::clone(first), Arc::clone(second));
        move || {
            let _first = first.lock().unwrap();
            sleep(Duration::from_millis(50));
            let _second = second.lock().unwrap();
        }
    };
    let fibers = [named("ab", nested(&a, &b)), named("ba", nested(&b, &a))];
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// `std` parks and unparks these fibers.
fn the_other_handle() {
    named("it", || {
        thread::current().unpark();
        carefree_runtime::park();
    })
    .join()
    .unwrap();
}

fn parked_by_std() {
    named("it", thread::park).join().unwrap();
}

/// A fiber waits for a mutex that it holds.
fn one_mutex_of_c() {
    named("it", || {
        let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        // SAFETY: an initialized mutex.
        unsafe {
            libc::pthread_mutex_lock(&raw mut mutex);
            libc::pthread_mutex_lock(&raw mut mutex);
        }
    })
    .join()
    .unwrap();
}

/// A fiber waits for a semaphore that nothing will post.
fn one_semaphore_of_c() {
    named("it", || wait_for(SEMAPHORE.get())).join().unwrap();
}

/// A signal handler may post.
fn a_semaphore_that_a_handler_posts() {
    extern "C" fn post(_signal: libc::c_int) {
        // SAFETY: a semaphore; this may be called by a handler.
        unsafe { libc::sem_post(SEMAPHORE.get()) };
    }
    // SAFETY: a handler that does what handlers may do; a time in the future.
    unsafe {
        libc::signal(libc::SIGALRM, post as extern "C" fn(libc::c_int) as usize);
        libc::alarm(4);
    }
    named("it", || wait_for(SEMAPHORE.get())).join().unwrap();
}

/// A signal handler may end the process as it likes.
fn a_wait_that_a_handler_ends() {
    extern "C" fn end(_signal: libc::c_int) {
        // SAFETY: this may be called by a handler.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: a handler that does what handlers may do; a time in the future.
    unsafe {
        libc::signal(libc::SIGALRM, end as extern "C" fn(libc::c_int) as usize);
        libc::alarm(4);
    }
    named("it", thread::park).join().unwrap();
}

fn wait_for(semaphore: *mut libc::sem_t) {
    // SAFETY: a semaphore.
    assert_eq!(unsafe { libc::sem_wait(semaphore) }, 0);
}

struct Semaphore(UnsafeCell<libc::sem_t>);

// SAFETY: semaphores are made to be used by several threads.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    fn get(&self) -> *mut libc::sem_t {
        self.0.get()
    }
}

/// Zeros are a semaphore of one process that was not posted.
// SAFETY: plain data.
static SEMAPHORE: Semaphore = Semaphore(UnsafeCell::new(unsafe { std::mem::zeroed() }));

/// A fiber waits for a thread that sleeps in the kernel, unseen.
fn a_thread_in_the_kernel() {
    let state = Arc::new((Mutex::new(false), Condvar::new()));
    let [theirs, others] = [0, 1].map(|_| Arc::clone(&state));
    let waits = named("it", move || {
        let (mutex, changed) = &*theirs;
        drop(changed.wait_while(mutex.lock().unwrap(), |set| !*set).unwrap());
    });
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_secs(5));
        *others.0.lock().unwrap() = true;
        others.1.notify_all();
    });
    waits.join().unwrap();
    thread.join().unwrap();
}

/// A wait that ends by itself is no deadlock.
fn a_wait_with_a_limit() {
    named("it", || {
        let (mutex, never) = (Mutex::new(()), Condvar::new());
        let limit = Duration::from_secs(4);
        let wait = never.wait_timeout_while(mutex.lock().unwrap(), limit, |()| true);
        assert!(wait.unwrap().1.timed_out());
    })
    .join()
    .unwrap();
}

fn main() -> ExitCode {
    // Reports are written by `insight`.
    carefree_insight::register();
    if let Ok(name) = std::env::var(CASE) {
        CASES.iter().find(|case| case.0 == name).expect("a case").1();
        return ExitCode::SUCCESS;
    }
    thread::scope(|scope| {
        for (name, _, said) in CASES {
            scope.spawn(move || check(name, said));
        }
    });
    println!("\ntest result: ok. {} passed; 0 failed", CASES.len());
    ExitCode::SUCCESS
}

fn check(name: &str, words: &[&str]) {
    let output = Command::new(std::env::current_exe().unwrap()).env(CASE, name).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let right = match words {
        [] => output.status.success() && !said.contains("carefree: deadlock"),
        _ => output.status.signal() == Some(libc::SIGABRT),
    };
    let all_said = words.iter().all(|words| said.contains(words));
    assert!(right && all_said, "{name}: {}\n{said}", output.status);
    println!("test {name} ... ok");
}
