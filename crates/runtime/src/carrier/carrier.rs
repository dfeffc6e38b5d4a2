//! Carriers, which are the kernel threads that run fibers, and runtimes, which are the carriers and what they
//! share.
//!
//! A fiber that waits or yields switches straight to the next one in its carrier's queue
//! ([`switch`](super::switch)). Only when there is none, and every
//! [`ROUND`](super::policy::ROUND) switches, does it switch to the carrier's own context
//! ([`round`](super::round)).

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::io;
use std::ptr;
use std::sync::Weak;

use carefree_context::arch::ThreadContext;
use carefree_context::tls;
use carefree_ground::lock::Lock;
use carefree_reactor::{Op, TimerKey, Unsupported};

use crate::carrier::bucket::Held;
use crate::carrier::errand::ErrandRef;
use crate::carrier::handover::Handover;
use crate::carrier::io::Io;
use crate::carrier::launch::{Launched, Signals};
use crate::carrier::local::Local;
use crate::carrier::looks::Looks;
use crate::carrier::meter::Meter;
use crate::carrier::pace::Pace;
use crate::carrier::policy::{Place, SPAWNED, STARTED};
use crate::carrier::queue::Queue;
use crate::carrier::stats::{Stats, count};
use crate::carrier::table::Table;
use crate::carrier::timers::Shard;
use crate::fiber::current::{current_fiber, is_amid, try_current, without_parking};
use crate::fiber::furnish::Furnished;
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::idle;
use crate::fiber::registry::{self, Remains};
use crate::fiber::unstarted;
use crate::fiber::virtual_time::VirtualTime;
use crate::protocol::episode::Ticket;
use crate::protocol::injector::Injector;
use crate::protocol::set::Set;
use crate::protocol::sleepers::Sleepers;
use crate::protocol::sync::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, clock,
};

/// What is to be done with a fiber that has left its stack.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    /// Its wait has begun: it may be woken from now on.
    Park,
    /// Its wait has begun, under this lock, which keeps all from waking it: to be released.
    ParkHeld(Held),
    /// It has ended: take its stack back.
    End,
}

/// A runtime: carriers, and what they share. One without carriers starts threads in place of fibers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) this: Weak<Shared>,
    pub(crate) carriers: Table<Carrier>,
    pub(crate) sleepers: Sleepers,
    /// Fibers made ready by others than carriers, for any carrier.
    pub(crate) injector: Injector<FiberRef>,
    /// Fibers that were taken from a carrier's queue, for any other.
    pub(crate) handover: Handover,
    /// Own mode: each fiber has thread-local storage of its own. Else (shared mode) fibers use that of
    /// their carrier, and never leave it.
    pub(crate) own_tls: bool,
    /// In shared mode: counts spawned fibers, to spread them over the carriers.
    pub(crate) homes: AtomicUsize,
    /// Fibers spawned from outside of the runtime; and threads started in place of fibers.
    pub(crate) submitted: AtomicU64,
    /// Of these threads, those that have ended.
    pub(crate) threads_ended: AtomicU64,
    pub(crate) stopping: AtomicBool,
    /// Carriers that are stuck, by the last look of the monitor.
    pub(crate) stuck: AtomicU32,
    /// Held while a carrier is added, or their threads are joined.
    pub(crate) adding: Lock<()>,
    /// Bytes of stack of an added carrier's thread.
    pub(crate) stack_bytes: usize,
    /// Times that a carrier was added, or recalled from the reserve.
    pub(crate) added: AtomicU64,
    /// Carriers that were added and whose threads have yet to begin.
    pub(crate) starting: AtomicU32,
    /// How many looks in a row have added carriers.
    pub(crate) ramp: AtomicU32,
    /// How many looks in a row have found more carriers than wanted.
    pub(crate) surplus: AtomicU32,
    /// Nanoseconds for which fibers kept carriers, all added up, by the monitor's looks; and the time of the
    /// last of these.
    pub(crate) kept_time: AtomicU64,
    pub(crate) last_look: AtomicU64,
    /// The last look that found a carrier to have switched since the one before.
    pub(crate) moved_at: AtomicU64,
    /// Wake-ups that were missing, by the monitor's count.
    pub(crate) missed: AtomicU64,
    /// The signals that added carriers block: the same as the first ones.
    pub(crate) signals: Signals,
    /// The name of its carriers' threads, before their number.
    pub(crate) name: String,
    /// Threads that use the runtime without owning a part of it; it is not freed before they have left.
    /// They put a fiber into a queue here, where it may run and end at once, and be the last; or they
    /// look at the carriers, as the watchdog does.
    pub(crate) visitors: AtomicUsize,
    /// The process that it belongs to: see `generation`.
    pub(crate) process: u32,
    /// The carriers that have timers: see `timers`.
    pub(crate) timed: Set,
    /// When the sleeping carrier that sees to others' late timers will wake; [`NEVER`](crate::carrier::clock::NEVER)
    /// if there is none.
    pub(crate) time_kept: AtomicU64,
    /// When the timers of all carriers were last looked at.
    pub(crate) timers_looked_at: AtomicU64,
    /// The address of the next runtime in the list of `runtimes`, or 0; under that list's lock.
    pub(crate) next: AtomicUsize,
}

