//! What every stand-in is made of: libc's function behind it, what it knows of its caller, the memory and
//! buffers that it was given, and how it answers.

#[macro_use]
pub(crate) mod original;
#[macro_use]
mod fallback;

pub(crate) mod amid_signals;
pub(crate) mod answer;
pub(crate) mod buffers;
pub(crate) mod fiber;
pub mod host;
pub(crate) mod own_file;
pub(crate) mod pipe;
pub(crate) mod sys;
pub(crate) mod uninterrupted;
pub(crate) mod user;
