//! Calls that wait, and numbers that libc and the kernel check.

use crate::common::compare_c;

#[test]
fn threads_keep_how_late_their_waits_may_end() {
    compare_c("lateness.c");
}

#[test]
fn no_thread_is_cancelled_at_a_system_call_by_number() {
    compare_c("by_number.c");
}

#[test]
fn threads_are_cancelled_at_commands_that_wait() {
    compare_c("commands.c");
}

#[test]
fn clocks_times_and_sizes_are_refused_as_by_libc_and_the_kernel() {
    compare_c("clocks.c");
}

#[test]
fn places_and_numbers_that_are_none_are_refused_as_natively() {
    compare_c("places.c");
}

/// In calls that wait in ways of their own.
#[test]
fn signals_and_cancellation_end_odd_waits() {
    compare_c("interrupted.c");
}

#[test]
fn signals_and_cancellation_end_waits_for_whole_messages() {
    compare_c("sockets.c");
}

#[test]
fn what_the_kernel_answers_at_once_is_not_waited_for() {
    compare_c("at_once.c");
}

/// Cancellation at `sendfile`, sleeps by a process's clock, peers that end amid a wait, and numbers that are refused.
#[test]
fn odd_waits_end_and_wrong_numbers_are_refused_as_natively() {
    compare_c("refused.c");
}

#[test]
fn calls_end_halfway_as_by_the_kernel() {
    compare_c("halfway.c");
}
