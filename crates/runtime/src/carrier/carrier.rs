//! A carrier: a kernel thread that runs fibers.
//!
//! A fiber that waits or yields switches straight to the next one in its carrier's queue. Only when
//! there is none, and every `ROUND` switches, does it switch to the carrier's own context, which
//! looks after timers, takes what other threads have submitted, steals, and sleeps.
//!
//! # Leaving a stack
//!
//! A fiber must not be found by others before its context is saved, which the switch does. So the
//! departing fiber locks the run queue, notes what is to be done with it ([`Next`]) or queues itself, and
//! switches; what runs next on this carrier does what was noted and unlocks the queue, before
//! anything else ([`Carrier::settle`]).

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::ptr;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use carefree_context::arch::{self, ThreadContext};
use carefree_reactor::{Op, TimerKey, Unsupported};

use crate::carrier::bucket::Held;
use crate::carrier::errand::ErrandRef;
use crate::carrier::io::Io;
use crate::carrier::policy::{Place, SPAWNED, YIELDED};
use crate::carrier::queue::Queue;
use crate::carrier::timers::Shard;
use crate::fiber::current::{current_fiber, set_current, try_current, without_parking};
use crate::fiber::furnish::{self, Furnished};
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::pin;
use crate::fiber::registry;
use crate::fiber::virtual_time::VirtualTime;
use crate::protocol::episode::Ticket;
use crate::protocol::injector::Injector;
use crate::protocol::sleepers::Sleepers;

/// What is to be done with a fiber that has left its stack.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    /// Its wait has begun: it may be woken now.
    Park,
    /// Its wait has begun, and what might wake it waits for this lock.
    ParkHeld(Held),
    /// It has ended: take its stack back.
    End,
}

/// What the carriers of a runtime share. Without carriers it starts threads in place of fibers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) this: Weak<Shared>,
    pub(crate) carriers: Box<[Box<Carrier>]>,
    pub(crate) sleepers: Sleepers,
    /// Fibers made ready by others than carriers, for any carrier.
    pub(crate) injector: Injector<FiberRef>,
    pub(crate) own_tls: bool,
    /// In shared mode: counts spawned fibers to spread them over the carriers.
    pub(crate) homes: AtomicUsize,
    /// Fibers spawned by others than carriers.
    pub(crate) submitted: AtomicU64,
    /// Of those, threads that were started in place of fibers and have ended.
    pub(crate) threads_ended: AtomicU64,
    pub(crate) stopping: AtomicBool,
    /// Threads, other than carriers, that are just putting a fiber into a queue here, where that
    /// fiber may run and end meanwhile, and be the last; and the watchdog while it looks.
    pub(crate) visitors: AtomicUsize,
    /// The process it belongs to, counted by forks.
    pub(crate) process: u32,
    /// Until when the sleeper sleeps that sees to the timers.
    pub(crate) time_kept: AtomicU64,
    /// The next runtime in the list of `runtimes`, under its lock.
    pub(crate) next: AtomicUsize,
}

/// A kernel thread's share of a runtime.
#[repr(align(128))]
pub(crate) struct Carrier {
    /// What the owner alone touches.
    left: Cell<Option<(Next, FiberRef)>>,
    pub(crate) round: Cell<u32>,
    pub(crate) own_tls: bool,
    /// The kernel thread's own context, while a fiber runs.
    pub(crate) native: UnsafeCell<ThreadContext>,
    local: UnsafeCell<Local>,
    /// Checked where debug assertions are.
    local_in_use: Cell<bool>,
    /// See `shortage`.
    pub(crate) calls_heard: AtomicU64,
    pub(crate) random: Cell<u64>,

    pub(crate) index: usize,
    /// The kernel's number of its thread; 0 until that runs.
    pub(crate) thread: AtomicI32,
    runtime: Cell<*const Shared>,
    pub(crate) stats: Stats,
    /// The watchdog's: one more than the switches it had made when it was found to be kept busy.
    pub(crate) held_up: AtomicU64,

