//! A runtime: some carriers and what they share.

use std::io;
use std::mem;
use std::num::NonZero;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread;
use std::time::Duration;

use carefree_context::arch;
use carefree_context::lock::Lock;
use carefree_context::overflow;
use carefree_context::tls;
use carefree_reactor::clock::NEVER;

use crate::carrier::{Carrier, Stats};
use crate::clock::{self, Virtual, VirtualTime};
use crate::deadlock;
use crate::fiber::FiberRef;
use crate::fork;
use crate::injector::Injector;
use crate::join::JoinHandle;
use crate::launch::{Launched, launch};
use crate::offload;
use crate::process;
use crate::shortage;
use crate::size;
use crate::sleepers::{CARRIERS_MAX, Sleepers};
use crate::spawn::Builder;
use crate::sync::{light, membarrier};
use crate::wait;
use crate::watch;

/// What the carriers of a runtime share. Without carriers it starts threads in place of fibers.
#[derive(Debug)]
pub(crate) struct Shared {
    this: Weak<Shared>,
    pub(crate) carriers: Box<[Box<Carrier>]>,
    pub(crate) sleepers: Sleepers,
    /// Fibers made ready by others than carriers, for any carrier.
    pub(crate) injector: Injector,
    own_tls: bool,
    /// In shared mode: counts spawned fibers to spread them over the carriers.
    homes: AtomicUsize,
    /// Fibers spawned by others than carriers.
    submitted: AtomicU64,
    /// Of those, threads that were started in place of fibers and have ended.
    threads_ended: AtomicU64,
    stopping: AtomicBool,
    /// Who is just putting a fiber into a queue here without being one of the carriers, where that
    /// fiber may run and end meanwhile, and be the last; and the watchdog while it looks.
    visitors: AtomicUsize,
    /// The process it belongs to, counted by forks.
    process: u32,
    /// Until when the sleeper sleeps that sees to the timers.
    time_kept: AtomicU64,
    /// The next runtime in `deadlock`'s list, under its lock.
    pub(crate) next: AtomicUsize,
}

impl Shared {
    fn new(carriers: usize, time: Option<VirtualTime>) -> Arc<Shared> {
        let own_tls = tls::mode().layout().is_some();
        let shared = Arc::new_cyclic(|this| Shared {
            this: Weak::clone(this),
            carriers: (0..carriers)
                .map(|i| Box::new(Carrier::new(i, own_tls, time.clone())))
                .collect(),
            sleepers: Sleepers::new(0),
            injector: Injector::new(),
            own_tls,
            homes: AtomicUsize::new(0),
            submitted: AtomicU64::new(0),
            threads_ended: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            visitors: AtomicUsize::new(0),
            process: process::generation(),
            time_kept: AtomicU64::new(NEVER),
            next: AtomicUsize::new(0),
        });
        for carrier in &shared.carriers {
            carrier.join_runtime(Arc::as_ptr(&shared));
        }
        shared
    }

    /// There is something new for searchers to find.
    #[inline(always)]
    pub(crate) fn notify(&self) {
        let sleeper = self.sleepers.notify();
        if sleeper.is_some() {
            self.wake(sleeper);
        }
    }

    /// Wakes a carrier that the sleepers' protocol has named.
    pub(crate) fn wake(&self, sleeper: Option<usize>) {
        if let Some(index) = sleeper {
            self.carriers[index].wake();
        }
    }

