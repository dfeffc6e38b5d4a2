//! The fiber-vs-thread lab: measures coroutines, fibers and threads on this machine, and says how
//! far the figures can be trusted.
//!
//! A [`plan::Plan`] says which samples to take, of our own units and of those of the runtimes that
//! [`targets`] finds; a [`run::Runner`] takes each in a [`process`] of its own, which for our units
//! calls [`own::take`]; a [`record::Record`] keeps them with the medians, their intervals, the
//! [`env::Environment`] and the reasons for doubt ([`noise`]); [`compare`] and [`history`] compute
//! what changed, and [`report`] shows all of it. What each figure is called, how it is measured and
//! where it is shown stands in [`metric::FIGURES`]; what it means, and what it does not, in
//! `docs/methodology.md`.

#![warn(missing_docs)]

pub mod compare;
pub mod env;
pub mod feed;
pub mod fetch;
pub mod history;
pub mod limits;
pub mod memory;
pub mod metric;
pub mod named;
pub mod noise;
pub mod number;
pub mod own;
pub mod parameters;
pub mod plan;
pub mod process;
pub mod record;
pub mod report;
pub mod role;
pub mod run;
pub mod sample;
pub mod stats;
mod sys;
pub mod targets;
pub mod trial;
pub mod unit;
pub mod workload;
