//! Counts of what the carriers have done.

use crate::carrier::carrier::Shared;
use crate::carrier::clock;
use crate::carrier::runtimes;
use crate::inspect::hooks;
use crate::protocol::reason::Reason;
use crate::protocol::sync::Ordering;

/// What the runtimes of this process have done since their start. Counts may be some microseconds
/// old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Kernel threads that run fibers, those in reserve left out.
    pub carriers: usize,
    /// Carriers added because fibers kept all others.
    pub added: u64,
    /// Fibers spawned.
    pub spawned: u64,
    /// Fibers spawned that have not ended.
    pub alive: u64,
    /// Times a carrier entered a fiber.
    pub switches: u64,
    /// Times a fiber left its stack to wait.
    pub parks: u64,
    /// Times a carrier took fibers from another.
    pub steals: u64,
    /// Of these, times that the other carrier did not answer a request, so that its queue was taken from.
    pub forced: u64,
    /// Times a carrier asked another for fibers.
    pub requests: u64,
    /// Times that a fiber was found to wait at a kept carrier while another slept and none looked for
    /// work: a fault of this crate's, and made good.
    pub missed: u64,
    /// Fibers reported because they kept others from running: see `CAREFREE_WATCH`.
    pub reports: u64,
}

/// Counts over all runtimes of the process that are running.
///
/// ```
/// carefree_runtime::run(|| ());
/// assert!(carefree_runtime::metrics().spawned >= 1);
/// ```
pub fn metrics() -> Metrics {
    let reports = hooks::get().map_or(0, |hooks| (hooks.reports)());
    let mut sum = Metrics { reports, ..Metrics::default() };
    runtimes::for_each(|runtime: &Shared| {
        sum.carriers += runtime.sleepers.active() as usize;
        sum.missed += runtime.missed.load(Ordering::Relaxed);
        sum.added += runtime.added.load(Ordering::Relaxed);
        sum.alive += runtime.alive();
        sum.spawned += runtime.submitted();
        for carrier in &runtime.carriers {
            sum.spawned += carrier.stats.spawned.load(Ordering::Relaxed);
            sum.switches += carrier.stats.switches.load(Ordering::Relaxed);
            sum.parks +=
                carrier.stats.parks.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
            sum.steals += carrier.stats.steals.load(Ordering::Relaxed);
            sum.forced += carrier.stats.forced.load(Ordering::Relaxed);
            sum.requests += carrier.stats.requests.load(Ordering::Relaxed);
        }
    });
    sum
}

/// How often fibers left their stacks to wait, over all runtimes of the process that are running, by what they
/// waited for: the most frequent first, and none that did not occur.
pub fn waits_by_reason() -> Vec<(Reason, u64)> {
    let mut sums = [0; Reason::COUNT];
    runtimes::for_each(|runtime: &Shared| {
        for carrier in &runtime.carriers {
            for (sum, count) in sums.iter_mut().zip(&carrier.stats.parks) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
    });
    let mut waits: Vec<_> = (0u8..)
        .zip(sums)
        .filter(|(_, count)| *count > 0)
        .map(|(code, count)| (Reason::from_code(code), count))
        .collect();
    waits.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    waits
}

/// How many carriers there have been at once in the runtimes of the process that are running, and for how many
/// nanoseconds fibers kept carriers, as far as the monitor has seen it: all carriers added up.
pub fn kept_carriers() -> (usize, u64) {
    let (mut carriers, mut time) = (0, 0);
    runtimes::for_each(|runtime: &Shared| {
        carriers += runtime.carriers.len();
        time += runtime.kept_time.load(Ordering::Relaxed);
        // Since the monitor's last look, which may be long ago.
        let since = clock::now().saturating_sub(runtime.last_look.load(Ordering::Relaxed));
        time += u64::from(runtime.still_kept()) * since;
    });
    (carriers, time)
}