    /// Whether this is the child of a fork, and the carriers are in the parent.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.process != process::generation()
    }

    /// The runtime, if it can run fibers.
    ///
    /// # Errors
    /// When the process was forked since.
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

    /// Makes a fiber ready from anywhere.
    pub(crate) fn inject(&self, fiber: FiberRef) {
        if self.is_of_parent() {
            return;
        }
        // Until the push, the fiber keeps the runtime alive; from then on, this does.
        self.visitors.fetch_add(1, Ordering::Relaxed);
        if self.own_tls {
            self.injector.push(fiber);
            self.notify();
        } else {
            // SAFETY: a fiber that is ready is alive and keeps its carriers alive.
            self.inject_to(fiber, unsafe { &*fiber.carrier.get() });
        }
        self.visitors.fetch_sub(1, Ordering::Release);
    }

    fn inject_to(&self, fiber: FiberRef, carrier: &Carrier) {
        carrier.deliver(fiber);
        if self.sleepers.claim_one(carrier.index()) {
            carrier.wake();
        }
    }

    /// Starts a fiber that has not run yet, in shared mode on the carrier whose turn it is.
    pub(crate) fn inject_anywhere(&self, fiber: FiberRef) {
        let turn = self.homes.fetch_add(1, Ordering::Relaxed) % self.carriers.len();
        let carrier = &*self.carriers[turn];
        fiber.carrier.set(carrier);
        if self.own_tls {
            self.injector.push(fiber);
            self.notify();
        } else {
            self.inject_to(fiber, carrier);
        }
    }

    /// Starts a fiber that a plain thread, or a fiber of another runtime, has spawned.
    pub(crate) fn submit(&self, fiber: FiberRef) {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.inject_anywhere(fiber);
    }

    /// Fibers spawned by others than carriers.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Whether what is spawned here are threads.
    #[inline]
    pub(crate) fn has_threads(&self) -> bool {
        self.carriers.is_empty()
    }

    /// A thread is to be started in place of a fiber: it keeps the runtime alive.
    pub(crate) fn thread_begins(&self) -> Arc<Shared> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.this.upgrade().expect("a runtime that is used is alive")
    }

    /// It could not be started.
    pub(crate) fn thread_did_not_begin(&self) {
        self.submitted.fetch_sub(1, Ordering::Release);
    }

    /// It has ended.
    pub(crate) fn thread_ended(&self) {
        self.threads_ended.fetch_add(1, Ordering::Release);
    }

    /// No timer is due before this time.
    #[inline]
    pub(crate) fn next_timer(&self) -> u64 {
        self.carriers.iter().map(|c| c.next_timer()).min().unwrap_or(NEVER)
    }

    /// A sleeper is about to sleep until `until` for the sake of the timers. False: another one
    /// does so already.
    pub(crate) fn keep_time(&self, until: u64) -> bool {
        self.time_kept.fetch_min(until, Ordering::SeqCst) > until
    }

    /// That sleeper is awake.
    pub(crate) fn kept_time(&self, until: u64) {
        // If another one keeps an earlier time by now, that stands.
        let _ = self.time_kept.compare_exchange(until, NEVER, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// A timer was set that is the first of its carrier. If that carrier is busy for long, a
    /// sleeper must see to it.
    pub(crate) fn sooner(&self, deadline: u64) {
        light();
        if self.sleepers.sleeping() != 0 && deadline < self.time_kept.load(Ordering::Relaxed) {
            self.wake(self.sleepers.claim());
        }
    }

    /// A carrier has counted the end of a fiber.
    #[inline]
    pub(crate) fn fiber_ended(&self) {
        if self.stopping.load(Ordering::Relaxed) && self.alive() == 0 {
            self.wake_all();
        }
    }

    /// Fibers spawned and not ended. Exact when it says 0 and no plain thread is spawning.
    pub(crate) fn alive(&self) -> u64 {
        // What has ended is read first: then a fiber that is spawned meanwhile makes the result
        // too large, never too small.
        let sum = |counter: fn(&Stats) -> &AtomicU64| {
            self.carriers.iter().map(|c| counter(&c.stats).load(Ordering::Acquire)).sum::<u64>()
        };
        let ended = sum(|stats| &stats.ended) + self.threads_ended.load(Ordering::Acquire);
        let spawned = sum(|stats| &stats.spawned) + self.submitted.load(Ordering::Acquire);
        spawned - ended
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stopping.load(Ordering::Acquire) && self.alive() == 0
    }

    fn wake_all(&self) {
        for carrier in &self.carriers {
            carrier.wake();
        }
    }

    /// The caller looks at the runtime, which does not end before it [leaves](Self::leave).
    pub(crate) fn visit(&self) {
        self.visitors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.visitors.fetch_sub(1, Ordering::Release);
    }

    /// Switches and the like since the start: changes while anything goes on.
    pub(crate) fn activity(&self) -> u64 {
        self.carriers.iter().map(|c| c.stats.switches.load(Ordering::Relaxed)).sum()
    }

    /// Whether every carrier sleeps and no timer is set. (So where there are no carriers.)
    pub(crate) fn is_dormant(&self) -> bool {
        let all_sleep = || self.sleepers.sleeping() as usize == self.carriers.len();
        all_sleep()
            && self.next_timer() == NEVER
            && self.injector.is_empty()
            && self.carriers.iter().all(|c| c.is_empty() && !c.has_operations())
            // Again: one may have found a fiber between the looks at it and at where it was.
            && all_sleep()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        deadlock::unregister(self);
        while self.visitors.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
    }
}

/// Carriers of one's own, for programs that want them apart from the process's.
///
/// Most programs do not need one: [`spawn`](crate::spawn) starts the process's own runtime at its
/// first call.
///
/// ```
/// let runtime = carefree_runtime::Runtime::builder().carriers(1).build()?;
/// let answer = runtime.spawn(|| 6 * 7).join().unwrap();
/// assert_eq!(answer, 42);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Dropping it waits until all of its fibers have ended, then ends its carriers. Only when one of
/// its own fibers drops it, it goes on by itself and ends after its last fiber.
#[derive(Debug)]
pub struct Runtime {
    shared: Option<Arc<Shared>>,
    threads: Vec<Launched>,
}

impl Runtime {
    /// Asks for a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder { carriers: None, name: "carefree".into(), seed: None }
    }

    /// How much virtual time has passed since the runtime was built, if it has
    /// [such](RuntimeBuilder::virtual_time).
    pub fn virtual_time(&self) -> Option<Duration> {
        let time = self.shared().carriers.first()?.virtual_time()?;
        Some(clock::between(Virtual::new().now(), time.clock.now()))
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("a runtime has its carriers until it is dropped")
    }

    /// Spawns a fiber on this runtime, as [`spawn`](crate::spawn) does on the process's.
    ///
    /// # Panics
    /// If there is no memory for its stack: see [`Builder::spawn_on`] for an error instead.
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Builder::new().spawn_on(self, f).expect("failed to spawn thread")
    }

    /// Runs `f` as a fiber of this runtime and returns its value. The caller waits.
    ///
    /// # Panics
    /// With `f`'s panic, if it panics.
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        crate::spawn::run_on(Some(self.shared()), f)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        if shared.is_of_parent() {
            // There is nobody to wait for, and nothing to end.
            mem::forget((shared, mem::take(&mut self.threads)));
            return;
        }
        shared.stopping.store(true, Ordering::SeqCst);
        shared.wake_all();
        let on_carrier = crate::carrier::here().is_some_and(|c| ptr::eq(c.runtime(), &*shared));
        if on_carrier || crate::native::runtime().is_some_and(|own| Arc::ptr_eq(&own, &shared)) {
            // The carriers' threads, or those in place of fibers, own it from now on.
            return;
        }
        deadlock::watch_end(&shared);
        shared.wake_all();
        for thread in self.threads.drain(..) {
            thread.join();
        }
    }
}

