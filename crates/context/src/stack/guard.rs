//! Guards, and other advice to the kernel on many slots at once: allocate their memory, or take it
//! back.

use super::spacing::PAGE_TABLE_SPAN;
use super::sys::{self, Errno};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The mechanism that makes guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GuardMode {
    /// By `MADV_GUARD_INSTALL` (Linux 6.13): marks in the page tables, at no cost in mappings.
    /// (Guards above 2 MiB, which `CAREFREE_GUARD` may ask for, are still made by `mprotect`, because
    /// their marks would need page tables of their own.)
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

/// How this process guards stacks, and why.
#[derive(Clone, Debug)]
pub struct Guards {
    /// The mechanism.
    pub mode: GuardMode,
    /// Why this mechanism was chosen, as text to print.
    pub reason: String,
    /// How advice on many ranges is given.
    pub(super) batch: Batch,
    /// Whether `MADV_GUARD_INSTALL` either works or reports that it does not.
    honest: bool,
}

/// How advice on many ranges reaches the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// `process_madvise` on `PIDFD_SELF`: needs no descriptor, and is right in a forked child.
    Itself,
    /// `process_madvise` on a pidfd opened for each batch: a pidfd kept open would name the parent
    /// after a fork.
    Pidfd,
    /// One `madvise` a range.
    None,
}

/// How stacks are guarded, as determined at the first call.
///
/// If the kernel supports both, `CAREFREE_GUARDS=madvise` or `CAREFREE_GUARDS=mprotect` in the
/// environment decides.
///
/// ```
/// let guards = carefree_context::stack::guards();
/// println!("guards: {} ({})", guards.mode, guards.reason);
/// ```
pub fn guards() -> &'static Guards {
    static GUARDS: OnceLock<Guards> = OnceLock::new();
    GUARDS.get_or_init(|| choose(carefree_settings::text("CAREFREE_GUARDS").as_deref(), probe()))
}

/// What the kernel supports.
#[derive(Clone, Copy, Debug)]
struct Probed {
    /// The result of `MADV_GUARD_INSTALL`.
    guard: Result<(), Refusal>,
    batch: Batch,
}

/// Why `MADV_GUARD_INSTALL` cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The kernel returned an error.
    Error(Errno),
    /// It was accepted without effect: QEMU's user mode accepts any advice that it does not know.
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
    // SAFETY: the page was just reserved, and only this function uses it. It is unmapped below.
    let guard = match unsafe { sys::madvise(range, page, sys::MADV_GUARD_INSTALL) } {
        Ok(()) if sys::is_readable(range.cast()) => Err(Refusal::Ignored),
        answer => answer.map_err(Refusal::Error),
    };
    // Since Linux 6.13 process_madvise accepts any advice on the caller itself. MADV_DONTNEED has no
    // effect on this page, so it shows which way of batching works.
    let whole = [Range { iov_base: range.cast(), iov_len: page }];
    let works = |batch: Batch| {
        // SAFETY: the range is that page, whose contents are not needed.
        let done = unsafe { process_madvise(batch, &whole, libc::MADV_DONTNEED) };
        done == Ok(page)
    };
    let batch = [Batch::Itself, Batch::Pidfd]
        .into_iter()
        .find(|batch| works(*batch))
        .unwrap_or(Batch::None);
    // SAFETY: only this function uses the page. If unmapping fails it stays reserved, which is
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

/// Whether a guard had to be a mapping, because the program has locked its memory.
static MEMORY_IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// Whether guards of so many bytes are mappings of their own, as far as is known.
pub(super) fn are_mappings(mode: GuardMode, bytes: usize) -> bool {
    mode == GuardMode::Mprotect
        || bytes > PAGE_TABLE_SPAN
        || !guards().honest
        || MEMORY_IS_LOCKED.load(Ordering::Relaxed)
}

/// A part of a slot.
pub(super) type Range = libc::iovec;

