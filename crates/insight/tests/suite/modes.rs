//! The suite again, in modes in which the runtime does other things than by default on this machine.

use carefree_testing::again;

fn suite_with(variable: &str, value: &str) {
    again::in_mode(&[(variable, value)], &[], "a_fiber_that_computes_is_reported");
}

#[test(seconds = 600)]
fn shared_thread_local_storage() {
    suite_with("CAREFREE_TLS", "shared");
}

#[test(seconds = 600)]
fn plain_fences() {
    suite_with("CAREFREE_MEMBARRIER", "off");
}

#[test(seconds = 600)]
fn one_carrier() {
    suite_with("CAREFREE_CARRIERS", "1");
}

#[test(seconds = 600)]
fn thread_pointer_by_system_call() {
    suite_with("CAREFREE_FSGSBASE", "off");
}
