//! A pool of threads for calls that block.
//!
//! A call is a *job*. Jobs wait in one list, first in, first out. A thread is a *worker*: it takes jobs
//! from the list while there are any, then it is idle. Idle workers are a stack, so those that are not
//! needed stay at its bottom, and end after a while.
//!
//! # Each job is done
//!
//! At any time when the lock is free, a worker will come for each job in the list: a worker that was taken
//! off the idle stack for it and has not looked yet; or the worker that is *starting*; or, if there are as
//! many workers as there may be, any of them. What changes the list or the workers keeps it so:
//!
//! * A caller that pushes a job takes an idle worker off the stack. If there is none, it pushes only while
//!   a worker is starting or there are as many workers as there may be; otherwise it has to start one
//!   first ([`Pool::provide`]).
//! * When the starting worker takes a job, no worker may be coming for the other jobs in the list. So if there
//!   are others, it starts the next worker ([`State::wants_worker`]). One worker starts at a time:
//!   short jobs are often done before a second thread has started, and long ones get a thread each, one
//!   after the other.
//! * A worker goes to the idle stack only if the list is empty, and ends only from there.
//!
//! If a thread cannot be started, the jobs wait for the workers that there are, and for the next attempt,
//! which is made when the next job is pushed or taken. If there are no workers, the thread that made the
//! attempt does the jobs in the list itself.
//!
//! # Locks
//!
//! Fibers call this within libc's functions. So everything is under a [`Lock`], which parks no fiber, and
//! workers sleep in an [`Idle`]. Under the lock nothing is allocated, and no system call is made.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::time::Duration;

use carefree_ground::lock::Lock;
use carefree_reactor::{Idle, clock};

use crate::carrier::launch::{launch, launch_without_std};
use crate::carrier::wake::end_claimed;
use crate::fiber::header::FiberRef;
use crate::protocol::episode::Ticket;
use crate::protocol::generation;
use crate::protocol::sync::{AtomicUsize, Ordering};
use crate::wait::loader;

/// How long an idle worker stays.
pub(super) const LINGER: Duration = Duration::from_secs(10);
/// The most workers, by default.
const BOUND: usize = 512;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Jobs that are not done, or whose fibers have not been woken yet.
pub(crate) fn under_way() -> usize {
    UNDER_WAY.load(Ordering::SeqCst)
}

/// Workers of all pools: counted before they start, and until they are about to end.
pub(crate) fn threads() -> usize {
    THREADS.load(Ordering::SeqCst)
}

/// Forgets workers and jobs: in the child of a fork, which has none of the parent's.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(super) unsafe fn renew(pool: &'static Pool) {
    UNDER_WAY.store(0, Ordering::SeqCst);
    THREADS.store(0, Ordering::SeqCst);
    // SAFETY: there is one thread, and it does not have the lock.
    unsafe { pool.state.renew(State::EMPTY) };
}

/// A worker was needed, and its thread could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// A call to make: `run(data)`, once. It must not panic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) run: unsafe fn(*const ()),
    pub(super) data: *const (),
}

/// Work for which a fiber waits. It lies in that fiber's frame.
#[derive(Debug)]
pub(super) struct Job {
    work: Work,
    waiter: Cell<Option<(FiberRef, Ticket)>>,
    /// The next job in the list; under the pool's lock.
    next: Cell<*const Job>,
}

impl Job {
    pub(super) fn new(work: Work) -> Job {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        Job { work, waiter: Cell::new(None), next: Cell::new(ptr::null()) }
    }

