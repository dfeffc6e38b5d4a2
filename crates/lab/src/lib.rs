//! The fiber-vs-thread lab: measures coroutines, fibers and threads on this machine, and says how
//! far the figures can be trusted.
//!
//! A [`plan::Plan`] says which samples to take; a [`run::Runner`] takes each in a process of its
//! own (that process calls [`sample::take`]); a [`record::Record`] keeps them with the medians,
//! their intervals, the [`env::Environment`] and the reasons for doubt ([`noise`]); [`report`]
//! shows it. What each figure means, and what it does not, is in `docs/methodology.md`.

#![warn(missing_docs)]

pub mod env;
pub mod fetch;
pub mod limits;
pub mod memory;
pub mod noise;
pub mod plan;
pub mod record;
pub mod report;
pub mod run;
pub mod sample;
pub mod stats;
mod sys;
pub mod unit;
pub mod workload;
