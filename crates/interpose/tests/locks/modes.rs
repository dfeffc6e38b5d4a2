//! The whole program again, in every mode that the machine at hand would not choose.

use carefree_testing::again;

fn again_with(variable: &str, value: &str) {
    again(&[], variable, value);
}

/// Runs the tests that `which` names again, or all for none.
fn again(which: &[&str], variable: &str, value: &str) {
    again::in_mode(&[(variable, value)], which, "a_mutex_lets_one_at_a_time_in");
}

#[test(seconds = 600)]
fn shared_thread_local_storage() {
    again_with("CAREFREE_TLS", "shared");
}

/// The locks of std and of crates. (The other tests compare what our locks answer with what libc's do,
/// and there they are libc's.)
#[test(seconds = 600)]
fn threads_in_place_of_fibers() {
    again(&["standard::", "crates::"], "CAREFREE_TLS", "threads");
}

#[test(seconds = 600)]
fn one_carrier() {
    again_with("CAREFREE_CARRIERS", "1");
}
