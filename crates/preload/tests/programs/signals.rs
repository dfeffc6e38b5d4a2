//! Signals: where they are handled, when, and on which stack; timers.

use crate::common::compare_c;

#[test]
fn signals_reach_the_threads_that_they_are_for() {
    compare_c("signals.c");
}

/// At spin locks too, and though handlers leave by `pthread_exit` or `siglongjmp`.
#[test]
fn threads_that_spin_are_interrupted() {
    compare_c("spinning.c");
}

/// Not by signals that the thread has handled before it waits.
#[test]
fn waits_are_interrupted_by_handlers_alone() {
    compare_c("handled_before.c");
}

/// With and without the mask, out of handlers and not.
#[test]
fn jumps_restore_masks() {
    compare_c("jumps.c");
}

#[test]
fn alternate_stacks_are_those_of_threads() {
    compare_c("alternate.c");
}

/// Also amid computing, where they wait, jump, exit, fork or are cancelled.
#[test]
fn handlers_run_on_the_alternate_stacks_of_their_threads() {
    compare_c("on_alternate.c");
}

/// Also many at a time on few carriers, and on other carriers than they began on.
#[test]
fn handlers_of_faults_wait() {
    compare_c("faults.c");
}

#[test]
fn pending_signals_are_handled_where_they_are_unblocked() {
    compare_c("opened.c");
}

#[test]
fn signals_that_are_pending_stay_so_when_threads_become_fibers() {
    compare_c("kept_pending.c");
}

#[test]
fn signals_are_not_lost_with_threads_that_end() {
    compare_c("storm.c");
}

/// Each that can be handled, also those that carriers do not block.
#[test]
fn handlers_run_on_threads_and_amid_nothing() {
    compare_c("barrage.c");
}

#[test]
fn signals_may_come_faster_than_they_are_handled() {
    compare_c("flood.c");
}

/// As collectors stop them: the handler waits until they may go on. What they have waited for goes on as natively.
#[test]
fn threads_are_stopped_by_handlers_that_wait() {
    compare_c("stopped.c");
}

/// A carrier without work asks another one, whose only two threads yield, for one of them. That carrier gives it away,
/// and looks at the clock.
#[test]
fn handlers_that_wait_come_amid_no_yield() {
    compare_c("yields.c");
}

#[test]
fn handlers_that_wait_leave_malloc_whole() {
    compare_c("midst.c");
}

#[test]
fn signals_are_not_lost_with_the_first_thread() {
    compare_c("first.c");
}

#[test]
fn threads_wait_for_signals_and_for_their_cleanup() {
    compare_c("waiting.c");
}

#[test]
fn signals_of_profilers_come_to_threads_that_run() {
    compare_c("profiled.c");
}

/// `sigblock` and its kin.
#[test]
fn masks_may_be_numbers() {
    compare_c("old_masks.c");
}

#[test]
fn masks_hold_for_the_wait_that_they_are_given_for() {
    compare_c("masks.c");
}

/// On the clocks of threads, and on those of the kernel's, with signals for one thread.
#[test]
fn timers_are_those_of_threads() {
    compare_c("timers.c");
}

/// Of a timer that was stopped, what the own process was sent, and a child that has ended.
#[test]
fn signals_come_before_the_call_that_has_caused_them_returns() {
    compare_c("ordered.c");
}

#[test]
fn signals_that_a_wait_does_not_handle_stay_with_the_process() {
    compare_c("suspended.c");
}

/// `SIGPIPE` and `SIGXFSZ`, also of libc's streams; and what is ignored by default, while all threads block it.
#[test]
fn signals_that_a_call_raises_come_to_the_thread_that_makes_it() {
    compare_c("raised.c");
}

#[test]
fn what_concerns_all_signals_spares_ours() {
    compare_c("all_signals.c");
}

#[test]
fn threads_are_cancelled_amid_signals_of_their_own() {
    compare_c("cancelled_settling.c");
}

#[test]
fn timers_on_clocks_of_threads_call_functions() {
    compare_c("timer_calls.c");
}

/// Where it has no room for functions of Carefree's, the handler runs where the kernel has begun it.
#[test]
fn faults_are_handled_on_small_stacks() {
    compare_c("small_stack.c");
}

/// The kernel keeps them, for carriers block all signals.
#[test]
fn signals_that_come_while_they_are_ignored_are_gone() {
    compare_c("ignored.c");
}

#[test]
fn signals_are_handled_in_time_and_once_each() {
    compare_c("sent.c");
}

#[test]
fn signals_that_come_together_are_handled_as_by_the_kernel() {
    compare_c("nested.c");
}
