//! `sigwait` and its kin. Each test runs in a process of its own, whose threads block its signal.

use std::mem;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use carefree::spawn;
use libc::{c_int, siginfo_t, sigset_t, timespec};

use crate::common::*;

const SIGNAL: c_int = libc::SIGUSR1;

fn only() -> sigset_t {
    // SAFETY: a place for a set.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, SIGNAL);
        set
    }
}

/// Runs the test `name` again in a process where [`SIGNAL`] is blocked. Returns whether this is that process.
fn is_alone(name: &str) -> bool {
    const VARIABLE: &str = "CAREFREE_TEST_SIGNALS";
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("signals::{name}")]).env(VARIABLE, "1");
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| {
            libc::sigprocmask(libc::SIG_BLOCK, &only(), ptr::null_mut());
            Ok(())
        });
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{complaints}");
    assert!(text.contains("1 passed"), "{text}");
    false
}

fn signal_this_process() {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::kill(libc::getpid(), SIGNAL) }, 0);
}

#[test]
fn a_signal_is_waited_for() {
    if !is_alone("a_signal_is_waited_for") {
        return;
    }
    on_one_carrier(|| {
        let set = only();
        let soon = || {
            spawn(|| {
                carefree::sleep(MOMENT);
                signal_this_process();
            })
        };
        // SAFETY: sets and places for the answers.
        unsafe {
            let mut number = 0;
            soon();
            assert_eq!(libc::sigwait(&set, &raw mut number), 0);
            assert_eq!(number, SIGNAL);

            let mut info: siginfo_t = mem::zeroed();
            soon();
            assert_eq!(libc::sigwaitinfo(&set, &raw mut info), SIGNAL);
            assert_eq!((info.si_signo, info.si_code), (SIGNAL, libc::SI_USER));
            assert_eq!(info.si_pid(), libc::getpid());

            let time = timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let begun = Instant::now();
            let waited = while_another_runs(|| libc::sigtimedwait(&set, &raw mut info, &time));
            assert_eq!(checked(waited), Err(libc::EAGAIN));
            assert!(begun.elapsed() >= Duration::from_millis(50));
            // A signal that is pending already.
            signal_this_process();
            assert_eq!(libc::sigtimedwait(&set, ptr::null_mut(), &time), SIGNAL);
            let wrong = timespec { tv_sec: 0, tv_nsec: -1 };
            let waited = libc::sigtimedwait(&set, ptr::null_mut(), &wrong);
            assert_eq!(checked(waited), Err(libc::EINVAL));
        }
    });
}

#[test]
fn each_signal_goes_to_one_of_several_fibers() {
    if !is_alone("each_signal_goes_to_one_of_several_fibers") {
        return;
    }
    carefree::run(|| {
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                spawn(|| {
                    // SAFETY: a set.
                    unsafe { libc::sigwaitinfo(&only(), ptr::null_mut()) }
                })
            })
            .collect();
        for _ in 0..10 {
            let before = waiting.iter().filter(|fiber| fiber.is_finished()).count();
            signal_this_process();
            // A second one is not kept while the first is pending.
            while waiting.iter().filter(|fiber| fiber.is_finished()).count() == before {
                carefree::sleep(Duration::from_millis(1));
            }
        }
        for fiber in waiting {
            assert_eq!(fiber.join().unwrap(), SIGNAL);
        }
    });
}

static HANDLED: AtomicI32 = AtomicI32::new(0);

extern "C" fn handle(number: c_int) {
    HANDLED.store(number, Ordering::SeqCst);
}

#[test]
fn a_handler_ends_sigsuspend() {
    if !is_alone("a_handler_ends_sigsuspend") {
        return;
    }
    on_one_carrier(|| {
        // SAFETY: the handler stores a number; sets of signals.
        unsafe {
            libc::signal(SIGNAL, handle as *const () as usize);
            let mut none: sigset_t = mem::zeroed();
            libc::sigemptyset(&raw mut none);
            signal_this_process();
            assert_eq!(HANDLED.load(Ordering::SeqCst), 0, "it is blocked");
            assert_eq!(checked(libc::sigsuspend(&none)), Err(libc::EINTR));
            assert_eq!(HANDLED.swap(0, Ordering::SeqCst), SIGNAL);
            spawn(|| {
                carefree::sleep(MOMENT);
                signal_this_process();
            });
            assert_eq!(checked(libc::sigsuspend(&none)), Err(libc::EINTR));
            assert_eq!(HANDLED.load(Ordering::SeqCst), SIGNAL);
        }
    });
}

#[test]
fn cancellation_and_timeouts_reach_in() {
    if !is_alone("cancellation_and_timeouts_reach_in") {
        return;
    }
    carefree::run(|| {
        let wait = || {
            let mut number = 0;
            // SAFETY: a set, and a place for the answer.
            unsafe { libc::sigwait(&only(), &raw mut number) }
        };
        assert_eq!(cancelled(wait), libc::ECANCELED);
        assert_eq!(timed_out(wait), libc::ETIMEDOUT);
        // SAFETY: no memory is involved.
        let pause = || checked(unsafe { libc::pause() });
        assert_eq!(cancelled(pause), Err(libc::ECANCELED));
        assert_eq!(timed_out(pause), Err(libc::ETIMEDOUT));
        let suspend = || {
            // SAFETY: a set.
            checked(unsafe { libc::sigsuspend(&only()) })
        };
        assert_eq!(timed_out(suspend), Err(libc::ETIMEDOUT));
    });
}
