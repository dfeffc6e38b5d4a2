//! Threads for calls that block.
//!
//! Jobs wait in one list, first in, first out. A *worker* takes jobs from it for as long as there
//! are any, then lies down: idle workers are a stack, so that those not needed stay below and end.
//!
//! # What sees to a job
//!
//! Under the lock, at any time, each job in the list has a worker that will come for it: one that
//! was taken off the idle stack for it and has not looked yet; or the worker that is *starting*; or,
//! if there are as many workers as there may be, any of them. By induction over what changes that:
//!
//! * A caller that pushes takes an idle worker off the stack. If there is none, it pushes only while a worker
//!   is starting or there are as many as may be; else it has to start one first ([`Pool::provide`]).
//! * A worker that takes a job while it was starting leaves the rest of the list without its own
//!   visitor; so it starts the next worker if there is a rest ([`State::wants_worker`]). One worker
//!   starts at a time, for short jobs are often done before a second thread would be up; long ones
//!   get a thread each, one after the other.
//! * A worker lies down only if the list is empty, and ends only from the idle stack.
//!
//! When a thread cannot be started, the job waits for those there are, and for the next attempt,
//! which comes with the next job that is pushed or taken. If there are none, the thread that made the attempt does
//! what is in the list itself.
//!
//! # Locks
//!
//! Fibers come here, from code that libc's calls are built on: everything is under a [`Lock`], which
//! parks no fiber, and workers sleep in an [`Idle`]. No allocation and no system call is made under
//! the lock.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree_ground::lock::Lock;
use carefree_reactor::{Idle, clock};

use crate::carrier::launch::launch;
use crate::carrier::wake::end_claimed;
use crate::fiber::header::FiberRef;
use crate::protocol::episode::Ticket;
use crate::protocol::generation;

/// How long a worker stays without a job.
pub(super) const LINGER: Duration = Duration::from_secs(10);
/// Workers at most, unless told otherwise.
const BOUND: usize = 512;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Jobs that were not yet done, or whose fibers were not yet woken.
pub(crate) fn under_way() -> usize {
    UNDER_WAY.load(Ordering::SeqCst)
}

/// Workers of all pools: counted before they start, and until they are about to end.
pub(crate) fn threads() -> usize {
    THREADS.load(Ordering::SeqCst)
}

/// Forgets threads and calls: in the child of a fork, to which they have not come along.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(super) unsafe fn renew(pool: &'static Pool) {
    UNDER_WAY.store(0, Ordering::SeqCst);
    THREADS.store(0, Ordering::SeqCst);
    // SAFETY: the caller's promise.
    unsafe { pool.state.renew(State::EMPTY) };
}

/// There is no thread, and none can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// A call to make: `run(data)`, once. It must not panic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) run: unsafe fn(*const ()),
    pub(super) data: *const (),
}

/// Work that a fiber waits for; lies in that fiber's frame.
#[derive(Debug)]
pub(super) struct Job {
    work: Work,
    waiter: Cell<Option<(FiberRef, Ticket)>>,
    /// The next one in the list; under the pool's lock.
    next: Cell<*const Job>,
}

impl Job {
    pub(super) fn new(work: Work) -> Job {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        Job { work, waiter: Cell::new(None), next: Cell::new(ptr::null()) }
    }

    /// It was not pushed, and will not be done.
    pub(super) fn abandon(self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }

    /// Says whose wait ends with the work.
    pub(super) fn set_waiter(&self, fiber: FiberRef, ticket: Ticket) {
        self.waiter.set(Some((fiber, ticket)));
    }
}

/// Does a job and wakes the fiber that waits for it.
///
/// # Safety
/// The job was pushed, and taken off the list by the caller.
unsafe fn perform(job: *const Job) {
    // SAFETY: its fiber waits, and so its frame stays, until `end_wait`.
    let Job { work, waiter, .. } = unsafe { &*job };
    let waiter = waiter.get();
    let before = generation::current();
    // SAFETY: the call of that job, made once.
    unsafe { (work.run)(work.data) };
    if generation::current() != before {
        // It has forked, and this is the child: none waits here.
        generation::end();
    }
    if let Some((fiber, ticket)) = waiter {
        end_claimed(fiber, ticket);
    }
    // Only now: see `deadlock`.
    UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
}

/// A thread's place in the pool; never freed, for a late wake-up may still reach it, but used again.
#[derive(Debug)]
struct Worker {
    bed: Idle,
    /// Whether it is on the idle stack, and the links of that or of the stack of spare places.
    is_idle: Cell<bool>,
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
    first: *const Job,
    last: *const Job,
    idle: Option<&'static Worker>,
    spare: Option<&'static Worker>,
    /// Workers, the starting one among them.
    workers: usize,
    starting: bool,
}

// SAFETY: jobs are made to be done by other threads, and are reached under the lock.
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
        // SAFETY: a job in the list is waited for, so it is there.
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
            // SAFETY: as in `pop`.
            unsafe { (*self.last).next.set(job) };
        }
        self.last = job;
    }

    /// Whether another worker should be started, and counts it as starting then.
    fn wants_worker(&mut self, bound: usize) -> bool {
        let wanted = self.idle.is_none() && !self.starting && self.workers < bound;
        if wanted {
            self.starting = true;
            self.workers += 1;
            THREADS.fetch_add(1, Ordering::SeqCst);
        }
        wanted
    }

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

    /// Sees to it that there is a worker for one more job, as a rule; whether there still is one
    /// turns out when the job is pushed.
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
        // Jobs of others that relied on this worker.
        while state.workers == 0 {
            let Some(job) = state.pop() else { break };
            drop(state);
            // SAFETY: taken off the list just now.
            unsafe { perform(job) };
            state = self.state.lock();
        }
        Err(Refused)
    }

    /// Puts a job into the list, unless a worker has to be [`provide`](Self::provide)d first. What
    /// became of the last attempt to do so decides whether the job may wait for busy workers.
    ///
    /// # Safety
    /// If the result is true: the job and its work stay until its waiter's wait is ended, which
    /// nothing else ends.
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

    /// What a worker's thread does.
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

    /// Does jobs while there are any, then goes to the idle stack.
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
                // If it cannot be had, the jobs wait for us.
                let _ = self.start_worker();
            }
            // SAFETY: taken off the list just now.
            unsafe { perform(job) };
        }
    }

    /// Waits on the idle stack until there is a job. False: it took too long, and the worker is one
    /// no more.
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
    launch("carefree-offload", || pool.work()).map(drop)
}

/// What the tests count.
#[cfg(test)]
impl Pool {
    pub(super) fn workers(&self) -> usize {
        self.state.lock().workers
    }

    /// Jobs in the list.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock();
        let next = |job: &*const Job| {
            // SAFETY: as in `pop`; the list does not change under the lock.
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
