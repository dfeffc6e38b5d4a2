//! Interrupting a thread that computes, on its carrier.
//!
//! The signal comes anywhere. In the runtime's own code a wait may be under way, and a handler that waits
//! would begin another amid it. So handlers are called there only if that is neither this library's code, nor
//! a function of libc, the loader or the kernel that this library may have called: one of its addresses lies
//! near the top of the stack then. Otherwise the dispatcher tries again. (An address may have stayed there from an
//! earlier call. Where a thread waits in libc, as in `getline`, that counts for nothing: see `leave_wait`,
//! `is_at_cancellable_call` and `was_waiting`.)
//! Nor are they called within libc's malloc,
//! whose cache of free blocks all threads of a carrier share: one that waits there would leave it to the others
//! half changed.
//!
//! The signal is blocked while this looks around: it may be sent faster than it is handled, and the kernel would
//! begin one handler within the other until the stack is full. Before a handler of the program's is called it is
//! let through, for that may wait, and the thread go on on another carrier; or it may never return, by
//! `pthread_exit` or `siglongjmp`. This carrier would have it blocked for ever. One that comes meanwhile is
//! handled as any other: the thread's own mask keeps back what the program's handler does not want.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use carefree_context::stack::find;
use libc::{siginfo_t, ucontext_t};

use crate::kept;
use crate::signal::set::{OURS, bit, change_kernels};
use crate::signal::{alternate, deliver, handler};
use crate::thread::record::{self, Record};
use crate::thread::{ends_anywhere, leave_wait, resume_wait, return_addresses, test_cancel};

/// Where the code lies in which no handler is called:
/// this library's, libc's, the loader's and the kernel's. (Not in the program's memory, of which none may be left.)
struct Ranges([std::ops::Range<usize>; 4]);

static RANGES: OnceLock<Ranges> = OnceLock::new();

impl Ranges {
    fn find() -> Ranges {
        let mut ranges = [const { 0..0 }; 4];
        let mut found = 0;
        let own = on_signal as *const () as usize;
        // SAFETY: looks strings up.
        let (libcs, loaders) = unsafe {
            (
                libc::dlsym(libc::RTLD_NEXT, c"getpid".as_ptr()) as usize,
                libc::getauxval(libc::AT_BASE) as usize,
            )
        };
        carefree_context::loader::any_object(|info| {
            // SAFETY: the loader describes the object's headers.
            let headers =
                unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
            let loads = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
            let ends = loads.map(|header| {
                let low = (info.dlpi_addr + header.p_vaddr) as usize;
                (low, low + header.p_memsz as usize)
            });
            let (low, high) =
                ends.fold((usize::MAX, 0), |(low, high), (from, to)| (low.min(from), high.max(to)));
            let range = low..high;
            let is_ours = range.contains(&own) || range.contains(&libcs);
            let is_loaders = low != usize::MAX && loaders == info.dlpi_addr as usize;
            if is_ours || is_loaders {
                ranges[found] = range;
                found += 1;
            }
            found == 3
        });
        // SAFETY: no preconditions.
        let kernels = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        // The kernel's own functions: some pages.
        ranges[3] = kernels..kernels + (16 << 12);
        Ranges(ranges)
    }

    fn contain(&self, address: usize) -> bool {
        self.0.iter().any(|range| range.contains(&address))
    }
}

/// Where libc's malloc lies: its functions are of one source, and so next to each other.
static MALLOC: OnceLock<std::ops::Range<usize>> = OnceLock::new();

fn find_malloc() -> std::ops::Range<usize> {
    /// Exported functions of that source.
    const NAMES: [&CStr; 8] = [
        c"__libc_calloc",
        c"__libc_free",
        c"__libc_malloc",
        c"__libc_memalign",
        c"__libc_realloc",
        c"malloc_info",
        c"malloc_trim",
        c"malloc_usable_size",
    ];
    /// Bytes before the first of them and behind the last in which others of that source may lie.
    const BESIDE: usize = 16 << 10;
    // SAFETY: looks strings up.
    let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    let libcs = find(c"getpid");
    // (An allocator that is preloaded may have some of the names.)
    let is_libcs = |address: &usize| {
        let [one, other] = [*address, libcs].map(ptr::with_exposed_provenance);
        carefree_context::object::same_object(one, other)
    };
    let found = NAMES.map(find);
    let found = found.iter().copied().filter(is_libcs);
    let span = found.map(|address| address..address);
    match span.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end)) {
        Some(span) => span.start - BESIDE..span.end + BESIDE,
        None => 0..0,
    }
}

