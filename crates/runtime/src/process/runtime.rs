//! Building a runtime, dropping it, and the process's own.

use std::fmt;
use std::io;
use std::mem;
use std::num::NonZero;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use carefree_context::arch;
use carefree_context::overflow;
use carefree_context::tls;
use carefree_reactor::clock::Virtual;

use crate::carrier::carrier::{self, Shared};
use crate::carrier::census;
use crate::carrier::clock;
use crate::carrier::launch::{Launched, launch};
use crate::carrier::lookout;
use crate::carrier::runtimes;
use crate::fiber::current::current_fiber;
use crate::fiber::furnish;
use crate::fiber::size;
use crate::fiber::virtual_time::VirtualTime;
use crate::inspect::hooks;
use crate::process::deadlock;
use crate::process::fork;
use crate::process::global;
use crate::process::monitor;
use crate::process::native;
use crate::process::shortage;
use crate::protocol::set::CARRIERS_MAX;
use crate::protocol::sync::membarrier;
use crate::wait::offload;

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
/// Dropping it waits until all of its fibers have ended, and ends its carriers. If one of its own fibers
/// drops it, that does not wait: the carriers end after the last fiber.
pub struct Runtime {
    shared: Option<Arc<Shared>>,
    threads: Vec<Launched>,
}

/// By its carriers and their name: its queues and counts belong to no program's output.
impl fmt::Debug for Runtime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        out.debug_struct("Runtime")
            .field("name", &shared.name)
            .field("carriers", &shared.carriers.len())
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Begins to build a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder { carriers: None, name: "carefree".into(), seed: None }
    }

    /// How much virtual time has passed since the runtime was built, if it has
    /// [such](RuntimeBuilder::virtual_time).
    pub fn virtual_time(&self) -> Option<Duration> {
        let time = self.shared().carriers.get(0)?.virtual_time()?;
        Some(clock::between(Virtual::new().now(), time.clock.now()))
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("a runtime has its carriers until it is dropped")
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        if shared.is_of_parent() {
            // This is the child of a fork: the carriers' threads are in the parent.
            mem::forget((shared, mem::take(&mut self.threads)));
            return;
        }
        shared.stopping.store(true, Ordering::SeqCst);
        shared.wake_all();
        let on_carrier = carrier::here().is_some_and(|c| ptr::eq(c.runtime(), &*shared));
        if on_carrier || native::runtime().is_some_and(|own| Arc::ptr_eq(&own, &shared)) {
            // From now on the carriers' threads, or those in place of fibers, own it.
            return;
        }
        deadlock::watch_end(&shared);
        shared.wake_all();
        for thread in self.threads.drain(..) {
            thread.join();
        }
        // No more are added, when this lock has been free.
        drop(shared.adding.lock());
        shared.carriers.iter().filter_map(|carrier| carrier.take_added()).for_each(Launched::join);
    }
}

/// Parameters of a [`Runtime`].
#[derive(Clone, Debug)]
pub struct RuntimeBuilder {
    carriers: Option<usize>,
    name: String,
    /// Of virtual time.
    seed: Option<u64>,
}

impl RuntimeBuilder {
    /// Kernel threads to run fibers on, 1 to 1024. By default as many as
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
    /// When the number of carriers is not 1 to 1024, or not 1 where time is virtual; time is to be virtual
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
        carefree_settings::names::check()
            .map_err(|wrong| io::Error::new(io::ErrorKind::InvalidInput, wrong))?;
        offload::configure()?;
        size::configure()?;
        hooks::get().map_or(Ok(()), |hooks| (hooks.configure)())?;
        carefree_reactor::check_forced()?;
        prepare_process();
        // Asked before carriers are started: the self-test starts a thread, which may be the last one that
        // can be had.
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
        let gate = Gate::default();
        let threads = start_threads(&self.name, carriers, &gate)?;
        let shared = Shared::new(&self.name, threads.len(), time);
        gate.open(&shared);
        runtimes::register(&shared);
        if carriers > 0 {
            monitor::start();
        }
        if carriers > 0 {
            if let Some(hooks) = hooks::get() {
                (hooks.carriers_started)();
            }
            // A watchdog that rests is to look at these carriers, too.
            lookout::carrier_woke();
        }
        Ok(Runtime { shared: Some(shared), threads })
    }
}

/// Where the threads of a new runtime's carriers wait for the runtime, which is made when it is known how
/// many there are. Dropped without one, it has the threads end. (A channel of std's would do, but adds to
/// the thread-local storage of every fiber.)
#[derive(Default)]
struct Gate(Arc<Entrance>);

#[derive(Default)]
struct Entrance {
    /// The runtime, or that there is none, once that is known.
    runtime: Mutex<Option<Option<Arc<Shared>>>>,
    is_known: Condvar,
}

impl Gate {
    fn open(self, shared: &Arc<Shared>) {
        self.0.tell(Some(Arc::clone(shared)));
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.tell(None);
    }
}