/// A carrier of a runtime, and all that its thread needs to run fibers.
#[repr(align(128))]
pub(crate) struct Carrier {
    // What its own thread alone accesses comes first.
    /// The fiber that has just left its stack, and what is to be done with it.
    pub(crate) left: Cell<Option<(Next, FiberRef)>>,
    /// Switches until the carrier's own context is due.
    pub(crate) round: Cell<u32>,
    /// As in [`Shared`].
    pub(crate) own_tls: bool,
    /// The carrier's own context, while a fiber runs.
    pub(crate) native: UnsafeCell<ThreadContext>,
    local: UnsafeCell<Local>,
    /// Whether `local` is in use: for debug assertions.
    local_in_use: Cell<bool>,
    /// Whether it has slept until a timer of another carrier was late.
    pub(crate) sees_to_timers: Cell<bool>,
    /// The last call for stacks that it has heard: see `calls`.
    pub(crate) calls_heard: AtomicU64,
    /// A fiber that could not be entered, for it has yet to start and no stack was at hand.
    pub(crate) unfurnished: Cell<Option<FiberRef>>,
    /// The state of its random numbers.
    pub(crate) random: Cell<u64>,

    /// Its place among its runtime's carriers.
    pub(crate) index: usize,
    /// The kernel's number of its thread; 0 until that runs.
    pub(crate) thread: AtomicI32,
    /// Of a carrier that was added: its thread's `pthread_t`, to be joined; 0 if that could not be started.
    pub(crate) added: AtomicUsize,
    runtime: Cell<*const Shared>,
    pub(crate) stats: Stats,
    /// Whether it sleeps, or is just waking up: by the protocol of the sleepers, or in reserve without
    /// operations under way. For [`Shared::is_dormant`].
    pub(crate) sleeps: AtomicBool,
    /// What the monitor has seen of it.
    pub(crate) looks: Looks,

    pub(crate) queue: Queue,
    pub(crate) pace: Pace,
    /// What its fibers use of the processor.
    pub(crate) meter: Meter,
    /// Another carrier that has fibers queued and may be stuck: its index, the number of its switches,
    /// and since when that is the same.
    pub(crate) suspect: Cell<(usize, u64, u64)>,
    /// In shared mode: fibers of this carrier that were made ready from elsewhere.
    pub(crate) inbox: Injector<FiberRef>,
    /// Its timers.
    pub(crate) shard: Shard,
    pub(crate) io: Io,
    /// Its runtime's virtual time, if that has such.
    pub(crate) time: Option<VirtualTime>,
}

// SAFETY: what is not Sync in it (`left`, `round`, `native`, `local`, `local_in_use`, `sees_to_timers`, `unfurnished`,
// `random`, `suspect`, and parts of `pace`, `meter` and `io`, as is said there) is accessed only by the carrier's own
// thread, in its own context or on a fiber's stack. `runtime` is written before that thread runs.
unsafe impl Sync for Carrier {}
// SAFETY: nothing in it belongs to the thread that makes it.
unsafe impl Send for Carrier {}

