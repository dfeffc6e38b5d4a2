//! What the kernel is told about slots, for many at once: guard these, allocate these, take these
//! back.

use super::slab::PAGE_TABLE_SPAN;
use super::sys::{self, Errno};
use std::fmt;
use std::sync::OnceLock;

/// How guards are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GuardMode {
    /// By `MADV_GUARD_INSTALL` (Linux 6.13): marks in the page tables, at no cost in mappings.
    /// (Guards above 2 MiB, which `CAREFREE_GUARD` may ask for, are made by `mprotect` all the same:
    /// their marks would take page tables of their own.)
    Madvise,
    /// By `mprotect`: each guard splits its slab's mapping, so that `vm.max_map_count` (65,530
    /// unless raised) limits a process to about 32,700 stacks.
    Mprotect,
}

impl fmt::Display for GuardMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            GuardMode::Madvise => "madvise",
            GuardMode::Mprotect => "mprotect",
        })
    }
}

/// How this process guards stacks, and why so.
#[derive(Clone, Debug)]
pub struct Guards {
    /// How guards are made.
    pub mode: GuardMode,
    /// Why it is this mode, in words for people.
    pub reason: String,
    /// How many stacks' worth of advice goes in one system call.
    pub(super) batch: Batch,
    /// `MADV_GUARD_INSTALL` does what it says, or says that it does not.
    honest: bool,
}

/// How advice on many ranges reaches the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// `process_madvise` on `PIDFD_SELF`: no descriptor, so nothing to leak, and right in a forked
    /// child.
    Itself,
    /// `process_madvise` on a pidfd opened for each batch: kept open, it would name the parent
    /// after a fork.
    Pidfd,
    /// One `madvise` a range.
    None,
}

/// How stacks are guarded: found out at the first call.
///
/// `CAREFREE_GUARDS=madvise` or `CAREFREE_GUARDS=mprotect` in the environment decides where the
/// kernel can do both.
///
/// ```
/// let guards = carefree_context::stack::guards();
/// println!("guards: {} ({})", guards.mode, guards.reason);
/// ```
pub fn guards() -> &'static Guards {
    static GUARDS: OnceLock<Guards> = OnceLock::new();
    GUARDS.get_or_init(|| choose(carefree_settings::text("CAREFREE_GUARDS").as_deref(), probe()))
}

/// What the kernel can do.
#[derive(Clone, Copy, Debug)]
struct Probed {
    /// What came of `MADV_GUARD_INSTALL`.
    guard: Result<(), Refusal>,
    batch: Batch,
}

/// Why `MADV_GUARD_INSTALL` cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The kernel says so.
    Error(Errno),
    /// It was accepted and nothing came of it: QEMU's user mode takes any advice it does not know.
    Ignored,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Error(errno) => write!(
                out,
                "the kernel refuses MADV_GUARD_INSTALL, which Linux has since 6.13: {}",
                errno.to_io()
            ),
            Refusal::Ignored => out.write_str(
                "MADV_GUARD_INSTALL, which Linux has since 6.13, is accepted but guards nothing, as \
                 in emulators",
            ),
        }
    }
}

fn probe() -> Probed {
    let page = sys::page_size();
    let range = match sys::reserve(page) {
        Ok(range) => range,
        Err(errno) => {
            return Probed { guard: Err(Refusal::Error(errno)), batch: Batch::None };
        }
    };
    // SAFETY: a page that was just reserved and that nobody else knows of: what is done to it can
    // concern nobody. It is unmapped below.
    let guard = match unsafe { sys::madvise(range, page, sys::MADV_GUARD_INSTALL) } {
        Ok(()) if sys::is_readable(range.cast()) => Err(Refusal::Ignored),
        answer => answer.map_err(Refusal::Error),
    };
    // Linux lets process_madvise give any advice to the caller itself since 6.13, and does nothing
    // at all for MADV_DONTNEED on this page: so it tells whether batches work and which way.
    let whole = [Range { iov_base: range.cast(), iov_len: page }];
    let works = |batch: Batch| {
        // SAFETY: as above; the range is that page, whole.
        let done = unsafe { process_madvise(batch, &whole, libc::MADV_DONTNEED) };
        done == Ok(page)
    };
    let batch = [Batch::Itself, Batch::Pidfd]
        .into_iter()
        .find(|batch| works(*batch))
        .unwrap_or(Batch::None);
    // SAFETY: nobody has learnt of the page. Failing to unmap leaves it reserved, which is
    // harmless.
    let _ = unsafe { sys::unmap(range, page) };
    Probed { guard, batch }
}

