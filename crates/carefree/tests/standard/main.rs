//! `carefree` beside `std::thread`: what compiles with one compiles with the other, and does the
//! same.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod calls;
mod traits;
