//! The watchdog's reports: each case in a process of its own, whose standard error is read.

use std::hint::black_box;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use carefree_runtime::{Builder, Runtime, metrics, offload, run, scope, sleep, spawn, yield_now};
use carefree_testing::again::{in_a_process, in_a_process_of, is_child, text};

/// What the process said that ran `name` once more, with a threshold of 10 ms.
fn said(name: &str) -> String {
    said_with(name, "10")
}

fn said_with(name: &str, watch: &str) -> String {
    let output: Output = in_a_process(&format!("watching::{name}"), &[("CAREFREE_WATCH", watch)]);
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `f` on a fiber again and again until it has been reported: on a busy machine the watchdog may
/// not get a processor in time, and with a large program that was not optimized, finding the names
/// for a backtrace takes a while.
fn reported(name: &str, f: impl Fn() + Send + 'static) {
    named(name, move || again(1, f));
}

/// Does `f` until there have been so many reports, for as long as a test may take.
fn again(count: u64, f: impl Fn()) {
    while metrics().reports < count {
        f();
        // The watchdog looks at it anew then.
        sleep(Duration::from_millis(1));
    }
}

fn named(name: &str, f: impl FnOnce() + Send + 'static) {
    Builder::new().name(name.into()).spawn(f).unwrap().join().unwrap();
}

/// Uses the processor for `time`, as its own thread's clock has it.
#[inline(never)]
fn compute(time: Duration) {
    let used = || {
        let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `used` is written to.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) };
        Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
    };
    let end = used() + time;
    while used() < end {
        for n in 0..1000 {
            black_box(n);
        }
    }
}

#[inline(never)]
fn block(time: Duration) {
    std::thread::sleep(time);
    black_box(time);
}

/// Blocks for longer each time, for a call is reported that is still the same when the watchdog comes
/// back.
fn blocker() -> impl Fn() + Send + 'static {
    let rounds = AtomicU32::new(0);
    move || block(longer(&rounds))
}

