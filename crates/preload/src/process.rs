//! Forks, and the programs that a thread starts.
//!
//! A program inherits the kernel thread's mask, which is the carrier's; so that of the calling thread is put
//! in force meanwhile, or `posix_spawn` is told of it.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree_ground::kernel;
use carefree_runtime::hosted::{self, ForkHooks};
use carefree_runtime::kernel_name::KernelName;
use carefree_runtime::wait::without_parking;
use libc::{pid_t, posix_spawnattr_t};

use crate::kept;
use crate::signal;
use crate::thread::{self, exempt, record};
use crate::unsuited::{self, File, Strings, without_us};

/// Says what is to be done at forks.
pub(crate) fn prepare() {
    hosted::set_fork_hooks(ForkHooks { hold, before, let_go, first_in_child, in_child });
}

/// From here to [`let_go`] no handlers of signals are called on the thread that forks: the locks of libc's malloc are
/// taken then, and the runtime's own, and a handler that waits would leave them taken while others run.
fn hold() {
    if let Some((_, record)) = record::current() {
        record.holds.store(true, Ordering::Relaxed);
    }
}

/// In the parent. (What has come meanwhile, the dispatcher has the thread handle.)
fn let_go() {
    if let Some((_, record)) = record::current() {
        record.holds.store(false, Ordering::Relaxed);
    }
}

/// The name of the thread that forks. (If two do so at once, a child may have the other's.)
static NAME: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn before() {
    let Some(me) = hosted::current() else { return };
    let name = thread::name_of(me);
    let (first, last) = name.split_at(8);
    for (place, half) in NAME.iter().zip([first, last]) {
        place.store(u64::from_ne_bytes(half.try_into().unwrap_or_default()), Ordering::Relaxed);
    }
}

fn first_in_child() {
    signal::note_fork();
    if let Some((_, record)) = record::current() {
        signal::give_alternate_back(record);
        let [first, last] =
            [0, 1].map(|half: usize| NAME[half].load(Ordering::Relaxed).to_ne_bytes());
        let mut name = KernelName::default();
        name[..8].copy_from_slice(&first);
        name[8..].copy_from_slice(&last);
        thread::name_kernels(name);
        record.settings.kept().put_in_force();
    }
}

fn in_child() {
    if hosted::is_hosting() {
        hosted::renew();
        record::renew();
        exempt::renew();
        // SAFETY: the child of a fork has one thread, which is in a handler of forks.
        unsafe {
            thread::renew_libraries();
            thread::renew_names();
        }
        kept::renew();
        signal::renew();
    }
}

/// Calls `spawn` with attributes that say which signals the new process blocks: those that the caller does, if
/// `attributes` do not say.
///
/// # Safety
/// Null, or attributes that were initialised.
unsafe fn with_mask(
    attributes: *const posix_spawnattr_t,
    spawn: impl FnOnce(*const posix_spawnattr_t) -> c_int,
) -> c_int {
    const SET: i16 = libc::POSIX_SPAWN_SETSIGMASK as i16;
    let mut flags = 0;
    // SAFETY: as this function demands.
    unsafe {
        if !attributes.is_null() {
            libc::posix_spawnattr_getflags(attributes, &raw mut flags);
        }
        let mask = signal::for_program().filter(|_| flags & SET == 0);
        let caller = record::current().filter(|_| !signal::is_child());
        let spawn = |attributes| match caller {
            Some((_, record)) => without_parking(|| {
                record.settings.before_program();
                record.settings.with_processors(|| spawn(attributes))
            }),
            None => spawn(attributes),
        };
        let Some(mask) = mask else { return spawn(attributes) };
        let mut own = MaybeUninit::<posix_spawnattr_t>::uninit();
        if attributes.is_null() {
            libc::posix_spawnattr_init(own.as_mut_ptr());
        } else {
            // Plain data, in glibc.
            own.as_mut_ptr().copy_from_nonoverlapping(attributes, 1);
        }
        // The kernel uses 8 bytes of a set.
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        (&raw mut set).cast::<u64>().write(mask);
        libc::posix_spawnattr_setsigmask(own.as_mut_ptr(), &raw const set);
        libc::posix_spawnattr_setflags(own.as_mut_ptr(), flags | SET);
        // (What it holds beside is the caller's, and nothing is to be freed.)
        spawn(own.as_ptr())
    }
}

/// Calls `start` with the [attributes](with_mask) and the [environment](without_us) for the new process, in which the
/// program in `file` is to run.
///
/// # Safety
/// As for both of these.
unsafe fn spawn(
    file: File,
    attributes: *const posix_spawnattr_t,
    environment: Strings,
    start: impl FnOnce(*const posix_spawnattr_t, Strings) -> c_int,
) -> c_int {
    // SAFETY: as this function demands.
    unsafe {
        without_us(file, environment, |environment| {
            with_mask(attributes, |attributes| start(attributes, environment))
        })
    }
}

