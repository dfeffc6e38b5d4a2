//! What the tests of several rooms share: a limit to each test, so that one that hangs says so, and the program
//! that executes itself again.
//!
//! With
//!
//! ```
//! #[macro_use]
//! extern crate carefree_testing;
//! # fn main() {}
//! ```
//!
//! at its top, `#[test]` in a test program is [`test`] from here: the usual one, with a limit to how
//! long each test may take. Past it, the process says which test hangs, what each fiber waits for and
//! where each thread is, and aborts. Without that, a test that hangs would keep later ones from
//! running, without a word on which test it was.
//!
//! [`again`] is for tests that need a process of their own, or a mode; [`artifact`] for tests of what they do
//! not link.

pub mod again;
pub mod artifact;
mod limit;
mod report;

pub use carefree_testing_attribute::test;
pub use limit::{LIMIT, within_limit};
pub use report::print_and_abort;
