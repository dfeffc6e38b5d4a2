//! Starting fibers.

use std::ffi::CString;
use std::io;
use std::marker::PhantomData;
use std::panic;
use std::sync::atomic::Ordering;

use carefree_context::arch;
use carefree_context::stack::StackSize;

use crate::api::life::{self, place};
use crate::carrier::carrier::{self, Carrier, Shared};
use crate::fiber::current::{current, is_amid, is_spawned, without_parking};
use crate::fiber::furnish::{CLOSURE_MAX, Furnished};
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::idle;
use crate::fiber::registry;
use crate::fiber::size;
use crate::fiber::unstarted;
use crate::handle::join::JoinHandle;
use crate::process::native;
use crate::process::runtime::{self, Runtime};
use crate::process::shortage;

/// Parameters of a fiber to be spawned: as `std::thread::Builder`.
///
/// ```
/// let handle = carefree_runtime::Builder::new()
///     .name("worker".into())
///     .stack_size(1 << 20)
///     .spawn(|| carefree_runtime::current().name().map(str::to_owned))?;
/// assert_eq!(handle.join().unwrap().as_deref(), Some("worker"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "must eventually spawn the thread"]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
}

impl Builder {
    /// An unnamed fiber with a stack of the default size.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// The fiber's name, for reports and for the program's own use.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Bytes of stack that the fiber can use, at least: thread-local storage, the guard and what the
    /// runtime keeps there come on top, and all of it is rounded up to a power of two. Memory is
    /// taken only for what is touched of it. As with std, there are `PTHREAD_STACK_MIN` bytes at least.
    ///
    /// By default what `CAREFREE_STACK` in the environment says (bytes, or a number with `K`, `M` or
    /// `G`), or else `RUST_MIN_STACK`; or else all of it together is 256 KiB, of which 64 KiB are
    /// guard.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Spawns the fiber on the runtime of the caller: that of the fiber that calls, or else the
    /// process's.
    ///
    /// # Errors
    /// When there is no memory for its stack, naming the limit that was reached; when the size asked
    /// for is out of range; or when the process's runtime cannot be started, for instance because
    /// `CAREFREE_CARRIERS` is not a number from 1 to 1024.
    ///
    /// # Panics
    /// If the name has a NUL byte in it.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `f` and its value are 'static, so what they borrow never ends.
        unsafe { self.spawn_unchecked(f) }
    }

    /// Spawns the fiber on a given runtime; else as [`spawn`](Self::spawn).
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn); and when this process was forked after `runtime` was built.
    pub fn spawn_on<F, T>(self, runtime: &Runtime, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `f` and its value are 'static, so what they borrow never ends.
        unsafe { self.start(Some(runtime.shared()), f) }
    }

    /// [`spawn`](Self::spawn) without the promise that what `f` and its value borrow outlives the
    /// fiber.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    ///
    /// # Safety
    /// The caller makes sure that the fiber has ended (its handle's `join` has returned, or
    /// something that happens last in `f` was waited for) before anything ends that `f` or its
    /// value borrows.
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: this function demands the same.
        unsafe { self.start(None, f) }
    }

    /// # Panics
    /// If the name has a NUL byte in it, as std does when it spawns.
    pub(crate) fn refuse_nul(&self) {
        if let Some(name) = &self.name {
            CString::new(name.as_str()).expect("thread name may not contain interior null bytes");
        }
    }

    /// Spawns the fiber on runtime `on`; without that, on the caller's.
    ///
    /// # Safety
    /// As for [`spawn_unchecked`](Self::spawn_unchecked).
    unsafe fn start<F, T>(self, on: Option<&Shared>, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        if size_of::<F>() > CLOSURE_MAX || align_of::<F>() > 64 {
            let f = Box::new(f);
            // SAFETY: this function demands the same of `f`, which the closure calls.
            return unsafe { self.start_small(on, move || (*f)()) };
        }
        // SAFETY: this function demands the same.
        unsafe { self.start_small(on, f) }
    }

    /// [`start`](Self::start) with a closure that fits on the fiber's stack.
    ///
    /// # Safety
    /// As for [`spawn_unchecked`](Self::spawn_unchecked).
    unsafe fn start_small<F, T>(self, on: Option<&Shared>, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        self.refuse_nul();
        let mut name = self.name.map(String::into_boxed_str);
        let size = || match self.stack_size {
            None => Ok(size::default()),
            Some(bytes) => size::of(bytes).map_err(io::Error::from),
        };
        let carrier = carrier::here();
        // An allocator of the program's, amid what the carrier does with what it keeps, spawns as another thread does.
        let here =
            carrier.filter(|c| on.is_none_or(|on| std::ptr::eq(on, c.runtime())) && !is_amid());
        let on = on.or_else(|| carrier.map(Carrier::runtime));
        match here {
            Some(carrier) => {
                if self.stack_size.is_none() && carrier.own_tls && carrier.has_crowd() {
                    if let Some(fiber) = allocate_unstarted(carrier, &mut name) {
                        // SAFETY: the fiber is new and unknown to others.
                        unsafe { leave_closure(fiber, f) };
                        carrier.spawned(fiber);
                        return Ok(JoinHandle::from_counted(fiber));
                    }
                }
                let fiber = allocate_here(carrier, size()?, name)?;
                // The caller must not park, and perhaps leave its carrier, to which the fiber goes.
                without_parking(|| fiber.prepare_standard());
                // SAFETY: the fiber is new and unknown to others.
                unsafe { place(fiber, f) };
                carrier::assign(fiber, carrier);
                carrier.spawned(fiber);
                Ok(JoinHandle::from_counted(fiber))
            }
            None => {
                let own = if on.is_none() { native::runtime() } else { None };
                let runtime = match on.or(own.as_deref()) {
                    Some(runtime) => runtime.refuse_after_fork()?,
                    None => runtime::global()?,
                };
                if runtime.has_threads() {
                    // SAFETY: this function demands the same.
                    return unsafe { native::start(name, self.stack_size, runtime, f) };
                }
                let fiber = allocate_elsewhere(size()?, name)?;
                without_parking(|| fiber.prepare_standard());
                // SAFETY: the fiber is new and unknown to others.
                unsafe { place(fiber, f) };
                runtime.submit(fiber);
                Ok(JoinHandle::from_counted(fiber))
            }
        }
    }
}

