//! A case: what a process waits for when it is killed, and what its neighbour then asks for.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::process::On;

/// What the two processes share.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// An address that nothing is bound to at first.
    pub(crate) address: SocketAddr,
    /// A path within a folder of the case's own, where there is no file.
    pub(crate) path: PathBuf,
}

/// Asks the kernel once for what the neighbour waits for.
pub(crate) type Look = Box<dyn FnMut() -> io::Result<()>>;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Whether the neighbour must get it at once; else it may come some milliseconds later.
    pub(crate) must_be_free: bool,
    /// Prepares the neighbour, before the other process starts.
    pub(crate) prepare: fn(&Place) -> Box<dyn FnOnce() -> Look>,
    /// Begins to wait in the process that is killed.
    pub(crate) wait: fn(On, &Place),
}
