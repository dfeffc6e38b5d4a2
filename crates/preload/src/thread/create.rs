//! Creating threads.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_context::arch::{self, FloatControl, FloatState};
use carefree_interpose::locks::once;
use carefree_runtime::hosted::{self, HostedThread, Life};
use carefree_runtime::standard::StartRoutine;
use libc::{pthread_attr_t, pthread_t};

use crate::thread::cancel::begin_return;
use crate::thread::exempt;
use crate::thread::inheritance;
use crate::thread::libraries;
use crate::thread::name;
use crate::thread::own_stack;
use crate::thread::policy::Policy;
use crate::thread::record::{self, CREATED, DETACHED, ENDED, MOST, Record, Registers, Start};
use crate::thread::{alive, exit};
use crate::{signal, start};

unsafe extern "C" {
    fn pthread_attr_getdetachstate(a: *const pthread_attr_t, detached: *mut c_int) -> c_int;
    fn pthread_attr_getschedpolicy(a: *const pthread_attr_t, policy: *mut c_int) -> c_int;
    fn pthread_attr_getinheritsched(a: *const pthread_attr_t, inherits: *mut c_int) -> c_int;
    fn pthread_attr_getschedparam(a: *const pthread_attr_t, p: *mut libc::sched_param) -> c_int;
    fn pthread_attr_getaffinity_np(a: *const pthread_attr_t, n: usize, set: *mut c_void) -> c_int;
    fn pthread_getattr_default_np(attributes: *mut pthread_attr_t) -> c_int;
}

/// Whether the program has changed the attributes of threads that ask for none.
static DEFAULTS_CHANGED: AtomicBool = AtomicBool::new(false);

/// What a program asks for in the attributes of a thread, as far as a fiber can have it.
struct Asked {
    detached: bool,
    /// The policy of threads that ask for none, whatever the caller's is.
    usual_policy: bool,
    /// Bytes of stack; `None` for the default.
    stack: Option<usize>,
    /// Bytes of its guard, at least.
    guard: usize,
    /// The signals that it blocks; `None` for those that the caller does.
    mask: Option<u64>,
}

impl Asked {
    /// `None`: it asks for what only a thread of the kernel's has.
    ///
    /// # Safety
    /// Null, or attributes that were initialised.
    unsafe fn read(attributes: *const pthread_attr_t) -> Option<Asked> {
        if attributes.is_null() {
            if DEFAULTS_CHANGED.load(Ordering::Relaxed) {
                return Asked::defaults();
            }
            let usual = Asked {
                detached: false,
                usual_policy: false,
                stack: None,
                guard: PAGE,
                mask: None,
            };
            return Some(usual);
        }
        let (mut detached, mut policy, mut inherits) = (0, 0, 0);
        let mut parameters = libc::sched_param { sched_priority: 0 };
        let (mut size, mut guard) = (0usize, 0usize);
        let mut processors = [0u64; 128];
        // SAFETY: as this function demands; there is room for the answers.
        let bound = unsafe {
            pthread_attr_getdetachstate(attributes, &raw mut detached);
            libc::pthread_attr_getstacksize(attributes, &raw mut size);
            pthread_attr_getschedpolicy(attributes, &raw mut policy);
            pthread_attr_getinheritsched(attributes, &raw mut inherits);
            pthread_attr_getschedparam(attributes, &raw mut parameters);
            libc::pthread_attr_getguardsize(attributes, &raw mut guard);
            let bytes = size_of_val(&processors);
            pthread_attr_getaffinity_np(attributes, bytes, processors.as_mut_ptr().cast()) == 0
        };
        // SAFETY: as this function demands.
        let own_stack = unsafe { own_stack::named_by(attributes) }.is_some();
        // (Or a priority that there is not: the kernel refuses that.)
        let realtime = inherits == PTHREAD_EXPLICIT_SCHED
            && (policy != libc::SCHED_OTHER || parameters.sched_priority != 0);
        // Without a set of its own, it has all processors.
        let bound = bound && processors.iter().any(|word| *word != u64::MAX);
        // (Or bytes that there are not: libc refuses them.)
        let guard = guard.checked_next_multiple_of(PAGE)?;
        let fits = guard.checked_add(size).is_some_and(|bytes| bytes <= MOST_BYTES);
        if own_stack || realtime || bound || !fits {
            return None;
        }
        Some(Asked {
            detached: detached == libc::PTHREAD_CREATE_DETACHED,
            usual_policy: inherits == PTHREAD_EXPLICIT_SCHED,
            stack: Some(size),
            guard,
            // SAFETY: as this function demands.
            mask: unsafe { mask_of(attributes) },
        })
    }