/// Whether `address` lies in this library.
pub(crate) fn is_ours(address: usize) -> bool {
    static OWN: OnceLock<std::ops::Range<usize>> = OnceLock::new();
    let own = on_signal as *const () as usize;
    let range = OWN.get_or_init(|| {
        let ranges = RANGES.get_or_init(Ranges::find);
        ranges.0.iter().find(|range| range.contains(&own)).cloned().unwrap_or(0..0)
    });
    range.contains(&address)
}

/// Installs the handler, once in a process.
pub(crate) fn prepare() {
    RANGES.get_or_init(Ranges::find);
    MALLOC.get_or_init(find_malloc);
    // SAFETY: zeros are an action, of which the handler and the flags are set; the handler is of the type that
    // they say.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(OURS, &raw const action, ptr::null_mut());
    }
}

/// The program counter and the stack pointer of what was interrupted.
#[cfg(target_arch = "x86_64")]
fn interrupted(context: &ucontext_t) -> (usize, usize) {
    let registers = &context.uc_mcontext.gregs;
    (registers[libc::REG_RIP as usize] as usize, registers[libc::REG_RSP as usize] as usize)
}

#[cfg(target_arch = "aarch64")]
fn interrupted(context: &ucontext_t) -> (usize, usize) {
    (context.uc_mcontext.pc as usize, context.uc_mcontext.sp as usize)
}

/// Whether the signal has ended a wait in the kernel: such a system call fails with `EINTR`, or is about to be made
/// again.
#[cfg(target_arch = "x86_64")]
fn was_waiting(context: &ucontext_t) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let registers = &context.uc_mcontext.gregs;
    let [place, result, left_for] =
        [libc::REG_RIP, libc::REG_RAX, libc::REG_RCX].map(|register| registers[register as usize]);
    // SAFETY: what the program executes can be read, and these two bytes are in one piece of code: an instruction,
    // or the one before.
    let is_syscall = |place: i64| unsafe {
        ptr::with_exposed_provenance::<[u8; 2]>(place as usize).read() == SYSCALL
    };
    // (The instruction leaves in this register where it returns to.)
    let begins_again = left_for == place + SYSCALL.len() as i64 && is_syscall(place);
    begins_again || result == -i64::from(libc::EINTR) && is_syscall(place - SYSCALL.len() as i64)
}

/// Not known here: nothing tells a call that is made again from one that is about to be made.
#[cfg(target_arch = "aarch64")]
fn was_waiting(_: &ucontext_t) -> bool {
    false
}

/// Whether the signal has come at a system call at which libc lets threads be cancelled: before it, amid it or at its
/// end. From glibc 2.41 on one function makes all of these, and libc's word does not tell of them (see `leave_wait`).
///
/// At the end, what the call has done is lost with the thread, as up to 2.40. A thread that makes one such call after the
/// other is hardly ever met elsewhere.
fn is_at_cancellable_call(place: usize) -> bool {
    // How that function ends, which is written in assembly: a register is put in its place, the call is made, and the
    // function returns. No other function of libc's ends so.
    #[cfg(target_arch = "x86_64")]
    const END: [u8; 8] = [0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05, 0xc3];
    #[cfg(target_arch = "x86_64")]
    const PLACES: [usize; 2] = [5, 7];
    #[cfg(target_arch = "aarch64")]
    const END: [u8; 12] = [0xe5, 0x03, 0x07, 0xaa, 0x01, 0x00, 0x00, 0xd4, 0xc0, 0x03, 0x5f, 0xd6];
    #[cfg(target_arch = "aarch64")]
    const PLACES: [usize; 2] = [4, 8];
    // SAFETY: `place` is in libc's code, the loader's or the kernel's, as the caller has found, before which headers or
    // other code lie. From there on, an instruction is read only where the one before is that of the function.
    let byte = |at: usize| unsafe { ptr::with_exposed_provenance::<u8>(at).read() };
    let is_end =
        |from: usize| END.iter().enumerate().all(|(index, end)| byte(from + index) == *end);
    PLACES.iter().any(|before| is_end(place - before))
}

