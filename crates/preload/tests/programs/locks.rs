//! Locks, conditions, and other waits of threads for each other.

use std::ffi::OsStr;

use crate::common::{compare, compare_c, compare_over, compile, run};

/// Also with one carrier, where the thread that has unlocked runs on.
#[test]
fn threads_get_locks_that_are_taken_again_at_once() {
    compare_c("starving.c");
}

#[test]
fn a_cancelled_thread_loses_no_signal_of_a_condition() {
    compare_c("cancels.c");
}

/// (Over epoll, each such wait looks again every 5 ms.)
#[test]
fn other_processes_wake_waits_for_words() {
    let Some(program) = compile("cc", &[], "outside.c") else { return };
    compare_over(&[program.as_os_str()], &[(1, None), (2, None)]);
}

/// By `futex_waitv`.
#[test]
fn signals_end_waits_for_several_words_and_take_no_wake_up() {
    compare_c("several_words.c");
}

/// Threads that stay threads wait for mutexes that inherit priorities and that others hold.
#[test]
fn mutexes_that_inherit_priorities_are_shared_with_threads_of_the_kernels() {
    let Some(program) = compile("cc", &[], "inherits.c") else { return };
    // (Of no meaning natively.)
    let names = "CAREFREE_RUN_THREADS_FOR=stays_incrementing,stays_waiting_in_vain,stays_locking_twice,\
                 stays_in_turns,stays_taking,stays_ending_inside";
    let program = ["env", names, program.to_str().unwrap()];
    compare(&program.map(OsStr::new));
}

#[test]
fn mutexes_that_cannot_be_shared_with_processes_are_told_of() {
    let Some(program) = compile("cc", &[], "shared_inherits.c") else { return };
    for (arguments, lines) in [(&[][..], 0), (&[OsStr::new("shared")], 1)] {
        let output = run(&[&[program.as_os_str()], arguments].concat(), Some((2, None)));
        assert!(output.status.success() && output.stdout == b"locked\n", "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told.lines().count(), lines, "{told}");
        assert!(lines == 0 || told.starts_with("carefree: this program shares a mutex"), "{told}");
    }
}

/// (On threads that have set a realtime policy themselves.)
#[test]
fn mutexes_with_ceilings_are_locked() {
    compare_c("ceilings.c");
}

/// The other waits within libc, unseen.
#[test]
fn a_thread_that_holds_a_stream_wakes_in_time() {
    compare_c("held_stream.c");
}

#[test]
fn threads_wait_for_each_other() {
    compare_c("locks.c");
}

/// Robust mutexes, those that inherit priorities among them.
#[test]
fn mutexes_of_threads_that_ended_say_so() {
    compare_c("robust.c");
}

/// If the lock is of the kind that prefers writers.
#[test]
fn a_writer_that_waits_turns_readers_away() {
    compare_c("writers.c");
}

/// `pthread_once`, compiled without tables for unwinding.
#[test]
fn a_function_that_a_cancelled_thread_has_left_is_called_again() {
    let options = ["-fno-exceptions", "-fno-asynchronous-unwind-tables"];
    if let Some(program) = compile("cc", &options, "once.c") {
        compare(&[program.as_os_str()]);
    }
}