impl Entrance {
    /// The first call counts.
    fn tell(&self, runtime: Option<Arc<Shared>>) {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(runtime);
        self.is_known.notify_all();
    }

    fn wait(&self) -> Option<Arc<Shared>> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = self.is_known.wait_while(runtime, |runtime| runtime.is_none());
        runtime.unwrap_or_else(PoisonError::into_inner).clone().flatten()
    }
}

/// Starts threads for `carriers` carriers; fewer, if no more can be had.
///
/// # Errors
/// When none can be started.
fn start_threads(name: &str, carriers: usize, gate: &Gate) -> io::Result<Vec<Launched>> {
    /// How long to wait before another try: the kernel counts a thread for a moment after it was joined.
    const MOMENT: Duration = Duration::from_millis(1);
    let mut threads = Vec::with_capacity(carriers);
    let mut moments = 20;
    while threads.len() < carriers {
        let index = threads.len();
        let entrance = Arc::clone(&gate.0);
        let live = move || {
            let shared = entrance.wait();
            // It would hold the runtime, too.
            drop(entrance);
            if let Some(shared) = shared {
                shared.carriers[index].run(None);
            }
        };
        match launch(&format!("{name}-{index}"), live) {
            Ok(thread) => threads.push(thread),
            // The runtime has fewer carriers then.
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

/// Whether the program's handling of faults is left as it is: then overflows of stacks are not reported.
static LEAVES_FAULTS: AtomicBool = AtomicBool::new(false);
/// The carriers of the process's runtime where the environment does not say; 0 for one a processor.
static DEFAULT_CARRIERS: AtomicUsize = AtomicUsize::new(0);

/// Has the handling of faults left as it is. To be called before the first runtime is built.
pub(crate) fn leave_faults() {
    LEAVES_FAULTS.store(true, Ordering::Relaxed);
}

/// Sets how many carriers the process's runtime has where the environment does not say.
pub(crate) fn set_default_carriers(carriers: usize) {
    DEFAULT_CARRIERS.store(carriers, Ordering::Relaxed);
}

fn available_carriers() -> usize {
    match DEFAULT_CARRIERS.load(Ordering::Relaxed) {
        0 => {}
        carriers => return carriers,
    }
    available_parallelism().map_or(1, NonZero::get).min(CARRIERS_MAX)
}

/// How many fibers can run at the same instant: the carriers of the runtime the caller runs on, or
/// those the process's runtime has or would have.
///
/// # Errors
/// When the number of processors cannot be determined, as for `std::thread`'s function.
pub fn available_parallelism() -> io::Result<NonZero<usize>> {
    if let Some(carrier) = carrier::here() {
        let carriers = NonZero::new(carrier.runtime().carriers.base());
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
/// When no kernel thread can be started, or `CAREFREE_CARRIERS` is not a number from 1 to 1024.
pub(crate) fn global() -> io::Result<&'static Shared> {
    if let Some(runtime) = global::started() {
        return Ok(runtime);
    }
    let _starting = global::starting();
    if let Some(runtime) = global::started() {
        return Ok(runtime);
    }
    let mut builder = Runtime::builder();
    if let Some(asked) = asked_carriers() {
        let carriers = asked.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        builder = builder.carriers(carriers.get());
    }
    let runtime = builder.build()?;
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    global::set(runtime.shared());
    Ok(runtime.shared())
}

/// What is done once in a process, before its first carrier runs: reads settings that concern all runtimes,
/// and installs handlers for forks and stack overflows.
#[doc(hidden)]
pub fn prepare_process() {
    static DONE: OnceLock<()> = OnceLock::new();
    // A second thread waits here until the first is done: `membarrier::register` demands that.
    DONE.get_or_init(|| {
        membarrier::register();
        if carefree_settings::setting("CAREFREE_FSGSBASE").is_some_and(|v| v == "off") {
            arch::force_no_fsgsbase();
        }
        fork::prepare_process();
        census::set_look(deadlock::look);
        // SAFETY: the function may be called by a signal handler: it reads the running fiber's header, and
        // calls nothing but `write`.
        unsafe { overflow::set_describer(describe_overflow) };
        if !LEAVES_FAULTS.load(Ordering::Relaxed) {
            // If that fails, an overflow still ends the process, without a report.
            let _ = overflow::install();
        }
    });
}

/// Writes which fiber's stack has overflowed. It is called by a signal handler, so it neither allocates nor
/// locks.
unsafe fn describe_overflow(
    stack: &carefree_context::stack::StackInfo,
    write: &mut dyn FnMut(&[u8]),
) {
    const OTHER: &[u8] = b"a coroutine (or a call by on_large_stack)";
    let Some(me) = current_fiber() else { return write(OTHER) };
    let own = me.stack.load(Ordering::Relaxed);
    // SAFETY: the fiber runs on this thread, below the handler, so it has its stack.
    if own.is_null() || unsafe { furnish::base_of(own) } != stack.base {
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
