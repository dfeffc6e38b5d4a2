//! Times and clocks: how long, until when, and sleeping.

pub(crate) mod deadline;
pub(crate) mod duration;
pub mod gettime;
pub mod sleep;