carefree_context::thread_word! {
    /// In a carrier's own context: the carrier. (A fiber finds its carrier in its header.)
    CARRIER, "carefree_runtime_carrier"
}

/// Notes that the calling thread runs `carrier`, in its own context; null where it runs none any more.
pub(crate) fn set_here(carrier: *const Carrier) {
    CARRIER.set(carrier.cast_mut().cast());
}

/// The carrier the caller runs on.
#[inline(always)]
pub(crate) fn here() -> Option<&'static Carrier> {
    if let Some(me) = try_current() {
        if me.kind.get() == Kind::Fiber {
            return Some(of(me));
        }
    }
    let carrier = CARRIER.get().cast::<Carrier>();
    // SAFETY: null, or the carrier that the calling thread runs, which is alive until its `run` returns
    // and clears this.
    unsafe { carrier.as_ref() }
}

/// To be called in the child of a fork: the calling thread is no carrier there.
pub(crate) fn forget() {
    set_here(ptr::null());
}

/// The carrier that runs `me`, the calling fiber. It must not be used after a switch, when the fiber may
/// be on another.
#[inline(always)]
pub(crate) fn of(me: FiberRef) -> &'static Carrier {
    // SAFETY: `assign` has set it when the fiber was entered; and a carrier outlives the fibers of its
    // runtime.
    unsafe { &*me.carrier.get().cast::<Carrier>() }
}

/// Notes the carrier that is about to enter `fiber`, or is to start it.
#[inline(always)]
pub(crate) fn assign(fiber: FiberRef, carrier: &Carrier) {
    fiber.carrier.set(ptr::from_ref(carrier).cast());
}

/// [`assign`] right before a fiber that may have run on another carrier is entered. False if it has yet to start, and
/// no stack is at hand: then [`Carrier::furnish`] finds one.
#[inline(always)]
pub(crate) fn assign_to_enter(fiber: FiberRef, carrier: &Carrier) -> bool {
    ptr::eq(fiber.carrier.get(), ptr::from_ref(carrier).cast()) || take_over(fiber, carrier)
}

/// `carrier` takes over a fiber that another one ran or was to start, or that has yet to start.
#[inline(never)]
fn take_over(fiber: FiberRef, carrier: &Carrier) -> bool {
    if unstarted::is_unstarted(fiber) {
        let idle = carrier.with_local(|local| local.stacks.take_promised_idle());
        return idle.is_some_and(|stack| {
            carrier.start(fiber, stack);
            true
        });
    }
    take_over_started(fiber, carrier);
    true
}

#[cold]
fn take_over_started(fiber: FiberRef, carrier: &Carrier) {
    assign(fiber, carrier);
    // SAFETY: the caller is on the carrier, which is about to enter the suspended fiber.
    unsafe { carrier.lend_malloc(fiber) };
}

/// Queues a fiber whose wait has ended: on the caller's carrier, if that is of the fiber's runtime, else
/// where all carriers of the fiber's runtime look.
#[inline(always)]
pub(crate) fn make_ready(fiber: FiberRef, place: Place) {
    // As a rule by a fiber of the same carrier.
    match current_fiber().filter(|me| me.carrier.get() == fiber.carrier.get()) {
        // Within the runtime's own code, the carrier's queue may be in use.
        Some(me) if me.plain.get() == 0 => of(me).make_ready(fiber, place),
        _ => make_ready_elsewhere(fiber, place),
    }
}

/// [`make_ready`] of a fiber that another carrier has run, or by a caller that is no fiber.
#[inline(never)]
fn make_ready_elsewhere(fiber: FiberRef, place: Place) {
    let carrier = match current_fiber() {
        Some(me) if me.plain.get() != 0 => None,
        Some(me) => Some(of(me)),
        None => here(),
    };
    match carrier {
        Some(carrier) if belongs(fiber, carrier) => carrier.make_ready(fiber, place),
        _ => {
            // SAFETY: a fiber that was entered once, as each that has waited, has a carrier; and while it is
            // alive, so is its runtime.
            let carrier = unsafe { &*fiber.carrier.get().cast::<Carrier>() };
            carrier.runtime().inject(fiber);
        }
    }
}

