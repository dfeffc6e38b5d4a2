//! Which limit refused a stack, and how to raise it.

use super::StackSize;
use super::sys::{self, Errno};
use std::io::{self, Read};

/// The error for a stack of this size that could not be made.
pub(super) fn explain(size: StackSize, call: &str, errno: Errno) -> io::Error {
    let why = match errno {
        Errno(libc::ENOMEM) => why_refused(size.bytes()),
        Errno(libc::EAGAIN) => "the program locks its memory, and the limit on that \
             (RLIMIT_MEMLOCK) is reached: raise it with `ulimit -l`"
            .to_string(),
        errno => format!("{call} failed: {}", errno.to_io()),
    };
    let text = format!("cannot allocate a stack of {size}: {why}");
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

/// Which limit has just refused a mapping of this many bytes, and how to raise it, as a clause that
/// follows "there is no memory: " or the like. Reads the present state of the process from `/proc`.
///
/// ```
/// let why = carefree_context::stack::why_refused(1 << 20);
/// assert!(why.contains("memory") || why.contains("limit"), "{why}");
/// ```
pub fn why_refused(bytes: usize) -> String {
    Facts::gather().reason(bytes)
}

/// An address space of 128 TiB that is in use may have no gap of this size: 1 TiB.
const LARGE: usize = 1 << 40;

/// What distinguishes the limits that are all reported as ENOMEM.
#[derive(Debug)]
struct Facts {
    /// RLIMIT_AS in bytes, if it is set.
    address_space_limit: Option<usize>,
    /// Bytes of address space that the process uses.
    address_space: usize,
    max_map_count: Option<usize>,
    mappings: usize,
    overcommit_memory: Option<usize>,
}

impl Facts {
    fn gather() -> Facts {
        Facts {
            address_space_limit: address_space_limit(),
            address_space: number("/proc/self/statm").unwrap_or(0).saturating_mul(sys::page_size()),
            max_map_count: number("/proc/sys/vm/max_map_count"),
            mappings: count_lines("/proc/self/maps"),
            overcommit_memory: number("/proc/sys/vm/overcommit_memory"),
        }
    }

    fn reason(&self, bytes: usize) -> String {
        let used = self.address_space;
        if let Some(limit) = self.address_space_limit {
            // To align it, a single stack may briefly take twice its size.
            if used.saturating_add(2 * bytes) > limit {
                let (limit, used) = (limit >> 20, used >> 20);
                return format!(
                    "the limit on address space (RLIMIT_AS) of {limit} MiB is reached, as {used} \
                     MiB are in use: raise it with `ulimit -v`, or ask for smaller stacks"
                );
            }
        }
        if let Some(most) = self.max_map_count {
            let mappings = self.mappings;
            // A guard within a mapping splits it into three.
            if mappings + 2 >= most {
                let raised = most.saturating_mul(4);
                return format!(
                    "the process has {mappings} memory mappings, and vm.max_map_count allows \
                     {most}: raise it with `sysctl -w vm.max_map_count={raised}`, or use Linux \
                     6.13 or newer, where guards need no mappings"
                );
            }
        }
        if self.overcommit_memory == Some(2) {
            return "address space counts as used memory here, because vm.overcommit_memory is 2: \
                    set it with `sysctl -w vm.overcommit_memory=0`, or raise vm.overcommit_ratio"
                .to_string();
        }
        if bytes >= LARGE {
            return format!(
                "the address space has no room for {} GiB in one piece: ask for a smaller stack",
                bytes >> 30
            );
        }
        "the machine, or the control group this process is in, is out of memory".to_string()
    }
}

fn address_space_limit() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: only writes to `limit`.
    let ok = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    (ok && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as usize)
}

/// The first number in a file of `/proc`.
fn number(path: &str) -> Option<usize> {
    let mut text = [0; 64];
    let length = std::fs::File::open(path).ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The number of lines of a file, which is read in pieces because there is no memory.
fn count_lines(path: &str) -> usize {
    let Ok(mut file) = std::fs::File::open(path) else { return 0 };
    let mut piece = [0; 2048];
    let mut lines = 0;
    while let Ok(length @ 1..) = file.read(&mut piece) {
        lines += piece[..length].iter().filter(|byte| **byte == b'\n').count();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Facts = Facts {
        address_space_limit: None,
        address_space: 100 << 20,
        max_map_count: Some(65_530),
        mappings: 50,
        overcommit_memory: Some(0),
    };

    fn reason(facts: &Facts) -> String {
        facts.reason(StackSize::DEFAULT.bytes())
    }

    #[test]
    fn each_limit_is_recognised() {
        let limited = Facts { address_space_limit: Some(100 << 20), ..AMPLE };
        assert!(reason(&limited).contains("RLIMIT_AS) of 100 MiB is reached, as 100 MiB are"));
        let room = (100 << 20) + StackSize::DEFAULT.bytes() * 3 / 2;
        let unaligned = Facts { address_space_limit: Some(room), ..AMPLE };
        assert!(reason(&unaligned).contains("RLIMIT_AS"));
        let split = Facts { mappings: 65_529, ..AMPLE };
        assert!(reason(&split).contains("65529 memory mappings"), "{}", reason(&split));
        assert!(reason(&split).contains("sysctl -w vm.max_map_count=262120"));
        let strict = Facts { overcommit_memory: Some(2), ..AMPLE };
        assert!(reason(&strict).contains("vm.overcommit_memory is 2"));
        assert!(reason(&AMPLE).contains("out of memory"));
    }

    #[test]
    fn a_limit_that_is_not_reached_is_not_blamed() {
        let roomy = Facts {
            address_space_limit: Some(101 << 20),
            mappings: 65_527,
            overcommit_memory: Some(1),
            ..AMPLE
        };
        assert!(reason(&roomy).contains("out of memory"), "{}", reason(&roomy));
        let blind = Facts { max_map_count: None, overcommit_memory: None, ..AMPLE };
        assert!(reason(&blind).contains("out of memory"));
    }

    #[test]
    fn another_error_is_quoted() {
        let error = explain(StackSize::DEFAULT, "mprotect", Errno(libc::EPERM));
        let text = "cannot allocate a stack of 256 KiB: mprotect failed: Operation not permitted \
                    (os error 1)";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn facts_are_read_from_proc() {
        let facts = Facts::gather();
        assert!(facts.address_space > 1 << 20, "{facts:?}");
        assert!(facts.mappings > 5, "{facts:?}");
        assert!(facts.max_map_count.unwrap() > 1000, "{facts:?}");
        assert!(facts.overcommit_memory.unwrap() <= 2, "{facts:?}");
        assert_eq!(number("/proc/self/no-such-file"), None);
    }
}
