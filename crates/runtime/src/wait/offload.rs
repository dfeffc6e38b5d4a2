//! Calls that would block a carrier: a thread of a [`pool`] makes them while the fiber parks.

mod pool;
#[cfg(test)]
mod tests;

use std::cell::UnsafeCell;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;

use crate::carrier::carrier;
use crate::fiber::current;
use crate::protocol::reason::Reason;
use crate::wait::loader;
use crate::wait::park;
use carefree_reactor::clock::Virtual;

use pool::{Job, Pool, Refused, Work};

static POOL: Pool = Pool::new(pool::start_thread, pool::LINGER);

/// Runs `f` where it may block: on a fiber, on a thread of a pool, while the fiber parks and its
/// carrier runs others. On a plain thread `f` is simply called.
///
/// For calls that neither wait through this crate nor through libc: a device driver's `ioctl`, a
/// long computation that should not hold up other fibers, a library that makes system calls
/// itself. It costs two switches between kernel threads, many times a fiber's switch.
///
/// `f` may borrow from the caller, which waits for it whatever happens: neither cancellation nor a
/// [`timeout`](crate::timeout) ends the wait. In `f`, thread-local variables are the pool thread's,
/// [`current`](crate::current) is that thread, and waits block it; `errno` as `f` leaves it is the
/// caller's afterwards. When `f` offloads in its turn, that is a plain call.
///
/// # The pool
///
/// A thread is started when a call is to run and no thread is idle. There are at most 512 threads, or as
/// many as `CAREFREE_OFFLOAD` says; further calls wait for their turn, first in, first out. So no more
/// than that many calls may be under way that wait for each other. A thread that was idle for ten seconds
/// ends. Where the kernel refuses further threads the pool goes on with those that it has; if it has none,
/// `f` runs on the carrier. So it does in a constructor or destructor of a library that the fiber loads or unloads: there
/// the fiber has a lock of the loader's, which `f` may need.
///
/// # Panics
/// With `f`'s panic, if it panics.
///
/// ```
/// let words = vec!["not", "a", "fiber"];
/// let length = carefree_runtime::run(|| {
///     // On a fiber; `words` is borrowed by what runs on another thread.
///     carefree_runtime::offload(|| words.len())
/// });
/// assert_eq!(length, 3);
/// ```
pub fn offload<F, R>(f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    // SAFETY: `f` and its value are `Send`.
    unsafe { offload_unchecked(f) }
}

/// [`offload`] for what the compiler does not know to be `Send`: raw pointers, above all.
///
/// # Safety
/// `f` may run on another thread, and its value may have been made there.
pub unsafe fn offload_unchecked<F, R>(f: F) -> R
where
    F: FnOnce() -> R,
{
    // SAFETY: this function demands the same.
    unsafe { offload_to(&POOL, f) }
}

/// [`offload`] to a given pool.
///
/// # Safety
/// As for [`offload_unchecked`].
unsafe fn offload_to<F, R>(pool: &'static Pool, f: F) -> R
where
    F: FnOnce() -> R,
{
    let Some(me) = current::current_fiber() else { return f() };
    if carrier::of(me).must_not_switch(me) || loader::holds_loader() {
        return f();
    }
    // Virtual time does not pass while another thread makes the call.
    let clock = carrier::of(me).virtual_time().map(|time| Arc::clone(&time.clock));
    let _hold = clock.as_deref().map(Virtual::hold);
    let call = Call { f: UnsafeCell::new(Some(f)), errno: errno(), end: UnsafeCell::new(None) };
    let work = Work { run: run::<F, R>, data: (&raw const call).cast() };
    // A panic must not end this frame while the pool's thread uses `call`.
    match park::or_abort(|| wait_for(pool, work)) {
        Ok(()) => {
            // SAFETY: the pool's thread has made the call and ended this fiber's wait after its last access
            // to `call`.
            let end = unsafe { (*call.end.get()).take() };
            let Some(End { result, errno }) = end else { unreachable!("it was just run") };
            set_errno(errno);
            result.unwrap_or_else(|payload| panic::resume_unwind(payload))
        }
        Err(Refused) => {
            // SAFETY: the call was not handed to the pool, so nothing else accesses it.
            let f = unsafe { (*call.f.get()).take() };
            let Some(f) = f else { unreachable!("it was not run") };
            f()
        }
    }
}

/// A call, in the frame of the fiber that waits for it. While the fiber waits, only the thread that makes
/// the call accesses it.
struct Call<F, R> {
    f: UnsafeCell<Option<F>>,
    /// The fiber's, which a call that succeeds leaves as it is.
    errno: i32,
    end: UnsafeCell<Option<End<R>>>,
}

struct End<R> {
    result: thread::Result<R>,
    errno: i32,
}

/// Makes the call that `data` points to.
///
/// # Safety
/// `data` points to a `Call<F, R>` whose fiber waits, which nothing else accesses meanwhile. It is called
/// once.
unsafe fn run<F, R>(data: *const ())
where
    F: FnOnce() -> R,
{
    // SAFETY: the call lies in the frame of a fiber that waits, as this function demands.
    let call = unsafe { &*data.cast::<Call<F, R>>() };
    // SAFETY: nothing else accesses the call meanwhile.
    let f = unsafe { (*call.f.get()).take() };
    let Some(f) = f else { unreachable!("a call is made once") };
    set_errno(call.errno);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    let errno = errno();
    // SAFETY: nothing else accesses the call meanwhile.
    unsafe { *call.end.get() = Some(End { result, errno }) };
}

/// Has a thread of `pool` do the work, and waits until it is done.
///
/// # Errors
/// When there is no thread to do it and none can be started.
fn wait_for(pool: &'static Pool, work: Work) -> Result<(), Refused> {
    let job = Job::new(work);
    loop {
        // Before the wait begins: starting a thread may wait for something itself.
        let provided = pool.provide();
        let mut pushed = false;
        park::for_claim(Reason::Offload, |fiber, ticket| {
            job.set_waiter(fiber, ticket);
            // SAFETY: the job and the call lie in frames that this fiber does not leave before its wait
            // has ended, which `for_claim` leaves to the pool.
            pushed = unsafe { pool.push(&job, provided) };
            pushed
        });
        if pushed {
            return Ok(());
        }
        // Other jobs have taken the thread that was provided, or it has ended. Tries again, unless no thread
        // can be started.
        if let Err(refused) = provided {
            job.abandon();
            return Err(refused);
        }
    }
}

/// Reads `CAREFREE_OFFLOAD`.
///
/// # Errors
/// When it is set and is not a number of threads.
pub(crate) fn configure() -> io::Result<()> {
    const MOST: usize = 65_536;
    let Some(text) = carefree_settings::text("CAREFREE_OFFLOAD") else {
        return Ok(());
    };
    match text.parse() {
        Ok(threads @ 1..=MOST) => {
            POOL.limit_to(threads);
            Ok(())
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("CAREFREE_OFFLOAD={text} is not a number of threads from 1 to {MOST}"),
        )),
    }
}

/// Forgets the pool's threads and calls: in the child of a fork.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: this function demands the same.
    unsafe { pool::renew(&POOL) };
}

/// Offloaded calls that are not over, or whose fibers have not been woken yet.
pub(crate) use pool::under_way;

/// Threads of the pool, counted before they start and until they are about to end.
pub(crate) use pool::threads;

fn errno() -> i32 {
    // SAFETY: libc's variable of the calling thread, which lives as long as the thread.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: i32) {
    // SAFETY: libc's variable of the calling fiber, or of its carrier in shared mode; the fiber does not
    // switch meanwhile.
    unsafe { *libc::__errno_location() = value }
}