    pub(crate) queue: Queue,
    /// In shared mode: fibers made ready elsewhere that may only run here.
    pub(crate) inbox: Injector<FiberRef>,
    pub(crate) shard: Shard,
    pub(crate) io: Io,
    /// Its runtime's, if that has time of its own.
    pub(crate) time: Option<VirtualTime>,
}

// SAFETY: what is not Sync in it (`left`, `round`, `native`, `local`, `random`, and `io` as far as
// it does not say otherwise) is touched by the
// carrier's own kernel thread only, be it in its own context or in that of a fiber it runs.
unsafe impl Sync for Carrier {}
// SAFETY: built by one thread and handed to the one that runs it.
unsafe impl Send for Carrier {}

/// Counts of one carrier; written by it alone.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) spawned: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) parks: AtomicU64,
    pub(crate) steals: AtomicU64,
}

#[inline(always)]
pub(crate) fn count(counter: &AtomicU64) {
    // One writer, so no read-modify-write is needed.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}

/// Free things a carrier keeps at hand.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) headers: registry::Local,
    pub(crate) stacks: furnish::Local,
}

thread_local! {
    /// On a carrier's own stack: the carrier. (A fiber knows its carrier from its header.)
    pub(crate) static CARRIER: Cell<*const Carrier> = const { Cell::new(ptr::null()) };
}

/// The carrier the caller runs on.
#[inline(always)]
pub(crate) fn here() -> Option<&'static Carrier> {
    if let Some(me) = try_current() {
        if me.kind.get() == Kind::Fiber {
            return Some(of(me));
        }
    }
    let carrier = CARRIER.get();
    // SAFETY: a carrier lives for as long as its thread runs; the caller runs on it.
    unsafe { carrier.as_ref() }
}

/// In the child of a fork: the calling thread is no carrier any more.
pub(crate) fn forget() {
    CARRIER.set(ptr::null());
}

/// The carrier that runs `me`, which is the calling fiber.
#[inline(always)]
pub(crate) fn of(me: FiberRef) -> &'static Carrier {
    // SAFETY: set when the fiber was entered; a carrier outlives the fibers of its runtime. The
    // borrow must not be held over a switch, after which the fiber may be elsewhere.
    unsafe { &*me.carrier.get().cast::<Carrier>() }
}

/// Notes which carrier runs `fiber`, or is to start it.
#[inline(always)]
pub(crate) fn assign(fiber: FiberRef, carrier: &Carrier) {
    fiber.carrier.set(ptr::from_ref(carrier).cast());
}

/// Puts a fiber where a carrier will find it.
pub(crate) fn make_ready(fiber: FiberRef, place: Place) {
    let carrier = match current_fiber() {
        // Within the runtime's own code the queue may be in use: see `without_parking`.
        Some(me) if me.plain.get() != 0 => None,
        Some(me) => Some(of(me)),
        None => here(),
    };
    match carrier {
        Some(carrier) if belongs(fiber, carrier) => carrier.make_ready(fiber, place),
        _ => {
            // SAFETY: a fiber that is ready is alive and keeps its carriers alive.
            let carrier = unsafe { &*fiber.carrier.get().cast::<Carrier>() };
            carrier.runtime().inject(fiber);
        }
    }
}

/// Whether `fiber` belongs to `carrier`'s runtime.
#[inline]
fn belongs(fiber: FiberRef, carrier: &Carrier) -> bool {
    let of = fiber.carrier.get().cast::<Carrier>();
    // SAFETY: a fiber that is alive keeps its runtime, and so its carriers, alive.
    ptr::eq(of, carrier) || !of.is_null() && ptr::eq(unsafe { (*of).runtime() }, carrier.runtime())
}

/// Gives one counted reference back, and with the last one the header.
#[inline]
pub(crate) fn release(fiber: FiberRef) {
    if fiber.give_back() {
        recycle(fiber);
    }
}

