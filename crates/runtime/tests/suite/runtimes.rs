//! Runtimes that a program builds itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use carefree_runtime::{
    Builder, Reason, Runtime, available_parallelism, current, kept_carriers, metrics, park, run,
    sleep, spawn, waits_by_reason, yield_now,
};

use crate::common::{in_a_process, in_forced_mode, is_child, text, until, within_reason};

fn runtime(carriers: usize) -> Runtime {
    Runtime::builder().carriers(carriers).name("test").build().unwrap()
}

#[test]
fn the_number_of_carriers_is_checked() {
    for wrong in [0, 1025, usize::MAX] {
        let error = Runtime::builder().carriers(wrong).build().unwrap_err();
        assert!(error.to_string().contains("1 to 1024"), "{error}");
    }
    for carriers in [3, 65, 200] {
        assert_eq!(runtime(carriers).run(|| available_parallelism().unwrap().get()), carriers);
    }
}

#[test]
fn a_runtime_is_printed_in_short() {
    let shown = format!("{:?}", runtime(2));
    assert!(shown.starts_with("Runtime { name: \"test\", carriers: "), "{shown}");
    assert!(shown.ends_with(", .. }") && shown.len() < 60, "{shown}");
}

#[test]
fn fibers_of_several_runtimes_work_together() {
    within_reason(|| {
        let (one, other) = (Arc::new(runtime(1)), runtime(2));
        let inner = one.clone();
        let sum = other.run(move || {
            // Fibers of two runtimes wait for each other.
            let outer = current();
            let handle = Builder::new().spawn_on(&inner, move || {
                sleep(Duration::from_micros(100));
                outer.unpark();
                yield_now();
                1
            });
            park();
            let nested = inner.run(|| spawn(|| run(|| 2)).join().unwrap());
            handle.unwrap().join().unwrap() + nested + spawn(|| 4).join().unwrap()
        });
        assert_eq!(sum, 7);
    });
}

#[test]
fn dropping_one_waits_for_its_fibers() {
    within_reason(|| {
        let ended = Arc::new(AtomicUsize::new(0));
        let runtime = runtime(2);
        let handles: Vec<_> = (0..20u64)
            .map(|n| {
                let ended = ended.clone();
                runtime.spawn(move || {
                    sleep(Duration::from_micros(n * 100));
                    let ended = ended.clone();
                    // The handle is dropped.
                    drop(spawn(move || {
                        sleep(Duration::from_micros(n * 100));
                        ended.fetch_add(1, Ordering::Relaxed);
                    }));
                    n
                })
            })
            .collect();
        drop(runtime);
        assert_eq!(ended.load(Ordering::Relaxed), 20);
        // Handles outlive it.
        for (n, handle) in handles.into_iter().enumerate() {
            assert!(handle.is_finished());
            handle.thread().unpark();
            handle.cancel();
            assert_eq!(handle.join().unwrap(), n as u64);
        }
    });
}

#[test]
fn one_can_be_dropped_on_a_fiber() {
    within_reason(|| {
        // A runtime that is not the fiber's own: the drop waits without blocking the carrier.
        let (outer, inner) = (runtime(1), runtime(1));
        let ended = Arc::new(AtomicBool::new(false));
        let theirs = ended.clone();
        outer.run(move || {
            let waits = inner.spawn(park);
            let fiber = waits.thread().clone();
            let wakes = spawn(move || {
                sleep(Duration::from_millis(1));
                theirs.store(true, Ordering::Release);
                fiber.unpark();
            });
            drop(inner);
            assert!(waits.is_finished());
            wakes.join().unwrap();
        });
        assert!(ended.load(Ordering::Acquire));

        // The fiber's own runtime: it ends after its last fiber.
        let own = runtime(2);
        let slot = Arc::new(std::sync::Mutex::new(None));
        let theirs = slot.clone();
        let handle = own.spawn(move || {
            until("the runtime is there", || theirs.lock().unwrap().is_some());
            let own: Option<Runtime> = theirs.lock().unwrap().take();
            drop(own);
            sleep(Duration::from_millis(1));
            spawn(|| 5).join().unwrap()
        });
        *slot.lock().unwrap() = Some(own);
        assert_eq!(handle.join().unwrap(), 5);
    });
}

/// A thread wakes the last fiber of a runtime, and may still be within the wake-up when the runtime is gone.
#[test]
fn one_can_end_while_a_thread_still_wakes_its_last_fiber() {
    let rounds = if in_forced_mode() { 20 } else { 150 };
    within_reason(move || {
        for n in 0..rounds {
            let runtime = runtime(1 + n % 2);
            let handle = runtime.spawn(park);
            let fiber = handle.thread().clone();
            let wakes = std::thread::spawn(move || fiber.unpark());
            drop(runtime);
            wakes.join().unwrap();
            handle.join().unwrap();
        }
    });
}

#[test]
fn counts_count() {
    let runtime = runtime(1);
    runtime.run(|| {
        spawn(|| ()).join().unwrap();
        sleep(Duration::from_micros(1));
    });
    // (Those of other tests' runtimes count while these run.)
    let during = metrics();
    assert!(during.carriers > 0);
    assert!(during.spawned > 0);
    assert!(during.switches > 0 && during.parks > 0);
    let waits = waits_by_reason();
    let of = |reason| waits.iter().find(|(of, _)| *of == reason).map_or(0, |(_, count)| *count);
    assert!(of(Reason::Sleep) > 0, "{waits:?}");
    // Threads that wait, and fibers that do not leave their stacks, are not counted.
    assert_eq!(of(Reason::Runs), 0, "{waits:?}");
    assert!(waits.is_sorted_by_key(|(_, count)| std::cmp::Reverse(*count)), "{waits:?}");
    // The monitor has seen a fiber that keeps its carrier.
    runtime.run(|| while kept_carriers().1 == 0 {});
    assert!(kept_carriers().0 > 0);
}

/// A variable has an invalid value: nothing starts, and the error names the variable.
#[test]
fn an_invalid_variable_is_an_error() {
    const WRONG: [(&str, &str); 14] = [
        ("CAREFREE_CARRIERS", "some"),
        ("CAREFREE_REACTOR", "kqueue"),
        ("CAREFREE_URING", "never"),
        ("CAREFREE_OFFLOAD", "many"),
        ("CAREFREE_STACK", "huge"),
        ("CAREFREE_STACK", "99999999999G"),
        ("CAREFREE_GUARD", "thick"),
        ("CAREFREE_WATCH", "soon"),
        ("CAREFREE_TLS", "owned"),
        ("CAREFREE_TLS_RESERVE", "much"),
        ("CAREFREE_GUARDS", "yes"),
        ("CAREFREE_FSGSBASE", "on"),
        ("CAREFREE_MEMBARRIER", "no"),
        ("CAREFREE_MALLOC", "mine"),
    ];
    if is_child() {
        let error = Builder::new().spawn(|| ()).unwrap_err();
        println!("error: {error}");
        return;
    }
    for (variable, value) in WRONG {
        let name = "runtimes::an_invalid_variable_is_an_error";
        let said = text(&in_a_process(name, &[(variable, value)]));
        let line = said.lines().find(|line| line.contains("error: ")).unwrap_or(&said);
        assert!(line.contains(variable) && line.contains(value), "{said}");
    }
}
