//! The machine's limits on how many threads and fibers there can be, and the knob behind each.

use std::fs;
use std::io;

use crate::sample::Failure;
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
        match self {
            LimitKind::MapCount => "vm.max_map_count",
            LimitKind::ThreadsMax => "kernel.threads-max",
            LimitKind::PidMax => "kernel.pid_max",
            LimitKind::Processes => "RLIMIT_NPROC",
            LimitKind::PidsGroup => "pids.max of the control group",
            LimitKind::AddressSpace => "RLIMIT_AS",
            LimitKind::OpenFiles => "RLIMIT_NOFILE",
        }
    }

    /// How to raise it.
    pub fn knob(self) -> &'static str {
        match self {
            LimitKind::MapCount => "sysctl -w vm.max_map_count=1000000",
            LimitKind::ThreadsMax => "sysctl -w kernel.threads-max=500000",
            LimitKind::PidMax => "sysctl -w kernel.pid_max=4194304",
            LimitKind::Processes => "ulimit -u unlimited, or nproc in /etc/security/limits.conf",
            LimitKind::PidsGroup => "docker run --pids-limit -1, or systemd's TasksMax=infinity",
            LimitKind::AddressSpace => "ulimit -v unlimited",
            LimitKind::OpenFiles => "ulimit -n 1000000, or nofile in /etc/security/limits.conf",
        }
    }
}

/// Mappings a `std::thread` takes: a stack and its guard page, a signal stack and its own.
const MAPPINGS_OF_A_THREAD: u64 = 4;

/// What `std::thread` reserves for a stack unless told otherwise, bytes.
const STACK_OF_A_THREAD: u64 = 2 << 20;

/// Every limit that bounds threads or fibers.
pub fn all() -> Vec<Limit> {
    let proc = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = |kind, value: Option<u64>, threads: &dyn Fn(u64) -> Option<u64>| Limit {
        kind,
        value,
        threads: value.and_then(threads),
    };
    let one_each = &|value| Some(value);
    vec![
        limit(LimitKind::MapCount, proc("/proc/sys/vm/max_map_count"), &|maps| {
            Some(maps / MAPPINGS_OF_A_THREAD)
        }),
        limit(LimitKind::ThreadsMax, proc("/proc/sys/kernel/threads-max"), one_each),
        limit(LimitKind::PidMax, proc("/proc/sys/kernel/pid_max"), one_each),
        limit(LimitKind::Processes, sys::limit(Resource::Processes), &|value| {
            if sys::is_root() { None } else { Some(value) }
        }),
        limit(LimitKind::PidsGroup, pids_limit(), one_each),
        limit(LimitKind::AddressSpace, sys::limit(Resource::AddressSpace), &|bytes| {
            Some(bytes / STACK_OF_A_THREAD)
        }),
        limit(LimitKind::OpenFiles, sys::limit(Resource::OpenFiles), &|_| None),
    ]
}

/// The lowest of the limits that bound threads.
fn lowest(limits: &[Limit]) -> Option<&Limit> {
    limits.iter().filter(|limit| limit.threads.is_some()).min_by_key(|limit| limit.threads)
}

/// What to say to somebody whose `asked` threads may have been more than the machine has room
/// for; nothing if they were not.
pub(crate) fn advice_for(asked: u64) -> Option<String> {
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
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut lowest = None;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(names), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let tops: &[&str] = match names {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            names if names.split(',').any(|name| name == "pids") => &["/sys/fs/cgroup/pids"],
            _ => continue,
        };
        for top in tops {
            let mut path = path.trim_matches('/');
            loop {
                let file = format!("{top}/{path}/pids.max");
                // The word for no limit is "max", which is no number.
                let limit = fs::read_to_string(file).ok().and_then(|s| s.trim().parse().ok());
                lowest = [lowest, limit].into_iter().flatten().min();
                match path.rfind('/') {
                    Some(slash) => path = &path[..slash],
                    None if !path.is_empty() => path = "",
                    None => break,
                }
            }
        }
    }
    lowest
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
        let error = io::Error::from_raw_os_error(libc::EAGAIN);
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