    /// Gives up a job that was not pushed.
    pub(super) fn abandon(self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sets the wait that is to be ended when the work is done.
    pub(super) fn set_waiter(&self, fiber: FiberRef, ticket: Ticket) {
        self.waiter.set(Some((fiber, ticket)));
    }
}

/// Does a job and wakes the fiber that waits for it.
///
/// # Safety
/// The job was pushed, and taken off the list by the caller.
unsafe fn perform(job: *const Job) {
    // SAFETY: the job lies in the frame of its fiber, which waits until `end_claimed`.
    let Job { work, waiter, .. } = unsafe { &*job };
    let waiter = waiter.get();
    let before = generation::current();
    // SAFETY: a job is pushed once and so taken off the list once; `data` is what `run` is for.
    unsafe { (work.run)(work.data) };
    if generation::current() != before {
        // The call has forked, and this is the child, in which no fiber waits for it.
        generation::end();
    }
    if let Some((fiber, ticket)) = waiter {
        end_claimed(fiber, ticket);
    }
    // Only now: a fiber that waits for a call counts as running (see `process::deadlock`).
    UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
}

/// A worker's place in the pool. It is never freed, for a late wake-up may still reach it, but later workers
/// use it again.
#[derive(Debug)]
struct Worker {
    bed: Idle,
    /// Whether it is on the idle stack.
    is_idle: Cell<bool>,
    /// The next below it on the idle stack, or on that of spare places.
    below: Cell<Option<&'static Worker>>,
}

// SAFETY: the cells are accessed under the pool's lock only.
unsafe impl Sync for Worker {}

pub(super) struct Pool {
    state: Lock<State>,
    bound: AtomicUsize,
    linger: Duration,
    start: fn(&'static Pool) -> io::Result<()>,
}

struct State {
    /// The list of jobs.
    first: *const Job,
    last: *const Job,
    /// The top of the stack of idle workers.
    idle: Option<&'static Worker>,
    /// The top of the stack of places without a worker.
    spare: Option<&'static Worker>,
    /// Workers, including the one that is starting.
    workers: usize,
    /// Whether a worker is starting: its thread has not come to the lock yet.
    starting: bool,
}

// SAFETY: a job stays until it is done (`Pool::push`), its list is under the lock, and `offload_unchecked`
// demands that the call may be made by another thread.
unsafe impl Send for State {}

impl State {
    const EMPTY: State = State {
        first: ptr::null(),
        last: ptr::null(),
        idle: None,
        spare: None,
        workers: 0,
        starting: false,
    };

    /// Takes the job that has waited longest.
    fn pop(&mut self) -> Option<*const Job> {
        let job = self.first;
        if job.is_null() {
            return None;
        }
        // SAFETY: the fiber of a job in the list waits, so the job is there; and the lock is held.
        self.first = unsafe { (*job).next.get() };
        if self.first.is_null() {
            self.last = ptr::null();
        }
        Some(job)
    }

    fn append(&mut self, job: &Job) {
        job.next.set(ptr::null());
        if self.last.is_null() {
            self.first = job;
        } else {
            // SAFETY: the fiber of a job in the list waits, so the job is there; and the lock is held.
            unsafe { (*self.last).next.set(job) };
        }
        self.last = job;
    }

    /// Whether the caller should start another worker, which is counted as starting then.
    fn wants_worker(&mut self, bound: usize) -> bool {
        let wanted = self.idle.is_none() && !self.starting && self.workers < bound;
        if wanted {
            self.starting = true;
            self.workers += 1;
            THREADS.fetch_add(1, Ordering::SeqCst);
        }
        wanted
    }

