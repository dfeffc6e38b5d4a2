//! Blocking calls of fibers over a driver that misbehaves as a kernel may.
//!
//! A seed decides what goes wrong, and which programs of fibers run meanwhile. Whatever goes wrong, nothing is
//! lost or doubled, and every fiber ends. `CAREFREE_FAULT_SEED=17` runs one seed,
//! `CAREFREE_FAULT_SEED=0..10000` many. The seed does not decide the kernel's own timing, so a seed that has
//! failed may have to be run several times: `CAREFREE_FAULT_TIMES=20`.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod injector;
mod plan;
mod programs;
mod stream;

use std::io::Write as _;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use carefree::Runtime;
use carefree_reactor::Kind;

use plan::{Counts, Fault, Plan};
use programs::Program;

/// The seeds that each run of the tests tries.
const SEEDS: Range<u64> = 0..200;
/// Seconds that a seed may take before it is told to hang; `CAREFREE_FAULT_LIMIT` sets it.
const LIMIT: u64 = 90;

/// One at a time: there is one plan in a process.
static ALONE: Mutex<()> = Mutex::new(());

/// Names the seed of a failure, directly on standard error, because the process may be about to end.
pub(crate) fn say_failed(what: &str) {
    let seed = plan::seed();
    let again = match KEPT_UNDER_WAY.load(Ordering::SeqCst) {
        true => "cargo test -p carefree --test faults -- kept".to_owned(),
        false => format!(
            "CAREFREE_FAULT_TIMES=20 CAREFREE_FAULT_SEED={seed} \
             cargo test -p carefree --test faults -- seeds"
        ),
    };
    let text = format!("\nseed {seed} fails: {what}\n  again: {again}\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The drivers that this machine has.
fn kinds() -> &'static [Kind] {
    match carefree_reactor::choice().unwrap().kind {
        Kind::Uring => &[Kind::Uring, Kind::Epoll],
        _ => &[Kind::Epoll],
    }
}

/// What a seed stands for.
fn draw(seed: u64) -> (Plan, Vec<(Program, fastrand::Rng)>) {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let calm = random.u8(0..3) == 0;
    let plan = Plan::draw(&mut random, seed, kinds(), calm);
    let all: Vec<&Program> = programs::ALL.iter().filter(|one| one.calm || !calm).collect();
    let programs = (0..random.usize(1..5))
        .map(|_| (*all[random.usize(0..all.len())], random.fork()))
        .collect();
    (plan, programs)
}

/// Runs a seed.
///
/// # Panics
/// As for [`run_plan`].
fn run(seed: u64) {
    let (plan, programs) = draw(seed);
    run_plan(plan, programs);
}

/// Runs programs under a plan.
///
/// # Panics
/// If something is lost or doubled. If it hangs or touches memory that is not its own, the process
/// ends; both say which seed it was.
fn run_plan(plan: Plan, programs: Vec<(Program, fastrand::Rng)>) {
    let names: Vec<&str> = programs.iter().map(|(program, _)| program.name).collect();
    let under = format!("{names:?} under {plan:?}");
    UNDER_WAY.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone_from(&under);
    let begun = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
    watch();
    let wants = stream::WANTS.load(Ordering::SeqCst);
    // (An accept reports that a ring could not be entered.)
    let failures = || Counts::of(Fault::Failed) + Counts::of(Fault::CallFailed);
    let failed = failures();
    plan::begin(&plan);
    let runtime = Runtime::builder().carriers(plan.carriers as usize).build().unwrap();
    let panicked = runtime.run(|| {
        let fibers: Vec<_> = programs
            .into_iter()
            .map(|(program, random)| carefree::spawn(move || (program.run)(random)))
            .collect();
        fibers.into_iter().filter_map(|fiber| fiber.join().err()).collect::<Vec<_>>()
    });
    if let Some(panic) = panicked.into_iter().next() {
        // The other fibers of its programs may wait for ever, and with them the runtime's end.
        std::mem::forget(runtime);
        say_failed(&under);
        std::panic::resume_unwind(panic);
    }
    drop(runtime);
    plan::end();
    ENDED.store(begun, Ordering::SeqCst);
    let told = stream::WANTS.load(Ordering::SeqCst) - wants;
    let failed = failures() - failed;
    if told > failed {
        say_failed(&format!("{told} calls fail for want of memory, {failed} should: {under}"));
        panic!("seed {}", plan.seed);
    }
}

static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
/// The plan that runs, and its programs.
static UNDER_WAY: Mutex<String> = Mutex::new(String::new());

/// Starts a thread that looks whether a seed hangs. It counts half seconds in which it was awake itself, so a
/// busy machine is no hang.
fn watch() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let _ = std::thread::Builder::new().name("watches-seeds".into()).spawn(|| {
            let limit = 2 * number("CAREFREE_FAULT_LIMIT").unwrap_or(LIMIT);
            let (mut last, mut left) = (0, limit);
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let begun = BEGUN.load(Ordering::SeqCst);
                if begun != last || ENDED.load(Ordering::SeqCst) == begun {
                    (last, left) = (begun, limit);
                    continue;
                }
                left -= 1;
                if left == 0 {
                    let under = UNDER_WAY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    say_failed(&format!("hangs: {under}"));
                    carefree_testing::print_and_abort("faults::seeds", " hangs");
                }
            }
        });
    });
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The seeds that the environment asks for.
fn asked() -> Option<Range<u64>> {
    let text = std::env::var("CAREFREE_FAULT_SEED").ok()?;
    let number = |text: &str| text.parse::<u64>().expect("CAREFREE_FAULT_SEED is 17 or 0..1000");
    Some(match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&text)..number(&text) + 1,
    })
}

