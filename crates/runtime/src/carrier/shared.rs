//! What a runtime does for its carriers together: queueing fibers from outside, timers, counts, its end.

use std::io;
use std::ptr;
use std::sync::{Arc, Weak};
use std::thread;

use carefree_context::tls;
use carefree_ground::lock::Lock;
use carefree_ground::own::Own;
use carefree_reactor::clock::NEVER;

use crate::carrier::carrier::{self, Carrier, Shared};
use crate::carrier::handover::Handover;
use crate::carrier::launch::{self, Signals};
use crate::carrier::policy::{LATE, STAGGER, SURPLUS, TIMERS};
use crate::carrier::queue::Queue;
use crate::carrier::runtimes;
use crate::carrier::stats::Stats;
use crate::carrier::table::Table;
use crate::fiber::header::FiberRef;
use crate::fiber::virtual_time::VirtualTime;
use crate::protocol::generation;
use crate::protocol::injector::Injector;
use crate::protocol::set::{CARRIERS_MAX, Set};
use crate::protocol::sleepers::Sleepers;
use crate::protocol::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, light};

impl Shared {
    pub(crate) fn new(name: &str, carriers: usize, time: Option<VirtualTime>) -> Arc<Shared> {
        let own_tls = tls::mode().layout().is_some();
        let shared = Arc::new_cyclic(|this| Shared {
            this: Weak::clone(this),
            carriers: Table::new(
                (0..carriers).map(|i| Own::new(Carrier::new(i, own_tls, time.clone()))),
                // With virtual time, and where fibers cannot migrate, no carriers are added.
                if own_tls && time.is_none() && carriers > 0 { CARRIERS_MAX } else { carriers },
            ),
            sleepers: Sleepers::new(carriers as u32, 0),
            injector: Injector::new(),
            handover: Handover::new(),
            own_tls,
            homes: AtomicUsize::new(0),
            submitted: AtomicU64::new(0),
            threads_ended: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            stuck: AtomicU32::new(0),
            adding: Lock::new(()),
            stack_bytes: launch::stack_bytes(None),
            added: AtomicU64::new(0),
            starting: AtomicU32::new(0),
            ramp: AtomicU32::new(0),
            surplus: AtomicU32::new(0),
            kept_time: AtomicU64::new(0),
            last_look: AtomicU64::new(0),
            moved_at: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            name: name.to_owned(),
            signals: Signals::blocked(),
            visitors: AtomicUsize::new(0),
            process: generation::current(),
            timed: Set::new(),
            time_kept: AtomicU64::new(NEVER),
            timers_looked_at: AtomicU64::new(0),
            next: AtomicUsize::new(0),
        });
        for carrier in &shared.carriers {
            carrier.join_runtime(Arc::as_ptr(&shared));
        }
        shared
    }

    /// To be called when a thread other than a carrier of this runtime has queued a fiber: wakes a
    /// carrier, unless one searches.
    fn notify(&self) {
        self.wake(self.sleepers.notify_fenced());
    }

    /// Leaves some of what is queued in `queue`, which is not the caller's, to any carrier. Returns whether there
    /// were any.
    pub(crate) fn hand_over_from(&self, queue: &Queue) -> bool {
        let some = self.handover.put_from(queue);
        if some {
            self.notify();
        }
        some
    }

    /// Wakes the carrier that a function of [`Sleepers`] has returned.
    pub(crate) fn wake(&self, sleeper: Option<usize>) {
        if let Some(index) = sleeper {
            self.carriers[index].wake();
        }
    }

