//! Threads in place of fibers: what only they do. (`modes` runs the rest of the suite on them.)

use std::cell::Cell;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carefree_insight::dump;
use carefree_runtime::{
    Builder, Runtime, current, metrics, park, run, scope, sleep, spawn, timeout,
};

use crate::common::{FOREVER, in_a_process, is_child, text, until};

/// Runs `f` in a process of its own, with threads in place of fibers.
fn on_threads(name: &str, f: impl FnOnce()) {
    if is_child() {
        return f();
    }
    let output = in_a_process(&format!("threads::{name}"), &[("CAREFREE_TLS", "threads")]);
    assert!(output.status.success(), "{}", text(&output));
}

fn thread_id() -> libc::pid_t {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

#[test]
fn each_is_a_thread_of_the_kernels() {
    on_threads("each_is_a_thread_of_the_kernels", || {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                spawn(|| {
                    sleep(Duration::from_millis(20));
                    thread_id()
                })
            })
            .collect();
        let mut ids: HashSet<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(ids.insert(thread_id()));
        assert_eq!(ids.len(), 9);
        // On such a thread, `run` just makes the call.
        run(|| assert_eq!(thread_id(), run(thread_id)));
    });
}

#[test]
fn it_has_its_name_for_all_to_see() {
    on_threads("it_has_its_name_for_all_to_see", || {
        let named = Builder::new().name("worker".into()).spawn(|| {
            assert_eq!(std::thread::current().name(), Some("worker"));
            assert_eq!(current().name(), Some("worker"));
            std::fs::read_to_string("/proc/thread-self/comm").unwrap()
        });
        assert_eq!(named.unwrap().join().unwrap(), "worker\n");
    });
}

#[test]
fn a_joined_thread_is_gone_and_its_variables_with_it() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            // The fiber's header is still there, so this may sleep.
            sleep(Duration::from_millis(50));
            DROPPED.store(true, Ordering::SeqCst);
        }
    }
    thread_local!(static SLOW: Slow = const { Slow });
    on_threads("a_joined_thread_is_gone_and_its_variables_with_it", || {
        let id = spawn(|| {
            SLOW.with(|_| ());
            thread_id()
        });
        let id = id.join().unwrap();
        assert!(DROPPED.load(Ordering::SeqCst));
        assert!(!std::path::Path::new(&format!("/proc/self/task/{id}")).exists());
    });
}

#[test]
fn the_runtime_waits_for_threads_variables_too() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(50));
            DROPPED.store(true, Ordering::SeqCst);
        }
    }
    thread_local!(static SLOW: Slow = const { Slow });
    on_threads("the_runtime_waits_for_threads_variables_too", || {
        let runtime = Runtime::builder().build().unwrap();
        drop(runtime.spawn(|| drop(spawn(|| SLOW.with(|_| ())))));
        drop(runtime);
        assert!(DROPPED.load(Ordering::SeqCst));
    });
}

#[test]
fn a_detached_threads_value_finds_its_variables() {
    thread_local!(static MINE: Cell<u32> = const { Cell::new(7) });
    static SEEN: AtomicBool = AtomicBool::new(false);
    struct Looks;
    impl Drop for Looks {
        fn drop(&mut self) {
            assert_eq!(MINE.get(), 8);
            SEEN.store(true, Ordering::SeqCst);
        }
    }
    on_threads("a_detached_threads_value_finds_its_variables", || {
        let handle = spawn(|| {
            MINE.set(8);
            park();
            Looks
        });
        let thread = handle.thread().clone();
        drop(handle);
        thread.unpark();
        until("the value is dropped", || SEEN.load(Ordering::SeqCst));
    });
}

#[test]
fn what_waits_here_is_cut_short() {
    on_threads("what_waits_here_is_cut_short", || {
        let handle = spawn(|| sleep(FOREVER));
        handle.cancel();
        handle.join().unwrap();
        assert!(run(|| timeout(Duration::from_millis(5), || spawn(park).join().is_err())).is_err());
        scope(|s| {
            s.spawn(|| sleep(FOREVER));
            s.cancel();
        });
    });
}

#[test]
fn a_refused_thread_is_an_error_and_costs_nothing() {
    on_threads("a_refused_thread_is_an_error_and_costs_nothing", || {
        run(|| ());
        let before = metrics();
        for _ in 0..3 {
            // No address space is that large.
            let refused = Builder::new().name("no".into()).stack_size(1 << 60).spawn(|| ());
            let error = refused.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("no thread could be started"), "{text}");
            assert!(text.contains("(CAREFREE_TLS=threads asks for it)"), "{text}");
        }
        assert_eq!(metrics(), before);
        run(|| ());
        assert_eq!(metrics().spawned, before.spawned + 1);
    });
}

#[test]
fn they_are_counted_and_listed() {
    on_threads("they_are_counted_and_listed", || {
        let before = metrics();
        let parked = Builder::new().name("parked".into()).spawn(park).unwrap();
        until("it waits", || dump().contains("'parked' is parked"));
        let text = dump();
        assert!(text.contains("runtime: 1 threads in place of fibers"), "{text}");
        assert!(text.contains(&format!("thread {} 'parked'", parked.thread().id())), "{text}");
        let now = metrics();
        assert_eq!((now.carriers, now.alive, now.spawned - before.spawned), (0, 1, 1));
        parked.thread().unpark();
        parked.join().unwrap();
        assert_eq!(metrics().alive, 0);
    });
}

#[test]
fn virtual_time_is_refused() {
    on_threads("virtual_time_is_refused", || {
        let error = Runtime::builder().virtual_time(1).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains("virtual time") && text.contains("CAREFREE_TLS=threads"), "{text}");
    });
}
