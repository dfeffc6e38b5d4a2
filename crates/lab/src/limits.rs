//! The machine's limits on how many threads and fibers there can be, and the knob behind each.

use std::fs;
use std::io;

use crate::sample::Failure;
use crate::sys::{self, Resource};

/// A limit of the machine, or of this process's place on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name, as the system calls it.
    pub name: &'static str,
    /// Its value; `None` where nothing is limited.
    pub value: Option<u64>,
    /// How many threads fit under it, where that can be told.
    pub threads: Option<u64>,
    /// How to raise it.
    pub knob: &'static str,
}

/// Every limit that bounds threads or fibers.
pub fn all() -> Vec<Limit> {
    let proc = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let maps = proc("/proc/sys/vm/max_map_count");
    let threads_max = proc("/proc/sys/kernel/threads-max");
    let pid_max = proc("/proc/sys/kernel/pid_max");
    let processes = sys::limit(Resource::Processes);
    let files = sys::limit(Resource::OpenFiles);
    let space = sys::limit(Resource::AddressSpace);
    let pids = pids_limit();
    vec![
        Limit {
            name: "vm.max_map_count",
            value: maps,
            // A stack with its guard page, and std's signal stack with its own.
            threads: maps.map(|maps| maps / 4),
            knob: "sysctl -w vm.max_map_count=1000000",
        },
        Limit {
            name: "kernel.threads-max",
            value: threads_max,
            threads: threads_max,
            knob: "sysctl -w kernel.threads-max=500000",
        },
        Limit {
            name: "kernel.pid_max",
            value: pid_max,
            threads: pid_max,
            knob: "sysctl -w kernel.pid_max=4194304",
        },
        Limit {
            name: "RLIMIT_NPROC",
            value: processes,
            threads: if sys::is_root() { None } else { processes },
            knob: "ulimit -u unlimited, or nproc in /etc/security/limits.conf",
        },
        Limit {
            name: "pids control group",
            value: pids,
            threads: pids,
            knob: "docker run --pids-limit -1, or systemd's TasksMax=infinity",
        },
        Limit {
            name: "RLIMIT_AS",
            value: space,
            // std::thread reserves 2 MiB of stack unless told otherwise.
            threads: space.map(|bytes| bytes / (2 << 20)),
            knob: "ulimit -v unlimited",
        },
        Limit {
            name: "RLIMIT_NOFILE",
            value: files,
            threads: None,
            knob: "ulimit -n 1000000, or nofile in /etc/security/limits.conf",
        },
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
        limit.name, limit.knob
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

    fn limit(name: &'static str, value: u64, threads: Option<u64>, knob: &'static str) -> Limit {
        Limit { name, value: Some(value), threads, knob }
    }

    #[test]
    fn running_out_names_the_lowest_limit_and_its_knob() {
        let limits = [
            limit("vm.max_map_count", 65_530, Some(16_382), "sysctl -w vm.max_map_count=1000000"),
            limit("pids control group", 500, Some(500), "docker run --pids-limit -1"),
            limit("RLIMIT_NOFILE", 20, None, "ulimit -n 1000000"),
        ];
        let error = io::Error::from_raw_os_error(libc::EAGAIN);
        let failure = ran_out(498, 10_000, &error, &limits);
        assert!(failure.message.starts_with("thread 499 of 10000 could not be started: "));
        assert_eq!(
            failure.advice.as_deref(),
            Some(
                "the lowest limit is pids control group = 500, room for about 500 threads; \
                 raise it: docker run --pids-limit -1"
            )
        );
    }

    #[test]
    fn this_machine_has_limits_to_read() {
        let limits = all();
        assert!(
            limits.iter().any(|limit| limit.name == "vm.max_map_count" && limit.value.is_some())
        );
        assert!(lowest(&limits).is_some());
    }
}
