//! What a carrier does in its own context: it fires timers, completes operations, takes fibers that other
//! threads have submitted, steals, and sleeps.

use std::io;
use std::mem;
use std::ptr;

use carefree_context::arch::ThreadContext;
use carefree_context::{loader, overflow, tls};
use carefree_ground::mapped::Mapped;
use carefree_ground::nap;
use carefree_ground::slice::{self, Slice};
use carefree_ground::text::Text;
use carefree_reactor::clock::NEVER;

use crate::carrier::calls;
use crate::carrier::carrier::{Carrier, assign_to_enter, set_here};
use crate::carrier::lookout;
use crate::carrier::meter;
use crate::carrier::policy::{
    DOZE, INJECTED, INTERRUPTED, LATE, POSTPONED, REFRESH, ROUND, STAGGER, SUBMITTED, UNANSWERED,
    UNANSWERED_SLOW, YIELDING,
};
use crate::carrier::stats::count;
use crate::carrier::wake::wake_timed_out;
use crate::fiber::current::set_current;
use crate::fiber::header::FiberRef;
use crate::fiber::idle;
use crate::protocol::injector::Injector;
use crate::protocol::parcel::Answer;
use crate::protocol::sleepers::Kept;
use crate::protocol::sync::{AtomicBool, Ordering, clock, give_way, pause};

/// For how many waits whose deadlines have passed a carrier keeps memory.
const DUE: usize = 1024;

/// Headers of so many that wait are fetched into the cache before their own turn: a crowd's were not used for as long
/// as it slept.
const DUE_AHEAD: usize = 8;

/// How often a carrier looks for an answer before it gives up the processor between two looks.
const SPINS: u32 = 100;

/// What a carrier has noted of the [events](crate::carrier::stats::Stats::events) here, and of each carrier's switches.
struct Noted {
    events: u64,
    switches: Mapped<u64>,
}

impl Carrier {
    /// The body of the carrier's thread. With its first fiber it becomes as the others, if it came here with shorter
    /// slices than the `usual` ones; what its fibers start inherits what it has.
    pub(crate) fn run(&self, mut usual: Option<Slice>) {
        #[cfg(simulated)]
        crate::simulation::machine::enter(self.index);
        set_here(self);
        // SAFETY: the call has no preconditions.
        self.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        // (Until the carrier ends: not by a thread-local variable, for which libc would take the loader's lock, and a fiber
        // may have that which waits for this carrier.)
        let _alternate_stack = overflow::AlternateStack::new();
        // SAFETY: nothing else accesses the carrier's own context before a fiber runs, and then only the
        // switches of this thread.
        unsafe { *self.native.get() = ThreadContext::of_this_thread() };
        if let Some(layout) = tls::mode().layout() {
            layout.prepare_malloc();
        }
        let mut noted = Noted { events: 0, switches: Mapped::new() };
        for visit in 0u64.. {
            // Where the order is drawn, each fiber comes back here, and this context chooses the next.
            self.round.set(if self.time.is_some() { 0 } else { ROUND });
            self.tidy();
            self.fire_timers();
            // What others have submitted may keep it from sleeping for long, and so from looking after its operations.
            let is_idle = self.is_empty() && !self.runtime().has_submissions();
            // SAFETY: this is the carrier's own context.
            unsafe { if is_idle { self.peek() } else { self.poll() } };
            if visit % REFRESH == 0 {
                notice_libraries();
            }
            if visit % YIELDING == 0 && self.is_held_up(&mut noted) {
                give_way();
            }
            // Not before the first fibers have run: see the monitor.
            if visit == 1 {
                self.with_local(|local| local.stacks.make_room());
            }
            let found = match self.runtime().has_surplus() {
                false => match self.find_here() {
                    Some(fiber) => {
                        if is_idle {
                            // SAFETY: this is the carrier's own context.
                            unsafe { self.poll() };
                        }
                        Some(fiber)
                    }
                    None => self.search(),
                },
                true => self.withdraw(),
            };
            let Some(mut fiber) = found else { break };
            if let Some(usual) = usual.take() {
                slice::set(usual);
            }
            loop {
                self.enter(fiber);
                match self.unfurnished.take() {
                    Some(next) => fiber = next,
                    None => break,
                }
            }
        }
        // Here a carrier notices an end that `fiber_ended` has missed.
        if self.runtime().has_stopped() {
            self.runtime().wake_all();
        }
        self.leave();
    }

