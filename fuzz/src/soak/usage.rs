//! The resources of the process.

use std::fmt;
use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

/// Counts of what the process has.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// All but those of reactors.
    files: usize,
    /// Files of reactors: rings, epoll instances and what wakes a carrier that sleeps in one of these.
    reactors: usize,
    /// All but the carriers.
    threads: usize,
    carriers: usize,
    mappings: usize,
    /// Resident memory, in KiB.
    memory: usize,
}

/// How much more of each may be there than after the warm-up: threads of the offload pool and idle
/// stacks come and go, and so do their mappings. Stacks of the largest crowd so far are kept, and the
/// longer it runs the larger one there has been.
const MORE: Usage = Usage {
    files: 16,
    reactors: 16,
    threads: 32,
    carriers: 512,
    mappings: 256,
    memory: 128 * 1024,
};

/// What each carrier that was added since has of these: on a busy machine fibers keep carriers for long, and those
/// that are added to run the others stay, in reserve. Each has its stack, its ring's memory, stacks of fibers and
/// an arena of malloc's, each with a guard or a part that is not in use yet.
const OF_A_CARRIER: Usage =
    Usage { files: 0, reactors: 0, threads: 0, carriers: 1, mappings: 16, memory: 1024 };

/// Files of a carrier's reactor, which it opens when it first needs them: a bell, a ring or an epoll instance, and
/// for listeners an epoll instance more and a small ring.
const OF_A_REACTOR: usize = 4;

/// Time for idle threads to end.
const REST: Duration = Duration::from_millis(300);

impl Usage {
    /// What is used now, after a rest.
    pub fn now() -> Usage {
        thread::sleep(REST);
        // Memory that was freed and is kept by the allocator is no leak.
        // SAFETY: it takes a number.
        unsafe { libc::malloc_trim(0) };
        let count = |path| fs::read_dir(path).map_or(0, Iterator::count);
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let status = text("/proc/self/status");
        let memory = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
        let (carriers, reactors) = (carriers(), reactors());
        Usage {
            files: count("/proc/self/fd").saturating_sub(reactors),
            reactors,
            threads: count("/proc/self/task").saturating_sub(carriers),
            carriers,
            mappings: text("/proc/self/maps").lines().count(),
            memory: memory.unwrap_or(0),
        }
    }

    /// Whether it is about what it was at `first`.
    ///
    /// # Errors
    /// Says what has grown.
    pub fn compare(&self, first: &Usage) -> Result<(), String> {
        let added = self.carriers.saturating_sub(first.carriers);
        let more = |of: fn(&Usage) -> usize| of(&MORE) + added * of(&OF_A_CARRIER);
        let row = |what, of: fn(&Usage) -> usize| (what, of(self), of(first), more(of));
        let all = [
            row("open files", |usage| usage.files),
            ("files of reactors", self.reactors, OF_A_REACTOR * self.carriers, MORE.reactors),
            row("threads beside carriers", |usage| usage.threads),
            ("carriers", self.carriers, 0, MORE.carriers),
            row("mappings", |usage| usage.mappings),
            row("KiB of memory", |usage| usage.memory),
        ];
        match all.into_iter().find(|(_, now, first, more)| *now > first + more) {
            Some((what, now, first, more)) => Err(format!(
                "{now} {what}, where {first} are to be expected: more than {more} more means that they leak"
            )),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { files, reactors, threads, carriers, mappings, memory } = self;
        let memory = memory / 1024;
        write!(
            f,
            "{files} files and {reactors} of reactors, {carriers} carriers, {threads} other threads, {mappings} mappings, {memory} MiB"
        )
    }
}

/// Files that belong to no path, pipe or socket.
fn reactors() -> usize {
    let files = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    files.filter(|file| file.to_string_lossy().starts_with("anon_inode:")).count()
}

/// Threads that run fibers, or wait in reserve to do so.
fn carriers() -> usize {
    let names = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(|task| {
        // One that ends at this moment has no name any more.
        fs::read_to_string(task.ok()?.path().join("comm")).ok()
    });
    let is_carrier = |name: &String| {
        let number = name.trim_end().strip_prefix("carefree-");
        number.is_some_and(|number| number.parse::<usize>().is_ok())
    };
    names.filter(is_carrier).count()
}

/// Whether all processes that were started have been waited for.
///
/// # Errors
/// Says that one was not.
pub fn children_are_gone() -> Result<(), String> {
    // SAFETY: it only asks: no memory is involved.
    let waited = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    match (waited, io::Error::last_os_error().raw_os_error()) {
        (-1, Some(libc::ECHILD)) => Ok(()),
        (other, _) => Err(format!("a child was left behind (waitpid: {other})")),
    }
}