unsafe extern "C" {
    // (The one of the crate below, which installs the runtime's handlers first.)
    fn __register_atfork(
        prepare: Handler,
        in_parent: Handler,
        in_child: Handler,
        library: *const c_void,
    ) -> c_int;
}

/// A handler of forks.
type Handler = Option<unsafe extern "C" fn()>;

stand_in! {
    /// `pthread_atfork(3)`, as programs and libraries find it that do not have a copy of their own, such as tcmalloc: libc's
    /// old one, which asks libc itself.
    fn pthread_atfork(prepare: Handler, in_parent: Handler, in_child: Handler) -> c_int {
        // SAFETY: the caller's arguments. Nothing removes the handlers, as with libc's.
        unsafe { __register_atfork(prepare, in_parent, in_child, std::ptr::null()) }
    }

    /// `execve(2)`.
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        let file = File::At(libc::AT_FDCWD, path);
        // SAFETY: the caller's arguments.
        unsafe {
            without_us(file, environment, |environment| {
                signal::for_program_in_place(|| next(path, arguments, environment))
            })
        }
    }

    /// `execv(3)`.
    fn execv(path: *const c_char, arguments: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { execve(path, arguments, unsuited::own()) }
    }

    /// `execvp(3)`.
    fn execvp(file: *const c_char, arguments: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { execvpe(file, arguments, unsuited::own()) }
    }

    /// `execvpe(3)`.
    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            without_us(File::Command(file), environment, |environment| {
                signal::for_program_in_place(|| next(file, arguments, environment))
            })
        }
    }

    /// `fexecve(3)`.
    fn fexecve(file: c_int, arguments: Strings, environment: Strings) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            without_us(File::Open(file), environment, |environment| {
                signal::for_program_in_place(|| next(file, arguments, environment))
            })
        }
    }

    /// `execveat(2)`.
    fn execveat(
        folder: c_int,
        path: *const c_char,
        arguments: Strings,
        environment: Strings,
        flags: c_int,
    ) -> c_int {
        // SAFETY: the caller's argument.
        let has_path = unsafe { !path.is_null() && *path != 0 };
        let file = if has_path { File::At(folder, path) } else { File::Open(folder) };
        // (Older libcs have no such function, and programs that look for it find this one.)
        let start = |environment: Strings| {
            let arguments =
                [folder as usize, path as usize, arguments as usize, environment as usize, flags as usize, 0];
            // SAFETY: the caller's arguments.
            signal::for_program_in_place(|| unsafe { kernel::call(libc::SYS_execveat, arguments) })
        };
        // SAFETY: the caller's arguments.
        match unsafe { without_us(file, environment, start) } {
            Ok(_) => 0,
            Err(errno) => {
                record::set_errno(errno);
                -1
            }
        }
    }

    /// `posix_spawn(3)`.
    fn posix_spawn(
        process: *mut pid_t,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const posix_spawnattr_t,
        arguments: Strings,
        environment: Strings,
    ) -> c_int {
        let file = File::At(libc::AT_FDCWD, path);
        // SAFETY: the caller's arguments.
        unsafe {
            spawn(file, attributes, environment, |attributes, environment| {
                next(process, path, actions, attributes, arguments, environment)
            })
        }
    }

    /// `posix_spawnp(3)`.
    fn posix_spawnp(
        process: *mut pid_t,
        file: *const c_char,
        actions: *const c_void,
        attributes: *const posix_spawnattr_t,
        arguments: Strings,
        environment: Strings,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            spawn(File::Command(file), attributes, environment, |attributes, environment| {
                next(process, file, actions, attributes, arguments, environment)
            })
        }
    }

    /// `pidfd_spawn(3)`, which glibc has from 2.39 on.
    fn pidfd_spawn(
        file: *mut c_int,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const posix_spawnattr_t,
        arguments: Strings,
        environment: Strings,
    ) -> c_int {
        if NEXT.prepare().is_null() {
            return libc::ENOSYS;
        }
        let program = File::At(libc::AT_FDCWD, path);
        // SAFETY: the caller's arguments.
        unsafe {
            spawn(program, attributes, environment, |attributes, environment| {
                next(file, path, actions, attributes, arguments, environment)
            })
        }
    }

    /// `pidfd_spawnp(3)`, which glibc has from 2.39 on.
    fn pidfd_spawnp(
        file: *mut c_int,
        command: *const c_char,
        actions: *const c_void,
        attributes: *const posix_spawnattr_t,
        arguments: Strings,
        environment: Strings,
    ) -> c_int {
        if NEXT.prepare().is_null() {
            return libc::ENOSYS;
        }
        // SAFETY: the caller's arguments.
        unsafe {
            spawn(File::Command(command), attributes, environment, |attributes, environment| {
                next(file, command, actions, attributes, arguments, environment)
            })
        }
    }

    /// `popen(3)`.
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
        // SAFETY: the caller's arguments.
        signal::for_child(|| unsafe { next(command, mode) })
    }
}
