//! What the kernel would give to a thread or process from the thread that creates it.
//!
//! For a hosted thread that creates one, it would be its carrier's: which blocks signals, and has a name and a niceness of
//! its own. So what is created by a hosted thread puts in force what that has, before it does anything else.

use std::alloc::{self, Layout};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use carefree_runtime::hosted;
use carefree_runtime::kernel_name::KernelName;
use carefree_runtime::standard::StartRoutine;
use carefree_runtime::wait::without_parking;
use libc::{pthread_attr_t, pthread_t};

use crate::next::Next;
use crate::signal;
use crate::thread::record;
use crate::thread::settings::Kept;
use crate::thread::{alive, exit, name};

/// What a thread of the kernel's begins with.
#[derive(Clone, Copy)]
struct Begin {
    function: usize,
    argument: *mut c_void,
    inherited: Option<Inherited>,
}

/// What it has from the hosted thread that has created it. (From another one it inherits in the kernel.)
#[derive(Clone, Copy)]
struct Inherited {
    /// The signals that it blocks; `None` if its attributes have said so.
    mask: Option<u64>,
    name: KernelName,
    settings: Kept,
}

impl Begin {
    /// `None` if there are no hosted threads: then the new thread is left to libc.
    fn of_caller(function: usize, argument: *mut c_void, has_mask: bool) -> Option<Begin> {
        let inherited = record::current().map(|(me, record)| Inherited {
            mask: (!has_mask).then(signal::mask),
            name: name::of(me),
            settings: record.settings.kept(),
        });
        let begin = Begin { function, argument, inherited };
        (inherited.is_some() || hosted::is_hosting()).then_some(begin)
    }

    /// To be called first by the new thread, with what [`kept`](Begin::kept) has returned.
    ///
    /// # Safety
    /// Once for each.
    unsafe fn take(data: *mut c_void) -> Begin {
        // SAFETY: as this function demands.
        let begin = unsafe { *Box::from_raw(data.cast::<Begin>()) };
        if let Some(inherited) = begin.inherited {
            name::set_kernels(inherited.name);
            inherited.settings.put_in_force();
            if let Some(mask) = inherited.mask {
                signal::set_kernels(mask);
            }
        }
        alive::tell_end();
        begin
    }

    /// `None` if there is no memory.
    fn kept(self) -> Option<*mut c_void> {
        // SAFETY: a layout with bytes.
        let place = without_parking(|| unsafe { alloc::alloc(Layout::new::<Begin>()) });
        if place.is_null() {
            return None;
        }
        // SAFETY: there is room.
        unsafe { place.cast::<Begin>().write(self) };
        alive::count();
        Some(place.cast())
    }

    /// # Safety
    /// As for [`take`](Begin::take), if there is no new thread.
    unsafe fn forget(data: *mut c_void) {
        // SAFETY: as this function demands.
        without_parking(|| drop(unsafe { Box::from_raw(data.cast::<Begin>()) }));
        alive::uncount();
    }
}

// (These may be left by `pthread_exit` in the function that they call: they have nothing that needs to be dropped.)

unsafe extern "C-unwind" fn begin(data: *mut c_void) -> *mut c_void {
    type Function = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    // SAFETY: `create` passes what it has kept to the new thread alone, with a function of the program's that may
    // be called so.
    unsafe {
        let Begin { function, argument, .. } = Begin::take(data);
        let value = std::mem::transmute::<usize, Function>(function)(argument);
        leave_adopted(value);
        value
    }
}

unsafe extern "C-unwind" fn begin_c11(data: *mut c_void) -> c_int {
    type Function = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
    // SAFETY: as in `begin`.
    unsafe {
        let Begin { function, argument, .. } = Begin::take(data);
        let value = std::mem::transmute::<usize, Function>(function)(argument);
        leave_adopted(value as isize as *mut c_void);
        value
    }
}

/// The function of a thread of the kernel's has returned. If that has forked, and this is the child, in which it has
/// created threads, it is the child's first thread, and a fiber: libc must not end the kernel thread below it.
fn leave_adopted(value: *mut c_void) {
    if let Some(me) = hosted::current().filter(|me| me.is_main()) {
        record::MAIN.value.store(value, Ordering::Relaxed);
        alive::forget_end();
        exit::end_first(me);
    }
}

/// libc's `pthread_create`: a thread of the kernel's. `has_mask`: its attributes say which signals it blocks.
///
/// # Safety
/// As for `pthread_create`.
pub(super) unsafe fn create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    has_mask: bool,
    function: StartRoutine,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(
        *mut pthread_t,
        *const pthread_attr_t,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    static CREATE: Next = Next::new(c"pthread_create");
    // SAFETY: the function of this name has this type, and is called as this function demands; what is kept is
    // the new thread's, or is forgotten if there is none.
    unsafe {
        let create = std::mem::transmute::<*mut c_void, Create>(CREATE.address());
        let Some(kept) = Begin::of_caller(function as usize, argument, has_mask) else {
            return create(thread, attributes, function as *mut c_void, argument);
        };
        let Some(kept) = kept.kept() else { return libc::EAGAIN };
        let created = create(thread, attributes, begin as *mut c_void, kept);
        if created != 0 {
            Begin::forget(kept);
        }
        created
    }
}

/// libc's `thrd_create`, which `next` calls.
///
/// # Safety
/// As for `thrd_create`.
pub(super) unsafe fn create_c11(
    function: usize,
    argument: *mut c_void,
    next: impl FnOnce(usize, *mut c_void) -> c_int,
) -> c_int {
    let Some(kept) = Begin::of_caller(function, argument, false) else {
        return next(function, argument);
    };
    const NO_MEMORY: c_int = 3;
    let Some(kept) = kept.kept() else { return NO_MEMORY };
    let created = next(begin_c11 as *const () as usize, kept);
    if created != 0 {
        // SAFETY: there is no new thread.
        unsafe { Begin::forget(kept) };
    }
    created
}
