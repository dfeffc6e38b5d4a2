//! The whole suite again, in every mode that the machine at hand would not choose.

use std::mem;

use carefree_testing::again;

fn suite_with(variable: &str, value: &str) {
    suite_without(&[], variable, value);
}

/// The suite but for the tests whose names contain one of `skipped`.
fn suite_without(skipped: &[&str], variable: &str, value: &str) {
    let skip: Vec<&str> = skipped.iter().flat_map(|&name| ["--skip", name]).collect();
    again::in_mode(&[(variable, value)], &skip, "unpark_comes_first");
}

#[test(seconds = 600)]
fn shared_thread_local_storage() {
    suite_with("CAREFREE_TLS", "shared");
}

#[test(seconds = 600)]
fn threads_in_place_of_fibers() {
    const ABOUT_FIBERS_ALONE: &[&str] = &[
        // Refused: see `threads`.
        "virtual_time::",
        // Stacks are the threads': our limits and our report of an overflow do not apply.
        "limits::a_carrier_that_memory_is_refused_for_is_not_added",
        "limits::an_overflow_names_the_fiber",
        "limits::idle_stacks_keep_bounded_memory",
        "limits::idle_stacks_make_room_for_those_of_another_size",
        "limits::sleepers_leave_no_timers",
        "limits::the_limit_that_refuses_a_stack_is_named",
        "limits::the_size_asked_for_is_checked",
        "sizes::a_guard_as_large_as_asked_for_stops_large_frames",
        "sizes::the_environment_has_a_say",
        "sizes::what_is_asked_for_is_there",
        // An offloaded call is made in place.
        "offloading::the_call_runs_elsewhere_and_the_carrier_runs_others",
        // The kernel decides in which order woken threads run.
        "semaphores::the_longest_waiter_is_served_first",
        // There are no carriers to count.
        "few_threads::a_library_is_loaded_when_no_thread_can_be_had",
        "few_threads::fibers_run_on_the_carriers_that_can_be_started",
        "few_threads::one_carrier_is_enough",
        "runtimes::counts_count",
        "runtimes::the_number_of_carriers_is_checked",
    ];
    suite_without(ABOUT_FIBERS_ALONE, "CAREFREE_TLS", "threads");
}

#[test(seconds = 600)]
fn plain_fences() {
    suite_with("CAREFREE_MEMBARRIER", "off");
}

/// Each fiber that runs for a millisecond is interrupted for a backtrace.
#[test(seconds = 600)]
fn watched_closely() {
    suite_with("CAREFREE_WATCH", "1");
}

#[test(seconds = 600)]
fn one_carrier() {
    suite_with("CAREFREE_CARRIERS", "1");
}

/// The tests of what a fiber that keeps its carrier leaves to others, with five carriers on one processor.
#[test(seconds = 600)]
fn more_carriers_than_the_one_processor() {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: a set of processors, which zeros are, is written and read by calls for this thread alone.
    let allowed = unsafe {
        let mut allowed = mem::zeroed::<libc::cpu_set_t>();
        assert_eq!(libc::sched_getaffinity(0, size, &raw mut allowed), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &allowed));
        let mut one = mem::zeroed::<libc::cpu_set_t>();
        libc::CPU_SET(first.expect("a processor"), &mut one);
        assert_eq!(libc::sched_setaffinity(0, size, &raw const one), 0);
        allowed
    };
    // The process that it starts inherits the processor.
    let tests = ["stress::", "fairness::", "--test-threads=1"];
    again::in_mode(&[("CAREFREE_CARRIERS", "5")], &tests, "on_a_hundred_carriers");
    // SAFETY: the set from above.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size, &raw const allowed) }, 0);
}

#[test(seconds = 600)]
fn malloc_of_each_fibers_own() {
    suite_with("CAREFREE_MALLOC", "own");
}

#[test(seconds = 600)]
fn thread_pointer_by_system_call() {
    suite_with("CAREFREE_FSGSBASE", "off");
}
