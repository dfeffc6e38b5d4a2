//! The whole suite again, in modes that this machine does not choose by itself.

use carefree_testing::again;

/// Runs the tests named by `which` again, or all if it is empty.
fn suite_with(environment: &[(&str, &str)], which: &[&str]) {
    again::in_mode(environment, which, "connections_echo");
}

#[test(seconds = 600)]
fn over_epoll() {
    suite_with(&[("CAREFREE_REACTOR", "epoll")], &[]);
}

/// Runs the tests of code that keeps no state of a waiting caller in thread-local variables, as
/// parking_lot, rayon and tokio do: in this mode, all fibers of a carrier share these variables. std's
/// channels do so too, so the tests run one after the other: in each test only one fiber waits for a
/// channel, and it must not share a carrier with those of other tests.
#[test(seconds = 600)]
fn shared_thread_local_storage() {
    suite_with(
        &[("CAREFREE_TLS", "shared")],
        &["std::", "https::", "curl::", "sqlite::", "--test-threads=1"],
    );
}