/// How a [`Runtime`] is to be.
#[derive(Clone, Debug)]
pub struct RuntimeBuilder {
    carriers: Option<usize>,
    name: String,
    /// Of virtual time.
    seed: Option<u64>,
}

impl RuntimeBuilder {
    /// Kernel threads to run fibers on, 1 to 64. By default as many as
    /// [`available_parallelism`](crate::available_parallelism) says.
    pub fn carriers(mut self, carriers: usize) -> Self {
        self.carriers = Some(carriers);
        self
    }

    /// The name of the kernel threads, before their number. By default `carefree`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Gives the runtime time of its own, which passes in an instant: for tests.
    ///
    /// While a fiber can run, the clock stands still. When all wait, and one of them for a moment, that
    /// moment comes: a fiber that sleeps for hours is awake at once. All that has a deadline goes by
    /// this clock: [`sleep`](crate::sleep), [`park_timeout`](crate::park_timeout),
    /// [`timeout`](crate::timeout), and calls of libc's on the runtime's fibers.
    ///
    /// There is one carrier, and which fiber runs next is drawn from `seed`: at each wait and each
    /// yield any that is ready may be next. What the fibers do is then repeated exactly with the same
    /// seed, and differs with another, unless other threads, or files and sockets that others write to,
    /// have a say in it.
    ///
    /// Time does not pass while an [`offload`](crate::offload)ed call is under way. It does while a
    /// fiber waits for a plain thread to do something, as the runtime cannot know of that; and not
    /// while a fiber calls [`yield_now`](crate::yield_now) in a loop.
    ///
    /// ```
    /// use carefree_runtime::{Runtime, sleep, spawn};
    /// use std::time::Duration;
    ///
    /// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    /// let runtime = Runtime::builder().virtual_time(42).build()?;
    /// let alarms = runtime.run(|| {
    ///     let first = spawn(|| { sleep(DAY); "tomorrow" });
    ///     let second = spawn(|| { sleep(7 * DAY); "next week" });
    ///     [first.join().unwrap(), second.join().unwrap()]
    /// });
    /// assert_eq!(alarms, ["tomorrow", "next week"]);
    /// assert_eq!(runtime.virtual_time(), Some(7 * DAY));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn virtual_time(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    /// When the number of carriers is not 1 to 64, or not 1 where time is virtual; time is to be virtual
    /// and there are threads in place of fibers; `CAREFREE_OFFLOAD`,
    /// `CAREFREE_WATCH` or `CAREFREE_REACTOR` is set to what it cannot be, or no kernel thread can be
    /// started. Where some can, the runtime has fewer carriers than asked for.
    pub fn build(self) -> io::Result<Runtime> {
        let time = self.seed.map(|seed| VirtualTime { seed, clock: Arc::default() });
        let carriers = match (self.carriers, &time) {
            (None, None) => available_carriers(),
            (None | Some(1), Some(_)) => 1,
            (Some(carriers), Some(_)) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("a runtime with virtual time has one carrier, not {carriers}"),
                ));
            }
            (Some(carriers), None) => carriers,
        };
        if !(1..=CARRIERS_MAX).contains(&carriers) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a runtime has 1 to {CARRIERS_MAX} carriers, not {carriers}"),
            ));
        }
        offload::configure()?;
        size::configure()?;
        watch::configure()?;
        carefree_reactor::check_forced()?;
        prepare_process();
        // Before the carriers: the look at a new thread needs one, which may be the last to be had.
        let carriers = match tls::mode() {
            tls::Mode::Own(_) | tls::Mode::Shared(_) => carriers,
            tls::Mode::Threads(why) if time.is_some() => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!("virtual time is for fibers, and here threads stand for them: {why}"),
                ));
            }
            tls::Mode::Threads(_) => 0,
        };
        let (threads, begin): (Vec<_>, Vec<_>) =
            start_threads(&self.name, carriers)?.into_iter().unzip();
        let shared = Shared::new(threads.len(), time);
        for begin in begin {
            // The thread waits for it.
            let _ = begin.send(Arc::clone(&shared));
        }
        deadlock::register(&shared);
        if carriers > 0 {
            watch::start();
        }
        Ok(Runtime { shared: Some(shared), threads })
    }
}

