//! What `std::thread` promises, of fibers.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use carefree_runtime::{
    Builder, JoinHandle, Permit, Runtime, Scope, ScopedJoinHandle, Semaphore, Thread, ThreadId,
    current, park, park_timeout, run, sleep, spawn, yield_now,
};

use crate::common::{in_forced_mode, own_tls, panic_on_purpose, until};

#[test]
fn a_value_comes_back() {
    assert_eq!(spawn(|| 42).join().unwrap(), 42);
    assert_eq!(run(|| spawn(|| "nested").join().unwrap()), "nested");
}

#[test]
fn payloads_come_back() {
    fn payload<T: Any>(panic: impl FnOnce() + Send + 'static) -> T {
        crate::common::quiet();
        let error = spawn(move || std::panic::resume_unwind(thrown(panic))).join().unwrap_err();
        *error.downcast::<T>().unwrap()
    }
    // The payload of a real panic, caught and thrown again.
    fn thrown(panic: impl FnOnce() + Send + 'static) -> Box<dyn Any + Send> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panic)).unwrap_err()
    }
    assert_eq!(payload::<&str>(|| panic_on_purpose()), "on purpose");
    assert_eq!(
        payload::<String>(|| std::panic::panic_any(String::from("on purpose"))),
        "on purpose"
    );
    assert_eq!(payload::<i32>(|| std::panic::panic_any(7)), 7);
    let error = spawn(|| panic_on_purpose()).join().unwrap_err();
    assert_eq!(*error.downcast::<&str>().unwrap(), "on purpose");
}

#[test]
fn what_joins_itself_panics() {
    let slot = Arc::new(Mutex::new(None::<JoinHandle<()>>));
    let said = Arc::new(Mutex::new(None::<String>));
    let (theirs, told) = (slot.clone(), said.clone());
    let mut own = slot.lock().unwrap();
    *own = Some(spawn(move || {
        let own = theirs.lock().unwrap().take().unwrap();
        let joins = std::panic::AssertUnwindSafe(|| own.join());
        let error = std::panic::catch_unwind(joins).unwrap_err();
        *told.lock().unwrap() = Some(*error.downcast().unwrap());
    }));
    drop(own);
    until("it has panicked", || said.lock().unwrap().is_some());
    let said = said.lock().unwrap().take().unwrap();
    assert!(said.starts_with("failed to join thread"), "{said}");
}

#[test]
fn names_and_numbers() {
    let handle = Builder::new().name("ada".into()).spawn(|| current().name().map(String::from));
    let handle = handle.unwrap();
    assert_eq!(handle.thread().name(), Some("ada"));
    assert_eq!(handle.join().unwrap().as_deref(), Some("ada"));
    assert_eq!(spawn(|| current().name().map(String::from)).join().unwrap(), None);

    let handles: Vec<_> = (0..100)
        .map(|_| {
            spawn(|| {
                let first = current().id();
                yield_now();
                assert_eq!(current().id(), first);
                first
            })
        })
        .collect();
    let mut ids: Vec<ThreadId> = handles.iter().map(|handle| handle.thread().id()).collect();
    let told: Vec<ThreadId> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
    assert_eq!(ids, told);
    ids.push(current().id());
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 101);
}

