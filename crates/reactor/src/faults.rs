//! Hooks for tests: kernel calls that fail on demand, and a layer between a driver and its callers.
//!
//! Nothing here is part of the crate's interface. There is one build for tests and for users: a
//! feature would be switched on for both, as cargo unites the features of what it builds together.
//! Without hooks, each system call and each new driver costs a load and a branch that is never taken.
//!
//! Every system call of the crate asks the hooks first. What the `io-uring` crate calls (set-up,
//! registration, mapping) goes through libc's symbols; a test binary that defines those can send them
//! to [`call`], and so ask the hooks too.

use std::cell::Cell;
use std::fmt::Debug;
use std::io;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::{Driver, Kind};
use crate::idle::Idle;
use crate::op::{Completion, Op, Unsupported};
use crate::sys::raw;

/// What a test has to say, for the whole process. Called on any thread, and on fibers.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// A system call is about to be made: the error to answer with instead of entering the kernel.
    /// The arguments may be changed.
    pub call: fn(libc::c_long, &mut [usize; 6]) -> Option<i32>,
    /// How many submissions and completions a new ring is to hold.
    pub sizes: fn() -> Option<(u32, u32)>,
    /// Whether the cancel of the operation with this token, about to be handed to a ring, is to miss.
    pub misses: fn(u64) -> bool,
    /// What to put between a new driver of this kind and its caller.
    pub layer: fn(Kind, &Arc<Idle>) -> io::Result<Inserted>,
}

/// A layer, or none.
pub type Inserted = Option<Box<dyn Layer>>;

impl Hooks {
    /// Hooks that change nothing.
    pub const NONE: Hooks =
        Hooks { call: |_, _| None, sizes: || None, misses: |_| false, layer: |_, _| Ok(None) };
}

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(ptr::null_mut());

/// Has the process use `hooks` from now on.
pub fn install(hooks: &'static Hooks) {
    HOOKS.store(ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

#[inline(always)]
pub(crate) fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null, or what `install` was given.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// What a caller uses in a [`Driver`]'s place. The methods are the driver's, with its promises.
pub trait Layer: Debug + Send {
    /// [`Driver::submit`], or [`Driver::submit_unheld`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    unsafe fn submit(&mut self, token: u64, op: &Op, unheld: bool) -> Result<(), Unsupported>;
    /// [`Driver::cancel`].
    fn cancel(&mut self, token: u64);
    /// [`Driver::poll`].
    fn poll(&mut self, out: &mut Vec<Completion>);
    /// [`Driver::wait`].
    fn wait(&mut self, deadline: Option<u64>, out: &mut Vec<Completion>) -> bool;
    /// [`Driver::pending`].
    fn pending(&self) -> usize;
    /// [`Driver::kind`].
    fn kind(&self) -> Kind;
    /// [`Driver::abandon`].
    fn abandon(self: Box<Self>);
}

/// A driver without a layer, for a layer to stand on.
///
/// # Errors
/// As for [`Driver::with_idle`].
pub fn bare(kind: Kind, idle: &Arc<Idle>) -> io::Result<Driver> {
    Driver::bare(kind, Arc::clone(idle))
}

/// Given a system call's number: the error to answer with instead of entering the kernel.
pub type Plan = Box<dyn FnMut(libc::c_long) -> Option<i32>>;

thread_local! {
    /// The plan is leaked, so that this variable has no destructor: the runtime makes system calls on
    /// a fiber whose destructors have been run, and what is registered then would be run again by the
    /// next fiber that gets the storage.
    static PLAN: Cell<Option<&'static mut Plan>> = const { Cell::new(None) };
}

/// Gives the calling thread a plan, or none; returns the one it had. Installs hooks that ask it.
pub fn set(plan: Option<Plan>) -> Option<Plan> {
    const ASK: &Hooks = &Hooks { call: ask, ..Hooks::NONE };
    install(ASK);
    let plan = plan.map(|plan| Box::leak(Box::new(plan)));
    let before = PLAN.replace(plan)?;
    Some(mem::replace(before, Box::new(|_| None)))
}

/// What the calling thread's plan has for this call.
fn ask(number: libc::c_long, _: &mut [usize; 6]) -> Option<i32> {
    // Not there while it is asked: it may make calls itself.
    let plan = PLAN.take()?;
    let answer = plan(number);
    PLAN.set(Some(plan));
    answer
}

/// A system call that asks the hooks first.
///
/// # Errors
/// The `errno` value that a hook or the kernel answered with.
///
/// # Safety
/// The arguments must be such that what the kernel does with them is sound.
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: the caller's promise.
    unsafe { raw::syscall(number, args) }
}