/// A carrier's thread, which begins when it is given the runtime and ends if it never is.
type Started = (Launched, mpsc::SyncSender<Arc<Shared>>);

/// Starts threads for so many carriers, or as many as can be had.
///
/// # Errors
/// When none can be started.
fn start_threads(name: &str, carriers: usize) -> io::Result<Vec<Started>> {
    /// The kernel counts a thread for a moment after it was joined.
    const MOMENT: Duration = Duration::from_millis(1);
    let mut threads = Vec::with_capacity(carriers);
    let mut moments = 20;
    while threads.len() < carriers {
        let index = threads.len();
        let (begin, shared) = mpsc::sync_channel::<Arc<Shared>>(1);
        let live = move || {
            if let Ok(shared) = shared.recv() {
                shared.carriers[index].run();
            }
        };
        match launch(&format!("{name}-{index}"), live) {
            Ok(thread) => threads.push((thread, begin)),
            // Fibers run on fewer then.
            Err(_) if index > 0 => break,
            Err(_) if moments > 0 => {
                moments -= 1;
                thread::sleep(MOMENT);
            }
            Err(error) => {
                return Err(shortage::of_threads("to run fibers on", &error));
            }
        }
    }
    Ok(threads)
}

fn available_carriers() -> usize {
    available_parallelism().map_or(1, NonZero::get).min(CARRIERS_MAX)
}