/// Guards these ranges; returns how many, from the first on, and the error that stopped it.
///
/// # Safety
/// The ranges belong to the caller and their contents are not needed.
pub(super) unsafe fn install(mode: GuardMode, ranges: &[Range]) -> (usize, Option<Errno>) {
    let mut done = 0;
    // Marks need a page table for each span; a guard larger than that is better made a mapping.
    let marks = ranges.iter().all(|range| range.iov_len <= PAGE_TABLE_SPAN);
    if mode == GuardMode::Madvise && guards().honest && marks {
        // SAFETY: the ranges belong to the caller, and their contents are not needed.
        let (advised, error) = unsafe { advise(ranges, sys::MADV_GUARD_INSTALL) };
        match error {
            // EINVAL: the program has locked its memory (mlockall), which excludes this kind of guard.
            Some(Errno(libc::EINVAL)) => {
                MEMORY_IS_LOCKED.store(true, Ordering::Relaxed);
                done = advised;
            }
            _ => return (advised, error),
        }
    }
    while let Some(range) = ranges.get(done) {
        // SAFETY: the range belongs to the caller, and its contents are not needed.
        if let Err(errno) = unsafe { sys::forbid(range.iov_base.cast(), range.iov_len) } {
            return (done, Some(errno));
        }
        done += 1;
    }
    (done, None)
}

/// Allocates the memory of these ranges if that is possible for many at once. Otherwise their first
/// users do, by page faults, and then meet failures as with any memory.
pub(super) fn populate(ranges: &[Range]) {
    if guards().batch == Batch::None || ranges.len() < 2 {
        return;
    }
    // SAFETY: `MADV_POPULATE_WRITE` allocates pages as a write would, but changes no contents. It
    // fails where nothing is mapped or a guard lies.
    let _ = unsafe { process_madvise(guards().batch, ranges, sys::MADV_POPULATE_WRITE) };
}

/// Gives the memory of these ranges back to the kernel: they read as zero afterwards. Guards stay.
/// Returns how many ranges, from the first on, were given back.
///
/// # Safety
/// The ranges belong to the caller and their contents are not needed.
pub(super) unsafe fn give_back(ranges: &[Range]) -> usize {
    // SAFETY: the ranges belong to the caller, and their contents are not needed: they become zero.
    unsafe { advise(ranges, libc::MADV_DONTNEED) }.0
}

/// Gives the same advice on all ranges; returns for how many, from the first on, it worked, and the
/// error that stopped it.
///
/// # Safety
/// As for [`sys::madvise`], for every range.
unsafe fn advise(ranges: &[Range], advice: i32) -> (usize, Option<Errno>) {
    let batch = guards().batch;
    let mut done = 0;
    if batch != Batch::None && ranges.len() > 1 {
        // SAFETY: the advice is sound for every range, as this function requires.
        if let Ok(mut bytes) = unsafe { process_madvise(batch, ranges, advice) } {
            while let Some(range) = ranges.get(done).filter(|range| range.iov_len <= bytes) {
                bytes -= range.iov_len;
                done += 1;
            }
        }
    }
    // If the batch failed or was not completed, single calls either succeed or give the reason.
    while let Some(range) = ranges.get(done) {
        // SAFETY: the advice is sound for every range, as this function requires.
        if let Err(errno) = unsafe { sys::madvise(range.iov_base.cast(), range.iov_len, advice) } {
            return (done, Some(errno));
        }
        done += 1;
    }
    (done, None)
}

/// [`sys::process_madvise`] on this process.
///
/// # Safety
/// As for [`sys::process_madvise`].
unsafe fn process_madvise(batch: Batch, ranges: &[Range], advice: i32) -> Result<usize, Errno> {
    match batch {
        // SAFETY: the advice is sound for every range, as this function requires.
        Batch::Itself => unsafe { sys::process_madvise(sys::PIDFD_SELF, ranges, advice) },
        Batch::Pidfd => {
            let pidfd = sys::pidfd_open_self()?;
            // SAFETY: the advice is sound for every range, as this function requires.
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
    fn the_kernel_decides_unless_the_environment_asks() {
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
        // SAFETY: a page of this test's own.
        unsafe { sys::forbid(range, page) }.unwrap();
        assert!(!sys::is_readable(range.cast()));
        // SAFETY: it is not used any more.
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
                // SAFETY: four pages of this test's own.
                unsafe { range.add(n * page).write(1) };
            }
            // SAFETY: the same pages, whose contents may go.
            match unsafe { process_madvise(batch, &ranges, libc::MADV_DONTNEED) } {
                Ok(done) => {
                    assert_eq!(done, 2 * page);
                    // SAFETY: the same pages, whose contents may go.
                    let left = [0, 1, 2, 3].map(|n| unsafe { range.add(n * page).read() });
                    assert_eq!(left, [0, 1, 0, 1], "{batch:?}");
                }
                // `guards` must not have chosen a way that the kernel does not support.
                Err(_) => assert_ne!(guards().batch, batch),
            }
        }
        // SAFETY: they are not used any more.
        unsafe { sys::unmap(range, 4 * page) }.unwrap();
    }
}