fn recycle(fiber: FiberRef) {
    if let Some(pinned) = registry::clear(fiber) {
        without_parking(|| furnish::put(pinned));
    }
    match here().filter(|_| fiber.kind.get() == Kind::Fiber) {
        Some(carrier) => carrier.with_local(|local| local.headers.put(fiber)),
        None => registry::put(fiber),
    }
}

/// Leaves the calling fiber's stack; returns when the fiber is run again, perhaps by another
/// carrier.
///
/// # Safety
/// `me` is the calling fiber. With [`Next::Park`] and [`Next::ParkHeld`] its wait has begun; with
/// [`Next::End`] nothing on its stack is needed any more, and the call does not return.
#[inline(always)]
pub(crate) unsafe fn leave(me: FiberRef, next: Next) {
    let carrier = of(me);
    carrier.left.set(Some((next, me)));
    if let Next::End = next {
        // SAFETY: the running fiber's own, which only the switch away from it writes.
        unsafe { (*me.context.get()).end() };
    }
    // SAFETY: the caller runs on this carrier, and locks are held from here to `settle` only.
    let mut queue = unsafe { carrier.queue.lock() };
    let to = if carrier.is_due() { None } else { queue.pop() };
    // SAFETY: the caller's promise.
    unsafe { carrier.go(me, to) };
}

/// Lets other fibers run. Returns at once if none is ready; on a plain thread, yields that.
#[inline]
pub fn yield_now() {
    let Some(me) = current_fiber() else { return std::thread::yield_now() };
    if !of(me).must_not_switch() {
        yield_from(me);
    }
}

/// Lets the others on this carrier run first.
#[inline(always)]
fn yield_from(me: FiberRef) {
    let carrier = of(me);
    // SAFETY: as in `leave`.
    let mut queue = unsafe { carrier.queue.lock() };
    // A yield counts even when no other is there: a fiber that waits for something in a loop around it
    // must not keep the carrier from its timers.
    let to = if carrier.is_due() || (carrier.queue.is_empty() && carrier.has_submissions()) {
        queue.push(me, YIELDED);
        None
    } else {
        let Some(next) = queue.rotate(me) else {
            // No other is there.
            return queue.unlock();
        };
        Some(next)
    };
    // SAFETY: `me` is the calling fiber; it is in the queue, which is locked.
    unsafe { carrier.go(me, to) };
}

impl Carrier {
    pub(crate) fn new(index: usize, own_tls: bool, time: Option<VirtualTime>) -> Self {
        let now = time.as_ref().map_or_else(carefree_reactor::clock::now, |time| time.clock.now());
        // Xorshift needs a state other than 0; and seeds that are alike must not draw alike.
        let seed = time.as_ref().map_or(index as u64, |time| time.seed);
        let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let random = Cell::new((mixed ^ mixed >> 29).max(1));
        Carrier {
            left: Cell::new(None),
            round: Cell::new(0),
            own_tls,
            native: UnsafeCell::new(ThreadContext::of_this_thread()),
            local: UnsafeCell::default(),
            local_in_use: Cell::new(false),
            calls_heard: AtomicU64::new(0),
            random,
            index,
            thread: AtomicI32::new(0),
            runtime: Cell::new(ptr::null()),
            stats: Stats::default(),
            held_up: AtomicU64::new(0),
            queue: Queue::new(),
            inbox: Injector::new(),
            shard: Shard::new(now),
            io: Io::new(time.clone()),
            time,
        }
    }

    /// Makes the carrier one of `runtime`'s; once, before any thread runs it.
    pub(crate) fn join_runtime(&self, runtime: *const Shared) {
        self.runtime.set(runtime);
    }

    #[inline(always)]
    pub(crate) fn runtime(&self) -> &Shared {
        // SAFETY: the runtime owns its carriers.
        unsafe { &*self.runtime.get() }
    }

