//! All of this again, in every mode that the machine at hand would not choose.

use carefree_testing::again;

fn again_with(environment: &[(&str, &str)]) {
    again::in_mode(environment, &[], "hundreds_of_connections_echo_at_once");
}

#[test(seconds = 600)]
fn over_epoll() {
    again_with(&[("CAREFREE_REACTOR", "epoll")]);
}

#[test(seconds = 600)]
fn on_one_carrier() {
    again_with(&[("CAREFREE_CARRIERS", "1")]);
}

#[test(seconds = 600)]
fn with_shared_thread_local_storage_over_epoll() {
    again_with(&[("CAREFREE_TLS", "shared"), ("CAREFREE_REACTOR", "epoll")]);
}

/// In this mode the calls are libc's own. They work, but neither cancellation nor `close` ends them.
#[test(seconds = 600)]
fn with_threads_in_place_of_fibers() {
    const FAMILIES: &[&str] =
        &["sockets::", "nonblocking::", "names::", "forking::", "pointers::", "start::"];
    const ABOUT_FIBERS_ALONE: &[&str] =
        &["cancellation", "a_timeout_reaches", "closing_ends", "an_interrupted"];
    let skipped = ABOUT_FIBERS_ALONE.iter().flat_map(|name| ["--skip", name]);
    let arguments: Vec<_> = FAMILIES.iter().copied().chain(skipped).collect();
    again::in_mode(
        &[("CAREFREE_TLS", "threads")],
        &arguments,
        "hundreds_of_connections_echo_at_once",
    );
}
