//! `clone(2)`, `_Fork(3)` and their kin by number: processes and threads that libc does not know.
//!
//! They inherit the kernel thread's mask, name and niceness, which are the carrier's; so the first thing that they do is to
//! put in force what the thread that has created them has. One with a copy of the memory has a copy of the
//! scheduler, too, whose other fibers are not its own: it is made a plain thread, which waits in the kernel.
//!
//! One that shares the memory has its creator's thread-local storage, if it was given none: to this library it
//! looks like the creator. While that waits for it (`CLONE_VFORK`), both make libc's own calls. Otherwise it must
//! not wait in functions of libc's.

use std::ffi::{c_int, c_long, c_void};
use std::mem::transmute;

use carefree_ground::kernel;
use carefree_runtime::hosted;
use carefree_runtime::kernel_name::KernelName;
use carefree_runtime::wait::without_parking;
use libc::pid_t;

use crate::signal;
use crate::thread::{self, Kept, record};

/// What the calling hosted thread gives to what it creates.
#[derive(Clone, Copy)]
struct Inherited {
    mask: u64,
    name: KernelName,
    settings: Kept,
}

impl Inherited {
    /// `None` if the caller is no hosted thread: what it creates inherits from the kernel then.
    fn of_caller() -> Option<Inherited> {
        let mask = signal::for_program()?;
        let (me, record) = record::current()?;
        Some(Inherited { mask, name: thread::name_of(me), settings: record.settings.kept() })
    }

    /// To be called first by what was created. `copied`: it has a copy of the memory.
    fn put_in_force(self, copied: bool) {
        if copied {
            hosted::become_plain();
        }
        thread::name_kernels(self.name);
        self.settings.put_in_force();
        signal::set_kernels(self.mask);
    }
}

type Function = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// What lies at the top of the stack of what was created.
#[repr(C, align(16))]
struct Begin {
    function: Function,
    argument: *mut c_void,
    inherited: Inherited,
    copied: bool,
}

/// # Safety
/// To be called first by what was created, with the [`Begin`] on its stack.
unsafe extern "C-unwind" fn begin(data: *mut c_void) -> c_int {
    // SAFETY: as this function demands; and the program's function takes the program's argument.
    unsafe {
        let Begin { function, argument, inherited, copied } = data.cast::<Begin>().read();
        inherited.put_in_force(copied);
        function(argument)
    }
}

/// Calls `fork`, which returns a process's number, and 0 in a child that has a copy of the memory.
fn forked<T: PartialEq + Default>(fork: impl FnOnce() -> T) -> T {
    let inherited = Inherited::of_caller();
    let child = fork();
    if let (true, Some(inherited)) = (child == T::default(), inherited) {
        inherited.put_in_force(true);
    }
    child
}

/// `clone`, `clone3` or `fork` by number, if that is a copy of the process; `None` for all else.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn by_number(
    number: c_long,
    arguments: [usize; 6],
) -> Option<Result<usize, c_int>> {
    // (With a stack, the child would return to it from libc's function, and natively, too, find nothing there.)
    let copies = match number {
        libc::SYS_clone => arguments[0] as c_int & libc::CLONE_VM == 0 && arguments[1] == 0,
        // SAFETY: as this function demands.
        libc::SYS_clone3 => unsafe { copies(arguments[0], arguments[1]) },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        _ => false,
    };
    if !copies {
        return None;
    }
    let mut failed = 0;
    let child = forked(|| {
        // SAFETY: as this function demands.
        let done = unsafe { kernel::call(number, arguments) };
        done.unwrap_or_else(|errno| {
            failed = errno;
            usize::MAX
        })
    });
    Some(if failed == 0 { Ok(child) } else { Err(failed) })
}

/// Whether the arguments of `clone3` ask for a copy of the process.
///
/// # Safety
/// So many bytes of `struct clone_args`; or the kernel would refuse them.
unsafe fn copies(place: usize, bytes: usize) -> bool {
    /// Of its first version: flags, four other words, then the stack.
    const LEAST: usize = 64;
    const STACK: usize = 5;
    let mut words = [0u64; LEAST / 8];
    if bytes < LEAST {
        return false;
    }
    // By the kernel, which refuses a bad address where this would be a fault.
    let (from, into) = ([place, LEAST], [words.as_mut_ptr() as usize, LEAST]);
    let own = std::process::id() as usize;
    let arguments = [own, into.as_ptr() as usize, 1, from.as_ptr() as usize, 1, 0];
    // SAFETY: two parts of memory, of which the second has room for the first.
    let read = unsafe { kernel::call(libc::SYS_process_vm_readv, arguments) };
    read == Ok(LEAST) && words[0] & libc::CLONE_VM as u64 == 0 && words[STACK] == 0
}

stand_in! {
    /// `clone(2)`, which has three more arguments, or fewer, as its flags say.
    fn clone(
        function: *mut c_void,
        stack: *mut u8,
        flags: c_int,
        argument: *mut c_void,
        parent: *mut c_void,
        storage: *mut c_void,
        child: *mut c_void,
    ) -> c_int {
        let inherited = if function.is_null() || stack.is_null() { None } else { Inherited::of_caller() };
        let Some(inherited) = inherited else {
            // SAFETY: the caller's arguments.
            return unsafe { next(function, stack, flags, argument, parent, storage, child) };
        };
        // (With thread-local storage of its own it is no fiber anyway.)
        let copied = flags & (libc::CLONE_VM | libc::CLONE_SETTLS) == 0;
        let spare = stack as usize & (align_of::<Begin>() - 1);
        let top = stack.wrapping_sub(spare + size_of::<Begin>());
        // SAFETY: the top of a stack that the caller gives, and where libc would write as well. The function is
        // called with its argument.
        let call = || unsafe {
            let function = transmute::<*mut c_void, Function>(function);
            top.cast::<Begin>().write(Begin { function, argument, inherited, copied });
            next(begin as *mut c_void, top, flags, top.cast(), parent, storage, child)
        };
        const BESIDE: c_int = libc::CLONE_VM | libc::CLONE_VFORK;
        if flags & BESIDE == BESIDE { without_parking(call) } else { call() }
    }

    /// `_Fork(3)`: without handlers.
    fn _Fork() -> pid_t {
        // SAFETY: takes nothing.
        forked(|| unsafe { next() })
    }
}

/// `clone(2)` by its other name.
///
/// # Safety
/// As for libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __clone(
    function: *mut c_void,
    stack: *mut u8,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    storage: *mut c_void,
    child: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { clone(function, stack, flags, argument, parent, storage, child) }
}

// As those of `interpose`.
std::arch::global_asm!(".protected __clone");
