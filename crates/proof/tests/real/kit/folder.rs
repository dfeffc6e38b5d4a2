//! A folder for a server's files, of a user who may run it.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Who runs servers that refuse to run as root.
const NOBODY: u32 = 65_534;

/// A program that is not root's, in a folder of its own; killed, and the folder removed, at the end.
pub(crate) struct Server {
    process: Option<Child>,
    folder: tempfile::TempDir,
}

impl Server {
    pub(crate) fn new() -> Server {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        if is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Server { process: None, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that runs in the folder, and as another user if this one is root.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder()).stdin(Stdio::null()).stdout(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        // SAFETY: a system call with numbers: what is left of a test that crashed should not go on.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        command
    }

    /// Starts the server. Ends with the calling thread, or with this.
    pub(crate) fn start(&mut self, command: &mut Command) {
        self.process = Some(command.spawn().unwrap());
    }

    /// Stops it for now: it does not answer any more.
    pub(crate) fn signal(&self, signal: i32) {
        let id = self.process.as_ref().unwrap().id() as i32;
        // SAFETY: a child that nobody has waited for.
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
    // SAFETY: a number.
    unsafe { libc::geteuid() == 0 }
}
