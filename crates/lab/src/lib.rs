//! The fiber-vs-thread lab: measures coroutines, fibers and threads on this machine, and says how
//! far the figures can be trusted.
//!
//! A [`plan::Plan`] says which samples to take of the [workloads](carefree_workloads), of our own units
//! and of those of the runtimes that [`targets`] finds; a [`run::Runner`] takes each in a [`process`] of
//! its own, which for our units calls [`carefree_workloads::own::take`]; a [`record::Record`] keeps them
//! with the medians, their intervals, the [`env::Environment`] and the reasons for doubt ([`noise`]);
//! [`compare`] and [`history`] compute what changed, and [`report`] shows all of it. What each figure is
//! called, how it is measured and where it is shown stands in [`metric::FIGURES`]; what it means, and
//! what it does not, in
//! `docs/methodology.md`.

#![warn(missing_docs)]

mod answer;
pub mod compare;
mod connections;
pub mod course;
pub mod env;
pub mod folder;
pub mod history;
pub mod hosted;
pub mod leftovers;
pub mod memory;
pub mod metric;
pub mod noise;
pub mod number;
pub mod plan;
pub mod printable;
pub mod process;
mod proof;
pub mod record;
pub mod report;
pub mod run;
pub mod sample;
mod served;
pub mod serving;
pub mod stats;
pub mod sweep;
mod sys;
pub mod targets;
pub mod trial;
pub mod version;
pub mod watcher;

pub use sys::adopt_orphans;