    /// Uses what the carrier keeps at hand. The caller runs on it.
    #[inline(always)]
    pub(crate) fn with_local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        // `f` may allocate, and an allocator may wait for a mutex.
        without_parking(|| {
            debug_assert!(!self.local_in_use.replace(true), "a fiber was parked amid this");
            // SAFETY: only the carrier's thread comes here, and `f` neither switches nor comes
            // again.
            let result = f(unsafe { &mut *self.local.get() });
            self.local_in_use.set(false);
            result
        })
    }

    /// # Safety
    /// As for `switch_thread_from_rust`; the thread-local storage of `to` is its own in own mode,
    /// this thread's in shared mode.
    #[inline(always)]
    pub(crate) unsafe fn switch(&self, from: *mut ThreadContext, to: *const ThreadContext) {
        // SAFETY: the caller's promises.
        unsafe {
            if self.own_tls {
                arch::switch_thread_from_rust::<true>(from, to);
            } else {
                arch::switch_thread_from_rust::<false>(from, to);
            }
        }
    }

    /// Counts a switch of this round; whether the carrier's own context is due instead.
    #[inline(always)]
    fn is_due(&self) -> bool {
        let round = self.round.get();
        if round == 0 {
            return true;
        }
        self.round.set(round - 1);
        false
    }

    /// Switches from `me` to `to`, or to the carrier's own context.
    ///
    /// # Safety
    /// `me` is the calling fiber, and is in the locked queue or noted as left; the queue is locked.
    #[inline(always)]
    unsafe fn go(&self, me: FiberRef, to: Option<FiberRef>) {
        let to = match to {
            Some(fiber) => {
                assign(fiber, self);
                fiber.context.get().cast_const()
            }
            None => self.native.get().cast_const(),
        };
        // SAFETY: `to` is suspended: a fiber from the queue, or the carrier's own context, which
        // waits while fibers run. Nothing else can enter `me` before the queue is unlocked. Rust code
        // runs under the default floating-point environment.
        unsafe { self.switch(me.context.get(), to) };
        // Run again; where, the header says.
        of(me).entered(me);
    }

    /// Does what has to be done first by a fiber that was just entered here.
    #[inline(always)]
    pub(crate) fn entered(&self, me: FiberRef) {
        if !self.own_tls {
            set_current(Some(me));
        }
        count(&self.stats.switches);
        self.settle();
    }

    /// Finishes the leaving of the fiber that ran before.
    #[inline(always)]
    pub(crate) fn settle(&self) {
        // SAFETY: this runs on the carrier, and the departing fiber has locked its queue.
        let mut queue = unsafe { self.queue.locked() };
        let Some((next, fiber)) = self.left.take() else { return queue.unlock() };
        match next {
            Next::Park => {
                count(&self.stats.parks);
                if !fiber.episode.commit() {
                    // Woken on its way out.
                    queue.push(fiber, YIELDED);
                }
                queue.unlock();
            }
            Next::ParkHeld(held) => {
                count(&self.stats.parks);
                held.release();
                queue.unlock();
            }
            Next::End => {
                queue.unlock();
                self.bury(fiber);
            }
        }
    }

    /// Takes an ended fiber's stack back, and its own reference to its header.
    fn bury(&self, fiber: FiberRef) {
        // SAFETY: the fiber has left its stack for good, and nothing else looks at its context.
        unsafe { (*fiber.context.get()).forget() };
        // On the stack of the fiber that was just entered, which may be about to return from a wait.
        without_parking(|| {
            pin::bury(fiber, |stack| {
                // SAFETY: as above.
                let stack = unsafe { Furnished::from_raw(stack) };
                self.with_local(|local| local.stacks.put(stack));
            });
            count(&self.stats.ended);
            self.runtime().fiber_ended();
            release(fiber);
        });
    }

    /// The thread pointer that the carrier's own context runs under.
    ///
    /// # Safety
    /// The caller is a fiber that runs on this carrier.
    pub(crate) unsafe fn native_thread_pointer(&self) -> *mut u8 {
        // SAFETY: written by the switch away from that context, which waits while fibers run.
        unsafe { (*self.native.get()).thread_pointer() }
    }

    /// In the child of a fork: closes what it has of the parent's reactor.
    ///
    /// # Safety
    /// There is one thread, and it is not in the reactor.
    pub(crate) unsafe fn abandon_reactor(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.io.abandon() };
    }

    /// The kernel's number of its thread; 0 until that runs.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Times it has entered a fiber.
    pub(crate) fn switches(&self) -> u64 {
        self.stats.switches.load(Ordering::Relaxed)
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether nothing waits here to be run. A hint, but for the carrier itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.inbox.is_empty()
    }

    /// Whether the running fiber may not leave its stack just now: in shared mode, while it
    /// panics. `std` counts panics in thread-local storage; another fiber that ran meanwhile would
    /// find that it panics, and abort the process if it did.
    #[inline(always)]
    pub(crate) fn must_not_switch(&self) -> bool {
        !self.own_tls && std::thread::panicking()
    }

    /// Whether others have submitted fibers that this carrier could run.
    fn has_submissions(&self) -> bool {
        !self.inbox.is_empty() || !self.runtime().injector.is_empty()
    }

    /// A fiber of this runtime was woken by the caller, which runs on this carrier.
    pub(crate) fn make_ready(&self, fiber: FiberRef, place: Place) {
        if !self.own_tls {
            return self.runtime().inject(fiber);
        }
        // SAFETY: the caller runs on this carrier, not between `leave` and `settle`.
        unsafe { self.queue.push(fiber, place) };
        self.runtime().notify();
    }

    /// A fiber that runs on this carrier has spawned another.
    #[inline]
    pub(crate) fn spawned(&self, fiber: FiberRef) {
        count(&self.stats.spawned);
        if !self.own_tls {
            return self.runtime().inject_anywhere(fiber);
        }
        // SAFETY: as above.
        unsafe { self.queue.push(fiber, SPAWNED) };
        self.runtime().notify();
    }

    /// Fibers made ready elsewhere that may run here only.
    pub(crate) fn deliver(&self, fiber: FiberRef) {
        self.inbox.push(fiber);
    }

    /// Sets a timer for the wait of a fiber that runs here.
    pub(crate) fn set_timer(
        &self,
        deadline: u64,
        fiber: FiberRef,
        ticket: Ticket,
    ) -> (*const Shard, TimerKey) {
        let (key, first) = without_parking(|| self.shard.insert(deadline, fiber, ticket));
        if first {
            self.runtime().sooner(deadline);
        }
        (&raw const self.shard, key)
    }

    pub(crate) fn next_timer(&self) -> u64 {
        self.shard.next()
    }

    /// Wakes the carrier's thread, or keeps it from its next sleep.
    pub(crate) fn wake(&self) {
        self.io.wake();
    }

    /// Has the kernel do `op` for a fiber that runs here; `unheld`: without holding its file.
    pub(crate) fn submit(&self, token: u64, op: &Op, unheld: bool) -> Result<(), Unsupported> {
        // It may make the driver, and allocates, with its lock held.
        without_parking(|| {
            // SAFETY: the caller runs here; the driver calls nothing back.
            unsafe { self.io.submit(token, op, unheld) }
        })
    }

    /// Cancels an operation that was submitted here; for a fiber that runs here.
    pub(crate) fn cancel(&self, token: u64) {
        without_parking(|| {
            // SAFETY: as above.
            unsafe { self.io.cancel(token) };
        });
    }

    /// Cancels an operation that was submitted here; for a fiber that runs elsewhere.
    ///
    /// # Safety
    /// The operation's record stays until the errand was run.
    pub(crate) unsafe fn send_errand(&self, errand: ErrandRef) {
        self.io.leave_errand(errand);
        if self.runtime().sleepers.claim_one(self.index) {
            self.wake();
        }
    }

    /// Whether fibers wait for the kernel here. A hint, but for the carrier itself.
    pub(crate) fn has_operations(&self) -> bool {
        self.io.is_waiting() || self.io.has_errands()
    }

    /// Its runtime's time, if that has one of its own.
    #[inline(always)]
    pub(crate) fn virtual_time(&self) -> Option<&VirtualTime> {
        self.time.as_ref()
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Carrier").field("index", &self.index).finish_non_exhaustive()
    }
}