    /// Whether the fibers here have done nothing but yield since this was asked last, while another carrier, which does not
    /// sleep and which no fiber is known to keep, has made no switch: it may need this processor, to do what they wait for.
    fn is_held_up(&self, noted: &mut Noted) -> bool {
        let runtime = self.runtime();
        let events = self.stats.events();
        if mem::replace(&mut noted.events, events) != events || runtime.sleepers.active() < 2 {
            return false;
        }
        let mut stands = false;
        for (index, other) in runtime.carriers.iter().enumerate() {
            if noted.switches.len() == index && !noted.switches.push(0) {
                break;
            }
            let switches = other.switches();
            stands |= mem::replace(&mut noted.switches[index], switches) == switches
                && !ptr::eq(other, self)
                && !runtime.sleepers.is_sleeping(other.index)
                && !other.looks.is_kept.load(Ordering::Relaxed);
        }
        stands
    }

    /// Runs fibers, this one first, until one of them comes back here.
    fn enter(&self, fiber: FiberRef) {
        if !assign_to_enter(fiber, self) {
            if let Err(refusal) = self.furnish(fiber) {
                return self.postpone(fiber, &refusal);
            }
        }
        let measured = if self.runtime().sleepers.active() == 1 {
            None
        } else {
            self.pace.begin(self.switches())
        };
        if meter::is_on() {
            // It comes back here, to be measured alone.
            self.round.set(0);
            self.meter.begin(fiber);
        }
        // SAFETY: this is the carrier's thread, in its own context, and the queue is not locked; what is
        // entered unlocks it (`settle`). The fiber is suspended and in no queue, so nothing else enters
        // it. It has thread-local storage of its own in own mode.
        unsafe {
            self.queue.lock();
            self.switch(self.native.get(), fiber.context.get());
        }
        if !self.own_tls {
            set_current(None);
        }
        self.meter.left();
        self.settle();
        if let Some(begun) = measured {
            self.pace.end(begun, self.switches());
        }
        self.pace.left(self.queue.len());
        if self.own_tls && self.has_backlog() {
            self.announce();
        }
    }

