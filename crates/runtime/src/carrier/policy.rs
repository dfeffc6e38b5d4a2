//! Scheduling's choices and constants: where a ready fiber is queued, and the numbers that were tuned.

#[cfg(not(loom))]
use std::time::Duration;

/// Where a ready fiber is put in its carrier's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The LIFO slot, in front: what the fiber needs is still in the cache.
    Next,
    /// The end.
    Last,
}

/// Unparked: as a rule by the running fiber, which has something for it.
pub(crate) const UNPARKED: Place = Place::Next;
/// The fiber that it joins has ended. A fiber that has spawned many and joins them in turn should not be
/// run between each two of them.
pub(crate) const JOINED: Place = Place::Last;
/// Its operation was completed, as a rule together with many others; or its offloaded call has returned.
pub(crate) const COMPLETED: Place = Place::Last;
/// Its deadline has passed, or it was cancelled.
pub(crate) const CUT_SHORT: Place = Place::Last;
/// Just spawned: its parent goes on spawning.
pub(crate) const SPAWNED: Place = Place::Last;
/// It yields, or was woken while it left its stack.
pub(crate) const YIELDED: Place = Place::Last;
/// Submitted by another thread.
pub(crate) const SUBMITTED: Place = Place::Last;

/// Switches between two visits to the carrier's own context. Go and tokio use 61 as well: it is
/// prime, so it does not beat with the program's own rhythm.
#[cfg(not(loom))]
pub(crate) const ROUND: u32 = 61;
/// Fibers that a carrier takes at once of those submitted by other threads.
#[cfg(not(loom))]
pub(crate) const INJECTED: usize = 64;
/// Visits to the carrier's own context between two looks for libraries that were loaded meanwhile.
#[cfg(not(loom))]
pub(crate) const REFRESH: u64 = 16;
/// Visits after which a carrier whose fibers have done nothing but yield gives its processor up, if another may need it.
#[cfg(not(loom))]
pub(crate) const YIELDING: u64 = 8;
/// The sleeping carrier that sees to others' late timers wakes for those of carriers that are down so many
/// nanoseconds after they are due, in case these have other things to do then. The other sleeping carriers wake so
/// much later than that one does for carriers that are up.
#[cfg(not(loom))]
pub(crate) const STAGGER: u64 = 1_000_000;

/// The timers of another carrier are seen to if they are so many nanoseconds late: as a rule, that one sees to
/// them, and the fibers go on where they were.
#[cfg(not(loom))]
pub(crate) const LATE: u64 = 20_000;
/// Nanoseconds between two looks at the timers of all carriers, while some run.
#[cfg(not(loom))]
pub(crate) const TIMERS: u64 = 20_000;

