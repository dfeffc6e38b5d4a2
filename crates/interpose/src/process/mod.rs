//! Child processes, and whose the process is.

pub mod command;
// (A static program links libc's own together with `fork`.)
#[cfg(not(target_feature = "crt-static"))]
pub mod fork;
pub mod identity;
pub mod wait;
