//! A hosted thread, and how it is found.

use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use carefree_context::tls::{self, Layout};

use crate::api::life;
use crate::carrier::carrier;
use crate::carrier::clock::NEVER;
use crate::carrier::quiet::{self, quiet};
use crate::fiber::current;
use crate::fiber::furnish;
use crate::fiber::header::FiberRef;
use crate::fiber::names::{KernelName, Names};
use crate::fiber::registry;
use crate::fiber::split::Split;
use crate::handle::join;
use crate::hosted::time;
use crate::protocol::episode::Outcome;
use crate::protocol::reason::Reason;
use crate::wait::cancel;
use crate::wait::park::{self, Until};

/// The layout of blocks, from when there are hosted threads.
static LAYOUT: AtomicPtr<Layout> = AtomicPtr::new(ptr::null_mut());
/// The `pthread_t` and the header of the process's first thread, once it was adopted; else 0 and null.
static MAIN: AtomicUsize = AtomicUsize::new(0);
static MAIN_FIBER: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// What the host keeps for the first thread.
static MAIN_DATA: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// What a hosted thread runs.
#[derive(Debug)]
pub struct Life<H> {
    /// Called first, on the new thread. It may be left by libc's forced unwinding only within itself.
    pub run: unsafe fn(&H),
    /// Called when the destructors of thread-local variables have run, as the last thing.
    pub end: unsafe fn(&H),
    /// Called in place of `end` in the child of a fork, where the thread that has forked is a plain one. If that is the
    /// first of several threads by now, it does not return.
    pub end_in_child: unsafe fn(),
}

/// What lies on a hosted thread's stack, but for the first one's.
#[repr(C, align(16))]
pub(super) struct Record<H: 'static> {
    pub(super) host: H,
    pub(super) life: &'static Life<H>,
    /// Last, so that it is found without knowing `H`.
    pub(super) split: Split,
}

/// A fiber that has a `pthread_t`. (Plain data: the right to join it is the holder's to keep track of.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostedThread(pub(super) FiberRef);

/// Whether the process has hosted threads.
#[inline(always)]
pub fn is_hosting() -> bool {
    !LAYOUT.load(Ordering::Relaxed).is_null()
}

/// Whether the process has hosted threads and the caller is none, nor on a carrier: it is a thread of the kernel's.
#[inline(always)]
pub fn is_beside() -> bool {
    is_hosting() && carrier::here().is_none()
}

/// Notes the first thread, and that hosting begins.
pub(super) fn begin(layout: &'static Layout, main: usize, fiber: FiberRef, data: *mut u8) {
    MAIN_FIBER.store(fiber.as_ptr(), Ordering::Relaxed);
    MAIN_DATA.store(data, Ordering::Relaxed);
    MAIN.store(main, Ordering::Release);
    LAYOUT.store(ptr::from_ref(layout).cast_mut(), Ordering::Release);
    quiet::set_hosting(true);
}

/// Ends hosting: in the child of a fork, which has one thread.
pub fn renew() {
    LAYOUT.store(ptr::null_mut(), Ordering::Release);
    quiet::set_hosting(false);
    MAIN.store(0, Ordering::Release);
}

/// The hosted thread with this `pthread_t`; `None` if that is another thread's or fiber's.
///
/// # Safety
/// `pthread` is the `pthread_t` of a thread or fiber that was neither joined, nor detached and has ended.
#[inline]
pub unsafe fn find(pthread: usize) -> Option<HostedThread> {
    // SAFETY: a layout is never freed.
    let layout = unsafe { LAYOUT.load(Ordering::Acquire).as_ref() }?;
    if pthread == MAIN.load(Ordering::Acquire) {
        let main = MAIN_FIBER.load(Ordering::Relaxed);
        // SAFETY: `begin` was given a fiber.
        return Some(HostedThread(unsafe { FiberRef::from_ptr(main) }));
    }
    let pthread = ptr::with_exposed_provenance_mut::<u8>(pthread);
    // SAFETY: as this function demands, the control block is there; and with a fiber's id, it lies in a
    // block of a furnished stack's.
    let fiber = unsafe {
        if !tls::is_fiber_id(layout.id_of(pthread)) {
            return None;
        }
        furnish::hosted_by(layout, pthread)
    };
    // SAFETY: `create` has noted a fiber.
    (!fiber.is_null()).then(|| HostedThread(unsafe { FiberRef::from_ptr(fiber) }))
}

/// The process's first thread, if it is hosted.
pub fn main_thread() -> Option<HostedThread> {
    match MAIN.load(Ordering::Acquire) {
        0 => None,
        // SAFETY: its `pthread_t`, which is good for ever.
        main => unsafe { find(main) },
    }
}