    /// What the program has made the default.
    fn defaults() -> Option<Asked> {
        let mut attributes = MaybeUninit::<pthread_attr_t>::uninit();
        // SAFETY: initialised by the first call, if that succeeds.
        unsafe {
            if pthread_getattr_default_np(attributes.as_mut_ptr()) != 0 {
                return None;
            }
            let asked = Asked::read(attributes.as_ptr());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            asked
        }
    }
}

/// The signals that a thread with these attributes blocks, if they say. (Since glibc 2.32.)
///
/// # Safety
/// Attributes that were initialised.
unsafe fn mask_of(attributes: *const pthread_attr_t) -> Option<u64> {
    type Get = unsafe extern "C" fn(*const pthread_attr_t, *mut libc::sigset_t) -> c_int;
    static GET: OnceLock<Option<Get>> = OnceLock::new();
    let get = (*GET.get_or_init(|| {
        // SAFETY: looks a string up; a function of this name has this type.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, c"pthread_attr_getsigmask_np".as_ptr());
            (!found.is_null()).then(|| std::mem::transmute::<*mut c_void, Get>(found))
        }
    }))?;
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: room for a set, of which the kernel uses 8 bytes; the answer is 0 if there is one.
    unsafe { (get(attributes, set.as_mut_ptr()) == 0).then(|| set.as_ptr().cast::<u64>().read()) }
}

/// Bytes of a page, and of a thread's guard if it asks for no other.
const PAGE: usize = 4096;

/// Bytes of address space that no program has.
const MOST_BYTES: usize = 1 << 57;

const PTHREAD_EXPLICIT_SCHED: c_int = 1;

static LIFE: Life<Record> = Life { run, end, end_in_child };

/// `pthread_create`: `None` if libc is to create the thread, as it would have.
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
        let created = create_hosted(thread, attributes, start);
        // Threads of this library's block signals as carriers do.
        if created.is_some() || start::is_ours(start.function) {
            return created;
        }
        let stack = own_stack::named_by(attributes);
        if let Some(stack) = &stack {
            own_stack::await_departures(stack);
        }
        let has_mask = !attributes.is_null() && mask_of(attributes).is_some();
        let created = inheritance::create(thread, attributes, has_mask, function, argument);
        if created == 0 && stack.is_some() {
            own_stack::remember(thread.read() as usize);
        }
        Some(created)
    }
}

/// # Safety
/// As for `pthread_create`.
unsafe fn create_hosted(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
) -> Option<c_int> {
    if start::is_ours(start.function)
        || exempt::is_exempt(start.function)
        || libraries::are_kernels(start.function)
    {
        return None;
    }
    // SAFETY: as this function demands.
    let asked = unsafe { Asked::read(attributes) }?;
    // The first thread becomes a fiber here.
    let float = FloatState::current();
    // SAFETY: the default words, under which Rust code runs.
    unsafe { FloatControl::DEFAULT.put_in_force() };
    let is_hosted = start::host();
    let registers = Registers { float, gs: arch::gs_base() };
    // SAFETY: as this function demands.
    let begun = is_hosted.then(|| unsafe { begin(thread, &asked, start, registers) });
    // SAFETY: the caller's own, and this returns to the caller.
    unsafe { float.put_in_force() };
    begun
}

/// Creates a thread with what it has asked for: an `errno`, or 0.
///
/// # Safety
/// As for `pthread_create`. There are hosted threads.
unsafe fn begin(
    thread: *mut pthread_t,
    asked: &Asked,
    start: Start,
    registers: Registers,
) -> c_int {
    let mask = asked.mask.unwrap_or_else(signal::mask) & !signal::UNBLOCKABLE;
    let record = Record::new(start, registers, mask, asked.detached, asked.guard);
    let stack = asked.stack.filter(|size| *size != start::hosted_stack());
    let creator = record::current().map(|(_, creator)| creator);
    record.settings.inherit(creator.map(|creator| &creator.settings));
    if !asked.usual_policy {
        *record.policy.lock() = match creator {
            Some(creator) => *creator.policy.lock(),
            None => Policy::of_kernel_thread(),
        };
    }
    let alive = alive::count_hosted();
    CREATED.fetch_add(1, Ordering::Relaxed);
    if alive > MOST.load(Ordering::Relaxed) {
        MOST.fetch_max(alive, Ordering::Relaxed);
    }
    let name = name::inherited();
    let tell = |created: HostedThread| {
        if let Some(name) = name {
            created.set_name(name);
        }
        // SAFETY: as this function demands.
        unsafe { thread.write(created.pthread() as pthread_t) };
    };
    // SAFETY: `run` and `end` are for records, and this one is for the new thread alone.
    match unsafe { hosted::create(stack, asked.guard, record, &LIFE, tell) } {
        Ok(()) => 0,
        Err(_) => {
            alive::uncount_hosted();
            // A caller that tries until there is room keeps its carrier, and the fibers wait there that have the stacks.
            if record::current().is_some() {
                carefree_runtime::yield_now();
            }
            libc::EAGAIN
        }
    }
}

