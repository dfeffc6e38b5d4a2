//! What AddressSanitizer and ThreadSanitizer are told of switches between stacks.
//!
//! A sanitizer takes a stack pointer that jumps for a frame of gigabytes, and assumes that what
//! happens between two calls happens on one stack. It has functions to be told otherwise, and a
//! [`Mark`] holds what it wants to keep of each suspended computation. They are called around every
//! switch, but only in a program that was built with the sanitizer (`cfg(carefree_asan)`,
//! `cfg(carefree_tsan)`: see `build.rs`); in any other a mark is of size zero and the functions are
//! empty. Asking at run time whether a sanitizer is present would cost each switch more than the
//! rest of it does.

mod mark;
mod presence;

pub use mark::Mark;
pub(crate) use mark::{MarkRef, arrive, leave, wrap_entry};
pub(crate) use presence::present;
