//! The contract of every backend, checked by the same code for each.

// `#[test]` with a time limit.
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