    /// Lets a fiber that cannot start wait until other fibers have ended, and says so once.
    #[cold]
    fn postpone(&self, fiber: FiberRef, refusal: &io::Error) {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Ordering::Relaxed) {
            let text = Text::of(format_args!("carefree: a fiber cannot start yet: {refusal}\n"));
            let _ = text.write_to(libc::STDERR_FILENO);
        }
        idle::strip_idle();
        // SAFETY: this is the carrier's thread, in its own context, where the queue is not locked.
        unsafe { self.queue.push(fiber, SUBMITTED) };
        nap::sleep(POSTPONED);
    }

    /// Takes a fiber from this carrier's own queues or from what was submitted to all carriers.
    fn find_here(&self) -> Option<FiberRef> {
        self.accept(&self.inbox);
        if !self.runtime().injector.is_empty() {
            self.accept(&self.runtime().injector);
        }
        // SAFETY: this is the carrier's thread, in its own context, where the queue is not locked.
        self.runtime().handover.take(|fiber| unsafe { self.queue.push(fiber, SUBMITTED) });
        self.find_own()
    }

    /// Takes a fiber from this carrier's own queue.
    fn find_own(&self) -> Option<FiberRef> {
        // SAFETY: this is the carrier's thread, in its own context, where the queue is not locked.
        let mut queue = unsafe { self.queue.lock() };
        let next = match self.time {
            None => queue.pop(),
            Some(_) => queue.pop_drawn(|len| (self.random() >> 32) as usize % len),
        };
        queue.unlock();
        next
    }

    /// Moves fibers from `from` to the queue.
    fn accept(&self, from: &Injector<FiberRef>) {
        // SAFETY: as in `find_here`.
        from.take(INJECTED, |fiber| unsafe { self.queue.push(fiber, SUBMITTED) });
    }

    /// Looks for a fiber everywhere, sleeping in between. `None` when the runtime has stopped.
    fn search(&self) -> Option<FiberRef> {
        self.runtime().sleepers.search();
        self.search_on()
    }

    /// Leaves what is queued here to the other carriers, which are enough for it, and goes into reserve. When
    /// this carrier is recalled, or if it is needed after all, it [searches](Self::search).
    fn withdraw(&self) -> Option<FiberRef> {
        let runtime = self.runtime();
        runtime.sleepers.search();
        runtime.handover.put(|| self.find_own());
        if self.retire() && !self.wait_in_reserve() {
            return None;
        }
        self.search_on()
    }

    /// [`search`](Self::search) of a carrier that counts as searching already.
    fn search_on(&self) -> Option<FiberRef> {
        let runtime = self.runtime();
        let sleepers = &runtime.sleepers;
        // Whether a whole doze went by, and brought nothing.
        let mut is_calm = false;
        loop {
            self.tidy();
            self.fire_timers();
            // Where it may run other fibers than those of its operations, it looks after these first.
            let may_find_others = self.is_empty()
                && (sleepers.some_other_is_up(runtime.kept())
                    || self.others_have_fibers()
                    || runtime.has_submissions());
            // SAFETY: this is the carrier's own context.
            unsafe { if may_find_others { self.poll() } else { self.peek() } };
            let found = self.find_here().or_else(|| self.steal());
            if found.is_some() || runtime.has_stopped() {
                // A timer that no sleeper knows of: those that sleep looked while this carrier was down, and saw to
                // its timers itself. The fiber that it has found may keep it. (One that dozes looks soon.)
                let has_unkept_timer = || !sleepers.some_doze() && runtime.has_unkept_timer();
                let more = || runtime.has_submissions() || has_unkept_timer();
                runtime.wake(sleepers.found(self.kept_others(), more));
                // What became ready together was left to this search.
                if self.own_tls && !self.queue.is_empty() {
                    self.announce();
                }
                // SAFETY: this is the carrier's own context.
                unsafe { self.hand_over() };
                return found;
            }
            if (is_calm || !sleepers.some_other_is_up(runtime.kept())) && self.retire() {
                if !self.wait_in_reserve() {
                    return None;
                }
                is_calm = false;
                continue;
            }
            // Fibers that wait at other carriers for a moment only are not taken. But they are looked at again:
            // by this carrier, unless another one dozes and does so anyway.
            let left_alone = || !self.others_have_fibers() || sleepers.some_doze();
            // While other carriers run, it pays to look again; and the fence of lying down would interrupt
            // them. One that searches may just have been given fibers, and be about to run.
            if (is_calm || !sleepers.some_other_is_up(runtime.kept())) && left_alone() {
                let rest = sleepers.lie_down(self.index);
                if !self.something_came() && left_alone() {
                    self.sleeps.store(true, Ordering::SeqCst);
                    self.sleep();
                    self.sleeps.store(false, Ordering::SeqCst);
                }
                is_calm = false;
                sleepers.wake_up(rest);
            } else {
                let rest = sleepers.doze(self.index);
                is_calm = !self.something_came() && self.doze();
                sleepers.wake_up(rest);
            }
            lookout::carrier_woke();
            // SAFETY: this is the carrier's own context.
            unsafe { self.complete() };
        }
    }

    /// Frees what ended fibers have left: here, for the carrier's own context is never within the program's
    /// allocator. Gives back the stacks kept for the next fibers, if they have been [called in](calls).
    pub(crate) fn tidy(&self) {
        let ended =
            self.with_local(|local| (!local.ended.is_empty()).then(|| mem::take(&mut local.ended)));
        drop(ended);
        idle::strip_surplus();
        self.with_local(|local| local.stacks.tidy());
        let calls = calls::made();
        if self.calls_heard.load(Ordering::Relaxed) != calls {
            self.with_local(|local| local.stacks.clear());
            self.calls_heard.store(calls, Ordering::SeqCst);
        }
    }

    /// The number of the last call for stacks that was heard.
    pub(crate) fn calls_heard(&self) -> u64 {
        self.calls_heard.load(Ordering::SeqCst)
    }

    /// Whether there is something to do after all: to be asked between lying down and sleeping.
    fn something_came(&self) -> bool {
        let runtime = self.runtime();
        runtime.has_stopped()
            || !self.inbox.is_empty()
            || self.io.has_errands()
            || runtime.has_submissions()
    }

    /// Whether fibers wait at other carriers, for however short a time.
    fn others_have_fibers(&self) -> bool {
        let has_some = |other: &Carrier| !ptr::eq(other, self) && !other.queue.is_empty();
        self.own_tls && self.runtime().carriers.iter().any(has_some)
    }

    /// What the end of a search asks about others that are kept.
    pub(crate) fn kept_others(&self) -> Kept<impl FnOnce() -> bool> {
        Kept { about: self.runtime().kept(), left_something: || self.others_have_fibers() }
    }

    /// Dozes. Returns false if the carrier was woken before the end.
    fn doze(&self) -> bool {
        let runtime = self.runtime();
        let until = clock::now().saturating_add(DOZE);
        let until_own = until.min(self.shard.next());
        // Where another sees to the others' timers already, this one does not look at them all.
        if runtime.time_is_kept() {
            self.lie_until(NEVER, until_own);
        } else {
            let (up, down) = runtime.timers_of_others(self);
            self.lie_until(up.min(down), until_own);
        }
        clock::now() >= until
    }

    fn sleep(&self) {
        let runtime = self.runtime();
        let (up, down) = runtime.timers_of_others(self);
        // Where another sleeper wakes for the others' timers, this one does so later, in case that other is
        // busy then.
        self.lie_until(up.min(down), up.saturating_add(STAGGER).min(self.shard.next()));
    }

    /// Sleeps until `until`; or until `next`, to see to the others' timers then, if no other does so.
    fn lie_until(&self, next: u64, until: u64) {
        let runtime = self.runtime();
        // SAFETY: this is the carrier's own context.
        let lie = |deadline| unsafe { self.lie((deadline != NEVER).then_some(deadline)) };
        if next < until && runtime.keep_time(next) {
            lie(next);
            runtime.kept_time(next);
            self.sees_to_timers.set(true);
        } else {
            lie(until);
        }
    }

    /// Takes fibers from another carrier's queue; returns one, and queues the others.
    fn steal(&self) -> Option<FiberRef> {
        let carriers = &self.runtime().carriers;
        // With one carrier, the random numbers are for the order of its fibers.
        if !self.own_tls || carriers.len() == 1 {
            return None;
        }
        let start = self.random() as usize % carriers.len();
        let mut slow = None;
        for offset in 0..carriers.len() {
            let other = &carriers[(start + offset) % carriers.len()];
            if ptr::eq(other, self) || other.queue.is_empty() {
                continue;
            }
            if other.is_kept_still() {
                if let Some(fiber) = self.take_from_kept(other) {
                    return Some(fiber);
                }
            } else if !other.has_backlog() {
                // Of these, the one that is suspected already comes first.
                if slow.is_none() || other.index == self.suspect.get().0 {
                    slow = Some(other);
                }
            } else if let Some(fiber) = self.steal_from(other) {
                return Some(fiber);
            }
        }
        // Fibers that wait for a moment only are taken if their carrier makes no progress.
        slow.filter(|other| self.suspects(other)).and_then(|other| self.take_from(other))
    }

    /// Asks `other` for fibers, and takes some if it does not answer.
    fn steal_from(&self, other: &Carrier) -> Option<FiberRef> {
        count(&self.stats.requests);
        let begun = clock::now();
        let most = if other.pace.is_slow() { UNANSWERED_SLOW } else { UNANSWERED };
        let most = most.max(self.price_of_force());
        let mut looks = 0;
        let patient = || {
            looks += 1;
            if looks < SPINS {
                pause();
                return true;
            }
            // It may need this processor to answer.
            give_way();
            clock::now() - begun < most
        };
        // SAFETY: this is the carrier's thread, and the other carrier is another.
        match unsafe { self.queue.ask(&other.queue, patient) } {
            Answer::Thing(fiber) => {
                count(&self.stats.steals);
                Some(fiber)
            }
            Answer::Nothing => None,
            Answer::Unanswered => self.take_from(other),
        }
    }

    /// Takes fibers from a carrier that will hardly answer. A pause that gives up the processor would last as long as
    /// the kernel lets others have it, where added carriers share it with those that are kept. And as several
    /// are added at once, others may just be taking from there, too.
    fn take_from_kept(&self, other: &Carrier) -> Option<FiberRef> {
        /// How often: each try interrupts all carriers.
        const TRIES: u32 = 4;
        for _ in 0..TRIES {
            let taken = self.take_from(other);
            if taken.is_some() || other.queue.is_empty() {
                return taken;
            }
            (0..SPINS).for_each(|_| pause());
        }
        None
    }

    fn take_from(&self, other: &Carrier) -> Option<FiberRef> {
        // SAFETY: this is the carrier's thread, and the other carrier is another.
        let fiber = unsafe { self.queue.take_from(&other.queue) }?;
        count(&self.stats.steals);
        count(&self.stats.forced);
        Some(fiber)
    }

    /// What it costs all carriers together if fibers are taken by force, in nanoseconds.
    fn price_of_force(&self) -> u64 {
        INTERRUPTED * u64::from(self.runtime().sleepers.up())
    }

    /// Whether the monitor has found a fiber to keep this carrier, which has made no switch since.
    pub(super) fn is_kept_still(&self) -> bool {
        self.looks.is_kept.load(Ordering::Relaxed) && !self.has_switched()
    }

    /// Whether `other` has made no switch for long.
    fn suspects(&self, other: &Carrier) -> bool {
        let (now, switches) = (clock::now(), other.switches());
        let (suspect, seen, since) = self.suspect.get();
        if (suspect, seen) == (other.index, switches) {
            return now - since > UNANSWERED.max(self.price_of_force());
        }
        self.suspect.set((other.index, switches, now));
        false
    }

    fn random(&self) -> u64 {
        // Xorshift: good enough to choose victims and to draw orders.
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    /// Ends the waits whose deadlines have passed: of this carrier, and of others that are too busy for it.
    fn fire_timers(&self) {
        let runtime = self.runtime();
        let mut carriers = runtime.carriers_with_timers().peekable();
        if carriers.peek().is_none() {
            return;
        }
        let now = self.time.as_ref().map_or_else(clock::now, |time| time.clock.now());
        let mut due = self.with_local(|local| mem::take(&mut local.due));
        if runtime.timed.contains(self.index) {
            self.shard.expire(now, &mut due, &runtime.timed);
        }
        let is_called = self.sees_to_timers.take();
        if runtime.looks_at_timers(now) || is_called {
            let others = carriers.filter(|other| !ptr::eq(*other, self));
            others.for_each(|other| {
                other.shard.expire(now.saturating_sub(LATE), &mut due, &runtime.timed)
            });
        }
        for (index, &(fiber, ticket)) in due.iter().enumerate() {
            if let Some((later, _)) = due.get(index + DUE_AHEAD) {
                later.prefetch_header();
            }
            wake_timed_out(fiber, ticket);
        }
        due.truncate(0);
        // (More than a few are not worth their memory until the next time.)
        if due.capacity() <= DUE {
            self.with_local(|local| local.due = due);
        }
    }
}

/// Has new fibers get thread-local variables of libraries that were loaded since the last look.
fn notice_libraries() {
    if let Some(layout) = tls::mode().layout().filter(|_| loader::may_have_changed()) {
        // It starts a thread to look. Where none can be had, a later visit tries again.
        if layout.refresh().is_ok() {
            loader::tell_look();
        }
    }
}
