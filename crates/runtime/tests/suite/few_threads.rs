//! Where the kernel gives the process few threads, or none.

use std::io::ErrorKind;

use carefree_runtime::{Builder, Runtime, available_parallelism, offload, spawn, yield_now};

use crate::common::{in_a_process, is_child, text};

fn threads() -> u64 {
    std::fs::read_dir("/proc/self/task").unwrap().count() as u64
}

/// Limits the process to `more` threads beyond those that it has. The limit counts all processes of a user, and
/// root has none. So the process becomes a user without other processes.
fn allow(more: u64) {
    let user = 1_000_000 + std::process::id();
    // SAFETY: numbers, and a limit that is read.
    unsafe {
        assert_eq!(libc::setresuid(user, user, user), 0);
        let limit = libc::rlimit { rlim_cur: threads() + more, rlim_max: threads() + more };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit), 0);
    }
}

/// Runs `f` in a process that may start `more` threads; skipped without the rights to set that up.
fn with_threads(more: u64, test: &str, f: impl FnOnce()) {
    if is_child() {
        allow(more);
        return f();
    }
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: only root can become another user, whose threads are counted");
    }
    let output = in_a_process(test, &[]);
    assert!(output.status.success(), "{}", text(&output));
}

fn runs_on(carriers: usize) {
    let runtime = Runtime::builder().carriers(8).build().unwrap();
    let ran_on = runtime.run(move || {
        let handles: Vec<_> = (0..1000)
            .map(|n| {
                spawn(move || {
                    yield_now();
                    n
                })
            })
            .collect();
        let sum: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
        assert_eq!(sum, 1000 * 999 / 2);
        // Made by a thread of the pool if there is one, else by the carrier.
        let calls: Vec<_> = (0..20).map(|n| spawn(move || offload(move || n))).collect();
        let sum: u64 = calls.into_iter().map(|call| call.join().unwrap()).sum();
        assert_eq!(sum, 20 * 19 / 2);
        available_parallelism().unwrap().get()
    });
    assert_eq!(ran_on, carriers);
}

#[test]
fn fibers_run_on_the_carriers_that_can_be_started() {
    with_threads(3, "few_threads::fibers_run_on_the_carriers_that_can_be_started", || runs_on(3));
}

#[test]
fn one_carrier_is_enough() {
    with_threads(1, "few_threads::one_carrier_is_enough", || runs_on(1));
}

/// After each load the runtime looks at a new thread to learn how its storage is made. Here it cannot start
/// one.
#[test]
fn a_library_is_loaded_when_no_thread_can_be_had() {
    if cfg!(target_feature = "crt-static") {
        println!("skipped: a static program loads no libraries");
        return;
    }
    with_threads(1, "few_threads::a_library_is_loaded_when_no_thread_can_be_had", || {
        Runtime::builder().carriers(1).build().unwrap().run(|| {
            spawn(|| ()).join().unwrap();
            // SAFETY: a C string; a library of libc's own, which has no thread-local variables.
            let library = unsafe { libc::dlopen(c"libBrokenLocale.so.1".as_ptr(), libc::RTLD_NOW) };
            assert!(!library.is_null());
            let handles: Vec<_> = (0..1000).map(|n| spawn(move || n)).collect();
            let sum: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
            assert_eq!(sum, 1000 * 999 / 2);
        });
    });
}

#[test]
fn without_any_the_error_names_the_limit() {
    with_threads(0, "few_threads::without_any_the_error_names_the_limit", || {
        // Threads stand in for fibers here, and none can be started.
        let runtime = Runtime::builder().carriers(2).build();
        let spawned =
            runtime.and_then(|runtime| Builder::new().spawn_on(&runtime, || ()).map(drop));
        let error = spawned.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(error.to_string().contains("ulimit -u"), "{error}");
    });
}
