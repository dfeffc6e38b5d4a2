//! Targets written in shell: the mistakes that programs may make, and what the lab says of them.

#[path = "../support/samples.rs"]
mod samples;

mod builds;
mod fake;
mod lineup;
mod variants;
mod versions;
mod work;
