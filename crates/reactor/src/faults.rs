//! Hooks for tests: kernel calls that fail on demand, and a layer between a driver and its callers.
//!
//! Nothing here is part of the crate's interface. Tests and users have the same build: a cargo feature
//! would be on for both, since cargo unifies the features of everything that it builds together.
//! Without hooks, each system call and each new driver costs a load and a branch that is never taken.
//!
//! Every system call of this crate consults the hooks first. The `io-uring` crate's calls (set-up,
//! registration, mapping) go through libc's symbols; a test binary that defines those can redirect
//! them to [`call`], which consults the hooks too.

use std::cell::Cell;
use std::fmt::Debug;
use std::io;
use std::mem;
use std::ptr;

use std::sync::atomic::{AtomicPtr, Ordering};

use carefree_ground::own::Shared;

use crate::driver::{Driver, Kind};
use crate::idle::Idle;
use crate::op::{Completions, Op, Unsupported};
use crate::sys::raw;

/// A test's hooks, for the whole process. Called on any thread, and on fibers.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Called before each system call: the error to return instead of entering the kernel. May
    /// change the arguments, to others that are as sound.
    pub call: fn(libc::c_long, &mut [usize; 6]) -> Option<i32>,
    /// How many submissions and completions a new ring should hold.
    pub sizes: fn() -> Option<(u32, u32)>,
    /// Whether the cancel of the operation with this token should miss it in the ring.
    pub misses: fn(u64) -> bool,
    /// The layer between a new driver of this kind and its caller.
    pub layer: fn(Kind, &Shared<Idle>) -> io::Result<Inserted>,
}

/// A layer, or none.
pub type Inserted = Option<Box<dyn Layer>>;

impl Hooks {
    /// Hooks that change nothing.
    pub const NONE: Hooks =
        Hooks { call: |_, _| None, sizes: || None, misses: |_| false, layer: |_, _| Ok(None) };
}

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(ptr::null_mut());

/// Makes the process use `hooks` from now on.
///
/// # Safety
/// `call` changes arguments only to others for which the system call is as sound. A layer hands out each completion
/// that its driver has, once, and no other: callers take tokens for addresses.
pub unsafe fn install(hooks: &'static Hooks) {
    HOOKS.store(ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

#[inline(always)]
pub(crate) fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null, or the reference that `install` was given, which is valid for ever.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// What a [`Driver`] delegates to in a test. The methods have the driver's contracts.
pub trait Layer: Debug + Send {
    /// [`Driver::submit`], or [`Driver::submit_unheld`].
    ///
    /// # Errors
    /// As for these.
    ///
    /// # Safety
    /// As for these.
    unsafe fn submit(&mut self, token: u64, op: &Op, unheld: bool) -> Result<(), Unsupported>;
    /// [`Driver::cancel`].
    fn cancel(&mut self, token: u64);
    /// [`Driver::poll`].
    fn poll(&mut self, out: &mut Completions);
    /// [`Driver::peek`].
    fn peek(&mut self, out: &mut Completions);
    /// [`Driver::hand_over`].
    fn hand_over(&mut self);
    /// [`Driver::wait`].
    fn wait(&mut self, deadline: Option<u64>, out: &mut Completions) -> bool;
    /// [`Driver::pending`].
    fn pending(&self) -> usize;
    /// [`Driver::kind`].
    fn kind(&self) -> Kind;
    /// [`Driver::abandon`].
    fn abandon(self: Box<Self>);
}

/// A driver without a layer, for a layer to delegate to.
///
/// # Errors
/// As for [`Driver::with_idle`].
pub fn bare(kind: Kind, idle: &Shared<Idle>) -> io::Result<Driver> {
    Driver::bare(kind, idle.clone())
}

/// Given a system call's number: the error to return instead of entering the kernel.
pub type Plan = Box<dyn FnMut(libc::c_long) -> Option<i32>>;

thread_local! {
    /// The plan is leaked, so that this variable has no destructor. The runtime makes system calls
    /// on a fiber after running its destructors, and a destructor registered then would be run by
    /// the next fiber that gets the storage.
    static PLAN: Cell<Option<&'static mut Plan>> = const { Cell::new(None) };
}

/// Sets or removes the calling thread's plan; returns the one it had. Installs hooks that consult it.
pub fn set(plan: Option<Plan>) -> Option<Plan> {
    const ASK: &Hooks = &Hooks { call: ask, ..Hooks::NONE };
    // SAFETY: `ask` leaves arguments as they are, and there is no layer.
    unsafe { install(ASK) };
    let plan = plan.map(|plan| Box::leak(Box::new(plan)));
    let before = PLAN.replace(plan)?;
    Some(mem::replace(before, Box::new(|_| None)))
}

/// Consults the calling thread's plan.
fn ask(number: libc::c_long, _: &mut [usize; 6]) -> Option<i32> {
    // Removed while it is called, because it may make system calls itself.
    let plan = PLAN.take()?;
    let answer = plan(number);
    PLAN.set(Some(plan));
    answer
}

/// A system call that consults the hooks first.
///
/// # Errors
/// The `errno` value returned by a hook or the kernel.
///
/// # Safety
/// What the kernel does with these arguments must be sound.
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: both functions require the same.
    unsafe { raw::syscall(number, args) }
}