    /// Takes `worker` off the idle stack, wherever in it.
    fn leave_idle(&mut self, worker: &'static Worker) {
        worker.is_idle.set(false);
        let below = worker.below.take();
        let mut link = self.idle;
        if link.is_some_and(|top| ptr::eq(top, worker)) {
            self.idle = below;
            return;
        }
        while let Some(above) = link {
            link = above.below.get();
            if link.is_some_and(|next| ptr::eq(next, worker)) {
                above.below.set(below);
                return;
            }
        }
    }
}

impl Pool {
    pub(super) const fn new(start: fn(&'static Pool) -> io::Result<()>, linger: Duration) -> Pool {
        Pool { state: Lock::new(State::EMPTY), bound: AtomicUsize::new(BOUND), linger, start }
    }

    pub(super) fn limit_to(&self, workers: usize) {
        self.bound.store(workers, Ordering::Relaxed);
    }

    fn bound(&self) -> usize {
        self.bound.load(Ordering::Relaxed)
    }

    /// Starts a worker if one more job needs that. (By the time of the push, another job may have taken
    /// it.)
    ///
    /// # Errors
    /// When a thread was to be started and could not be.
    pub(super) fn provide(&'static self) -> Result<(), Refused> {
        if self.state.lock().wants_worker(self.bound()) { self.start_worker() } else { Ok(()) }
    }

    /// Starts the thread of the worker that is counted as starting.
    fn start_worker(&'static self) -> Result<(), Refused> {
        if (self.start)(self).is_ok() {
            return Ok(());
        }
        THREADS.fetch_sub(1, Ordering::SeqCst);
        let mut state = self.state.lock();
        state.starting = false;
        state.workers -= 1;
        // Other fibers may have pushed jobs for this worker.
        while state.workers == 0 {
            let Some(job) = state.pop() else { break };
            drop(state);
            // SAFETY: it was pushed, and taken off the list just now.
            unsafe { perform(job) };
            state = self.state.lock();
        }
        Err(Refused)
    }

    /// Puts a job into the list. Returns false if a worker has to be [`provide`](Self::provide)d first.
    /// `provided` is the result of the last attempt: if that was refused, the job may wait for busy workers.
    ///
    /// # Safety
    /// If the result is true, the job and what its work points to stay until the wait of its waiter was
    /// ended, and only the pool ends that wait. The work's call may be made by another thread.
    pub(super) unsafe fn push(&self, job: &Job, provided: Result<(), Refused>) -> bool {
        let mut state = self.state.lock();
        let worker = state.idle;
        match worker {
            Some(worker) => state.leave_idle(worker),
            None => {
                let busy = match provided {
                    Ok(()) => state.starting || state.workers >= self.bound(),
                    Err(Refused) => state.workers > 0,
                };
                if !busy {
                    return false;
                }
            }
        }
        state.append(job);
        drop(state);
        if let Some(worker) = worker {
            worker.bed.wake();
        }
        true
    }

    /// The body of a worker's thread.
    fn work(&'static self) {
        let mut state = self.state.lock();
        state.starting = false;
        let me = match state.spare {
            Some(place) => {
                state.spare = place.below.take();
                drop(state);
                place
            }
            None => {
                drop(state);
                let place =
                    Worker { bed: Idle::new(), is_idle: Cell::new(false), below: Cell::new(None) };
                Box::leak(Box::new(place))
            }
        };
        loop {
            self.do_jobs(me);
            if !self.wait(me) {
                THREADS.fetch_sub(1, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Does jobs while there are any, then puts the worker on the idle stack.
    fn do_jobs(&'static self, me: &'static Worker) {
        loop {
            let mut state = self.state.lock();
            let Some(job) = state.pop() else {
                me.is_idle.set(true);
                me.below.set(state.idle.replace(me));
                return;
            };
            let more = !state.first.is_null() && state.wants_worker(self.bound());
            drop(state);
            if more {
                // If it cannot be started, the jobs wait for this worker.
                let _ = self.start_worker();
            }
            // SAFETY: it was pushed, and taken off the list just now.
            unsafe { perform(job) };
        }
    }

    /// Waits until the worker is taken off the idle stack for a job. False: none came for too long, and the
    /// worker has to end.
    fn wait(&self, me: &'static Worker) -> bool {
        let deadline = clock::after(self.linger);
        loop {
            me.bed.wait(Some(deadline));
            let late = clock::now() >= deadline;
            let mut state = self.state.lock();
            if !me.is_idle.get() {
                return true;
            }
            if late {
                state.leave_idle(me);
                state.workers -= 1;
                me.below.set(state.spare.replace(me));
                return false;
            }
        }
    }
}

pub(super) fn start_thread(pool: &'static Pool) -> io::Result<()> {
    const NAME: &str = "carefree-offload";
    // A thread of std's waits for the loader's lock when it begins: a fiber may hold that which waits for this thread.
    let launched = match loader::is_known() {
        true => launch_without_std(NAME, || pool.work()),
        false => launch(NAME, || pool.work()),
    };
    launched.map(drop)
}

/// Counts for the tests.
#[cfg(test)]
impl Pool {
    pub(super) fn workers(&self) -> usize {
        self.state.lock().workers
    }

    /// Jobs in the list.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock();
        let next = |job: &*const Job| {
            // SAFETY: the fiber of a job in the list waits, so the job is there; and the lock is held.
            let next = unsafe { (**job).next.get() };
            Some(next).filter(|next| !next.is_null())
        };
        std::iter::successors(Some(state.first).filter(|job| !job.is_null()), next).count()
    }

    /// Workers that are neither idle nor starting.
    pub(super) fn taken(&self) -> usize {
        let state = self.state.lock();
        let next = |worker: &&'static Worker| worker.below.get();
        let idle = std::iter::successors(state.idle, next).count();
        state.workers - idle - usize::from(state.starting)
    }

    /// Places without a worker.
    pub(super) fn places(&self) -> usize {
        let state = self.state.lock();
        std::iter::successors(state.spare, |worker| worker.below.get()).count()
    }
}