/// Whether `pthread` was that of a hosted thread, which has been given up.
///
/// # Safety
/// As for [`find`].
pub unsafe fn is_gone(pthread: usize) -> bool {
    // SAFETY: a layout is never freed.
    let Some(layout) = (unsafe { LAYOUT.load(Ordering::Acquire).as_ref() }) else { return false };
    // SAFETY: as this function demands; a stack that was a fiber's stays mapped for a while.
    unsafe {
        let id = layout.id_of(ptr::with_exposed_provenance_mut(pthread));
        tls::is_fiber_id(id) && find(pthread).is_none()
    }
}

/// The calling hosted thread, if the caller is one and may park.
#[inline(always)]
pub fn current() -> Option<HostedThread> {
    let me = current::try_current().filter(|me| me.plain.get() == 0)?;
    // SAFETY: a layout is never freed.
    let layout = unsafe { LAYOUT.load(Ordering::Acquire).as_ref() }?;
    is_hosted(layout, me).then_some(HostedThread(me))
}

/// Whether the calling fiber was created as a hosted thread: the runtime has fibers of its own, as those that
/// wait for a name to be looked up, and what lies on their stacks is no [`Record`].
#[inline(always)]
fn is_hosted(layout: &Layout, me: FiberRef) -> bool {
    // SAFETY: no preconditions.
    let pthread_self =
        || ptr::with_exposed_provenance_mut(unsafe { libc::pthread_self() } as usize);
    me.as_ptr() == MAIN_FIBER.load(Ordering::Relaxed)
        // SAFETY: the calling fiber's `pthread_t`, whose stack is in use.
        || unsafe { furnish::hosted_by(layout, pthread_self()) } == me.as_ptr()
}

/// Makes the calling hosted thread a plain one, whose calls are libc's own: in a child with a copy of the process
/// that has run no handlers of forks. It must not run the fibers of which it has copies.
pub fn become_plain() {
    if let Some(me) = current::try_current() {
        me.plain.set(1);
    }
}

impl HostedThread {
    /// Whether it is the process's first thread.
    pub fn is_main(self) -> bool {
        self.0.as_ptr() == MAIN_FIBER.load(Ordering::Relaxed) && MAIN.load(Ordering::Relaxed) != 0
    }

