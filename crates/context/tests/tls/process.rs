//! Calls that concern the process: starting others, starting threads, changing users, ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree_context::fork;

use crate::harness::{
    Fiber, Slot, alone, bodies, child, has_robust_lists, isolated, on_fiber, run_all, yield_now,
};

#[test]
fn a_fiber_starts_threads_and_processes() {
    on_fiber(|| {
        let (one, two) =
            (std::thread::current().id(), std::thread::spawn(|| std::thread::current().id()));
        assert_ne!(one, two.join().unwrap());
        let output = std::process::Command::new("sh").args(["-c", "echo $((6 * 7))"]).output();
        assert_eq!(output.unwrap().stdout, b"42\n");
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::system(c"exit 3".as_ptr()) } >> 8, 3);
    });
}

#[test]
fn a_child_made_by_fork_is_a_thread() {
    isolated("process::a_child_made_by_fork_is_a_thread", &[], || {
        on_fiber(|| {
            let data = vec![7; 1000];
            // SAFETY: nothing else runs in this process, so the child may do as it likes.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // Allocate, start a thread, ask libc for the thread.
                let sum: i32 = data.iter().sum();
                let answer = std::thread::spawn(move || sum).join().unwrap();
                // SAFETY: no preconditions.
                unsafe {
                    let me = libc::pthread_self();
                    let mut attributes = std::mem::zeroed();
                    let told = libc::pthread_getattr_np(me, &mut attributes);
                    libc::_exit(if answer == 7000 && told == 0 { 5 } else { 6 });
                }
            }
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: only writes the status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFEXITED(status), "{status:#x}");
            assert_eq!(libc::WEXITSTATUS(status), 5);
        });
    });
}

/// glibc does not reinitialise the loader's lock in a child.
#[test]
fn a_child_can_iterate_over_libraries_whatever_other_threads_did() {
    isolated("process::a_child_can_iterate_over_libraries_whatever_other_threads_did", &[], || {
        let mode = carefree_context::tls::mode();
        let Some(layout) = mode.layout() else { return };
        for _ in 0..3 {
            std::thread::spawn(|| while layout.refresh().is_ok() {});
        }
        for _ in 0..300 {
            fork::hold();
            // SAFETY: the child does nothing but look and end.
            let child = unsafe { libc::fork() };
            // SAFETY: held by this thread, or by the one it was forked from.
            unsafe { fork::release() };
            if child == 0 {
                // Ends a child that would wait for ever.
                // SAFETY: accesses no memory.
                unsafe { libc::alarm(20) };
                let found = layout.refresh().is_ok();
                // SAFETY: ends the child.
                unsafe { libc::_exit(if found { 5 } else { 6 }) };
            }
            let mut status = 0;
            // SAFETY: only writes the status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFEXITED(status), "{status:#x}");
            assert_eq!(libc::WEXITSTATUS(status), 5);
        }
    });
}

#[test]
fn a_fiber_changes_users_while_others_run() {
    isolated("process::a_fiber_changes_users_while_others_run", &[], || {
        if !has_robust_lists() {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicUsize::new(0));
        let busy = {
            let stop = stop.clone();
            // Never yields for long enough to be caught on its carrier.
            std::thread::spawn(move || {
                let mut fiber = Fiber::new(Slot::new(), move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                assert!(fiber.enter());
            })
        };
        let begin = Instant::now();
        let counted = rounds.clone();
        run_all(
            2,
            4,
            bodies(4, move |_| {
                let rounds = counted.clone();
                move || {
                    for _ in 0..25 {
                        // To what they are already: anyone may.
                        // SAFETY: no preconditions.
                        unsafe {
                            assert_eq!(libc::setuid(libc::getuid()), 0);
                            assert_eq!(libc::setregid(libc::getgid(), libc::getegid()), 0);
                        }
                        rounds.fetch_add(1, Ordering::Relaxed);
                        yield_now();
                    }
                }
            }),
        );
        // And a thread, while a fiber runs elsewhere.
        // SAFETY: no preconditions.
        assert_eq!(unsafe { libc::setgid(libc::getgid()) }, 0);
        stop.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        assert_eq!(rounds.load(Ordering::Relaxed), 100);
        assert!(begin.elapsed() < Duration::from_secs(60));
    });
}

#[test]
fn a_fiber_ends_the_process() {
    const TEST: &str = "process::a_fiber_ends_the_process";
    if alone(TEST) {
        struct Object;
        impl Drop for Object {
            fn drop(&mut self) {
                println!("destroyed");
            }
        }
        thread_local!(static OBJECT: Object = const { Object });
        on_fiber(|| {
            OBJECT.with(|_| ());
            std::process::exit(7);
        });
    }
    let output = child(TEST, &[], &[]);
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    // exit destroys the variables of the thread that calls it.
    assert!(String::from_utf8_lossy(&output.stdout).contains("destroyed"));
}

#[test]
fn raise_and_abort_reach_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const TEST: &str = "process::raise_and_abort_reach_the_process";
    if alone(TEST) {
        // SAFETY: no core files; a signal with a harmless action.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        }
        on_fiber(|| {
            // SAFETY: no preconditions.
            unsafe {
                assert_eq!(libc::raise(libc::SIGUSR1), 0);
                assert_eq!(libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1), 0);
            }
            std::process::abort();
        });
    }
    let output = child(TEST, &[], &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
}