fn choose(asked: Option<&str>, probed: Probed) -> Guards {
    let (mode, reason) = match (asked, probed.guard) {
        (Some("mprotect"), _) => {
            (GuardMode::Mprotect, "CAREFREE_GUARDS=mprotect asks for it".to_string())
        }
        (Some("madvise"), Ok(())) => {
            (GuardMode::Madvise, "CAREFREE_GUARDS=madvise asks for it".to_string())
        }
        (Some("madvise"), Err(refusal)) => (
            GuardMode::Mprotect,
            format!("CAREFREE_GUARDS=madvise asks for madvise, but {refusal}"),
        ),
        (other, guard) => {
            let ignored = match other {
                Some(word) if !word.is_empty() => {
                    format!(" (CAREFREE_GUARDS={word} is ignored: it takes madvise or mprotect)")
                }
                _ => String::new(),
            };
            match guard {
                Ok(()) => {
                    (GuardMode::Madvise, format!("the kernel has MADV_GUARD_INSTALL{ignored}"))
                }
                Err(refusal) => (GuardMode::Mprotect, format!("{refusal}{ignored}")),
            }
        }
    };
    let honest = probed.guard != Err(Refusal::Ignored);
    Guards { mode, reason, batch: probed.batch, honest }
}

/// A piece of memory in a slot.
pub(super) type Range = libc::iovec;

/// Guards these ranges; returns how many, from the first on, and what stopped it.
///
/// # Safety
/// The ranges are the caller's and nobody needs what is in them.
pub(super) unsafe fn install(mode: GuardMode, ranges: &[Range]) -> (usize, Option<Errno>) {
    let mut done = 0;
    // Marks need page tables, one for each span: a guard larger than that is better off as a mapping.
    let marks = ranges.iter().all(|range| range.iov_len <= PAGE_TABLE_SPAN);
    if mode == GuardMode::Madvise && guards().honest && marks {
        // SAFETY: what is in the ranges may go and become unreadable, says the caller.
        let (advised, error) = unsafe { advise(ranges, sys::MADV_GUARD_INSTALL) };
        match error {
            // EINVAL: a program that has locked its memory (mlockall) cannot have this kind of
            // guard.
            Some(Errno(libc::EINVAL)) => done = advised,
            _ => return (advised, error),
        }
    }
    while let Some(range) = ranges.get(done) {
        // SAFETY: what is in the range is not needed, says the caller, so it may become unreadable.
        if let Err(errno) = unsafe { sys::forbid(range.iov_base.cast(), range.iov_len) } {
            return (done, Some(errno));
        }
        done += 1;
    }
    (done, None)
}

/// Allocates the memory of these ranges at once, where that can be done for many; else their first
/// users will, at a page fault each. Failures are theirs to meet as well, just as with any memory.
pub(super) fn populate(ranges: &[Range]) {
    if guards().batch == Batch::None || ranges.len() < 2 {
        return;
    }
    // SAFETY: `MADV_POPULATE_WRITE` brings pages in as a write would, but writes nothing. Contents
    // stay as they are, whoever uses them; where nothing is mapped or a guard lies, it fails.
    let _ = unsafe { process_madvise(guards().batch, ranges, sys::MADV_POPULATE_WRITE) };
}

/// Gives the memory of these ranges back to the kernel: they read as zero afterwards. Guards stay.
/// Returns how many ranges, from the first on, were given back.
///
/// # Safety
/// The ranges are the caller's and nobody needs what is in them.
pub(super) unsafe fn give_back(ranges: &[Range]) -> usize {
    // SAFETY: what is in the ranges may become zero, says the caller: nobody needs it.
    unsafe { advise(ranges, libc::MADV_DONTNEED) }.0
}

/// Gives the same advice on all ranges; returns how many, from the first on, took it, and what
/// stopped it.
///
/// # Safety
/// As for [`sys::madvise`], for every range.
unsafe fn advise(ranges: &[Range], advice: i32) -> (usize, Option<Errno>) {
    let batch = guards().batch;
    let mut done = 0;
    if batch != Batch::None && ranges.len() > 1 {
        // SAFETY: the caller's promise.
        if let Ok(mut bytes) = unsafe { process_madvise(batch, ranges, advice) } {
            while let Some(range) = ranges.get(done).filter(|range| range.iov_len <= bytes) {
                bytes -= range.iov_len;
                done += 1;
            }
        }
    }
    // Whatever kept the batch from being done whole, single calls either overcome it or say what it
    // is.
    while let Some(range) = ranges.get(done) {
        // SAFETY: the caller's promise.
        if let Err(errno) = unsafe { sys::madvise(range.iov_base.cast(), range.iov_len, advice) } {
            return (done, Some(errno));
        }
        done += 1;
    }
    (done, None)
}

