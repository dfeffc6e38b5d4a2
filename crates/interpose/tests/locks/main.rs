//! Locks of `std`, of crates and of C on fibers, and between fibers and threads: `modes` runs all of
//! it again in every forced mode.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use carefree_interpose as _;

mod common;
mod crates;
mod modes;
mod numbers;
mod processes;
mod pthread;
mod standard;
mod variants;
mod wrong;
