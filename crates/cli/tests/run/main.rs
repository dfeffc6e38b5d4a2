//! `carefree run`: what it says, and how what it runs ends.

mod compiled;
mod doctor;
mod kept;
mod report;
mod starting;
#[path = "../support/mod.rs"]
mod support;
