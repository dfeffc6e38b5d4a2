//! The process that ends what this one leaves running when it is killed.

use std::path::Path;
use std::process::Command;

use carefree_lab::watcher::Watched;

/// Starts it; it looks after containers as well where there may be some. Nothing where it cannot be started: then the
/// next run ends what this one leaves.
pub(crate) fn watched(program: &Path, containers: bool) -> Option<Watched> {
    let mut watcher = Command::new(program);
    watcher.arg("__watch").args(containers.then_some("--containers"));
    Watched::start(watcher).ok()
}