/// Whether `fiber` belongs to `carrier`'s runtime.
#[inline]
fn belongs(fiber: FiberRef, carrier: &Carrier) -> bool {
    let of = fiber.carrier.get().cast::<Carrier>();
    // SAFETY: `fiber` has not ended, so its runtime, with its carriers, is there.
    ptr::eq(of, carrier) || !of.is_null() && ptr::eq(unsafe { (*of).runtime() }, carrier.runtime())
}

/// Gives back one counted reference to the header, and with the last one the header itself.
#[inline]
pub(crate) fn release(fiber: FiberRef) {
    if fiber.give_back() {
        recycle(fiber);
    }
}

/// Takes back a header to which no counted reference is left, and frees the fiber's names.
pub(crate) fn recycle(fiber: FiberRef) {
    let Remains { names, pinned } = registry::clear(fiber);
    drop(names);
    match here().filter(|_| fiber.kind.get() == Kind::Fiber && !is_amid()) {
        Some(carrier) => carrier.with_local(|local| local.take_back(fiber, pinned)),
        None => {
            if let Some(pinned) = pinned {
                idle::put(pinned);
                without_parking(idle::strip_surplus);
            }
            registry::put(fiber);
        }
    }
}

impl Carrier {
    /// A carrier without a thread, to [join](Self::join_runtime) a runtime.
    pub(crate) fn new(index: usize, own_tls: bool, time: Option<VirtualTime>) -> Self {
        let now = time.as_ref().map_or_else(clock::now, |time| time.clock.now());
        // Xorshift needs a state other than 0, and similar seeds should draw different numbers.
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
            sees_to_timers: Cell::new(false),
            calls_heard: AtomicU64::new(0),
            unfurnished: Cell::new(None),
            random,
            index,
            thread: AtomicI32::new(0),
            added: AtomicUsize::new(0),
            runtime: Cell::new(ptr::null()),
            stats: Stats::default(),
            sleeps: AtomicBool::new(false),
            looks: Looks::default(),
            queue: Queue::new(),
            pace: Pace::new(),
            meter: Meter::new(),
            suspect: Cell::new((index, 0, 0)),
            inbox: Injector::new(),
            shard: Shard::new(now, index),
            io: Io::new(time.clone()),
            time,
        }
    }

    /// Makes this a carrier of `runtime`. To be called once, before a thread runs it.
    pub(crate) fn join_runtime(&self, runtime: *const Shared) {
        self.runtime.set(runtime);
    }

    #[inline(always)]
    pub(crate) fn runtime(&self) -> &Shared {
        // SAFETY: `join_runtime` has set it; the runtime owns this carrier, so it lives longer.
        unsafe { &*self.runtime.get() }
    }

    /// Calls `f` with what the carrier keeps for its next fibers. The caller runs on the carrier.
    #[inline(always)]
    pub(crate) fn with_local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        // `f` may allocate: the fiber must not park in the allocator, amid this.
        without_parking(|| {
            debug_assert!(!self.local_in_use.replace(true), "a fiber was parked amid this");
            // SAFETY: only the carrier's thread comes here. `f` borrows `local` alone. It cannot switch, and does
            // not come here again, also not by an allocator of the program's that calls Carefree: see
            // `must_not_switch` and `is_amid`.
            let result = f(unsafe { &mut *self.local.get() });
            self.local_in_use.set(false);
            result
        })
    }

    /// Gives a fiber that starts here its stack, which it resets itself. (This is called on the stack of the fiber that
    /// is left. That may be within the program's allocator, and its frames should stay on one page.)
    #[inline(always)]
    fn start(&self, fiber: FiberRef, stack: Furnished) {
        // SAFETY: it has yet to start, and the caller has taken it out of its queue to enter it here.
        unsafe { unstarted::start(fiber, stack.renewed_below()) };
        assign(fiber, self);
    }

    /// Finds a stack for a fiber that starts here, in the carrier's own context: where an allocator may be called.
    ///
    /// # Errors
    /// When there is no memory for it, though it was promised.
    pub(crate) fn furnish(&self, fiber: FiberRef) -> io::Result<()> {
        let stack = self.with_local(|local| local.stacks.take_promised())?;
        self.start(fiber, stack);
        Ok(())
    }

    /// [`recycle`] for the fiber that has just left its stack here. The calling fiber may be within the
    /// program's allocator, waiting for one of its locks, so nothing here calls that.
    pub(crate) fn recycle_ended(&self, fiber: FiberRef) {
        let Remains { names, pinned } = registry::clear(fiber);
        self.with_local(|local| {
            local.take_back(fiber, pinned);
            if let Some(names) = names {
                local.ended.push(names);
            }
        });
    }

    /// The thread pointer that the carrier's own context runs under.
    ///
    /// # Safety
    /// The caller is a fiber that runs on this carrier.
    pub(crate) unsafe fn native_thread_pointer(&self) -> *mut u8 {
        // SAFETY: the switch away from that context has written it, and nothing writes it again before the
        // calling fiber switches back.
        unsafe { (*self.native.get()).thread_pointer() }
    }

    /// Has malloc use on `fiber` what it keeps for this carrier's thread.
    ///
    /// # Safety
    /// The caller is on this carrier, and `fiber` is its own or about to be entered here.
    #[inline]
    pub(crate) unsafe fn lend_malloc(&self, fiber: FiberRef) {
        // (Main has no stack of ours, but all that a thread has.)
        let Some(layout) = tls::known() else { return };
        if fiber.stack.load(Ordering::Relaxed).is_null() {
            return;
        }
        // SAFETY: nothing writes the context of a fiber that is suspended or running, nor the carrier's own on its
        // thread, but switches. The fiber's block is of the process's layout; the carrier has prepared for this,
        // and another one that enters the fiber does this first.
        unsafe {
            let thread = (*self.native.get()).thread_pointer();
            layout.lend_malloc(thread, (*fiber.context.get()).thread_pointer());
        }
    }

    /// To be called in the child of a fork: closes its descriptors of the parent's reactor.
    ///
    /// # Safety
    /// There is one thread, and it is not in the reactor.
    pub(crate) unsafe fn abandon_reactor(&self) {
        // SAFETY: this function demands the same.
        unsafe { self.io.abandon() };
    }

    /// The kernel's number of its thread; 0 until that runs.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// The thread of a carrier that was added and whose thread has not been taken before.
    pub(crate) fn take_added(&self) -> Option<Launched> {
        match self.added.swap(0, Ordering::Relaxed) {
            0 => None,
            // SAFETY: of `Launched::into_raw`, and taken once.
            thread => Some(unsafe { Launched::from_raw(thread) }),
        }
    }

    /// How often it has entered a fiber.
    pub(crate) fn switches(&self) -> u64 {
        self.stats.switches.load(Ordering::Relaxed)
    }

    /// For the monitor, at a look: whether it has entered a fiber since the last one.
    pub(crate) fn look(&self) -> bool {
        self.looks.note_switches(self.switches())
    }

    /// Whether it has entered a fiber since the monitor's last look.
    pub(crate) fn has_switched(&self) -> bool {
        self.looks.saw_other_than(self.switches())
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether no fiber is queued here. A hint, but for the carrier itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.inbox.is_empty()
    }

    /// Whether `me`, the running fiber, must not leave its stack just now. It must not [amid](without_parking) the
    /// runtime's own code, from which a program's allocator may be called that calls Carefree. And in shared mode it
    /// must not while it panics: std counts panics in thread-local storage, so another fiber of the carrier would
    /// seem to panic already, and abort the process if it did.
    #[inline(always)]
    pub(crate) fn must_not_switch(&self, me: FiberRef) -> bool {
        me.plain.get() != 0 || !self.own_tls && std::thread::panicking()
    }

    /// Whether other threads have submitted fibers that this carrier may run.
    pub(crate) fn has_submissions(&self) -> bool {
        !self.inbox.is_empty() || self.runtime().has_submissions()
    }

    /// Queues a fiber of this runtime that the caller, which runs on this carrier, has woken.
    #[inline(always)]
    pub(crate) fn make_ready(&self, fiber: FiberRef, place: Place) {
        if !self.own_tls {
            return self.runtime().inject(fiber);
        }
        // SAFETY: the caller runs on this carrier; and the queue is not locked, which it is only from the
        // leaving of a stack until `settle`.
        unsafe { self.queue.push(fiber, place) };
        self.announce();
    }

    /// Queues `fiber`, which a fiber that runs on this carrier has spawned.
    #[inline(always)]
    pub(crate) fn spawned(&self, fiber: FiberRef) {
        count(&self.stats.spawned);
        if !self.own_tls {
            return self.runtime().inject_anywhere(fiber);
        }
        // SAFETY: as in `make_ready`.
        unsafe { self.queue.push(fiber, SPAWNED) };
        self.announce();
    }

    /// A fiber was queued here, or waits here still: another carrier is woken if it could make use of it.
    #[inline(always)]
    pub(crate) fn announce(&self) {
        let runtime = self.runtime();
        let sleeper = runtime.sleepers.notify(|| {
            self.pace.is_crowd(self.queue.len());
            self.has_backlog()
        });
        if sleeper.is_some() {
            runtime.wake(sleeper);
        }
    }

    /// Whether so many are ready here that one that is spawned had better [wait for its stack](unstarted). With fewer,
    /// it has that at once: then no allocator is called for its start, of which a fiber may have the lock meanwhile.
    #[inline]
    pub(crate) fn has_crowd(&self) -> bool {
        self.queue.len() >= STARTED
    }

    /// Whether fibers wait here for long.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.pace.is_backlog(self.queue.len())
    }

    /// In shared mode: queues a fiber of this carrier that was made ready from elsewhere.
    pub(crate) fn deliver(&self, fiber: FiberRef) {
        self.inbox.push(fiber);
    }

    /// Sets a timer for the wait of a fiber that runs here. Returns where it is, and its key there.
    pub(crate) fn set_timer(
        &self,
        deadline: u64,
        fiber: FiberRef,
        ticket: Ticket,
    ) -> (*const Shard, TimerKey) {
        let runtime = self.runtime();
        let insert = || self.shard.insert(deadline, fiber, ticket, &runtime.timed);
        let (key, first) = without_parking(insert);
        if first {
            runtime.sooner(deadline);
        }
        (&raw const self.shard, key)
    }

    /// Wakes the carrier's thread, or keeps it from its next sleep.
    pub(crate) fn wake(&self) {
        self.io.wake();
    }

    /// Submits `op` for a fiber that runs here: see [`Io::submit`].
    pub(crate) fn submit(&self, token: u64, op: &Op, unheld: bool) -> Result<(), Unsupported> {
        // Allocates, with the driver's lock held.
        without_parking(|| {
            // SAFETY: the caller runs on this carrier, and is not in its driver. What `op` points to stays
            // valid, for `perform` and `perform_any` wait for the completion.
            unsafe { self.io.submit(token, op, unheld) }
        })
    }

    /// Cancels an operation that was submitted here, for a fiber that runs here.
    pub(crate) fn cancel(&self, token: u64) {
        without_parking(|| {
            // SAFETY: the caller runs on this carrier, and is not in its driver.
            unsafe { self.io.cancel(token) };
        });
    }

    /// Has this carrier cancel an operation that was submitted to it, for a fiber that runs elsewhere.
    ///
    /// # Safety
    /// The operation's record stays until the errand was run, and no other errand was sent for it.
    pub(crate) unsafe fn send_errand(&self, errand: ErrandRef) {
        self.io.leave_errand(errand);
        let runtime = self.runtime();
        runtime.wake(runtime.sleepers.claim_one(self.index));
        if runtime.sleepers.is_in_reserve(self.index) {
            self.wake();
        }
    }

    /// Whether fibers wait for the kernel here. A hint, but for the carrier itself.
    pub(crate) fn has_operations(&self) -> bool {
        self.io.has_operations() || self.io.has_errands()
    }

    /// Its runtime's virtual time, if that has such.
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
