//! What tools that watch a program's memory and threads are told of stacks and switches.
//!
//! Such a tool believes that a stack pointer which jumps is a frame of gigabytes, and that what
//! happens between two calls happens on one stack. A sanitizer has functions to be told better, and
//! a [`Mark`] holds what it wants to keep of each suspended computation. They are called around
//! every switch, so they are there only in a program that was built with the sanitizer
//! (`cfg(carefree_asan)`, `cfg(carefree_tsan)`: see `build.rs`); in any other a mark is of size zero
//! and the functions are empty. To ask at run time whether a sanitizer is there would cost each
//! switch more than the rest of it does.
//!
//! valgrind is told of each stack once, when its memory is first used (`valgrind`): that costs a
//! few instructions, which do nothing without it.

mod mark;
mod presence;
pub(crate) mod valgrind;

pub use mark::Mark;
pub(crate) use mark::{MarkRef, arrive, leave};
pub(crate) use presence::sanitizer;
