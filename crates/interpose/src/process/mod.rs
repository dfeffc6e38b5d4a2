//! Child processes, and whose the process is.

pub mod command;
pub mod fork;
pub mod identity;
pub mod wait;