/// A function that a timer calls on a thread of its own, each time that it is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    function: usize,
    stack: Option<usize>,
    guard: usize,
}

impl Call {
    /// # Safety
    /// Null, or attributes that were initialised.
    pub(crate) unsafe fn new(function: usize, attributes: *const pthread_attr_t) -> Call {
        // (Of what only a thread of the kernel's has, there is nothing here.)
        // SAFETY: as this function demands.
        let asked = unsafe { Asked::read(attributes) };
        let (stack, guard) = asked.map_or((None, PAGE), |asked| (asked.stack, asked.guard));
        Call { function, stack, guard }
    }

    /// Calls it, on a thread that is detached and blocks all signals, as libc's do. Without memory for that, it is not
    /// called, as libc has it.
    ///
    /// # Safety
    /// The function takes `value`. There are hosted threads.
    pub(crate) unsafe fn make(self, value: usize) {
        let Call { function, stack, guard } = self;
        let argument = std::ptr::with_exposed_provenance_mut(value);
        let start = Start { function, argument, c11: false };
        let asked = Asked { detached: true, usual_policy: false, stack, guard, mask: Some(!0) };
        let mut thread = 0;
        // SAFETY: as this function demands; what the function returns is not looked at.
        let _ = unsafe { begin(&raw mut thread, &asked, start, Registers::NONE) };
    }
}

/// A thread's life but for its end.
///
/// # Safety
/// The caller is the new thread, which does this first.
unsafe fn run(record: &Record) {
    let Start { function, argument, c11 } = record.start();
    let mut exited = 0;
    let none = std::ptr::null_mut();
    let Registers { float, gs } = record.registers;
    // SAFETY: the record's thread calls it, and the program's function takes one argument. The registers are as in the
    // thread that has created it, until the function has ended.
    let value = unsafe {
        arch::set_gs_base(gs);
        float.put_in_force();
        let value = record.call(function, argument, none, none, &raw mut exited);
        FloatControl::DEFAULT.put_in_force();
        value
    };
    if exited == 0 {
        begin_return();
        let value = if c11 { value as c_int as isize as *mut c_void } else { value };
        // (In the child of a fork it may be the first thread.)
        let record = record::current().map_or(record, |(_, record)| record);
        record.value.store(value, Ordering::Relaxed);
    } else {
        once::leave_all();
    }
}

/// A thread's end.
///
/// # Safety
/// The caller is the thread, which does this last.
unsafe fn end(record: &Record) {
    signal::handle();
    if alive::uncount_hosted() {
        // The first thread has ended by pthread_exit, and this is the last one. It still takes signals: what the
        // program does at its exit may send some.
        // SAFETY: no other thread calls it.
        unsafe { libc::exit(0) };
    }
    signal::end(record);
    if record.state.fetch_or(ENDED, Ordering::AcqRel) & DETACHED != 0 {
        if let Some((me, _)) = record::current() {
            // SAFETY: it is detached, so this is the one place that gives it up.
            unsafe { me.give_up() };
        }
    }
}

/// The end of a thread that has forked, in the child. If it has created threads there, it is the child's first one.
///
/// # Safety
/// The caller is the thread, which does this last.
unsafe fn end_in_child() {
    if let Some(me) = hosted::current().filter(|me| me.is_main()) {
        exit::end_first(me);
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
            // (Where there is no memory for a thread, libc has `EAGAIN`, of which it makes the other one.)
            Some(libc::ENOMEM) => NO_MEMORY,
            Some(_) => ERROR,
            // SAFETY: the caller's arguments, or those of a function that calls the caller's.
            None => unsafe {
                inheritance::create_c11(function, argument, |function, argument| {
                    next(thread, function, argument)
                })
            },
        }
    }

    /// `pthread_setattr_default_np(3)`: the attributes of threads that ask for none.
    fn pthread_setattr_default_np(attributes: *const pthread_attr_t) -> c_int {
        // SAFETY: the caller's argument.
        let done = unsafe { next(attributes) };
        if done == 0 {
            DEFAULTS_CHANGED.store(true, Ordering::Relaxed);
        }
        done
    }
}

/// The bytes of stack that libc gives threads by default.
pub(crate) fn default_stack() -> usize {
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
