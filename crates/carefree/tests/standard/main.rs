//! `carefree` beside `std::thread`: code that compiles with one compiles with the other, and does the same.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod calls;
mod modes;
mod names;
mod parking;
mod pthread;
mod traits;

use carefree_testing::again::{in_a_process, is_child};

/// What a test of this program prints to standard error, run in a process of its own.
fn child(test: &str) -> String {
    String::from_utf8_lossy(&in_a_process(test, &[]).stderr).into_owned()
}

/// Whether fibers have thread-local storage of their own, without which std knows carriers only.
fn own() -> bool {
    matches!(carefree::platform().tls, carefree::TlsMode::Own)
}
