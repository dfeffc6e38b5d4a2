//! A program whose allocator takes a contended pthread mutex, as jemalloc's does: when the runtime allocates
//! in the middle of its own work, that must not lead back into the scheduler.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use carefree_interpose as _;
use carefree_runtime::{Runtime, scope, sleep, spawn, timeout, yield_now};

/// The system's allocator under one mutex, with work within that makes it contended.
struct Contended {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
}

// SAFETY: its only field is a pthread mutex, which is made to be used by several threads.
unsafe impl Sync for Contended {}

static TAKEN: AtomicU64 = AtomicU64::new(0);
/// How often another thread held the mutex.
static BUSY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether allocations of this fiber fail. Those of other fibers and threads go on.
    static NO_MORE: Cell<bool> = const { Cell::new(false) };
    /// The thread that keeps the mutex contended.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
    /// Whether this fiber or thread is within the allocator.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// How often a fiber or thread that was within the allocator has called it.
static ENTERED_TWICE: AtomicU64 = AtomicU64::new(0);
/// How often fibers are to sleep in the allocator: one time in so many. 0: never.
static NAPS: AtomicU64 = AtomicU64::new(0);

impl Contended {
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        if INSIDE.replace(true) {
            ENTERED_TWICE.fetch_add(1, Relaxed);
        }
        let result = self.with_mutex(f);
        INSIDE.set(false);
        result
    }

    fn with_mutex<R>(&self, f: impl FnOnce() -> R) -> R {
        let taken = TAKEN.fetch_add(1, Relaxed);
        let naps = NAPS.load(Relaxed);
        if naps != 0 && taken % naps == 0 && !HOLDS.get() {
            // As allocators do that back off: a fiber waits for a timer here.
            let time = libc::timespec { tv_sec: 0, tv_nsec: 1000 };
            // SAFETY: the call has no preconditions but a valid time.
            unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        }
        // SAFETY: an initialized mutex, unlocked by the thread or fiber that has locked it.
        unsafe {
            if libc::pthread_mutex_trylock(self.mutex.get()) != 0 {
                BUSY.fetch_add(1, Relaxed);
                assert_eq!(libc::pthread_mutex_lock(self.mutex.get()), 0);
            }
            if HOLDS.get() || taken % 64 == 0 {
                // The holder gives up its processor.
                let time = libc::timespec { tv_sec: 0, tv_nsec: 1000 };
                let arguments = [&raw const time as usize, 0, 0, 0, 0, 0];
                let _ = carefree_ground::kernel::call(libc::SYS_nanosleep, arguments);
            }
            let result = f();
            assert_eq!(libc::pthread_mutex_unlock(self.mutex.get()), 0);
            result
        }
    }
}

// SAFETY: the memory is the system allocator's, or there is none.
unsafe impl GlobalAlloc for Contended {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if NO_MORE.get() {
            return std::ptr::null_mut();
        }
        // SAFETY: `System` asks its callers for what this function asks of its own.
        self.with(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: all memory that `alloc` gives out is from `System`.
        self.with(|| unsafe { System.dealloc(memory, layout) });
    }
}

#[global_allocator]
static ALLOCATOR: Contended = Contended { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER) };

/// Makes the runtime allocate: names, large closures, timers, growing queues, ends of fibers.
fn busy(seed: u64) {
    let fibers: Vec<_> = (0..200)
        .map(|number| {
            let large = [number; 40];
            carefree_runtime::Builder::new()
                .name(format!("fiber {seed} {number}"))
                .spawn(move || {
                    let mut kept = vec![Box::new(large)];
                    for turn in 0..4 {
                        kept.push(Box::new([turn; 40]));
                        match (number + turn) % 4 {
                            0 => sleep(Duration::from_micros(50)),
                            1 => drop(timeout(Duration::from_micros(20), || {
                                sleep(Duration::from_millis(1));
                            })),
                            2 => drop(spawn(move || Box::new(large))),
                            _ => yield_now(),
                        }
                    }
                    kept.iter().map(|values| values[0]).sum::<u64>()
                })
                .unwrap()
        })
        .collect();
    for (number, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().unwrap(), number as u64 + 6);
    }
}

/// Spawns many fibers in one scope, so that the scope's list of children grows.
fn crowded() {
    scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..60 {
                    s.spawn(|| sleep(Duration::from_micros(500)));
                }
            });
        }
    });
}

/// Fibers spawn others in another runtime, so what one carrier allocates another one frees.
fn abroad(other: &Runtime) {
    scope(|s| {
        for number in 0..8 {
            s.spawn(move || {
                let all = [(); 30].map(|()| {
                    let builder = carefree_runtime::Builder::new().name(number.to_string());
                    builder.spawn_on(other, yield_now).unwrap()
                });
                all.into_iter().for_each(|fiber| fiber.join().unwrap());
            });
        }
    });
}

/// How often all of that is done.
const ROUNDS: u64 = 2;

#[test]
fn an_allocator_that_takes_a_contended_mutex() {
    for (carriers, naps) in [(1, 0), (2, 0), (1, 50), (2, 50)] {
        NAPS.store(naps, Relaxed);
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            static OVER: AtomicBool = AtomicBool::new(false);
            OVER.store(false, Relaxed);
            let rounds = AtomicUsize::new(0);
            let runtime = Runtime::builder().carriers(carriers).build().unwrap();
            let other = Runtime::builder().carriers(1).build().unwrap();
            std::thread::scope(|scope| {
                // A thread that allocates all the time.
                scope.spawn(|| {
                    HOLDS.set(true);
                    while !OVER.load(Relaxed) {
                        drop(std::hint::black_box(vec![1u8; 100]));
                    }
                });
                for seed in 0..ROUNDS {
                    runtime.run(|| busy(seed));
                    (0..2).for_each(|_| runtime.run(crowded));
                    runtime.run(|| abroad(&other));
                    rounds.fetch_add(1, Relaxed);
                }
                OVER.store(true, Relaxed);
            });
            drop(runtime);
            send.send(rounds.into_inner()).unwrap();
        });
        let rounds = receive.recv_timeout(Duration::from_secs(60)).expect("it hangs");
        assert_eq!(rounds, ROUNDS as usize);
    }
    // A fiber that goes on within the allocator settles what the fiber before it has left, such as its end.
    assert_eq!(
        ENTERED_TWICE.load(Relaxed),
        0,
        "calls of the allocator by fibers that were within it"
    );
    assert!(BUSY.load(Relaxed) > 0, "the mutex was never contended");
}

/// The report is a call of `write`, which must do without memory itself. Other threads still get memory, so
/// that none of them reports first.
#[test]
fn a_fiber_without_memory_says_so() {
    const CHILD: &str = "CAREFREE_TEST_WITHOUT_MEMORY";
    if std::env::var_os(CHILD).is_some() {
        let fiber = spawn(|| -> () {
            NO_MORE.set(true);
            std::alloc::handle_alloc_error(Layout::new::<[u8; 77]>());
        });
        return fiber.join().unwrap();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_fiber_without_memory_says_so", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("memory allocation of 77 bytes failed"), "{}\n{said}", output.status);
    assert!(!said.contains("overflowed"), "{said}");
}
