//! What the turns of all loads share: a folder for their files, and a count of the bytes compared.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

#[derive(Debug)]
pub(super) struct Workspace {
    directory: TempDir,
    bytes: AtomicU64,
}

impl Workspace {
    pub(super) fn new() -> io::Result<Workspace> {
        let directory = tempfile::Builder::new().prefix("carefree-soak-").tempdir()?;
        Ok(Workspace { directory, bytes: AtomicU64::new(0) })
    }

    /// The path of a file that does not exist yet.
    pub(super) fn fresh(&self, kind: &str, random: &mut fastrand::Rng) -> PathBuf {
        self.directory.path().join(format!("{kind}-{:x}", random.u64(..)))
    }

    /// Counts bytes that were carried and compared.
    pub(super) fn carried(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn mebibytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) >> 20
    }
}
