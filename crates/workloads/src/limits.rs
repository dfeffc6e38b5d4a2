//! The machine's limits on how many threads and fibers there can be, and the knob behind each.

use std::fs;
use std::io;
use std::path::Path;

use crate::answer::Failure;
use crate::groups::groups;
use crate::sys::{self, Resource};

/// A limit of the machine, or of this process's place on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Which one.
    pub kind: LimitKind,
    /// Its value; `None` where nothing is limited.
    pub value: Option<u64>,
    /// How many threads fit under it, where that can be told.
    pub threads: Option<u64>,
}

/// Which limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Mappings in the address space of a process.
    MapCount,
    /// Threads of the whole machine.
    ThreadsMax,
    /// Process and thread numbers of the whole machine.
    PidMax,
    /// Processes and threads of this user, root excepted.
    Processes,
    /// Processes and threads of this control group.
    PidsGroup,
    /// Address space of a process, bytes.
    AddressSpace,
    /// Open files of a process.
    OpenFiles,
}

impl LimitKind {
    /// Its name, as the system calls it.
    pub fn name(self) -> &'static str {
        self.name_and_knob().0
    }

    /// How to raise it.
    pub fn knob(self) -> &'static str {
        self.name_and_knob().1
    }

    fn name_and_knob(self) -> (&'static str, &'static str) {
        match self {
            LimitKind::MapCount => ("vm.max_map_count", "sysctl -w vm.max_map_count=1000000"),
            LimitKind::ThreadsMax => ("kernel.threads-max", "sysctl -w kernel.threads-max=500000"),
            LimitKind::PidMax => ("kernel.pid_max", "sysctl -w kernel.pid_max=4194304"),
            LimitKind::Processes => {
                ("RLIMIT_NPROC", "ulimit -u unlimited, or nproc in /etc/security/limits.conf")
            }
            LimitKind::PidsGroup => (
                "pids.max of the control group",
                "docker run --pids-limit -1, or systemd's TasksMax=infinity",
            ),
            LimitKind::AddressSpace => ("RLIMIT_AS", "ulimit -v unlimited"),
            LimitKind::OpenFiles => {
                ("RLIMIT_NOFILE", "ulimit -n 1000000, or nofile in /etc/security/limits.conf")
            }
        }
    }
}

/// Mappings a `std::thread` takes: a stack and its guard page, a signal stack and its own.
const MAPPINGS_OF_A_THREAD: u64 = 4;

/// What `std::thread` reserves for a stack unless told otherwise, bytes.
const STACK_OF_A_THREAD: u64 = 2 << 20;

/// Every limit that bounds threads or fibers.
pub fn all() -> Vec<Limit> {
    let proc = |name: &str| read_number(&Path::new("/proc/sys").join(name));
    let limit = |kind, value: Option<u64>, threads: &dyn Fn(u64) -> Option<u64>| Limit {
        kind,
        value,
        threads: value.and_then(threads),
    };
    let one_each = &|value| Some(value);
    vec![
        limit(LimitKind::MapCount, proc("vm/max_map_count"), &|maps| {
            Some(maps / MAPPINGS_OF_A_THREAD)
        }),
        limit(LimitKind::ThreadsMax, proc("kernel/threads-max"), one_each),
        limit(LimitKind::PidMax, proc("kernel/pid_max"), one_each),
        limit(LimitKind::Processes, sys::limit(Resource::RLIMIT_NPROC), &|value| {
            if sys::is_root() { None } else { Some(value) }
        }),
        limit(LimitKind::PidsGroup, pids_limit(), one_each),
        limit(LimitKind::AddressSpace, sys::limit(Resource::RLIMIT_AS), &|bytes| {
            Some(bytes / STACK_OF_A_THREAD)
        }),
        limit(LimitKind::OpenFiles, sys::limit(Resource::RLIMIT_NOFILE), &|_| None),
    ]
}

/// Lets this process, and those it starts, have as many files open as it may, and at least `files`.
///
/// # Errors
/// When it may not have so many: what would raise the limit.
pub fn raise_open_files(files: u64) -> io::Result<()> {
    let allowed = sys::raise_open_files()?;
    if allowed < files {
        let advice = format!("{files} files are needed, {allowed} allowed: `ulimit -Hn {files}`");
        return Err(io::Error::other(advice));
    }
    Ok(())
}

/// The lowest of the limits that bound threads.
fn lowest(limits: &[Limit]) -> Option<&Limit> {
    limits.iter().filter(|limit| limit.threads.is_some()).min_by_key(|limit| limit.threads)
}

/// Advice for a program that failed with `asked` threads; `None` where the machine has room for
/// that many.
pub fn advice_for(asked: u64) -> Option<String> {
    lowest(&all()).filter(|limit| limit.threads.is_some_and(|most| most < asked)).map(advice)
}

fn advice(limit: &Limit) -> String {
    let room = limit.threads.unwrap_or_default();
    let value = limit.value.unwrap_or_default();
    format!(
        "the lowest limit is {} = {value}, room for about {room} threads; raise it: {}",
        limit.kind.name(),
        limit.kind.knob()
    )
}

/// What to say when the kernel would not start another thread.
pub(crate) fn threads_ran_out(reached: u64, asked: u64, error: &io::Error) -> Failure {
    ran_out(reached, asked, error, &all())
}

fn ran_out(reached: u64, asked: u64, error: &io::Error, limits: &[Limit]) -> Failure {
    let message = format!("thread {} of {asked} could not be started: {error}", reached + 1);
    Failure { message, advice: lowest(limits).map(advice) }
}

/// The lowest `pids.max` from our control group up to the top of the hierarchy.
fn pids_limit() -> Option<u64> {
    let groups = groups("self", "pids");
    let folders = groups.iter().flat_map(|group| group.ancestors());
    // The word for no limit is "max", which is no number.
    let limit = |folder: &Path| read_number(&folder.join("pids.max"));
    folders.filter_map(limit).min()
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_names_the_lowest_limit_and_its_knob() {
        let limit = |kind, value, threads| Limit { kind, value: Some(value), threads };
        let limits = [
            limit(LimitKind::MapCount, 65_530, Some(16_382)),
            limit(LimitKind::PidsGroup, 500, Some(500)),
            limit(LimitKind::OpenFiles, 20, None),
        ];
        let error = io::Error::from_raw_os_error(nix::libc::EAGAIN);
        let failure = ran_out(498, 10_000, &error, &limits);
        assert!(failure.message.starts_with("thread 499 of 10000 could not be started: "));
        assert_eq!(
            failure.advice.as_deref(),
            Some(
                "the lowest limit is pids.max of the control group = 500, room for about 500 \
                 threads; raise it: docker run --pids-limit -1, or systemd's TasksMax=infinity"
            )
        );
    }

    #[test]
    fn this_machine_has_limits_to_read() {
        let limits = all();
        assert!(
            limits.iter().any(|limit| limit.kind == LimitKind::MapCount && limit.value.is_some())
        );
        assert!(lowest(&limits).is_some());
    }
}
