//! Which limit refused a stack, and how to raise it.

use super::StackSize;
use super::sys::Errno;
use std::io::{self, Read};

/// Explains why no stack of this size could be had.
pub(super) fn explain(size: StackSize, call: &str, errno: Errno) -> io::Error {
    let why = match errno {
        Errno(libc::ENOMEM) => memory(size),
        Errno(libc::EAGAIN) => {
            "the program locks its memory, and RLIMIT_MEMLOCK is reached: raise `ulimit -l`".into()
        }
        errno => format!("{call} failed: {}", errno.to_io()),
    };
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!("no stack of {size} can be had: {why}"),
    )
}

/// Tells apart the limits that all answer ENOMEM.
fn memory(size: StackSize) -> String {
    if let Some(limit) = address_space_limit() {
        let used = statm_pages().saturating_mul(super::sys::page_size());
        if used.saturating_add(size.bytes()) > limit {
            return format!(
                "the limit on address space (RLIMIT_AS, {} MiB, {} MiB of it in use) is reached: raise it with \
                 `ulimit -v` or ask for smaller stacks",
                limit >> 20,
                used >> 20
            );
        }
    }
    if let Some(most) = number("/proc/sys/vm/max_map_count") {
        // Splitting a mapping for a guard needs up to two more.
        let mappings = count_lines("/proc/self/maps");
        if mappings + 2 >= most {
            return format!(
                "the process has {mappings} memory mappings, and vm.max_map_count allows {most}: raise it with \
                 `sysctl -w vm.max_map_count={}`, or use Linux 6.13 or newer, whose guards need no mappings",
                most.saturating_mul(4)
            );
        }
    }
    if number("/proc/sys/vm/overcommit_memory") == Some(2) {
        return "vm.overcommit_memory is 2, so that reserved address space counts as used memory: set it to 0 with \
                `sysctl -w vm.overcommit_memory=0`, or raise vm.overcommit_ratio"
            .into();
    }
    "the machine or its control group is out of memory".into()
}

fn address_space_limit() -> Option<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes to `limit` only.
    let ok = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    (ok && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as usize)
}

/// How many pages of address space the process has.
fn statm_pages() -> usize {
    number("/proc/self/statm").unwrap_or(0)
}

/// The first number in a file of `/proc`.
fn number(path: &str) -> Option<usize> {
    let mut text = [0; 64];
    let length = std::fs::File::open(path).ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// How many lines a file has; read piecemeal into the stack, since memory is what there is none of.
fn count_lines(path: &str) -> usize {
    let Ok(mut file) = std::fs::File::open(path) else {
        return 0;
    };
    let mut piece = [0; 2048];
    let mut lines = 0;
    while let Ok(length @ 1..) = file.read(&mut piece) {
        lines += piece[..length]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_failure_is_quoted() {
        let error = explain(StackSize::DEFAULT, "mprotect", Errno(libc::EPERM));
        assert_eq!(
            error.to_string(),
            "no stack of 256 KiB can be had: mprotect failed: Operation not permitted (os error 1)"
        );
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn reads_what_the_kernel_tells() {
        assert!(statm_pages() > 0);
        assert!(count_lines("/proc/self/maps") > 5);
        assert!(number("/proc/sys/vm/max_map_count").unwrap() > 1000);
        assert_eq!(number("/proc/self/no-such-file"), None);
    }
}