/// Takes a header and a stack of those that the carrier keeps.
#[inline]
pub(crate) fn allocate_here(
    carrier: &Carrier,
    size: StackSize,
    name: Option<Box<str>>,
) -> io::Result<FiberRef> {
    carrier.with_local(|local| {
        let stack = local.stacks.take(size, shortage::acquire)?;
        let fiber = match local.headers.header() {
            Ok(fiber) => fiber,
            Err(error) => {
                local.stacks.put(stack);
                return Err(error);
            }
        };
        begin(fiber, local.headers.number(), name, stack);
        Ok(fiber)
    })
}

/// Takes a header for a fiber that gets its stack when it starts; `None`, and the name is left, if no stack can be
/// promised to it.
#[inline]
fn allocate_unstarted(carrier: &Carrier, name: &mut Option<Box<str>>) -> Option<FiberRef> {
    carrier.with_local(|local| {
        if !local.stacks.promise() {
            return None;
        }
        let Ok(fiber) = local.headers.header() else {
            local.stacks.keep_promise();
            return None;
        };
        fiber.begin(Kind::Fiber, local.headers.number(), name.take(), 2);
        Some(fiber)
    })
}

/// Leaves what a fiber that has no stack yet will do.
///
/// # Safety
/// The fiber is new and known to the caller alone.
#[inline(always)]
unsafe fn leave_closure<F, T>(fiber: FiberRef, f: F)
where
    F: FnOnce() -> T,
{
    // The caller must not park, and perhaps leave its carrier, to which the fiber goes.
    without_parking(|| {
        fiber.prepare_standard();
        // SAFETY: this function demands the same.
        unsafe {
            if unstarted::fits::<F>() {
                life::place_later(fiber, f);
            } else {
                let f = Box::new(f);
                life::place_later(fiber, move || (*f)());
            }
        }
    });
}

