//! Ends what a lab leaves running at the moment it is killed.
//!
//! The kernel ends each sample's own process with the lab, but not what that has started in turn, nor a
//! container. So a process of its own, the watcher, waits at a pipe whose other end the lab alone has: the
//! kernel closes that however the lab ends. The watcher is no child of the lab, which ends all its children
//! after each sample, and is in a session of its own, where no Ctrl-C of a terminal's reaches it.

use std::io::{self, Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::targets::image::Engine;
use crate::{folder, leftovers, memory, sys};

/// The lab's end of the pipe. Dropped, it tells the watcher that nothing is left.
#[derive(Debug)]
pub struct Watched(ChildStdin);

impl Watched {
    /// Starts `command` as the watcher of this process, to call [`watch`] with the mark that it gets as its
    /// last argument. To be called before orphans are adopted, for the watcher is to be none of ours.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command) -> io::Result<Watched> {
        command.arg(leftovers::mark()).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::detach(&mut command);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // The watcher's parent has ended by now.
        child.wait()?;
        Ok(Watched(pipe))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // One that is gone cannot be told.
        let _ = self.0.write_all(b".");
    }
}

/// Between looks at what is there.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits for the end of the lab with this mark, and ends what it has left running, if it was killed;
/// containers as well, if it had any.
pub fn watch(mark: &str, containers: bool) {
    if io::stdin().read(&mut [0]).is_ok_and(|count| count > 0) {
        return;
    }
    // Its files are closed a moment before it counts as ended.
    while !leftovers::is_of_dead_lab(mark) {
        std::thread::sleep(PAUSE);
    }
    until_none(leftovers::end);
    until_none(memory::remove_leftovers);
    folder::remove_leftovers();
    let engine = if containers { Engine::find().ok() } else { None };
    if let Some(engine) = engine {
        // One that was being made is there a moment later.
        engine.remove_leftovers();
        std::thread::sleep(50 * PAUSE);
        engine.remove_leftovers();
    }
}

/// Until none are left: one may be starting others meanwhile.
fn until_none(end: fn() -> usize) {
    for _ in 0..100 {
        if end() == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}
