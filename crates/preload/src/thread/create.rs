//! Creating threads.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use carefree_runtime::hosted::{self, HostedThread, Life};
use carefree_runtime::standard::StartRoutine;
use libc::{pthread_attr_t, pthread_t};

use crate::start;
use crate::thread::exempt;
use crate::thread::frame::carefree_hosted_call;
use crate::thread::own_stack;
use crate::thread::policy::Policy;
use crate::thread::record::{self, ALIVE, CREATED, DETACHED, ENDED, MOST, Record, Start};

unsafe extern "C" {
    fn pthread_attr_getdetachstate(a: *const pthread_attr_t, detached: *mut c_int) -> c_int;
    fn pthread_attr_getschedpolicy(a: *const pthread_attr_t, policy: *mut c_int) -> c_int;
    fn pthread_attr_getinheritsched(a: *const pthread_attr_t, inherits: *mut c_int) -> c_int;
    fn pthread_attr_getaffinity_np(a: *const pthread_attr_t, n: usize, set: *mut c_void) -> c_int;
}

/// What a program asks for in the attributes of a thread, as far as a fiber can have it.
struct Asked {
    detached: bool,
    /// The policy of threads that ask for none, whatever the caller's is.
    usual_policy: bool,
    /// Bytes of stack; `None` for the default.
    stack: Option<usize>,
}

impl Asked {
    /// `None`: it asks for what only a thread of the kernel's has.
    ///
    /// # Safety
    /// Null, or attributes that were initialised.
    unsafe fn read(attributes: *const pthread_attr_t) -> Option<Asked> {
        if attributes.is_null() {
            return Some(Asked { detached: false, usual_policy: false, stack: None });
        }
        let (mut detached, mut policy, mut inherits) = (0, 0, 0);
        let mut size = 0usize;
        let mut processors = [0u64; 128];
        // SAFETY: as this function demands; there is room for the answers.
        let bound = unsafe {
            pthread_attr_getdetachstate(attributes, &raw mut detached);
            libc::pthread_attr_getstacksize(attributes, &raw mut size);
            pthread_attr_getschedpolicy(attributes, &raw mut policy);
            pthread_attr_getinheritsched(attributes, &raw mut inherits);
            let bytes = size_of_val(&processors);
            pthread_attr_getaffinity_np(attributes, bytes, processors.as_mut_ptr().cast()) == 0
        };
        // SAFETY: as this function demands.
        let own_stack = unsafe { own_stack::named_by(attributes) }.is_some();
        let realtime = inherits == PTHREAD_EXPLICIT_SCHED && policy != libc::SCHED_OTHER;
        // Without a set of its own, it has all processors.
        let bound = bound && processors[0] != 0 && processors.iter().any(|word| *word != u64::MAX);
        if own_stack || realtime || bound {
            return None;
        }
        let stack = Some(size).filter(|size| *size != start::default_stack());
        Some(Asked {
            detached: detached == libc::PTHREAD_CREATE_DETACHED,
            usual_policy: inherits == PTHREAD_EXPLICIT_SCHED,
            stack,
        })
    }
}

const PTHREAD_EXPLICIT_SCHED: c_int = 1;

static LIFE: Life<Record> = Life { run, end };

/// `pthread_create`: `None` if the thread is to be one of the kernel's.
///
/// # Safety
/// As for `pthread_create`.
pub(crate) unsafe fn create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    function: StartRoutine,
    argument: *mut c_void,
) -> Option<c_int> {
    let start = Start { function: function as usize, argument, c11: false };
    // SAFETY: as this function demands.
    unsafe {
        create_hosted(thread, attributes, start)
            .or_else(|| own_stack::create(thread, attributes, function, argument))
    }
}