    /// Whether this is the child of a fork, and the carriers' threads are in the parent.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.process != generation::current()
    }

    /// The runtime, if its carriers are in this process.
    ///
    /// # Errors
    /// When the process was forked since the runtime was built.
    pub(crate) fn refuse_after_fork(&self) -> io::Result<&Shared> {
        if self.is_of_parent() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this runtime was built before the process was forked, and its carriers, like all \
                 threads, were left behind: build another, or use carefree::spawn",
            ));
        }
        Ok(self)
    }

    /// Queues a fiber of this runtime whose wait has ended, from any thread.
    pub(crate) fn inject(&self, fiber: FiberRef) {
        if self.is_of_parent() {
            return;
        }
        // Until it is queued, the fiber keeps the runtime from being freed; then the visitor does.
        self.visitors.fetch_add(1, Ordering::Relaxed);
        if self.own_tls {
            self.injector.push(fiber);
            self.notify();
        } else {
            // SAFETY: a fiber that was entered once, as each that has waited, has a carrier, which is this
            // runtime's.
            self.inject_to(fiber, unsafe { &*fiber.carrier.get().cast::<Carrier>() });
        }
        self.visitors.fetch_sub(1, Ordering::Release);
    }

    /// In shared mode: queues a fiber on its own carrier.
    fn inject_to(&self, fiber: FiberRef, carrier: &Carrier) {
        carrier.deliver(fiber);
        self.wake(self.sleepers.claim_one(carrier.index()));
    }

    /// Queues a fiber that has not run yet; in shared mode on the carrier whose turn it is.
    pub(crate) fn inject_anywhere(&self, fiber: FiberRef) {
        let turn = self.homes.fetch_add(1, Ordering::Relaxed) % self.carriers.base();
        let carrier = &self.carriers[turn];
        carrier::assign(fiber, carrier);
        if self.own_tls {
            self.injector.push(fiber);
            self.notify();
        } else {
            self.inject_to(fiber, carrier);
        }
    }

    /// Counts and queues a fiber that a plain thread, or a fiber of another runtime, has spawned.
    pub(crate) fn submit(&self, fiber: FiberRef) {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.inject_anywhere(fiber);
    }

    /// Fibers spawned from outside of the runtime, and threads started in place of fibers.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Whether what is spawned here are threads.
    #[inline]
    pub(crate) fn has_threads(&self) -> bool {
        self.carriers.is_empty()
    }

    /// Counts a thread that is to be started in place of a fiber. The thread keeps the result, and so the
    /// runtime, until it ends.
    pub(crate) fn thread_begins(&self) -> Arc<Shared> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.this.upgrade().expect("a runtime that is used is alive")
    }

    /// Takes back the count of a thread that could not be started.
    pub(crate) fn thread_did_not_begin(&self) {
        self.submitted.fetch_sub(1, Ordering::Release);
    }

    /// Counts the end of such a thread.
    pub(crate) fn thread_ended(&self) {
        self.threads_ended.fetch_add(1, Ordering::Release);
    }

    /// Carriers that have timers, and perhaps some that had.
    #[inline]
    pub(crate) fn carriers_with_timers(&self) -> impl Iterator<Item = &Carrier> {
        self.timed.among(self.carriers.len()).filter_map(|index| self.carriers.get(index))
    }

    /// No timer is due before this time.
    #[inline]
    pub(crate) fn next_timer(&self) -> u64 {
        self.carriers_with_timers().map(|carrier| carrier.shard.next()).min().unwrap_or(NEVER)
    }

    /// When the calling carrier, which is about to sleep, would have to see to the timers of others that are up,
    /// or in reserve; and to those of carriers that are down. These wake for their own, but may then have other
    /// things to do.
    pub(crate) fn timers_of_others(&self, caller: &Carrier) -> (u64, u64) {
        let (mut up, mut down) = (NEVER, NEVER);
        for other in self.carriers_with_timers().filter(|other| !ptr::eq(*other, caller)) {
            let next = other.shard.next();
            match self.sleepers.is_down(other.index()) {
                true => down = down.min(next.saturating_add(STAGGER)),
                false => up = up.min(next.saturating_add(LATE)),
            }
        }
        (up, down)
    }

    /// Whether it is time to look at the timers of all carriers. Then no other carrier does so for a while.
    pub(crate) fn looks_at_timers(&self, now: u64) -> bool {
        let last = self.timers_looked_at.load(Ordering::Relaxed);
        now.saturating_sub(last) >= TIMERS
            && self
                .timers_looked_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Whether a carrier that sleeps wakes for other carriers' timers that are late by then.
    pub(crate) fn time_is_kept(&self) -> bool {
        self.time_kept.load(Ordering::SeqCst) != NEVER
    }

    /// Notes that the calling carrier is about to sleep until `until`, to see to the timers then. False:
    /// another sleeping carrier does so already.
    pub(crate) fn keep_time(&self, until: u64) -> bool {
        self.time_kept.fetch_min(until, Ordering::SeqCst) > until
    }

    /// Whether a timer of a carrier that is up or in reserve is due before any sleeping carrier will wake for it.
    pub(crate) fn has_unkept_timer(&self) -> bool {
        let up = self.carriers_with_timers().filter(|one| !self.sleepers.is_down(one.index()));
        let next = up.map(|one| one.shard.next()).min().unwrap_or(NEVER);
        next.saturating_add(LATE) < self.time_kept.load(Ordering::SeqCst)
    }

    /// Takes the note back, when that carrier is awake.
    pub(crate) fn kept_time(&self, until: u64) {
        // Another carrier may have noted an earlier time, which stands.
        let _ = self.time_kept.compare_exchange(until, NEVER, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// A timer was set that is due before all others of its carrier. That carrier may be busy when it is
    /// due, so a sleeping carrier is woken to take note of the time, unless one wakes earlier anyway.
    pub(crate) fn sooner(&self, deadline: u64) {
        light();
        // A carrier that dozes looks at the timers soon.
        if self.sleepers.sleeping() != 0
            && !self.sleepers.some_doze()
            && deadline.saturating_add(LATE) < self.time_kept.load(Ordering::Relaxed)
        {
            self.wake(self.sleepers.claim());
        }
    }

    /// To be called when a carrier has counted the end of a fiber: after the last, the carriers end. (Where two carriers
    /// count an end at once, each may miss the other's. Then a carrier that finds it out later, when it looks for work,
    /// wakes the rest: see `Carrier::run`.)
    #[inline]
    pub(crate) fn fiber_ended(&self) {
        if self.stopping.load(Ordering::Relaxed) && self.alive() == 0 {
            self.wake_all();
        }
    }

    /// Fibers spawned and not ended. Exact when it says 0 and no plain thread is spawning.
    pub(crate) fn alive(&self) -> u64 {
        // Ends are read first: so a fiber that is spawned meanwhile makes the result too large, never too
        // small.
        let sum = |counter: fn(&Stats) -> &AtomicU64| {
            self.carriers.iter().map(|c| counter(&c.stats).load(Ordering::Acquire)).sum::<u64>()
        };
        let ended = sum(|stats| &stats.ended) + self.threads_ended.load(Ordering::Acquire);
        let spawned = sum(|stats| &stats.spawned) + self.submitted.load(Ordering::Acquire);
        spawned - ended
    }

    /// Whether it was dropped and its last fiber has ended.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopping.load(Ordering::Acquire) && self.alive() == 0
    }

    pub(crate) fn wake_all(&self) {
        for carrier in &self.carriers {
            carrier.wake();
        }
    }

    /// Keeps the runtime from being freed until the caller [leaves](Self::leave).
    pub(crate) fn visit(&self) {
        self.visitors.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends what [`visit`](Self::visit) has begun. The caller does not access the runtime afterwards.
    pub(crate) fn leave(&self) {
        self.visitors.fetch_sub(1, Ordering::Release);
    }

    /// The number of switches so far: it changes when any fiber runs.
    pub(crate) fn activity(&self) -> u64 {
        self.carriers.iter().map(|c| c.stats.switches.load(Ordering::Relaxed)).sum()
    }

    /// Whether every carrier sleeps that is not in reserve.
    pub(crate) fn all_sleep(&self) -> bool {
        self.sleepers.all_are_asleep()
    }

    /// How many carriers there should be: as many as at first, and one for each that is stuck.
    pub(crate) fn wanted(&self) -> u32 {
        self.carriers.base() as u32 + self.kept()
    }

    /// How many carriers fibers keep, by the monitor's last look.
    #[inline]
    pub(crate) fn kept(&self) -> u32 {
        self.stuck.load(Ordering::Relaxed)
    }

    /// How many carriers were kept at the monitor's last look, and have made no switch since then.
    pub(crate) fn still_kept(&self) -> u32 {
        let is_kept = |one: &&Carrier| one.is_kept_still() && !self.sleepers.is_down(one.index());
        self.carriers.iter().filter(is_kept).count() as u32
    }

    /// Whether there have been more carriers than wanted for a while. One that goes leaves to the others what
    /// is queued there, which would be in vain if it were needed again at once.
    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::Relaxed) >= SURPLUS
            && self.own_tls
            && self.sleepers.active() > self.wanted()
    }

    /// Whether fibers wait that any carrier may take.
    pub(crate) fn has_submissions(&self) -> bool {
        !self.injector.is_empty() || !self.handover.is_empty()
    }

    /// Whether every carrier sleeps, no timer is set, and nothing is queued or under way. Always, where
    /// there are no carriers.
    pub(crate) fn is_dormant(&self) -> bool {
        let all_sleep = || self.all_sleep();
        all_sleep()
            && self.next_timer() == NEVER
            && !self.has_submissions()
            && self.carriers.iter().all(|c| {
                // One in reserve may be handing on what it has waited for.
                let rests = || !self.sleepers.is_in_reserve(c.index()) || c.sleeps.load(Ordering::SeqCst);
                c.is_empty() && !c.has_operations() && rests()
            })
            // Nor does the monitor hand on anything.
            && self.visitors.load(Ordering::SeqCst) == 0
            // Asked again: a carrier may have taken a fiber from a queue after the look at the carrier and
            // before that at the queue.
            && all_sleep()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        runtimes::unregister(self);
        while self.visitors.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
        // Those that were not joined.
        self.carriers.iter().filter_map(Carrier::take_added).for_each(drop);
    }
}