    /// What the host keeps for it, as it was given to [`create`](super::create) or [`adopt`](super::adopt).
    ///
    /// # Safety
    /// `H` is the type that was given there. The result is good as long as the `pthread_t`.
    #[inline]
    pub unsafe fn data<'a, H: 'static>(self) -> &'a H {
        if self.is_main() {
            // SAFETY: `begin` was given it.
            return unsafe { &*MAIN_DATA.load(Ordering::Relaxed).cast::<H>() };
        }
        let record = life::closure::<Record<H>>(self.0.stack.load(Ordering::Relaxed));
        // SAFETY: `create` has written it there, on the stack, which stays pinned.
        unsafe { &(*record).host }
    }

    /// Whether it has ended, so that a join would not wait.
    pub fn has_ended(self) -> bool {
        self.0.has_finished()
    }

    /// Whether it is the caller.
    pub fn is_me(self) -> bool {
        current::try_current() == Some(self.0)
    }

    /// Waits for its end until `deadline`. [`Outcome::Invalid`]: it has ended.
    pub fn wait(self, deadline: u64) -> Outcome {
        match join::await_end(self.0, Until { deadline, cancellable: true }) {
            Outcome::Unparked => Outcome::Invalid,
            outcome => outcome,
        }
    }

    /// Gives up its `pthread_t`. The stack is used again when the fiber has left it.
    ///
    /// # Safety
    /// To be called once, and never for the first thread. Neither this nor a copy of it is used afterwards, unless the
    /// fiber is known not to have ended.
    pub unsafe fn give_up(self) {
        let _quiet = quiet();
        carrier::release(self.0);
    }

    /// Ends its wait as cancellation does, if it can be cut short, and has later ones end at once.
    pub fn cancel(self) {
        cancel::cancel(self.0);
    }

    /// Takes [`cancel`](Self::cancel) back. For the calling fiber itself.
    pub fn take_cancel_back(self) {
        self.0.cancel.clear();
    }

    /// Whether it was [cancelled](Self::cancel).
    #[inline]
    pub fn is_cancelled(self) -> bool {
        self.0.cancel.peek()
    }

    /// Ends its wait as cancellation does, if it can be cut short, and no later one.
    pub fn interrupt(self) {
        crate::carrier::wake::wake_cancelled(self.0);
    }

    /// What it waits for; [`Reason::Runs`] if it does not wait.
    pub fn reason(self) -> Reason {
        if !self.0.episode.is_waiting() {
            return Reason::Runs;
        }
        Reason::from_code(self.0.reason.load(Ordering::Relaxed))
    }

    /// What the wait was for that [`interrupt`](Self::interrupt) or [`cancel`](Self::cancel) has ended last, if that
    /// was not asked before; otherwise [`Reason::NotStarted`]. For the calling fiber itself.
    ///
    /// Only the fiber knows: another thread may read what it waits for, and interrupt its next wait.
    #[inline]
    pub fn take_cut(self) -> Reason {
        let cut = self.0.cut.load(Ordering::Relaxed);
        if cut != Reason::NotStarted as u8 {
            self.0.cut.store(Reason::NotStarted as u8, Ordering::Relaxed);
        }
        Reason::from_code(cut)
    }

    /// Notes for [`take_cut`](Self::take_cut) what an interrupted wait was for that the kernel alone knew of. For the
    /// calling fiber itself.
    pub fn note_cut(self, reason: Reason) {
        self.0.cut.store(reason as u8, Ordering::Relaxed);
    }

    /// Whether [`take_cut`](Self::take_cut) has something to tell. For the calling fiber itself.
    #[inline]
    pub fn is_cut(self) -> bool {
        self.0.cut.load(Ordering::Relaxed) != Reason::NotStarted as u8
    }

    /// The kernel's number of the thread that runs it, or ran it last; 0 if none did.
    pub fn carrier_thread(self) -> i32 {
        let carrier = self.0.carrier.get().cast::<carrier::Carrier>();
        // SAFETY: the process's runtime, with its carriers, is there for ever.
        unsafe { carrier.as_ref() }.map_or(0, carrier::Carrier::thread)
    }

    /// Nanoseconds of processor time that it has used; of those before a program first asks for any thread's,
    /// only the process's first thread has some.
    pub fn time_used(self) -> u64 {
        if self.is_me() { time::own(self.0) } else { time::of(self.0) }
    }

    /// How the processor time of the calling thread, which this is, is divided: nanoseconds in which the program ran,
    /// and the kernel for it, from when that was first asked of any thread; of the process's first thread also before
    /// it created another.
    pub fn time_split(self) -> [u64; 2] {
        time::own_split(self.0)
    }

    /// Its number in place of the kernel's: of the first thread, the process's.
    pub fn number(self) -> i32 {
        let pthread = ptr::with_exposed_provenance_mut::<u8>(self.pthread());
        // SAFETY: a layout is never freed, and the `pthread_t` is good.
        let id =
            unsafe { LAYOUT.load(Ordering::Acquire).as_ref().map(|layout| layout.id_of(pthread)) };
        id.unwrap_or(0) as i32
    }

    /// Its name, if it was given one.
    pub fn name(self) -> Option<KernelName> {
        let name = *self.0.header().names()?.kernel.lock();
        (name[0] != 0).then_some(name)
    }

    /// Names it.
    pub fn set_name(self, name: KernelName) {
        let names =
            current::without_parking(|| self.0.header().ensure_names(Names::new(None, name)));
        *names.kernel.lock() = name;
    }

    /// Its `pthread_t`.
    pub fn pthread(self) -> usize {
        if self.is_main() {
            return MAIN.load(Ordering::Relaxed);
        }
        // SAFETY: its stack is pinned, as long as the `pthread_t` is good.
        unsafe { furnish::pthread_of(self.0.stack.load(Ordering::Relaxed)) }.unwrap_or(0)
    }
}

/// Runs the destructors of the calling hosted thread's variables and keys: for a first thread that ends and still
/// counts.
pub fn end_thread_locals(me: HostedThread) {
    life::end_thread_locals(me.0);
}

/// Ends the process's first thread, which calls this, as far as others can see. It never runs again, but its
/// stack stays.
pub fn end_main(me: HostedThread) -> ! {
    life::end_thread_locals(me.0);
    join::finish(me.0);
    loop {
        park::sleep_until(NEVER, Reason::Other);
    }
}

/// A hosted thread that was found, not given, by the caller: it may end, but its `pthread_t` and what the host
/// keeps for it stay until this is dropped.
#[derive(Debug)]
pub struct Held(HostedThread);

impl Deref for Held {
    type Target = HostedThread;

    fn deref(&self) -> &HostedThread {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _quiet = quiet();
        carrier::release(self.0.0);
    }
}

/// The process's first thread, if it is hosted and has not ended; else, or if it does not pass `test`, any
/// other hosted thread that has not ended and does. The registry is locked meanwhile: `test` must neither
/// allocate nor wait. What the host keeps for a thread is good while it is tested.
pub fn find_where(mut test: impl FnMut(HostedThread) -> bool) -> Option<Held> {
    let _quiet = quiet();
    if let Some(main) = main_thread().filter(|main| !main.has_ended()) {
        if test(main) {
            // The count is never 0: the first thread has references that it does not give back.
            main.0.references.fetch_add(1, Ordering::Relaxed);
            return Some(Held(main));
        }
    }
    let other = registry::find_pinned(|fiber| test(HostedThread(fiber)), carrier::recycle);
    other.map(|fiber| Held(HostedThread(fiber)))
}
