//! A fiber at rest: its header, its stack, its names, and which one runs here.

pub(crate) mod bed;
#[cfg_attr(loom, path = "../model/current.rs")]
pub(crate) mod current;
pub(crate) mod frames;
#[cfg_attr(loom, path = "../model/furnish.rs")]
pub(crate) mod furnish;
pub(crate) mod glimpse;
pub(crate) mod header;
#[cfg(not(loom))]
pub(crate) mod idle;
#[cfg_attr(loom, path = "../model/names.rs")]
pub(crate) mod names;
#[cfg_attr(loom, path = "../model/naming.rs")]
pub(crate) mod naming;
pub(crate) mod pin;
#[cfg(not(loom))]
pub(crate) mod registry;
#[cfg(not(loom))]
pub(crate) mod sequences;
#[cfg(not(loom))]
pub(crate) mod size;
#[cfg(not(loom))]
pub(crate) mod split;
#[cfg(not(loom))]
pub mod standard;
#[cfg(not(loom))]
pub(crate) mod stock;
pub(crate) mod unstarted;
#[cfg(not(loom))]
pub(crate) mod virtual_time;