/// Faults that were found once: the programs, the plan, and what happened.
const KEPT: &[(&[&str], Plan, &str)] = &[
    (
        &["files"],
        Plan { short: 200, ..Plan::quiet(Kind::Uring) },
        "a part of a file was taken for all of it",
    ),
    (
        &["socketpair", "tcp"],
        Plan { short: 200, ..Plan::quiet(Kind::Uring) },
        "recvmsg with MSG_WAITALL ended with a part",
    ),
    (
        &["messages"],
        Plan { call: 60, fail: 30, ..Plan::quiet(Kind::Uring) },
        "a signal hid what was ready, for good",
    ),
    (
        &["poll"],
        Plan { fail: 90, ..Plan::quiet(Kind::Epoll) },
        "poll gave a file up that could not be waited for once, and never ended",
    ),
];
static KEPT_UNDER_WAY: AtomicBool = AtomicBool::new(false);

#[test]
fn kept() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    KEPT_UNDER_WAY.store(true, Ordering::SeqCst);
    for &(names, plan, _) in KEPT.iter().filter(|(_, plan, _)| kinds().contains(&plan.kind)) {
        for seed in 0..10 {
            let mut random = fastrand::Rng::with_seed(seed);
            let programs = names.iter().map(|name| {
                let program = programs::ALL.iter().find(|one| one.name == *name);
                (*program.expect("there is one"), random.fork())
            });
            run_plan(Plan { seed, ..plan }, programs.collect());
        }
    }
    KEPT_UNDER_WAY.store(false, Ordering::SeqCst);
}

#[test(seconds = 100000)]
fn seeds() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let asked = asked();
    let all = asked.is_none();
    for seed in asked.unwrap_or(SEEDS) {
        for _ in 0..number("CAREFREE_FAULT_TIMES").unwrap_or(1) {
            run(seed);
        }
    }
    println!("{Counts}");
    if all {
        use Fault::*;
        let everywhere = [Short, Failed, Held, Reordered, Dawdled, LateForCancel, Refused];
        let of_rings = [Postponed, Missed, TakenInPart, Tiny];
        let rings = kinds().contains(&Kind::Uring).then_some(of_rings).into_iter().flatten();
        for fault in everywhere.into_iter().chain([CallFailed, WokenForNothing]).chain(rings) {
            assert!(Counts::of(fault) > 0, "no {fault:?} in all of them: {Counts}");
        }
    }
}