fn longer(rounds: &AtomicU32) -> Duration {
    Duration::from_millis(300) * (1 + rounds.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn a_fiber_that_computes_is_reported() {
    if is_child() {
        return reported("the computer", || compute(Duration::from_millis(400)));
    }
    let said = said("a_fiber_that_computes_is_reported");
    assert!(said.contains("'the computer' has run for"), "{said}");
    assert!(said.contains("watching::compute"), "its backtrace is missing:\n{said}");
    assert!(said.contains("watching.rs:"), "{said}");
    assert!(said.contains("yield_now"), "{said}");
    // It ends where the program does.
    assert!(!said.contains("life::live") && !said.contains("__rust_try"), "{said}");
    assert_eq!(said.matches("has run for").count(), 1, "once is enough:\n{said}");
}

/// As many programs are shipped: the report has places of the file, by which the functions' names are found
/// in the file before it was stripped.
#[test]
fn a_program_without_names_is_reported_by_its_places() {
    if is_child() {
        return reported("the computer", || compute(Duration::from_millis(400)));
    }
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !has("strip") || !has("addr2line") {
        return eprintln!("skipped: strip and addr2line (binutils) are not installed");
    }
    let whole = std::env::current_exe().unwrap();
    let stripped = whole.with_file_name(format!("shop-{}", std::process::id()));
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(&whole).status().unwrap();
    assert!(strip.success());
    let output = in_a_process_of(
        &stripped,
        "watching::a_program_without_names_is_reported_by_its_places",
        &[("CAREFREE_WATCH", "10")],
    );
    std::fs::remove_file(&stripped).unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("'the computer' has run for"), "{said}");
    assert!(said.contains("`addr2line -ifCe FILE PLACE`"), "{said}");
    let program = format!("{}+", stripped.file_name().unwrap().to_str().unwrap());
    let places = said.lines().filter_map(|line| Some(line.split_once(&program)?.1));
    let known = Command::new("addr2line").arg("-ifCe").arg(&whole).args(places).output().unwrap();
    let known = String::from_utf8_lossy(&known.stdout);
    assert!(known.contains("watching::compute"), "{said}{known}");
}

#[test]
fn a_fiber_that_blocks_its_carrier_is_reported() {
    if is_child() {
        return reported("the sleeper", blocker());
    }
    let said = said("a_fiber_that_blocks_its_carrier_is_reported");
    assert!(said.contains("'the sleeper' has blocked its carrier for"), "{said}");
    assert!(said.contains("ms, in clock_nanosleep\n"), "{said}");
    assert!(said.contains("carefree::offload"), "{said}");
    if cfg!(target_arch = "x86_64") {
        assert!(said.contains("watching::block"), "its backtrace is missing:\n{said}");
        assert!(!said.contains("life::live"), "{said}");
    }
}

/// It is looked at from outside: no signal ends its call.
#[test]
fn a_blocked_call_is_not_interrupted() {
    static ROUNDS: AtomicU32 = AtomicU32::new(0);
    if is_child() {
        return reported("the reader", || {
            let mut ends = [0; 2];
            // SAFETY: room for two descriptors.
            assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
            let mut poll = libc::pollfd { fd: ends[0], events: libc::POLLIN, revents: 0 };
            let time = longer(&ROUNDS).as_millis() as libc::c_int;
            // SAFETY: one record. (A call that is not restarted after a signal.)
            let result = unsafe { libc::poll(&raw mut poll, 1, time) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
            // SAFETY: nothing uses them any more.
            ends.iter().for_each(|end| assert_eq!(unsafe { libc::close(*end) }, 0));
        });
    }
    let said = said("a_blocked_call_is_not_interrupted");
    assert!(said.contains("'the reader' has blocked its carrier for"), "{said}");
    assert!(said.contains("in poll") || said.contains("in ppoll"), "{said}");
}

#[test]
fn fibers_that_let_others_run_are_not_reported() {
    if is_child() {
        let runtime = Runtime::builder().carriers(4).build().unwrap();
        runtime.run(|| {
            scope(|scope| {
                // More than there are processors: carriers wait for one.
                for _ in 0..8 {
                    scope.spawn(|| {
                        let begun = Instant::now();
                        while begun.elapsed() < Duration::from_millis(300) {
                            compute(Duration::from_micros(100));
                            yield_now();
                        }
                        sleep(Duration::from_millis(50));
                    });
                }
                scope.spawn(|| offload(|| block(Duration::from_millis(100))));
            });
        });
        return;
    }
    let said = said_with("fibers_that_let_others_run_are_not_reported", "50");
    assert!(!said.contains("carefree:"), "{said}");
}

#[test]
fn threads_and_idle_carriers_are_not_reported() {
    if is_child() {
        run(|| ());
        compute(Duration::from_millis(100));
        block(Duration::from_millis(100));
        return;
    }
    let said = said("threads_and_idle_carriers_are_not_reported");
    assert!(!said.contains("carefree:"), "{said}");
}

#[test]
fn it_can_be_switched_off() {
    if is_child() {
        return named("the computer", || compute(Duration::from_millis(100)));
    }
    let said = said_with("it_can_be_switched_off", "off");
    assert!(!said.contains("carefree:"), "{said}");
}

#[test]
fn its_threshold_is_kept() {
    if is_child() {
        return named("the computer", || compute(Duration::from_millis(100)));
    }
    let said = said_with("its_threshold_is_kept", "10000");
    assert!(!said.contains("carefree:"), "{said}");
}

#[test]
fn a_setting_that_is_none_is_refused() {
    if is_child() {
        let error = Builder::new().spawn(|| ()).unwrap_err();
        return assert!(error.to_string().contains("CAREFREE_WATCH=soon"), "{error}");
    }
    said_with("a_setting_that_is_none_is_refused", "soon");
}

/// The same call by many: one report, and later the number of the others.
#[test]
fn a_place_is_reported_once() {
    if is_child() {
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let (rounds, short) = (AtomicU32::new(0), Duration::from_millis(200));
        let blocks = |time| runtime.spawn(move || block(time)).join().unwrap();
        again(1, || blocks(longer(&rounds)));
        (0..12).for_each(|_| blocks(short));
        // From another place, when the limit for a second allows for it.
        let computes = || again(2, || compute(Duration::from_millis(300)));
        runtime.spawn(computes).join().unwrap();
        return;
    }
    let said = said("a_place_is_reported_once");
    assert_eq!(said.matches("has blocked its carrier").count(), 1, "{said}");
    assert_eq!(said.matches("has run for").count(), 1, "{said}");
    assert!(said.contains("more of this kind were not reported"), "{said}");
}

/// A handler of the program's that runs on one of its threads could wait for what the program hangs in.
#[test]
fn its_threads_handle_no_signals() {
    let tasks = || std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let value = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            line.unwrap_or_default().trim().to_owned()
        };
        let blocked = u64::from_str_radix(&value("SigBlk:"), 16).unwrap_or(0);
        value("Name:").starts_with("carefree-").then_some((value("Name:"), blocked))
    };
    if is_child() {
        run(|| ());
        let blocks = |blocked: u64, signal: libc::c_int| blocked & 1 << (signal - 1) != 0;
        // They see to that when they begin.
        while !["carefree-watch", "carefree-report", "carefree-mon"].iter().all(|name| {
            tasks().filter_map(of).any(|(task, blocked)| {
                let faults = blocks(blocked, libc::SIGSEGV) || blocks(blocked, libc::SIGBUS);
                *name == task && blocks(blocked, libc::SIGTERM) && !faults
            })
        }) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let others = tasks().filter_map(of).filter(|(_, blocked)| !blocks(*blocked, libc::SIGTERM));
        assert!(others.count() > 0, "carriers do");
        return;
    }
    said("its_threads_handle_no_signals");
}

