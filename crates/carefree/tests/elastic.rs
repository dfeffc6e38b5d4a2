//! Carriers that are added because fibers keep all others.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carefree::{JoinHandle, Runtime, metrics, spawn, yield_now};

#[macro_use]
extern crate carefree_testing;

/// One test at a time: the tests count the process's carriers, and need the processors.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime(carriers: usize) -> Runtime {
    Runtime::builder().carriers(carriers).name("elastic").build().unwrap()
}

/// Computes until `end`, without a call that the runtime could see.
fn spin_until(end: &AtomicBool) {
    while !end.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
}

/// Two fibers that always have something to run, until `over`. (By a yield, a fiber that is alone on its carrier
/// makes no switch.)
fn ask_and_answer(over: &Arc<AtomicBool>) -> [JoinHandle<()>; 2] {
    let ((to, from), (back, answers)) = (channel(), channel());
    let over = Arc::clone(over);
    let asks = spawn(move || {
        while !over.load(Ordering::Acquire) {
            to.send(()).unwrap();
            answers.recv().unwrap();
        }
    });
    [asks, spawn(move || from.into_iter().for_each(|()| back.send(()).unwrap()))]
}

#[test]
fn fibers_that_spin_for_a_later_one_see_it() {
    let _alone = alone();
    for carriers in [1, 2] {
        let runtime = runtime(carriers);
        runtime.run(|| {
            let end = Arc::new(AtomicBool::new(false));
            let spinning = [(); 4].map(|()| {
                let end = Arc::clone(&end);
                spawn(move || spin_until(&end))
            });
            let later = spawn(move || end.store(true, Ordering::Release));
            spinning.into_iter().for_each(|fiber| fiber.join().unwrap());
            later.join().unwrap();
        });
    }
}

/// Of so many units, each spins until all have begun. Returns how long that takes.
fn spin_until_all_have_begun<J>(
    units: usize,
    spawn: impl Fn(Box<dyn FnOnce() + Send>) -> J,
    join: impl Fn(J),
) -> Duration {
    let (began, begun) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let spawn_one = |_| {
        let begun = Arc::clone(&begun);
        spawn(Box::new(move || {
            begun.fetch_add(1, Ordering::AcqRel);
            while begun.load(Ordering::Acquire) < units {
                std::hint::spin_loop();
            }
        }))
    };
    let all: Vec<_> = (0..units).map(spawn_one).collect();
    all.into_iter().for_each(join);
    began.elapsed()
}

/// So there must be as many carriers as fibers, and more of them than there are bits in a word.
#[test]
fn fibers_that_spin_until_all_have_begun_do_so_nearly_as_soon_as_threads() {
    let _alone = alone();
    const UNITS: usize = 80;
    let runtime = runtime(1);
    let fibers =
        runtime.run(|| spin_until_all_have_begun(UNITS, spawn, |fiber| fiber.join().unwrap()));
    let threads =
        spin_until_all_have_begun(UNITS, std::thread::spawn, |thread| thread.join().unwrap());
    assert!(fibers < 5 * threads + Duration::from_secs(2), "{fibers:?}, threads {threads:?}");
}

/// Fibers that always have something to run, beside some that compute, get no more carriers than about as many as
/// these keep, however many wait.
#[test]
fn a_crowd_beside_kept_carriers_gets_about_as_many() {
    let _alone = alone();
    const KEPT: usize = 3;
    let runtime = runtime(1);
    let most = runtime.run(|| {
        let end = Arc::new(AtomicBool::new(false));
        let crowd = (0..200).map(|_| {
            let end = Arc::clone(&end);
            spawn(move || {
                while !end.load(Ordering::Acquire) {
                    (0..1_000).for_each(|_| std::hint::spin_loop());
                    yield_now();
                }
            })
        });
        let kept = (0..KEPT).map(|_| {
            let end = Arc::clone(&end);
            spawn(move || spin_until(&end))
        });
        let all: Vec<_> = crowd.chain(kept).collect();
        let seen = (0..100).map(|_| {
            carefree::sleep(Duration::from_millis(15));
            metrics().carriers
        });
        let most = seen.max().unwrap();
        end.store(true, Ordering::Release);
        all.into_iter().for_each(|fiber| fiber.join().unwrap());
        most
    });
    assert!((KEPT + 1..=40).contains(&most), "{most} carriers");
}

#[test]
fn what_has_come_for_a_kept_carriers_fibers_reaches_them() {
    let _alone = alone();
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let runtime = runtime(1);
    runtime.run(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let reading = spawn(move || {
            let mut byte = [0];
            one.read_exact(&mut byte).unwrap();
            byte
        });
        // The fiber waits on this carrier, which is kept from now on.
        yield_now();
        let stop = Arc::clone(&end);
        let spinning = spawn(move || spin_until(&stop));
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.write_all(b"x").unwrap();
        });
        assert_eq!(reading.join().unwrap(), *b"x");
        end.store(true, Ordering::Release);
        spinning.join().unwrap();
        writing.join().unwrap();
    });
}

