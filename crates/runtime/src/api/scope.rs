//! Scopes: fibers that may borrow from the caller, which waits for their end.

use std::any::Any;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe, RefUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use carefree_context::backtrace::__rust_begin_short_backtrace;
use carefree_ground::lock::Lock;

use crate::api::semaphore::Semaphore;
use crate::api::spawn::Builder;
use crate::fiber::current;
use crate::handle::join::{JoinHandle, drop_quietly};
use crate::handle::thread::Thread;
use crate::protocol::episode::Outcome;
use crate::protocol::reason::Reason;
use crate::wait::cancel::Interrupted;
use crate::wait::limits;
use crate::wait::lot;
use crate::wait::park::{self, Until};

/// Runs `f`, which may spawn fibers that borrow from the caller; returns when all of them have
/// ended: as `std::thread::scope`.
///
/// ```
/// let words = vec![String::from("a"), String::from("fiber")];
/// let lengths: Vec<usize> = carefree_runtime::scope(|s| {
///     let handles: Vec<_> = words.iter().map(|word| s.spawn(move || word.len())).collect();
///     handles.into_iter().map(|handle| handle.join().unwrap()).collect()
/// });
/// assert_eq!(lengths, [1, 5]);
/// ```
///
/// Nothing cuts the wait at the end short, for the fibers borrow from the caller. If the caller is cancelled
/// meanwhile, they are cancelled.
///
/// What ends with the scope cannot leave it, neither by a fiber nor by a handle:
///
/// ```compile_fail,E0373
/// carefree_runtime::scope(|s| {
///     let inside = String::from("ends before the fiber does");
///     s.spawn(|| inside.len());
/// });
/// ```
///
/// ```compile_fail,E0521
/// let mut escaped = None;
/// carefree_runtime::scope(|s| escaped = Some(s.spawn(|| 1)));
/// ```
///
/// # Panics
/// With `f`'s panic; or, with "a scoped thread panicked", if a fiber panicked whose handle was not
/// joined.
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    // Gives a thread its header: if there is no memory for that, this panics before any spawn.
    let owner = Thread::from_ref(current::current());
    let scope = Scope { data: Arc::default(), owner, scope: PhantomData, env: PhantomData };
    let result = panic::catch_unwind(AssertUnwindSafe(|| f(&scope)));
    if result.is_err() {
        scope.data.failed();
    }
    park::or_abort(|| scope.data.wait());
    match result {
        Err(payload) => panic::resume_unwind(payload),
        Ok(_) if scope.data.panics.load(Ordering::Relaxed) > 0 => {
            panic!("a scoped thread panicked")
        }
        Ok(value) => value,
    }
}

/// Spawns fibers that end before it does: see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<Data>,
    /// The fiber or thread that waits for the others.
    owner: Thread,
    // Invariant in both lifetimes, as std's scope is.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

// As std's scope: what it shares is atomic or locked, so a panic leaves nothing half done.
impl RefUnwindSafe for Scope<'_, '_> {}

impl<'scope> Scope<'scope, '_> {
    /// Spawns a fiber that may borrow what outlives the scope.
    ///
    /// # Panics
    /// If there is no memory for its stack: [`Builder::spawn_scoped`] returns an error instead.
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Builder::new().spawn_scoped(self, f).expect("failed to spawn thread")
    }

    /// From now on, a fiber of this scope that panics cancels the others. (A fiber that returns an error has
    /// not failed in this sense; see [`cancel`](Self::cancel).)
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let result = std::panic::catch_unwind(|| {
    ///     carefree_runtime::scope(|s| {
    ///         s.cancel_on_failure();
    ///         s.spawn(|| carefree_runtime::sleep(Duration::from_secs(3600)));
    ///         s.spawn(|| panic!("no use"));
    ///     })
    /// });
    /// assert!(result.is_err()); // and at once
    /// ```
    pub fn cancel_on_failure(&self) {
        self.data.cancel_on_failure.store(true, Ordering::Relaxed);
    }

    /// Cancels all fibers of this scope, including those that are spawned later.
    pub fn cancel(&self) {
        self.data.cancel();
    }

    /// Lets at most `fibers` of this scope run at once: from now on, spawning one more waits until
    /// another has ended. To be called before the first is spawned.
    ///
    /// A fiber of the scope that spawns another waits for a place while it keeps its own. If all fibers that
    /// run do so, none ever ends.
    ///
    /// # Panics
    /// If `fibers` is 0, or the scope has a limit or a fiber already.
    ///
    /// ```
    /// carefree_runtime::scope(|s| {
    ///     s.limit(2);
    ///     for _ in 0..100 {
    ///         s.spawn(|| carefree_runtime::yield_now());
    ///     }
    /// });
    /// ```
    pub fn limit(&self, fibers: usize) {
        assert!(fibers > 0, "a scope that lets 0 fibers run would wait for ever");
        assert!(
            self.data.running.load(Ordering::Relaxed) == 0,
            "a scope's limit is set before its first fiber is spawned"
        );
        let set = self.data.places.set(Semaphore::new(fibers.min(usize::MAX / 4)));
        assert!(set.is_ok(), "a scope's limit is set once");
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Scope")
            .field("num_running_threads", &self.data.running.load(Ordering::Relaxed))
            .field("a_thread_panicked", &(self.data.panics.load(Ordering::Relaxed) > 0))
            .field("main_thread", &self.owner)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Spawns a fiber in a scope: as `std::thread::Builder::spawn_scoped`.
    ///
    /// # Errors
    /// As for [`Builder::spawn`].
    ///
    /// # Panics
    /// If the name has a NUL byte in it.
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        // Panics before the fiber is counted.
        self.refuse_nul();
        scope.data.enter();
        let slot = Arc::new(Slot(Lock::new(None)));
        let (data, result) = (Arc::clone(&scope.data), Arc::clone(&slot));
        let child = move || {
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| __rust_begin_short_backtrace(f)));
            if outcome.is_err() {
                data.panics.fetch_add(1, Ordering::Relaxed);
                data.failed();
            }
            *result.0.lock() = Some(outcome);
            // Drops the value if the handle is gone. Before the scope's wait can end, for the value may
            // borrow.
            drop(result);
            data.leave();
        };
        // SAFETY: `scope` does not return before `leave`. When the fiber calls that, `f` is gone, and its
        // value either is, too, or belongs to the handle, which cannot outlive 'scope. What is left of
        // `child` refers to heap data that it shares.
        let handle = match unsafe { self.spawn_unchecked(child) } {
            Ok(handle) => handle,
            Err(error) => {
                scope.data.leave();
                return Err(error);
            }
        };
        scope.data.adopt(handle.thread());
        Ok(ScopedJoinHandle { handle, slot, data: Arc::clone(&scope.data), scope: PhantomData })
    }
}