/// How many fibers can run at the same instant: the carriers of the runtime the caller runs on, or
/// those the process's runtime has or would have.
///
/// # Errors
/// When the number of processors cannot be determined, as for `std::thread`'s function.
pub fn available_parallelism() -> io::Result<NonZero<usize>> {
    if let Some(carrier) = crate::carrier::here() {
        let carriers = NonZero::new(carrier.runtime().carriers.len());
        return Ok(carriers.expect("a runtime has a carrier"));
    }
    match asked_carriers() {
        Some(Ok(carriers)) => Ok(carriers),
        _ => thread::available_parallelism(),
    }
}

/// `CAREFREE_CARRIERS`, if it is set: a number of carriers, or what is wrong with it.
fn asked_carriers() -> Option<Result<NonZero<usize>, String>> {
    let text = carefree_settings::text("CAREFREE_CARRIERS")?;
    let carriers = text.parse::<NonZero<usize>>().ok().filter(|n| n.get() <= CARRIERS_MAX);
    Some(carriers.ok_or_else(|| {
        format!("CAREFREE_CARRIERS={text} is not a number of carriers from 1 to {CARRIERS_MAX}")
    }))
}

/// The process's runtime; started by the first call.
///
/// # Errors
/// When no kernel thread can be started, or `CAREFREE_CARRIERS` is not a number from 1 to 64.
pub(crate) fn global() -> io::Result<&'static Shared> {
    // SAFETY: made from a leaked box below.
    let started = || unsafe { GLOBAL.load(Ordering::Acquire).as_ref() };
    if let Some(runtime) = started() {
        return Ok(runtime.shared());
    }
    // Not a `OnceLock`, which is for ever, nor one of std's locks, which stays locked in the child of
    // a fork. Who waits here is a plain thread.
    let _starting = STARTING.lock();
    if let Some(runtime) = started() {
        return Ok(runtime.shared());
    }
    let mut builder = Runtime::builder();
    if let Some(asked) = asked_carriers() {
        let carriers = asked.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        builder = builder.carriers(carriers.get());
    }
    let runtime = builder.build()?;
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    GLOBAL.store(ptr::from_ref(runtime).cast_mut(), Ordering::Release);
    Ok(runtime.shared())
}

static GLOBAL: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());
/// Held while that is started.
static STARTING: Lock<()> = Lock::new(());

/// Forgets the process's runtime: in the child of a fork, where the next call starts another.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    GLOBAL.store(ptr::null_mut(), Ordering::Release);
    // SAFETY: the caller's promise.
    unsafe { STARTING.renew(()) };
}

/// Does what is done once in a process, before its first carrier runs: reads what of the environment
/// concerns all runtimes, and sees to it that stack overflows are reported.
#[doc(hidden)]
pub fn prepare_process() {
    static DONE: OnceLock<()> = OnceLock::new();
    // A second thread waits here until the first is done, which is as it must be: see
    // `membarrier::register`.
    DONE.get_or_init(|| {
        membarrier::register();
        if carefree_settings::setting("CAREFREE_FSGSBASE").is_some_and(|v| v == "off") {
            arch::force_no_fsgsbase();
        }
        wait::locate_current();
        fork::prepare_process();
        // SAFETY: it reads the running fiber's header and calls nothing but `write`.
        unsafe { overflow::set_describer(describe_overflow) };
        // Without it an overflow still ends the process, only without saying why.
        let _ = overflow::install();
    });
}

/// Says whose stack overflowed. Called by a signal handler: no allocation, no lock.
unsafe fn describe_overflow(
    stack: &carefree_context::stack::StackInfo,
    write: &mut dyn FnMut(&[u8]),
) {
    const OTHER: &[u8] = b"a coroutine (or a call by on_large_stack)";
    let Some(me) = wait::current_fiber() else { return write(OTHER) };
    let own = me.stack.load(Ordering::Relaxed);
    // SAFETY: the running fiber's own stack.
    if own.is_null() || unsafe { crate::furnish::base_of(own) } != stack.base {
        write(OTHER);
        write(b" of ");
    }
    match me.name() {
        Some(name) => {
            write(b"fiber '");
            write(name.as_bytes());
            write(b"'");
        }
        None => write(b"fiber <unnamed>"),
    }
}
