//! What labs that were killed have left running: samples' processes and containers carry the mark of
//! their lab, and those whose lab is gone are ended by its [watcher](crate::watcher), or by the next lab
//! where that is gone as well. Else they would run on, and disturb whatever is measured next.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::sys;

/// The variable by which processes carry the mark; none of those that records keep.
const VARIABLE: &str = "_CAREFREE_LAB";

/// The mark of this lab: boot, namespace of process numbers, number and time of start. It has
/// letters, digits and dashes alone, to be part of a container's name.
pub(crate) fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| {
        let (process, start) = (std::process::id(), start(std::process::id()).unwrap_or(0));
        format!("{}-{process}-{start}", here())
    })
}

/// Has a command's process, and all that it starts, carry the mark.
pub(crate) fn sign(command: &mut Command) {
    command.env(VARIABLE, mark());
}

/// Whether the mark is of a lab whose process number means here what it meant there.
pub(crate) fn is_from_here(mark: &str) -> bool {
    own_part(mark).is_some()
}

/// What a mark from here has beyond the place: number and time of start.
fn own_part(mark: &str) -> Option<&str> {
    mark.strip_prefix(&here())?.strip_prefix('-')
}

/// Whether the mark is of a lab that ran on this machine and is gone. Of labs elsewhere, which may
/// share an engine of containers, nothing is known.
pub(crate) fn is_of_dead_lab(mark: &str) -> bool {
    let Some((process, started)) = own_part(mark).and_then(|own| own.split_once('-')) else {
        return false;
    };
    match (process.parse::<u32>(), started.parse::<u64>()) {
        (Ok(process), Ok(started)) => start(process) != Some(started),
        _ => false,
    }
}

/// Ends the processes that labs have left behind which are gone, and returns how many there were.
pub fn end() -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut ended = 0;
    for entry in processes {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let is_other = process != std::process::id();
        if is_other && mark_of(&entry.path()).is_some_and(|mark| is_of_dead_lab(&mark)) {
            sys::end(process);
            ended += 1;
        }
    }
    ended
}

/// The mark that a process carries. Those of other users cannot be read, and are none of ours.
fn mark_of(process: &Path) -> Option<String> {
    let variables = fs::read(process.join("environ")).ok()?;
    let prefix = format!("{VARIABLE}=");
    let mut variables = variables.split(|&byte| byte == 0);
    let mark = variables.find_map(|variable| variable.strip_prefix(prefix.as_bytes()))?;
    OsStr::from_bytes(mark).to_str().map(str::to_owned)
}

/// Where process numbers mean what they mean here: this boot, and this namespace of them.
fn here() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot: String = boot.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let namespace: String =
        namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{boot}-{namespace}")
}

/// When a process was started, in the kernel's ticks since the boot; nothing if there is none, or
/// if it has ended and is waited for.
fn start(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it, in brackets, may have anything in it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    // The 22nd field in all, the third being the state.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_that_runs_is_not_taken_for_dead() {
        assert!(!is_of_dead_lab(mark()));
        let mark_with = |process: u32, start: u64| format!("{}-{process}-{start}", here());
        let own = std::process::id();
        assert!(is_of_dead_lab(&mark_with(own, 1)), "the number is another process's now");
        assert!(is_of_dead_lab(&mark_with(4_194_305, 1)), "no process has this number");
        for other in ["", "x", "0123456789ab-4026531836-7-8", &format!("{}-7", here())] {
            assert!(!is_of_dead_lab(other), "{other}");
        }
        assert!(mark().chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", mark());
    }

    #[test]
    fn a_process_of_a_dead_lab_is_ended_and_one_of_ours_is_not() {
        use std::os::unix::process::ExitStatusExt;
        let sleeper = |mark: &str| {
            let child = Command::new("sleep").arg("600").env(VARIABLE, mark).spawn();
            let child = child.expect("sleep starts");
            // The kernel lets the parent go on a moment before it has set the variables up.
            let process = Path::new("/proc").join(child.id().to_string());
            while mark_of(&process).is_none() {
                std::thread::yield_now();
            }
            child
        };
        let mut left = sleeper(&format!("{}-4194305-1", here()));
        let mut ours = sleeper(mark());
        // Another test's lab may have ended it before us.
        end();
        assert_eq!(left.wait().expect("it ends").signal(), Some(9));
        assert!(ours.try_wait().expect("it runs").is_none());
        ours.kill().expect("it runs");
        ours.wait().expect("it ends");
    }
}