/// Takes a header and a stack from the process's pools.
pub(crate) fn allocate_elsewhere(size: StackSize, name: Option<Box<str>>) -> io::Result<FiberRef> {
    // The caller may be a fiber of another runtime. The pools' lists grow under their locks, with which it
    // must not park in the allocator.
    without_parking(|| {
        let stack = idle::take(size, shortage::acquire)?;
        let fiber = match registry::header() {
            Ok(fiber) => fiber,
            Err(error) => {
                idle::put(stack);
                return Err(error);
            }
        };
        begin(fiber, registry::number(), name, stack);
        Ok(fiber)
    })
}

/// Makes `fiber` a new fiber with this stack, known to the caller alone.
#[inline]
fn begin(fiber: FiberRef, number: u64, name: Option<Box<str>>, stack: Furnished) {
    fiber.stack.store(stack.into_raw(), Ordering::Relaxed);
    // One reference is the fiber's own, one the handle's.
    fiber.begin(Kind::Fiber, number, name, 2);
}

/// Starts a fiber that runs `f`: as `std::thread::spawn` starts a thread.
///
/// It works from any thread and any fiber, without set-up: the first call starts the process's
/// runtime, with one carrier (kernel thread) a processor, or `CAREFREE_CARRIERS` of them. A fiber
/// spawned by a fiber runs on the same runtime. A fiber whose handle is dropped goes on;
/// the process does not wait for it.
///
/// # Panics
/// If there is no memory for its stack: [`Builder::spawn`] returns an error instead.
///
/// ```
/// let handle = carefree_runtime::spawn(|| 6 * 7);
/// assert_eq!(handle.join().unwrap(), 42);
/// ```
///
/// What a fiber uses must be owned by it, and `Send`:
///
/// ```compile_fail,E0373
/// let text = String::from("borrowed");
/// carefree_runtime::spawn(|| text.len());
/// ```
///
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// carefree_runtime::spawn(move || *shared);
/// ```
#[inline]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(f).expect("failed to spawn thread")
}

/// Runs `f` as a fiber and returns its value; the caller waits. On a fiber, `f` is simply called.
///
/// What `f` borrows need not be `'static`, since the caller waits for it.
///
/// # Panics
/// With `f`'s panic, if it panics; and as [`spawn`].
///
/// ```
/// let words = vec!["a", "fiber"];
/// assert_eq!(carefree_runtime::run(|| words.len()), 2);
/// ```
pub fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    run_on(None, f)
}

/// [`run`] on runtime `on`; without that, on the caller's.
pub(crate) fn run_on<F, T>(on: Option<&Shared>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if on.is_none() && is_spawned() {
        return f();
    }
    // Gives a thread its header: if there is no memory for that, this panics before the spawn.
    current();
    // SAFETY: the fiber is joined below, whatever happens, before `f`'s borrows can end.
    let handle = unsafe { Builder::new().start(on, f) }.expect("failed to spawn thread");
    handle.join_uncancellable().unwrap_or_else(|payload| panic::resume_unwind(payload))
}

impl Runtime {
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
        run_on(Some(self.shared()), f)
    }
}

#[allow(dead_code, reason = "asserts at compile time what headers are laid out for")]
const HEADER_FITS_TWO_LINES: PhantomData<()> = {
    // Where a sanitizer is built in, contexts are larger.
    assert!(
        size_of::<crate::fiber::header::Header>() == 128 || size_of::<arch::ThreadContext>() > 16
    );
    PhantomData
};
