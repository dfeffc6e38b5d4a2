//! The machine's limits, each with the knob that raises it.

use std::fs;

/// Descriptors that the program and the runtime have open besides a crowd's.
const OTHERS: usize = 100;

fn descriptor_limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: there is room for the limit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

/// Descriptors that a crowd can have.
pub(crate) fn descriptors() -> usize {
    // Where there is no limit, that is more than any crowd needs.
    usize::try_from(descriptor_limit().rlim_max).unwrap_or(usize::MAX).saturating_sub(OTHERS)
}

/// As many descriptors as this process may have.
pub(crate) fn raise_descriptors() {
    let mut limit = descriptor_limit();
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: a limit that was read, and is not above the hard one.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}

/// Why a crowd that takes so many bytes would not fit. (A quarter is left for others.)
pub(crate) fn memory(bytes: u64) -> Option<String> {
    let available = number("/proc/meminfo", "MemAvailable:").map_or(u64::MAX, |kib| kib << 10);
    let group = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
    };
    let left = group("memory.max")
        .map_or(u64::MAX, |most| most.saturating_sub(group("memory.current").unwrap_or(0)));
    let (least, knob) = match left < available {
        true => (left, "memory.max of the control group"),
        false => (available, "MemAvailable"),
    };
    (bytes > least / 4 * 3).then(|| {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        format!("it takes {:.1} GiB, and of {knob} {:.1} GiB are left", gib(bytes), gib(least))
    })
}

/// The number after a word in a file of /proc.
pub(crate) fn number(path: &str, word: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    rest.split_whitespace().next()?.parse().ok()
}