/// A fiber is interrupted again and again, whatever it does.
#[test]
fn being_watched_does_no_harm() {
    if is_child() {
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        runtime.run(|| {
            scope(|scope| {
                for n in 0..40usize {
                    scope.spawn(move || {
                        let mut kept = Vec::new();
                        for round in 0..20 {
                            let size = 1 + (n * 7919 + round * 104_729) % 20_000;
                            kept.push(vec![round as u8; size]);
                            compute(Duration::from_micros(1500));
                            if round % 3 == 0 {
                                kept.clear();
                                yield_now();
                            }
                            drop(spawn(|| ()));
                        }
                    });
                }
            });
        });
        return;
    }
    said_with("being_watched_does_no_harm", "1");
}

/// Other uses of the signal go on.
#[test]
fn an_earlier_handler_gets_what_is_its_own() {
    use std::sync::atomic::AtomicUsize;
    static CAUGHT: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn catch(_: libc::c_int) {
        CAUGHT.fetch_add(1, Ordering::SeqCst);
    }
    if is_child() {
        // SAFETY: the handler adds to a number.
        unsafe { libc::signal(libc::SIGURG, catch as extern "C" fn(libc::c_int) as usize) };
        reported("the computer", || {
            let before = CAUGHT.load(Ordering::SeqCst);
            compute(Duration::from_millis(300));
            let after = CAUGHT.load(Ordering::SeqCst);
            assert_eq!(after, before, "the watchdog's own is kept from it");
            // SAFETY: there is a handler.
            unsafe { libc::raise(libc::SIGURG) };
            assert_eq!(CAUGHT.load(Ordering::SeqCst), before + 1);
        });
        return;
    }
    let said = said("an_earlier_handler_gets_what_is_its_own");
    assert!(said.contains("'the computer' has run for"), "{said}");
}
