//! A server started by a test, and a folder for its files.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The user id (of `nobody`) for servers that refuse to run as root.
const UNPRIVILEGED: u32 = 65_534;

/// A program that does not run as root, and its folder. Dropping it kills the program and removes
/// the folder.
pub(crate) struct Server {
    process: Option<Child>,
    folder: tempfile::TempDir,
}

impl Server {
    pub(crate) fn new() -> Server {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        if is_root() {
            chown(folder.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        Server { process: None, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that runs in the folder, as an unprivileged user if this process is root's.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder()).stdin(Stdio::null()).stdout(Stdio::null());
        if is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        // The server must not outlive a test that crashes.
        // SAFETY: prctl accesses no memory, and may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        command
    }

    /// Starts the server, which ends with the calling thread, or when this is dropped.
    pub(crate) fn start(&mut self, command: &mut Command) {
        self.process = Some(command.spawn().unwrap());
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: i32) {
        let id = self.process.as_ref().unwrap().id() as i32;
        // SAFETY: accesses no memory. The child was not waited for yet, so the id is its own.
        assert_eq!(unsafe { libc::kill(id, signal) }, 0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn is_root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}
