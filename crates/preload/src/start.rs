//! Before `main`, and when the program creates its second thread.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use carefree_context::{arch, tls};
use carefree_ground::text::Text;
use carefree_ground::{kernel, memory};
use carefree_interpose::host::{self, Host};
use carefree_interpose::loader;
use carefree_runtime::hosted;
use carefree_settings::denied;

use crate::thread::policy::Policy;
use crate::thread::{self, exempt, record};
use crate::{environment, report, signal, unsuited};

static HOST: Host = Host {
    create: thread::create,
    join: thread::join,
    detach: thread::detach,
    set_name: thread::set_name,
    get_name: thread::get_name,
    alternate_stack: signal::alternate_stack,
    call: thread::by_number,
    time_used: thread::time_shown,
    handle_signals: signal::amid_call,
    within_syscall: thread::within_syscall,
    ends_anywhere: thread::ends_anywhere,
    has_come: signal::has_come,
    after_call: signal::after_call,
    settle: signal::settle_one,
    take_signal: signal::take,
    own_signals: signal::bit(signal::OURS),
    mask: signal::mask,
    set_mask: signal::set_mask,
    suspend: signal::suspend,
    wait_with_mask: signal::wait_with_mask,
};

/// The process whose threads cannot be fibers, because its first thread could not become one.
static REFUSED: AtomicI32 = AtomicI32::new(0);

/// Threads are to become fibers: see [`is_asked_for`], which is asked once, as the library begins.
static ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Registers the host, before constructors of the program's may create threads.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    extern "C" fn at_start() {
        // (What stays on threads may start such programs as well.)
        unsuited::prepare();
        if !is_asked_for() {
            return;
        }
        ASKED_FOR.store(true, Ordering::Relaxed);
        let asked = carefree_settings::text("CAREFREE_RUN");
        if asked.as_deref() == Some("only") {
            environment::leave_children_alone();
        }
        report::prepare();
        exempt::prepare();
        signal::find_sigsetjmp();
        signal::stand_in_for_handlers();
        host::set(&HOST);
        tls::complete_attributes(thread::complete_attributes);
        tls::note_start();
    }
    at_start
};

/// Whether the program's threads are to be fibers: for copies of Carefree that the program and its libraries
/// have themselves. They start threads in place of their fibers then.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn carefree_run_hosts() -> bool {
    is_asked_for()
}

/// (Programs that are started by others were not looked at before.)
fn is_asked_for() -> bool {
    carefree_settings::text("CAREFREE_RUN").as_deref() != Some("off")
        && !denied::is_denied()
        && !has_go()
        && !is_sanitized()
        && !needs_executable_stacks()
}

/// Whether a sanitizer is a part of the program.
fn is_sanitized() -> bool {
    denied::SANITIZERS.iter().any(|name| has(name)) || is_intercepted()
}

/// Whether the program has a weak `pthread_create` of its own: see `denied::INTERCEPTED`.
fn is_intercepted() -> bool {
    /// What `<elf.h>` calls `Elf64_Sym`.
    #[repr(C)]
    struct Symbol {
        name: u32,
        info: u8,
    }
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            symbol: *mut *const Symbol,
            flags: c_int,
        ) -> c_int;
    }
    const RTLD_DL_SYMENT: c_int = 1;
    const STB_WEAK: u8 = 2;
    let own = is_intercepted as *const c_void;
    let mut symbol = std::ptr::null::<Symbol>();
    // SAFETY: looks a string up; zeros are such a structure; the loader's symbols stay.
    unsafe {
        let create = libc::dlsym(libc::RTLD_DEFAULT, denied::INTERCEPTED.as_ptr());
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        !carefree_context::object::same_object(create, own)
            && dladdr1(create, &raw mut info, &raw mut symbol, RTLD_DL_SYMENT) != 0
            && symbol.as_ref().is_some_and(|symbol| symbol.info >> 4 == STB_WEAK)
    }
}

/// Whether the program or a library that it begins with has a function of this name.
fn has(name: &CStr) -> bool {
    // SAFETY: `name` is a C string, and the call only looks it up in the loaded objects.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() }
}

/// Whether the program, or a library that it is linked to, is Go with cgo: see `denied::GO`.
fn has_go() -> bool {
    has(c"_cgo_topofstack") && has(c"crosscall2")
}

/// Whether the program, or a library that it is linked to, asks for stacks that can be executed: see
/// `denied::EXECUTABLE`.
fn needs_executable_stacks() -> bool {
    carefree_context::loader::any_object(|object| {
        if object.dlpi_phdr.is_null() {
            return false;
        }
        // SAFETY: the loader says where an object's headers are, which stay while it is loaded.
        let parts = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
        parts.iter().any(|part| part.p_type == libc::PT_GNU_STACK && part.p_flags & libc::PF_X != 0)
    })
}