/// Notes that a time limit has cut a wait of the scope's short: its fibers are cancelled then.
fn told(outcome: Outcome) {
    if outcome == Outcome::TimedOut {
        limits::tell_timed_out();
    }
}

/// Where a scoped fiber leaves its outcome, for its handle.
struct Slot<T>(Lock<Option<Result<T, Box<dyn Any + Send>>>>);

impl<T> Drop for Slot<T> {
    /// Of the handle and the fiber, the last one drops an outcome that nothing has taken.
    fn drop(&mut self) {
        drop_quietly(self.0.lock().take());
    }
}

/// Owns the right to wait for a scoped fiber's end and take its value.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<()>,
    slot: Arc<Slot<T>>,
    data: Arc<Data>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the fiber to end and returns its value, or what it panicked with.
    ///
    /// # Errors
    /// As for [`JoinHandle::join`].
    pub fn join(self) -> thread::Result<T> {
        let ScopedJoinHandle { handle, slot, data, .. } = self;
        // The fiber catches panics of its function, so an error is that of an interrupted wait.
        handle.join()?;
        let outcome = slot.0.lock().take();
        let outcome = outcome.expect("a scoped fiber leaves its outcome when it ends");
        if outcome.is_err() {
            // The caller gets it, so the scope need not panic for it.
            data.panics.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Waits for the fiber to end: see [`JoinHandle::wait`].
    ///
    /// # Errors
    /// As for [`JoinHandle::wait`].
    pub fn wait(&self) -> Result<(), Interrupted> {
        self.handle.wait()
    }

    /// Whether the fiber has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// The fiber.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }

    /// Asks the fiber to end soon: see [`JoinHandle::cancel`].
    pub fn cancel(&self) {
        self.handle.cancel();
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}

/// What a scope and its fibers share. On the heap, for the last fiber counts its end before it wakes the
/// scope, which may be gone by then.
#[derive(Default)]
struct Data {
    /// Fibers that have not ended.
    running: AtomicUsize,
    /// Panics that no `join` has returned.
    panics: AtomicUsize,
    cancel_on_failure: AtomicBool,
    cancelled: AtomicBool,
    /// Places for fibers, where their number is limited.
    places: OnceLock<Semaphore>,
    /// The fibers, to cancel them.
    children: Lock<Vec<Thread>>,
}

impl Data {
    fn key(&self) -> usize {
        (&raw const self.running) as usize
    }

    /// Counts one more fiber, when there is a place for it.
    fn enter(&self) {
        if let Some(places) = self.places.get() {
            let outcome = places.wait(Until::WOKEN, Reason::Limit);
            if matches!(outcome, Outcome::Cancelled | Outcome::TimedOut) {
                // The spawning fiber should end, so those that it waits for should end, too.
                told(outcome);
                self.cancel();
                places.wait(Until::WOKEN_ONLY, Reason::Limit);
            }
        }
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a fiber.
    fn leave(&self) {
        if let Some(places) = self.places.get() {
            places.release(1);
        }
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            lot::unpark(self.key(), usize::MAX);
        }
    }

    /// Notes a fiber, so that it can be cancelled.
    fn adopt(&self, fiber: &Thread) {
        // The list grows under its lock: the caller must not park in the allocator meanwhile.
        current::without_parking(|| {
            let mut children = self.children.lock();
            if children.len() == children.capacity() {
                children.retain(|child| !child.is_finished());
                // Room for as many again: otherwise the next one would look at all of them again.
                let more = children.len();
                children.reserve(more);
            }
            children.push(fiber.clone());
        });
        if self.cancelled.load(Ordering::SeqCst) {
            fiber.cancel();
        }
    }

    /// Waits until no fiber runs.
    fn wait(&self) {
        let running = || self.running.load(Ordering::Acquire) > 0;
        // It is interrupted once at most: the children are cancelled then, and the wait goes on.
        let mut until = Until::WOKEN;
        while running() {
            let outcome = park::park(self.key(), running, Reason::Scope, until);
            if running() && matches!(outcome, Outcome::Cancelled | Outcome::TimedOut) {
                told(outcome);
                self.cancel();
                until = Until::WOKEN_ONLY;
            }
        }
    }

    /// To be called when a fiber, or the scope's own function, has panicked.
    fn failed(&self) {
        if self.cancel_on_failure.load(Ordering::Relaxed) {
            self.cancel();
        }
    }

    fn cancel(&self) {
        // Only once: fibers that are spawned later see the flag, and where many fail at the same time, each
        // would cancel all.
        if self.cancelled.swap(true, Ordering::SeqCst) {
            return;
        }
        let children = std::mem::take(&mut *self.children.lock());
        for child in &children {
            child.cancel();
        }
    }
}
