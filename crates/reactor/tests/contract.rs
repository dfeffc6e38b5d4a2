//! What every backend promises, checked by the same code over each of them.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

#[path = "common/symbols.rs"]
mod symbols;

mod contract {
    mod cancel;
    mod crowd;
    mod file;
    mod identity;
    mod kit;
    mod modes;
    mod sharing;
    mod socket;
    mod stream;
    mod stress;
    mod virtual_time;
    mod wait;
}