/// Whether `address` lies in this library, whose own threads are threads.
pub(crate) fn is_ours(address: usize) -> bool {
    signal::is_ours(address)
}

/// Whether the calling thread's new threads are fibers. The first call makes the process's first thread one.
pub(crate) fn host() -> bool {
    if hosted::is_hosting() {
        return true;
    }
    let process = std::process::id() as i32;
    // SAFETY: takes nothing.
    let number = unsafe { kernel::call(libc::SYS_gettid, [0; 6]) };
    let stays = !ASKED_FOR.load(Ordering::Relaxed) || REFUSED.load(Ordering::Relaxed) == process;
    if number != Ok(process as usize) || stays {
        return false;
    }
    // To find out how fibers can be had takes a thread that the loader has to wait for. So what a library creates
    // in its constructor stays threads, if it comes first (OpenBLAS does).
    if loader::lock::is_held() {
        return false;
    }
    /// Bytes for what the first fibers need: not all of that can fail without ending the process.
    const ENOUGH: usize = 8 << 20;
    // Without memory there is no thread either: libc says so, and the next call may fare better.
    if !memory::is_at_hand(ENOUGH) {
        return false;
    }
    crate::stat::note_start();
    // SAFETY: the one call, with a word that is for this.
    unsafe { arch::keep_gs(GS.offset()) };
    let is_any_pending = signal::is_any_pending();
    let mask = signal::begin();
    *record::MAIN.policy.lock() = Policy::of_kernel_thread();
    record::MAIN.settings.inherit(None);
    hosted::leave_faults();
    crate::process::prepare();
    let bytes = thread::default_stack();
    HOSTED_STACK.store(bytes, Ordering::Relaxed);
    // Larger ones than there can be are refused when a thread asks for one.
    let _ = hosted::set_default_stack(bytes);
    if has_global_lock() {
        hosted::set_default_carriers(1);
    }
    // SAFETY: the caller is the process's first thread, in `pthread_create`.
    match unsafe { hosted::adopt(&record::MAIN, signal::run) } {
        Ok(_) => {
            static PREPARED: AtomicI32 = AtomicI32::new(0);
            if PREPARED.swap(1, Ordering::Relaxed) == 0 {
                signal::prepare_for_crashes();
                crate::mutex::tell();
                // (What was loaded until now is known.)
                carefree_context::loader::tell_calls();
            }
            if is_any_pending {
                // What the first thread has sent itself is pending for its kernel thread, which is the dispatcher now.
                signal::settle();
            }
            true
        }
        Err(error) => {
            signal::give_up(mask);
            REFUSED.store(process, Ordering::Relaxed);
            if carefree_settings::text("CAREFREE_RUN_STRICT").is_some() {
                Text::print_line(format_args!(
                    "carefree: the program ends here: its threads cannot be fibers: {error}"
                ));
                // SAFETY: as asked for by `--strict`, and without more of the program's code.
                unsafe { libc::_exit(1) };
            }
            Text::print_line(format_args!(
                "carefree: the threads of this program stay threads: {error}"
            ));
            false
        }
    }
}

/// Whether the program is an interpreter whose threads run one at a time: more carriers would only pass its
/// lock to and fro.
fn has_global_lock() -> bool {
    has(c"Py_BytesMain") && has(c"PyGILState_Ensure") || has(c"ruby_init")
}

/// The bytes of stack of a fiber that asks for none.
static HOSTED_STACK: AtomicUsize = AtomicUsize::new(0);

/// The bytes of stack of a fiber that asks for none: libc's default when the first one was created.
pub(crate) fn hosted_stack() -> usize {
    HOSTED_STACK.load(Ordering::Relaxed)
}

type Main = unsafe extern "C-unwind" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

carefree_context::thread_word! {
    /// The GS base of a thread that does not run.
    GS, "carefree_preload_gs"
}

/// The program's `main`.
static MAIN: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C-unwind" fn main(
    count: c_int,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
) -> c_int {
    // SAFETY: called by libc as the program's `main` would be.
    unsafe { thread::run_main(MAIN.load(Ordering::Relaxed), count, arguments, environment) }
}

stand_in! {
    /// libc's function that calls `main`.
    fn __libc_start_main(
        program: Option<Main>,
        count: c_int,
        arguments: *mut *mut c_char,
        init: *mut c_void,
        fini: *mut c_void,
        loader_fini: *mut c_void,
        stack_end: *mut c_void,
    ) -> c_int {
        MAIN.store(program.map_or(0, |main| main as usize), Ordering::Relaxed);
        // SAFETY: the caller's arguments, but for `main`, which calls the caller's.
        unsafe { next(Some(main), count, arguments, init, fini, loader_fini, stack_end) }
    }
}