/// # Safety
/// As for `pthread_create`.
unsafe fn create_hosted(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
) -> Option<c_int> {
    if start::is_ours(start.function) || exempt::is_exempt(start.function) {
        return None;
    }
    // SAFETY: as this function demands.
    let asked = unsafe { Asked::read(attributes) }?;
    if !start::host() {
        return None;
    }
    let record = Record::new(start, crate::signal::mask(), asked.detached);
    if !asked.usual_policy {
        *record.policy.lock() = match record::current() {
            Some((_, creator)) => *creator.policy.lock(),
            None => Policy::of_kernel_thread(),
        };
    }
    let alive = ALIVE.fetch_add(1, Ordering::SeqCst);
    CREATED.fetch_add(1, Ordering::Relaxed);
    if alive > MOST.load(Ordering::Relaxed) {
        MOST.fetch_max(alive, Ordering::Relaxed);
    }
    let tell = |created: HostedThread| {
        // SAFETY: as this function demands.
        unsafe { thread.write(created.pthread() as pthread_t) };
    };
    // SAFETY: `run` and `end` are for records, and this one is for the new thread alone.
    match unsafe { hosted::create(asked.stack, record, &LIFE, tell) } {
        Ok(()) => Some(0),
        Err(_) => {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
            Some(libc::EAGAIN)
        }
    }
}

/// A thread's life but for its end.
///
/// # Safety
/// The caller is the new thread, which does this first.
unsafe fn run(record: &Record) {
    let Start { function, argument, c11 } = record.start;
    let mut exited = 0;
    let none = std::ptr::null_mut();
    // SAFETY: the program's function, which takes one argument, or ignores the others.
    let value = unsafe { carefree_hosted_call(function, argument, none, none, &raw mut exited) };
    if exited == 0 {
        let value = if c11 { value as c_int as isize as *mut c_void } else { value };
        record.value.store(value, Ordering::Relaxed);
    }
}

/// A thread's end.
///
/// # Safety
/// The caller is the thread, which does this last.
unsafe fn end(record: &Record) {
    crate::signal::end(record);
    if ALIVE.fetch_sub(1, Ordering::SeqCst) == 1 {
        // The first thread has ended by pthread_exit, and this is the last one.
        // SAFETY: no other thread calls it.
        unsafe { libc::exit(0) };
    }
    if record.state.fetch_or(ENDED, Ordering::AcqRel) & DETACHED != 0 {
        if let Some((me, _)) = record::current() {
            // SAFETY: it is detached, so this is the one place that gives it up.
            unsafe { me.give_up() };
        }
    }
}

stand_in! {
    /// C11's `thrd_create(3)`.
    fn thrd_create(thread: *mut pthread_t, function: usize, argument: *mut c_void) -> c_int {
        const ERROR: c_int = 2;
        const NO_MEMORY: c_int = 3;
        let start = Start { function, argument, c11: true };
        // SAFETY: the caller's arguments are those of `pthread_create`, without attributes.
        match unsafe { create_hosted(thread, std::ptr::null(), start) } {
            Some(0) => 0,
            Some(libc::EAGAIN | libc::ENOMEM) => NO_MEMORY,
            Some(_) => ERROR,
            // SAFETY: the caller's arguments.
            None => unsafe { next(thread, function, argument) },
        }
    }

    /// `pthread_setattr_default_np(3)`: the default stack of threads.
    fn pthread_setattr_default_np(attributes: *const pthread_attr_t) -> c_int {
        // SAFETY: the caller's argument.
        let done = unsafe { next(attributes) };
        if done == 0 {
            start::forget_default_stack();
        }
        done
    }
}

/// The bytes of stack that libc gives threads by default.
pub(crate) fn default_stack() -> usize {
    unsafe extern "C" {
        fn pthread_getattr_default_np(attributes: *mut pthread_attr_t) -> c_int;
    }
    let mut attributes = MaybeUninit::<pthread_attr_t>::uninit();
    let mut size = 0;
    // SAFETY: initialised by the first call, if that succeeds.
    unsafe {
        if pthread_getattr_default_np(attributes.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstacksize(attributes.as_ptr(), &raw mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
    }
    if size == 0 { 8 << 20 } else { size }
}