/// # Safety
/// As for [`sys::process_madvise`].
unsafe fn process_madvise(batch: Batch, ranges: &[Range], advice: i32) -> Result<usize, Errno> {
    match batch {
        // SAFETY: the caller's promise.
        Batch::Itself => unsafe { sys::process_madvise(sys::PIDFD_SELF, ranges, advice) },
        Batch::Pidfd => {
            let pidfd = sys::pidfd_open_self()?;
            // SAFETY: the caller's promise.
            let done = unsafe { sys::process_madvise(pidfd, ranges, advice) };
            sys::close(pidfd);
            done
        }
        Batch::None => Err(Errno(libc::ENOSYS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(asked: Option<&str>, guard: Result<(), Refusal>) -> (GuardMode, String) {
        let guards = choose(asked, Probed { guard, batch: Batch::None });
        (guards.mode, guards.reason)
    }

    #[test]
    fn the_kernel_decides_unless_somebody_asks() {
        let refused = Err(Refusal::Error(Errno(libc::EINVAL)));
        assert_eq!(chosen(None, Ok(())).0, GuardMode::Madvise);
        assert_eq!(chosen(Some(""), Ok(())).0, GuardMode::Madvise);
        assert_eq!(chosen(Some("mprotect"), Ok(())).0, GuardMode::Mprotect);
        let (mode, reason) = chosen(None, refused);
        assert_eq!(mode, GuardMode::Mprotect);
        assert!(reason.contains("since 6.13: Invalid argument"), "{reason}");
    }

    #[test]
    fn what_is_accepted_and_not_done_is_not_relied_on() {
        let (mode, reason) = chosen(None, Err(Refusal::Ignored));
        assert_eq!(mode, GuardMode::Mprotect);
        assert!(reason.contains("guards nothing"), "{reason}");

        let page = sys::page_size();
        let range = sys::reserve(page).unwrap();
        assert!(sys::is_readable(range.cast()));
        // SAFETY: a page of our own.
        unsafe { sys::forbid(range, page) }.unwrap();
        assert!(!sys::is_readable(range.cast()));
        // SAFETY: nobody uses it any more.
        unsafe { sys::unmap(range, page) }.unwrap();
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        let (mode, reason) = chosen(Some("madvise"), Err(Refusal::Error(Errno(libc::EINVAL))));
        assert_eq!(mode, GuardMode::Mprotect);
        assert!(
            reason.starts_with("CAREFREE_GUARDS=madvise asks for madvise, but the kernel refuses"),
            "{reason}"
        );
        let (mode, reason) = chosen(Some("yes"), Ok(()));
        assert_eq!(mode, GuardMode::Madvise);
        assert!(
            reason.contains("CAREFREE_GUARDS=yes is ignored: it takes madvise or mprotect"),
            "{reason}"
        );
    }

    #[test]
    fn every_way_of_batching_gives_the_same_advice() {
        let page = sys::page_size();
        let range = sys::reserve(4 * page).unwrap();
        let ranges =
            [0, 2].map(|n| Range { iov_base: range.wrapping_add(n * page).cast(), iov_len: page });
        for batch in [Batch::Itself, Batch::Pidfd] {
            for n in 0..4 {
                // SAFETY: four pages of our own.
                unsafe { range.add(n * page).write(1) };
            }
            // SAFETY: the same.
            match unsafe { process_madvise(batch, &ranges, libc::MADV_DONTNEED) } {
                Ok(done) => {
                    assert_eq!(done, 2 * page);
                    // SAFETY: the same.
                    let left = [0, 1, 2, 3].map(|n| unsafe { range.add(n * page).read() });
                    assert_eq!(left, [0, 1, 0, 1], "{batch:?}");
                }
                // A kernel that cannot must not be relied on.
                Err(_) => assert_ne!(guards().batch, batch),
            }
        }
        // SAFETY: nobody uses them any more.
        unsafe { sys::unmap(range, 4 * page) }.unwrap();
    }
}
