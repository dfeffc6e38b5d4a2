//! Waiting for child processes.

pub mod command;
pub mod wait;
