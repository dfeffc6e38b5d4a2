//! A fiber that waits with the lock of the program's allocator, queued behind fibers that spin until it has
//! gone on: carriers are added to run it, though none gets memory from that allocator meanwhile.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use carefree_interpose as _;
use carefree_runtime::{Runtime, metrics, spawn, yield_now};

/// The system's allocator under one mutex.
struct Locked(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: its only field is a pthread mutex, which is made to be used by several threads.
unsafe impl Sync for Locked {}

/// Times that the monitor's thread has come here.
static ASKED_BY_MONITOR: AtomicUsize = AtomicUsize::new(0);

fn note_monitor() {
    let mut name = [0u8; 16];
    // SAFETY: room for a thread's name.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    if name.starts_with(b"carefree-mon\0") {
        ASKED_BY_MONITOR.fetch_add(1, Ordering::Relaxed);
    }
}

impl Locked {
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        note_monitor();
        // SAFETY: an initialized mutex, unlocked by the thread or fiber that has locked it.
        unsafe {
            assert_eq!(libc::pthread_mutex_lock(self.0.get()), 0);
            let result = f();
            assert_eq!(libc::pthread_mutex_unlock(self.0.get()), 0);
            result
        }
    }
}

// SAFETY: the memory is the system allocator's.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System` asks its callers for what this function asks of its own.
        self.with(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: all memory that `alloc` gives out is from `System`.
        self.with(|| unsafe { System.dealloc(memory, layout) });
    }
}

#[global_allocator]
static ALLOCATOR: Locked = Locked(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

/// More than are added at once, so that carriers are added while others are there that spin.
const SPINNING: usize = 12;

/// In one process.
const ROUNDS: usize = 5;

/// Whether the allocator's lock was given back.
static OVER: AtomicBool = AtomicBool::new(false);

/// Returns how many carriers were added.
fn held(runtime: &Runtime) -> u64 {
    let before = metrics().added;
    OVER.store(false, Ordering::Release);
    let begun = &AtomicUsize::new(0);
    // What is spawned needs memory.
    let (spawned, taken) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let (mut reads, writes) = UnixStream::pair().unwrap();
    runtime.run(move || {
        // An operation is under way at the carrier that is kept, and is done meanwhile.
        let reading = spawn(move || reads.read_exact(&mut [0]).unwrap());
        // Until it was handed to the kernel.
        carefree_runtime::sleep(Duration::from_millis(1));
        carefree_runtime::scope(|scope| {
            scope.spawn(|| {
                yield_until(spawned);
                ALLOCATOR.with(|| {
                    taken.store(true, Ordering::Release);
                    // SAFETY: one byte.
                    let one = unsafe { libc::write(fd(&writes), [7u8].as_ptr().cast(), 1) };
                    assert_eq!(one, 1);
                    // Behind all that spin, each of which needs a carrier.
                    while begun.load(Ordering::Relaxed) < SPINNING {
                        yield_now();
                    }
                });
                OVER.store(true, Ordering::Release);
            });
            for _ in 0..SPINNING {
                scope.spawn(|| {
                    yield_until(taken);
                    begun.fetch_add(1, Ordering::Relaxed);
                    while !OVER.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                });
            }
            spawned.store(true, Ordering::Release);
        });
        reading.join().unwrap();
    });
    metrics().added - before
}

fn yield_until(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        yield_now();
    }
}

fn fd(stream: &UnixStream) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(stream)
}

#[test(seconds = 60)]
fn carriers_are_added_while_a_fiber_has_the_allocators_lock() {
    const CHILD: &str = "CAREFREE_TEST_HELD_ALLOCATOR";
    if std::env::var_os(CHILD).is_some() {
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        // In the first round carriers are started, in the others most are recalled.
        for round in 0..ROUNDS {
            let added = held(&runtime);
            // Some of the round before may be there still.
            let least = if round == 0 { SPINNING as u64 } else { 0 };
            assert!(added >= least, "{added} carriers were added in round {round}");
        }
        // Not even when it begins, for that may be while a fiber has the lock.
        assert_eq!(ASKED_BY_MONITOR.load(Ordering::Relaxed), 0);
        return;
    }
    for reactor in ["uring", "epoll"] {
        let name = "carriers_are_added_while_a_fiber_has_the_allocators_lock";
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .envs([(CHILD, "1"), ("CAREFREE_REACTOR", reactor), ("CAREFREE_TEST_LIMIT", "25")])
            .status()
            .unwrap();
        assert!(status.success(), "{reactor}: {status}");
    }
}
