//! All of this again, in modes that the machine at hand would not choose.

use carefree_testing::again;

fn again_with(variable: &str, value: &str) {
    again::in_mode(&[(variable, value)], &["--test-threads=1"], "a_program_sees_the_same");
}

#[test]
fn over_epoll() {
    again_with("CAREFREE_REACTOR", "epoll");
}

#[test]
fn on_one_carrier() {
    again_with("CAREFREE_CARRIERS", "1");
}

#[test]
fn with_shared_thread_local_storage() {
    again_with("CAREFREE_TLS", "shared");
}
