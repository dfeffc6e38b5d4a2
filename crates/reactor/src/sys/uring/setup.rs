//! Making a ring: its sizes and flags, and what the kernel must support.

use std::io;

use io_uring::Probe;

use super::finish::Finish;
use crate::faults;
use crate::sys::make_ring::{self as flags, OwnRing, make_ring};

/// Entries that can be queued without entering the kernel, 64 bytes each.
const SUBMISSIONS: u32 = 256;
/// Completions that the kernel can post before it holds them back, 16 bytes each. The kernel also
/// derives from it the size of the table in which it looks for operations to cancel. This is the
/// least number that gives the most buckets (256, Linux 6.18); with fewer, a hundred thousand
/// cancels together take several times as long.
pub(super) const COMPLETIONS: u32 = 32 * SUBMISSIONS;

/// A new ring.
pub(super) struct Setup {
    pub(super) ring: OwnRing,
    /// The operations that the kernel supports: bit n for `IORING_OP_` number n.
    pub(super) known: u128,
    /// The set-up, in a few words.
    pub(super) description: &'static str,
}

/// The set-up flags, best first; a kernel that does not know one refuses the set.
///
/// * `COOP_TASKRUN` (Linux 5.19) saves an interrupt for each completion: its last step is delayed
///   until the owner next enters the kernel.
/// * `TASKRUN_FLAG` shows in shared memory that such a step is delayed, so that `poll` enters the
///   kernel.
/// * `SUBMIT_ALL` (5.18) continues after an entry that the kernel refuses.
///
/// Not `SINGLE_ISSUER`: if the owner computes, another thread submits what the owner has queued. But
/// `DEFER_TASKRUN` requires it.
fn sets(finish: Finish) -> Vec<(u32, &'static str)> {
    let plain = flags::CQSIZE | flags::CLAMP;
    let cooperative = plain | flags::SUBMIT_ALL | flags::COOP_TASKRUN | flags::TASKRUN_FLAG;
    let mut sets = vec![
        (cooperative, "cooperative completions"),
        (plain, "an old kernel's, without cooperative completions"),
    ];
    if finish == Finish::Deferred {
        let deferred = cooperative | flags::SINGLE_ISSUER | flags::DEFER_TASKRUN;
        sets.insert(0, (deferred, "completions deferred to their owner"));
    }
    sets
}

/// Makes a ring for the calling thread.
pub(super) fn make() -> io::Result<Setup> {
    let mut refusal = None;
    let finish = Finish::wanted().map_err(io::Error::other)?;
    let sizes = faults::hooks().and_then(|hooks| (hooks.sizes)());
    let (submissions, completions) = sizes.unwrap_or((SUBMISSIONS, COMPLETIONS));
    for (set, description) in sets(finish) {
        match make_ring(submissions, completions, set) {
            Ok(ring) => return check(ring, description),
            // The kernel does not know a flag.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refusal = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refusal.expect("there is a set"))
}

/// Checks what the kernel supports.
fn check(ring: OwnRing, description: &'static str) -> io::Result<Setup> {
    let has = ring.params();
    // Linux 5.13 introduced tagged resources, and multishot polls, which have no feature bit.
    if !(has.is_feature_nodrop() && has.is_feature_ext_arg() && has.is_feature_resource_tagging()) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel's io_uring is older than Linux 5.13",
        ));
    }
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let known = (0..128).filter(|&code| probe.is_supported(code));
    let known = known.fold(0, |known, code| known | 1 << code);
    Ok(Setup { ring, known, description })
}