#[test]
fn a_plain_thread_has_a_handle_too() {
    std::thread::Builder::new()
        .name("plain".into())
        .spawn(|| {
            let me = current();
            assert_eq!(me.name(), Some("plain"));
            assert_eq!(me.id(), current().id());
            let handle = spawn(move || me.unpark());
            park();
            handle.join().unwrap();
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn unpark_comes_first() {
    let handle = spawn(|| {
        current().unpark();
        park();
        // Several unparks count as one.
        current().unpark();
        current().unpark();
        park();
        let begun = Instant::now();
        park_timeout(Duration::from_millis(5));
        assert!(begun.elapsed() >= Duration::from_millis(5));
    });
    handle.join().unwrap();

    let handle = spawn(park);
    handle.thread().unpark();
    handle.join().unwrap();

    current().unpark();
    park();
}

#[test]
fn what_the_unparker_wrote_is_seen() {
    static FLAG: AtomicBool = AtomicBool::new(false);
    let handle = spawn(|| {
        while !FLAG.load(Ordering::Relaxed) {
            park();
        }
    });
    std::thread::sleep(Duration::from_millis(2));
    FLAG.store(true, Ordering::Relaxed);
    handle.thread().unpark();
    handle.join().unwrap();
}

#[test]
fn fibers_and_threads_park_each_other() {
    const TURNS: usize = 500;
    let turn = Arc::new(AtomicUsize::new(0));
    let thread = current();
    let theirs = turn.clone();
    let fiber = spawn(move || {
        for n in 0..TURNS {
            while theirs.load(Ordering::Acquire) != 2 * n + 1 {
                park();
            }
            theirs.store(2 * n + 2, Ordering::Release);
            thread.unpark();
        }
    });
    for n in 0..TURNS {
        turn.store(2 * n + 1, Ordering::Release);
        fiber.thread().unpark();
        while turn.load(Ordering::Acquire) != 2 * n + 2 {
            park();
        }
    }
    fiber.join().unwrap();
}

#[test]
fn is_finished_tells() {
    let (send, receive) = mpsc::channel::<()>();
    let gate = Arc::new(AtomicBool::new(false));
    let theirs = gate.clone();
    let handle = spawn(move || {
        while !theirs.load(Ordering::Acquire) {
            park();
        }
        drop(send);
    });
    assert!(!handle.is_finished());
    gate.store(true, Ordering::Release);
    handle.thread().unpark();
    receive.recv().unwrap_err();
    until("the fiber has finished", || handle.is_finished());
    let begun = Instant::now();
    handle.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_detached_fiber_goes_on() {
    let (send, receive) = mpsc::channel();
    drop(spawn(move || {
        sleep(Duration::from_millis(1));
        send.send("still here").unwrap();
    }));
    assert_eq!(receive.recv().unwrap(), "still here");
}

#[test]
fn closures_of_all_shapes() {
    #[repr(align(512))]
    struct Aligned(u8);
    #[repr(align(64))]
    struct Line(u8);

    fn nothing() -> u8 {
        1
    }
    assert_eq!(size_of_val(&nothing), 0);
    assert_eq!(spawn(nothing).join().unwrap(), 1);

    let (small, large) = ([3u8; 1024], [4u8; 50_000]);
    assert_eq!(
        spawn(move || small.iter().map(|b| u32::from(*b)).sum::<u32>()).join().unwrap(),
        3 * 1024u32
    );
    assert_eq!(
        spawn(move || large.iter().map(|b| u32::from(*b)).sum::<u32>()).join().unwrap(),
        200_000u32
    );

    let (aligned, line) = (Aligned(5), Line(6));
    let handle = spawn(move || ((&raw const aligned) as usize, aligned.0));
    let (address, value) = handle.join().unwrap();
    assert_eq!((address % 512, value), (0, 5));
    let handle = spawn(move || ((&raw const line) as usize, line.0));
    let (address, value) = handle.join().unwrap();
    assert_eq!((address % 64, value), (0, 6));
}

#[test]
fn values_of_all_shapes() {
    #[derive(Debug, PartialEq, Clone, Copy)]
    #[repr(align(64))]
    struct Line([u8; 64]);

    spawn(|| ()).join().unwrap();
    assert_eq!(spawn(|| 7usize).join().unwrap(), 7);
    assert_eq!(spawn(|| [7u8; 15]).join().unwrap(), [7; 15]);
    assert_eq!(spawn(|| [7u8; 17]).join().unwrap(), [7; 17]);
    assert_eq!(spawn(|| u128::MAX).join().unwrap(), u128::MAX);
    assert_eq!(spawn(|| String::from("text")).join().unwrap(), "text");
    assert_eq!(spawn(|| [9u8; 5_000]).join().unwrap(), [9; 5_000]);
    assert_eq!(spawn(|| Line([3; 64])).join().unwrap(), Line([3; 64]));
    // A result type without a value, and one that is padding except for its niche.
    let nothing: std::thread::Result<std::convert::Infallible> =
        spawn(|| -> std::convert::Infallible { panic_on_purpose() }).join();
    assert!(nothing.is_err());
    assert_eq!(spawn(|| Some(Box::new(1))).join().unwrap(), Some(Box::new(1)));
}

/// Writes its name into a list when it is dropped.
struct Note(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Note {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

#[test]
fn things_are_dropped_in_order() {
    thread_local! {
        static LOCAL: std::cell::RefCell<Option<Note>> = const { std::cell::RefCell::new(None) };
    }
    let list = Arc::default();
    let note = |name| Note(name, Arc::clone(&list));
    let (capture, value, local) = (note("capture"), note("value"), note("local"));
    let handle = spawn(move || {
        if own_tls() {
            LOCAL.set(Some(local));
        } else {
            drop(capture);
            drop(local);
            return value;
        }
        drop(capture);
        value
    });
    let value = handle.join().unwrap();
    assert_eq!(*list.lock().unwrap(), ["capture", "local"]);
    drop(value);
    assert_eq!(*list.lock().unwrap(), ["capture", "local", "value"]);
}

#[test]
fn a_value_is_dropped_once_whenever_the_handle_goes() {
    struct Counted(Arc<AtomicUsize>, #[expect(dead_code, reason = "makes it large")] [usize; 2]);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let fibers = if in_forced_mode() { 500 } else { 3_000 };
    let (dropped, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for n in 0..fibers {
        let (counted, ended) = (Counted(dropped.clone(), [0; 2]), ended.clone());
        let yields = n % 4;
        let handle = spawn(move || {
            for _ in 0..yields {
                yield_now();
            }
            ended.fetch_add(1, Ordering::Relaxed);
            counted
        });
        match n % 5 {
            // The handle is dropped, as a rule, before the fiber starts; then ever later, also around its end.
            0 => drop(handle),
            1 => {
                std::thread::yield_now();
                drop(handle);
            }
            2 => {
                while !handle.is_finished() {
                    std::hint::spin_loop();
                }
                drop(handle);
            }
            3 => {
                let at = n % 97 * 20;
                (0..at).for_each(|_| std::hint::spin_loop());
                drop(handle);
            }
            _ => drop(handle.join().unwrap()),
        }
    }
    until("all have ended", || ended.load(Ordering::Relaxed) == fibers);
    until("all values are gone", || dropped.load(Ordering::Relaxed) == fibers);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(dropped.load(Ordering::Relaxed), fibers);
}

#[test]
fn many_fibers_join_one() {
    let one = spawn(|| sleep(Duration::from_millis(2)));
    let fiber = one.thread().clone();
    let joiners: Vec<_> = (0..10)
        .map(|n| {
            let before = spawn(move || n);
            spawn(move || before.join().unwrap())
        })
        .collect();
    one.join().unwrap();
    // A handle to a fiber that has ended does no harm.
    fiber.unpark();
    fiber.cancel();
    let sum: i32 = joiners.into_iter().map(|handle| handle.join().unwrap()).sum();
    assert_eq!(sum, 45);
}

#[test]
fn threads_can_be_used_on_fibers() {
    // In a runtime of its own: a fiber that waits for a thread blocks its carrier.
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let sum = runtime.run(|| {
        let handle = std::thread::spawn(|| spawn(|| 1).join().unwrap());
        let mut scoped = 0;
        std::thread::scope(|s| {
            s.spawn(|| scoped = run(|| 2));
        });
        handle.join().unwrap() + scoped
    });
    assert_eq!(sum, 3);
}

#[test]
fn programs_can_be_started_on_fibers() {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    let outputs = run(|| {
        let spawned = Command::new("echo").arg("spawned").output().unwrap();
        let mut forked = Command::new("echo");
        // SAFETY: the closure calls nothing. Having one makes std fork instead of posix_spawn.
        unsafe { forked.arg("forked").pre_exec(|| Ok(())) };
        [spawned, forked.output().unwrap()]
    });
    assert_eq!(outputs.map(|o| String::from_utf8(o.stdout).unwrap()), ["spawned\n", "forked\n"]);
}

#[test]
fn handles_can_be_sent_and_shared() {
    fn both<T: Send + Sync>() {}
    both::<JoinHandle<()>>();
    both::<JoinHandle<*mut u8>>();
    both::<ScopedJoinHandle<'_, ()>>();
    both::<Scope<'_, '_>>();
    both::<Thread>();
    both::<ThreadId>();
    both::<Semaphore>();
    both::<Permit<'_>>();
    both::<Runtime>();
    both::<Builder>();
}

/// One that ends with another floating-point environment, as code does that computes without denormal numbers, leaves it
/// to no other.
#[test]
fn each_begins_with_the_default_floating_point_environment() {
    unsafe extern "C" {
        fn fesetround(direction: i32) -> i32;
        fn fegetround() -> i32;
        fn feraiseexcept(exceptions: i32) -> i32;
        fn fetestexcept(exceptions: i32) -> i32;
    }
    const UPWARD: i32 = if cfg!(target_arch = "x86_64") { 0x800 } else { 0x40_0000 };
    /// Division by zero and overflow.
    const RAISED: i32 = if cfg!(target_arch = "x86_64") { 0xc } else { 0x6 };
    for _ in 0..16 {
        // SAFETY: these concern the caller alone, which computes nothing more.
        let ended = spawn(|| unsafe { (fesetround(UPWARD), feraiseexcept(RAISED)) });
        assert_eq!(ended.join().unwrap(), (0, 0));
        // SAFETY: they only look.
        let next = spawn(|| unsafe { (fegetround(), fetestexcept(RAISED)) });
        assert_eq!(next.join().unwrap(), (0, 0));
    }
}