/// Whether this library may have called what runs at `stack`, in the thread of `record`. (It may be wrong where
/// an old address has stayed on the stack: then another look comes later.)
fn is_called_by_us(stack: usize, record: &Record) -> bool {
    /// Words that are looked at: functions of libc that this library calls have small frames.
    const WORDS: usize = 96;
    let words = WORDS.min((readable_end(stack) - stack) / size_of::<usize>());
    // All that lies above these has called the thread's function, if that runs, or a handler.
    let inside = record.inside.load(Ordering::Relaxed);
    let ends = if inside { return_addresses() } else { [0; 2] };
    let (handlers, noted) = (handler::return_address(), record.handler.load(Ordering::Relaxed));
    for index in 0..words {
        let place = ptr::with_exposed_provenance::<usize>(stack).wrapping_add(index);
        // SAFETY: the interrupted frame lies there, or others above it.
        let word = unsafe { place.read() };
        let ends_handler = word == handlers && handler::is_of_innermost(place.addr(), noted);
        if ends.contains(&word) || ends_handler {
            return false;
        }
        if is_ours(word) {
            return true;
        }
    }
    false
}

/// Where the stack ends at which a thread was interrupted, or the part of it that is there for certain.
fn readable_end(stack: usize) -> usize {
    // Of one that is not ours (main's, the program's own), the last page ends where the first frame does, at the
    // latest.
    find(stack).map_or((stack | 0xfff) + 1, |ours| ours.top)
}

/// Ends that the signal is blocked in its handler. (It is again what it was when the handler returns.)
fn let_through() {
    change_kernels(libc::SIG_UNBLOCK, Some(bit(OURS)));
}

unsafe extern "C-unwind" fn on_signal(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let context = context.cast::<ucontext_t>();
    // SAFETY: the kernel passes what it has saved of the thread.
    let (place, stack) = interrupted(unsafe { &*context });
    // SAFETY: the kernel passes what it tells of the signal.
    if let Some(nanos) = kept::asked(unsafe { &*info }) {
        return kept::note(place, nanos);
    }
    let Some(ranges) = RANGES.get() else { return };
    if is_ours(place) {
        return;
    }
    let Some((me, record)) = record::current() else { return };
    // At any call that waits within libc, the program's or a stand-in's, a thread can be unwound, and can wait in a
    // handler: the runtime makes none on a thread's stack, and stand-ins that hand a call on to libc have nothing
    // there that needs to be dropped.
    let mut left = false;
    if ranges.contain(place) {
        if MALLOC.get().is_some_and(|malloc| malloc.contains(&place)) {
            return;
        }
        left = leave_wait(me, record);
        let waits = left || is_at_cancellable_call(place);
        if waits && me.is_cancelled() {
            let_through();
            test_cancel();
        }
        // (Where a thread waits, its stack stays as it is: another look would find the same old addresses.)
        // SAFETY: as above.
        let stays = waits || ends_anywhere() && was_waiting(unsafe { &*context });
        if !stays && is_called_by_us(stack, record) {
            return;
        }
    }
    let open = !record.mask.load(Ordering::SeqCst);
    if record.pending.set() & open != 0 || ends_anywhere() {
        let_through();
        deliver::handle_all(record, Some(context.cast()), None);
        if ends_anywhere() {
            test_cancel();
        }
        // The thread may be on another carrier than before. What the kernel puts in force when this returns must
        // be that carrier's.
        // SAFETY: what the kernel has saved, of which this is a part.
        unsafe { (*context).uc_stack = alternate::kernels() };
    }
    if left {
        resume_wait(me);
    }
}