#[test]
fn timers_go_off_while_all_carriers_are_kept() {
    let _alone = alone();
    let runtime = runtime(1);
    runtime.run(|| {
        let end = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&end);
        let sleeping = spawn(move || {
            carefree::sleep(Duration::from_millis(20));
            stop.store(true, Ordering::Release);
        });
        yield_now();
        spawn(move || spin_until(&end)).join().unwrap();
        sleeping.join().unwrap();
    });
}

/// Afterwards there are as many carriers as before, and they are added again when needed.
#[test]
fn carriers_that_are_not_needed_retire() {
    let _alone = alone();
    let runtime = runtime(1);
    let active = || metrics().carriers;
    for _ in 0..3 {
        runtime.run(|| {
            let end = Arc::new(AtomicBool::new(false));
            let all: Vec<_> = (0..6)
                .map(|_| {
                    let end = Arc::clone(&end);
                    spawn(move || spin_until(&end))
                })
                .collect();
            spawn(move || end.store(true, Ordering::Release)).join().unwrap();
            all.into_iter().for_each(|fiber| fiber.join().unwrap());
        });
        let start = Instant::now();
        while active() > 1 {
            assert!(start.elapsed() < Duration::from_secs(60), "{} are active", active());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Carriers are added also for what is left to run when a runtime is dropped.
#[test]
fn a_runtime_that_is_dropped_is_helped() {
    let _alone = alone();
    let end = Arc::new(AtomicBool::new(false));
    let runtime = runtime(1);
    let stop = Arc::clone(&end);
    drop(runtime.spawn(move || spin_until(&stop)));
    let stop = Arc::clone(&end);
    drop(runtime.spawn(move || stop.store(true, Ordering::Release)));
    drop(runtime);
    assert!(end.load(Ordering::Acquire));
}

/// A fiber that spawns ten thousand others keeps its carrier for a while, which is no reason to add one.
#[test]
fn a_crowd_that_is_spawned_adds_no_carrier() {
    let _alone = alone();
    let runtime = runtime(1);
    let spawn_some = || {
        runtime.run(|| {
            let begun = Instant::now();
            let mut all = Vec::new();
            // Several looks of the monitor.
            while begun.elapsed() < Duration::from_millis(24) {
                all.push(spawn(|| ()));
            }
            all.into_iter().for_each(|fiber| fiber.join().unwrap());
        });
    };
    // Where the processors are busy, it may be for other reasons that one is added.
    let adds_none = (0..25).any(|_| {
        let before = metrics().added;
        (0..10).for_each(|_| spawn_some());
        metrics().added == before
    });
    assert!(adds_none);
}

/// A fiber that goes on spawning does not stop others for ever.
#[test]
fn what_waits_for_a_fiber_that_spawns_without_end_runs() {
    let _alone = alone();
    let runtime = runtime(1);
    runtime.run(|| {
        let end = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&end);
        let mut all = vec![spawn(move || stop.store(true, Ordering::Release))];
        while !end.load(Ordering::Acquire) {
            if all.len() < 100_000 {
                all.push(spawn(|| ()));
            }
        }
        all.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

/// Carriers that were added for a while go also if there is always something to run.
#[test]
fn carriers_that_are_not_needed_retire_from_work() {
    let _alone = alone();
    let runtime = runtime(1);
    runtime.run(|| {
        let (end, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let busy: Vec<_> = (0..50).flat_map(|_| ask_and_answer(&over)).collect();
        let spinning: Vec<_> = (0..3)
            .map(|_| {
                let end = Arc::clone(&end);
                spawn(move || spin_until(&end))
            })
            .collect();
        while metrics().carriers < 2 {
            carefree::sleep(Duration::from_millis(1));
        }
        end.store(true, Ordering::Release);
        spinning.into_iter().for_each(|fiber| fiber.join().unwrap());
        let start = Instant::now();
        while metrics().carriers > 1 {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", metrics());
            carefree::sleep(Duration::from_millis(1));
        }
        over.store(true, Ordering::Release);
        busy.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

/// What waits behind fibers that keep their carriers, while the others always have something to run, is run: in
/// a second or two. (Were it not handed over, it would be run by chance, after a minute and more.)
#[test(seconds = 60)]
fn what_waits_behind_kept_carriers_runs_beside_a_crowd() {
    let _alone = alone();
    let runtime = runtime(1);
    runtime.run(|| {
        let (end, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let busy: Vec<_> = (0..20).flat_map(|_| ask_and_answer(&over)).collect();
        // Each of these has others queued behind it, of which the last ends them all.
        let spinning: Vec<_> = (0..3)
            .map(|_| {
                let end = Arc::clone(&end);
                spawn(move || spin_until(&end))
            })
            .collect();
        let behind: Vec<_> = (0..50).map(|_| spawn(yield_now)).collect();
        behind.into_iter().for_each(|fiber| fiber.join().unwrap());
        end.store(true, Ordering::Release);
        spinning.into_iter().for_each(|fiber| fiber.join().unwrap());
        over.store(true, Ordering::Release);
        busy.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}
