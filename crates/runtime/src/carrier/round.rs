//! What a carrier does in its own context: it fires timers, completes operations, takes fibers that other
//! threads have submitted, steals, and sleeps.

use std::ptr;
use std::sync::atomic::Ordering;

use carefree_context::arch::ThreadContext;
use carefree_context::{overflow, tls};
use carefree_reactor::clock::NEVER;

use crate::carrier::calls;
use crate::carrier::carrier::{CARRIER, Carrier, assign, count};
use crate::carrier::lookout;
use crate::carrier::policy::{INJECTED, REFRESH, ROUND, STAGGER, SUBMITTED};
use crate::carrier::wake::wake_timed_out;
use crate::fiber::current::set_current;
use crate::fiber::header::FiberRef;
use crate::protocol::injector::Injector;

impl Carrier {
    /// The body of the carrier's thread.
    pub(crate) fn run(&self) {
        CARRIER.set(self);
        // SAFETY: the call has no preconditions.
        self.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        // Threads started by std have one already.
        let _ = overflow::ensure_alternate_stack();
        // SAFETY: nothing else accesses the carrier's own context before a fiber runs, and then only the
        // switches of this thread.
        unsafe { *self.native.get() = ThreadContext::of_this_thread() };
        for visit in 0u64.. {
            // Where the order is drawn, each fiber comes back here, and this context chooses the next.
            self.round.set(if self.time.is_some() { 0 } else { ROUND });
            self.hear_calls();
            self.fire_timers();
            // SAFETY: this is the carrier's own context.
            unsafe { self.poll() };
            if visit % REFRESH == 0 {
                notice_libraries();
            }
            if let Some(fiber) = self.find_here() {
                self.enter(fiber);
            } else {
                match self.search() {
                    Some(fiber) => self.enter(fiber),
                    None => break,
                }
            }
        }
        self.with_local(|local| {
            local.headers.clear();
            local.stacks.clear();
        });
        CARRIER.set(ptr::null());
    }

    /// Runs fibers, this one first, until one of them comes back here.
    fn enter(&self, fiber: FiberRef) {
        assign(fiber, self);
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
        self.settle();
        if self.own_tls && self.queue.len() > 1 {
            // A thief that looked while the queue was locked has got nothing, and may sleep by now.
            self.runtime().notify();
        }
    }

    /// Takes a fiber from this carrier's own queues or from what was submitted to all carriers.
    fn find_here(&self) -> Option<FiberRef> {
        self.accept(&self.inbox);
        if !self.runtime().injector.is_empty() {
            self.accept(&self.runtime().injector);
        }
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
        let runtime = self.runtime();
        let sleepers = &runtime.sleepers;
        sleepers.search();
        loop {
            self.hear_calls();
            self.fire_timers();
            // SAFETY: this is the carrier's own context.
            unsafe { self.poll() };
            let found = self.find_here().or_else(|| self.steal());
            if found.is_some() || runtime.has_stopped() {
                runtime.wake(sleepers.found());
                return found;
            }
            sleepers.lie_down(self.index);
            if !self.something_came() {
                self.sleep();
            }
            // Counts the carrier as searching, unless a waker has done so.
            sleepers.wake_up(self.index);
            lookout::carrier_woke();
        }
    }

    /// Gives back the stacks kept for the next fibers, if they have been [called in](calls).
    fn hear_calls(&self) {
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
            || !runtime.injector.is_empty()
            || (self.own_tls && runtime.carriers.iter().any(|c| !c.queue.is_empty()))
    }

    fn sleep(&self) {
        let runtime = self.runtime();
        let next = runtime.next_timer();
        // SAFETY: this is the carrier's own context.
        let lie = |deadline| unsafe { self.lie(deadline) };
        if next == NEVER {
            lie(None);
        } else if runtime.keep_time(next) {
            lie(Some(next));
            runtime.kept_time(next);
        } else {
            // Another sleeper wakes for the timers. This one does so later, in case that other is busy
            // then.
            lie(Some(next.saturating_add(STAGGER)));
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
        for offset in 0..carriers.len() {
            let victim = &carriers[(start + offset) % carriers.len()];
            if ptr::eq(&**victim, self) {
                continue;
            }
            // SAFETY: this is the thread that owns `self.queue`, in its own context, so that is not locked;
            // the victim's is another queue.
            if let Some(fiber) = unsafe { victim.queue.steal_into(&self.queue) } {
                count(&self.stats.steals);
                return Some(fiber);
            }
        }
        None
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

    /// Ends the waits whose deadlines have passed, on all carriers: another may be busy.
    fn fire_timers(&self) {
        let runtime = self.runtime();
        if runtime.next_timer() == NEVER {
            return;
        }
        let now =
            self.time.as_ref().map_or_else(carefree_reactor::clock::now, |time| time.clock.now());
        let mut due = Vec::new();
        for carrier in &runtime.carriers {
            carrier.shard.expire(now, &mut due);
        }
        for (fiber, ticket) in due {
            wake_timed_out(fiber, ticket);
        }
    }
}

/// Has new fibers get thread-local variables of libraries that were loaded since the last look.
fn notice_libraries() {
    if let Some(layout) = tls::mode().layout() {
        // It starts a thread to look. Where none can be had, a later visit tries again.
        let _ = layout.refresh();
    }
}