/// Turns in a row that the LIFO slot gets before the queue is served.
pub(crate) const LIFO_RUNS: u32 = 3;
/// Nanoseconds that a fiber waits in a queue before another carrier is worth its wake-up.
#[cfg(not(loom))]
pub(crate) const BACKLOG: u64 = 4_000;
/// Nanoseconds that another carrier takes longer for a fiber's turn than its own: what the fiber needs is
/// in the other's cache.
#[cfg(not(loom))]
pub(crate) const MOVE: u64 = 150;
/// So many fibers are a backlog if they have been there for long, however soon each has its turn.
#[cfg(not(loom))]
pub(crate) const CROWD: u32 = 8;
/// The nanoseconds that count as long there.
#[cfg(not(loom))]
pub(crate) const CROWDED: u64 = 40_000;
/// If two fibers or more wait after each round for so many nanoseconds, each that waits is a backlog.
#[cfg(not(loom))]
pub(crate) const BUSY: u64 = 400_000;
/// Rounds between two looks at the clock, where fibers switch so fast that it would cost something.
#[cfg(not(loom))]
pub(crate) const PACED_AFRESH: u32 = 15;
/// Nanoseconds that a carrier with nothing to do dozes before it looks at the others again.
#[cfg(not(loom))]
pub(crate) const DOZE: u64 = 1_000_000;
/// Between two looks of the monitor, while carriers run.
#[cfg(not(loom))]
pub(crate) const LOOK: Duration = Duration::from_millis(2);
/// The same while fibers keep carriers and others wait.
#[cfg(not(loom))]
pub(crate) const LOOK_CLOSELY: Duration = Duration::from_millis(1);
/// The longest time between two looks while fibers keep carriers and none waits.
#[cfg(not(loom))]
pub(crate) const LOOK_SELDOM: Duration = Duration::from_millis(8);
/// The same while carriers wake so often that the monitor is not woken with them, and none was up.
#[cfg(not(loom))]
pub(crate) const LOOK_NAPPING: Duration = Duration::from_millis(8);
/// If all carriers sleep for fewer nanoseconds than this, the monitor does not sleep with them the next time.
#[cfg(not(loom))]
pub(crate) const OFTEN: u64 = 8_000_000;
/// Looks in a row at which a fiber that spawns others, and lets none run, does not keep its carrier yet: to
/// spawn ten thousand takes a few looks, and another carrier would do no good there.
#[cfg(not(loom))]
pub(crate) const SPAWNING: u32 = 16;
/// Looks in a row that find more carriers than wanted, after which one of them goes though it has fibers to
/// run.
#[cfg(not(loom))]
pub(crate) const SURPLUS: u32 = 4;
/// Nanoseconds without a switch at any carrier, while fibers keep as many carriers as there were at first, after which
/// those that wait for a processor count as kept, too: a little more than the kernel lets a computing thread have one.
#[cfg(not(loom))]
pub(crate) const STALLED: u64 = 4_000_000;
/// Carriers that are added at once, at least, if so many fibers wait.
#[cfg(not(loom))]
pub(crate) const AT_ONCE: u32 = 4;
/// How often the number of carriers that are added at once is doubled, look by look.
#[cfg(not(loom))]
pub(crate) const RAMP: u32 = 5;
/// Nanoseconds without a switch after which a carrier is not asked for its fibers any longer, but they
/// are taken.
#[cfg(not(loom))]
pub(crate) const UNANSWERED: u64 = 50_000;
/// The same for a carrier whose fibers run for long anyway: its next switch will hardly come soon.
#[cfg(not(loom))]
pub(crate) const UNANSWERED_SLOW: u64 = 5_000;
/// What it costs each carrier that runs when fibers are taken, in nanoseconds. A carrier is asked at least for
/// as long as that takes from all of them.
#[cfg(not(loom))]
pub(crate) const INTERRUPTED: u64 = 2_000;
/// Nanoseconds in which a carrier that has got fibers from another runs the first of them.
#[cfg(not(any(loom, feature = "rejected-deque")))]
pub(crate) const UNDER_WAY: u64 = 3_000;
/// A carrier that has had more timers at once frees their memory (45 bytes each) when none is left.
pub(crate) const KEPT_TIMERS: usize = 1 << 16;
/// At most so many ready fibers of a carrier have started, and the others wait for their start. So those that have
/// are in the nearest cache with all that they need, and there are few stacks.
pub(crate) const STARTED: usize = 32;
/// If each of them has had so many turns, and none has ended or waits, twice as many start. (In order, so that
/// neighbours run one after the other, which processors foresee.)
#[cfg(not(feature = "rejected-deque"))]
pub(crate) const TURNS: usize = 4;
/// For how long a carrier lets a fiber wait for which there is no stack.
#[cfg(not(loom))]
pub(crate) const POSTPONED: Duration = Duration::from_millis(1);
/// Fibers that a queue has room for at first.
pub(crate) const CAPACITY: usize = 512;
/// How many switches before its own turn a fiber's stack is fetched into the cache; its header is
/// fetched twice as many before. (A switch and what a fiber does take a fraction of a cache miss.)
pub(crate) const AHEAD: usize = 2;
