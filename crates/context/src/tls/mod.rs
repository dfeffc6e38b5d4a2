//! Thread-local storage of a fiber's own.
//!
//! A compiler may keep the address of a thread-local variable across a call, because a running
//! function cannot change threads. A fiber that is moved to another carrier would break that
//! assumption, unless its thread-local storage moves with it. So each fiber gets what a thread
//! gets: a block of static thread-local storage and a thread control block, and a switch to it
//! sets the thread pointer. `std`, libc, C libraries and the compiler then all see a thread, and
//! code that is right on threads is right on fibers that migrate.
//!
//! # How a block is made
//!
//! glibc documents neither the size of its thread control block (`struct pthread`) nor its
//! fields. Nothing here is a constant of some version; `discover.rs` finds everything anew in each
//! process:
//!
//! * sizes and field offsets from the tables that glibc exports for debuggers (`glibc.rs`), which
//!   have been stable since 2003 and which sanitizers read as well. (Programs can see them since
//!   glibc 2.33. With an older one fibers are threads.)
//! * the place of each library's variables, from `dl_iterate_phdr` (`libraries.rs`);
//! * contents, by copying the block of a *pristine thread*: one started with `pthread_create` on a
//!   stack allocated here that has run nothing yet (`pristine.rs`). Words of it that point into the
//!   block itself are rebased for every copy;
//! * what no table describes, by changing it on that thread and comparing memory (`probe.rs`).
//!
//! Before the first use a self-test (`selftest.rs`) runs a function on a block and checks what libc
//! and `std` make of it. If anything is not as expected, a fiber cannot have what a thread has, and
//! the process uses [threads](Mode::Threads) in place of fibers.
//!
//! In [shared mode](Mode::Shared) fibers see their carrier's thread-local storage and never leave that
//! carrier. It needs nothing of libc, but code that keeps a waiting caller in a thread-local variable
//! (parking_lot, std's channels) takes two fibers of a carrier for one thread, and safe code corrupts
//! memory. So does code that sets such a variable for the time of a call in which the fiber waits, as for
//! coroutines ([`scope`](crate::coroutine::scope()#safety)). So a process uses it only on request, by
//! `CAREFREE_TLS=shared` or [`ask_to_share`].
//! [`mode`] says which mode it is and why.
//!
//! # The life of a block
//!
//! `build` (pristine copy) → `reset` → fiber `enter`s, runs, `run_destructors` → idle → `reset` →
//! next fiber … → `retire` when the stack's memory is given back.
//!
//! `reset` gives every library's variables their initial values again *except libc's own*: what
//! libc keeps there are caches (resolver state, message buffers) that a thread frees on exit
//! through functions that are not exported. Keeping them leaks nothing. What a program could see of
//! them is set anew for each fiber: `errno`, `h_errno`, the cancellation state and type by `reset`,
//! the locale by `enter`, `dlerror`'s text, values of pthread keys and the list of robust mutexes by `run_destructors`. For the same reason `retire`
//! stores the words in which libc's part differs from a pristine one; the next block that is
//! built adopts them. (A resolver's options that a fiber set in `_res` do stay.)
//!
//! malloc's cache for a thread, and its choice of an arena, are the carrier's: a fiber's words for them are copies of
//! those of the thread that runs it ([`Layout::lend_malloc`]), written anew when it moves. A fiber's own cache would
//! take some 650 bytes, as soon as it allocates once, and hold nothing that is in the processor's cache: 10,000 fibers
//! that allocate, free and end took twice as long with one each (`cargo run --release -p carefree --example
//! carriers -- 2 alloc`). Which words these are is found by changing them, as above; where they are not
//! recognised, or malloc is not libc's, each block keeps its own; and so with malloc's first arena.
//!
//! In a static program libc's variables lie among the program's own, and are reset with them. There
//! the functions by which a thread frees libc's caches on exit can be called, being linked from the
//! same archive, and `run_destructors` calls them.
//!
//! # Designs that were rejected
//!
//! * *Have libc make each block*: start a real thread on the fiber's stack, let it end by a bare
//!   `exit` system call and keep what libc believes to be a living thread. Right by construction,
//!   in libc's lists too, and 20 us a block.
//! * *Enter copies into libc's list of threads*, so that `dlopen` and `dlclose` know fibers. The
//!   list's lock is not accessible.
//! * *Switch the thread pointer lazily*, only for code that uses it: no analysis can tell which
//!   code does.
//!
//! # What is not as on a thread
//!
//! * The kernel knows the carrier, not the fiber. Signal masks, alternate signal stacks, processor
//!   affinity, scheduling parameters and clocks are the carrier's where they are asked of "this
//!   thread", and errors (`ESRCH`) where they are asked of the fiber's `pthread_t`. Mutexes with
//!   priority inheritance or protection do not work.
//! * libc knows the carrier, not the fiber: a fiber's `pthread_t` cannot be cancelled or sent
//!   signals by others, and `pthread_exit` is for threads. It can be joined or detached only if
//!   libc's functions for that are interposed.
//! * A library loaded with `dlopen` that is given a *fixed place* in every thread's block (see
//!   `libraries.rs` for which are) gets one in every fiber's too, within the reserve
//!   ([`Layout::reserve`], `CAREFREE_TLS_RESERVE`). All fibers find its initial values there if
//!   [`Layout::begin`] was called when it began; otherwise fibers that start after the next
//!   [`Layout::refresh`] do, and those that were alive before find zeros.
//! * `dlclose`, and a `dlopen` that enlarges the global scope, wait until no thread is in the
//!   middle of binding a symbol before they free what was searched. They do not wait for fibers.
//!   Programs that bind at the start (`-z now`, as Rust's do) have no such middle.
//! * In a child of `fork` the fiber that called it is the only thread, and libc takes it for one:
//!   it may do what POSIX allows in such a child, but not switch to fibers of the parent. See
//!   [`fork`](crate::fork).

mod block;
mod discover;
#[cfg(target_env = "gnu")]
mod getattr;
mod glibc;
mod ids;
mod initial_values;
mod keys;
mod layout;
mod libraries;
mod pristine;
mod probe;
mod registry;
mod robust_mutexes;
mod selftest;
mod setxid;
mod symbols;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::host;

use crate::{object, sanitizer};

pub use block::Block;
pub use getattr::{Complete, complete_attributes};
pub use ids::is_fiber_id;
pub use layout::Layout;
pub use libraries::note_start;

/// Blocks other threads from building and retiring blocks until [`release`].
pub(crate) fn hold() {
    registry::hold();
}

/// Undoes [`hold`].
///
/// # Safety
/// The caller called `hold`, or its parent process did before a fork.
pub(crate) unsafe fn release() {
    // SAFETY: `hold` has locked it.
    unsafe { registry::release() };
}

/// To be called in the child of a fork, whose fibers must differ from the parent's.
///
/// # Safety
/// The caller is the only thread, and was in no call of this room when it forked.
pub(crate) unsafe fn renew() {
    registry::renew();
    if let Some(layout) = mode().layout() {
        // SAFETY: as this function demands.
        unsafe { layout.libraries.renew() };
    }
}

/// The place of a thread's restartable-sequences area, relative to its thread pointer; `None` if
/// libc has none.
pub fn rseq_offset() -> Option<isize> {
    glibc::constants().rseq_offset
}

/// How fibers of this process see thread-local storage.
#[derive(Debug)]
pub enum Mode {
    /// Each fiber has its own, and may migrate between carriers.
    Own(&'static Layout),
    /// Fibers use their carrier's and stay on that carrier, for the reason given.
    Shared(String),
    /// Each fiber is a kernel thread and uses that thread's, for the reason given.
    Threads(String),
}

impl Mode {
    /// The layout of blocks, in own mode.
    #[inline]
    pub fn layout(&self) -> Option<&'static Layout> {
        match self {
            Mode::Own(layout) => Some(layout),
            Mode::Shared(_) | Mode::Threads(_) => None,
        }
    }
}

/// The mode, once it is chosen.
static MODE: OnceLock<&'static Mode> = OnceLock::new();
/// Whether [`ask_to_share`] was called.
static ASKED_TO_SHARE: AtomicBool = AtomicBool::new(false);

/// The mode of this process, chosen at the first call and fixed from then on.
///
/// `CAREFREE_TLS` in the environment chooses: `own` (the default) is own mode if the platform
/// supports it and threads otherwise, `threads` is threads, `shared` is shared mode.
pub fn mode() -> &'static Mode {
    MODE.get_or_init(|| {
        // Fibers may run until the process ends, so what they are built from is never freed.
        object::own().stay();
        Box::leak(Box::new(choose()))
    })
}

/// The layout of blocks, if own mode was chosen already.
///
/// ```
/// use carefree_context::tls::{known, mode};
/// let layout = mode().layout();
/// assert_eq!(known().is_some(), layout.is_some());
/// ```
pub fn known() -> Option<&'static Layout> {
    MODE.get().and_then(|mode| mode.layout())
}

/// Has fibers share their carrier's thread-local storage, unless `CAREFREE_TLS` says otherwise.
/// Returns whether the mode is shared; it is not if another [`mode`] was chosen before.
///
/// # Safety
/// No code that runs on a fiber may rely on two fibers having different thread-local variables while
/// one of them waits: see [`Mode::Shared`] and the module.
pub unsafe fn ask_to_share() -> bool {
    ASKED_TO_SHARE.store(true, Ordering::SeqCst);
    matches!(mode(), Mode::Shared(_))
}

fn choose() -> Mode {
    if let Some(call) = object::host() {
        // SAFETY: `libcarefree.so`'s function in libc's place. That library is never unloaded.
        unsafe { host::note(call) };
        return Mode::Threads(
            "the program runs under `carefree run`, which makes its threads fibers".into(),
        );
    }
    let asked = carefree_settings::setting("CAREFREE_TLS").unwrap_or_default();
    match asked.to_string_lossy().as_ref() {
        "" if ASKED_TO_SHARE.load(Ordering::SeqCst) => {
            Mode::Shared("the program asks for it".into())
        }
        "" | "own" => match find() {
            Ok(layout) => Mode::Own(layout),
            Err(reason) => Mode::Threads(reason),
        },
        "shared" => Mode::Shared("CAREFREE_TLS=shared asks for it".into()),
        "threads" => Mode::Threads("CAREFREE_TLS=threads asks for it".into()),
        other => Mode::Threads(format!(
            "CAREFREE_TLS={other} is none of `own`, `shared` and `threads`, so the safe one is taken"
        )),
    }
}

/// Finds the layout and tests it.
fn find() -> Result<&'static Layout, String> {
    refuse_sanitizers()?;
    let layout: &'static Layout = Box::leak(Box::new(discover::discover()?));
    #[cfg(target_env = "gnu")]
    getattr::know(layout);
    selftest::run(layout).map_err(|what| format!("the self-test failed: {what}"))?;
    setxid::install(layout).map_err(|why| format!("libc's handler of set*id: {why}"))?;
    Ok(layout)
}

/// Sanitizers keep state of their own for each thread, and find it by the thread pointer or by values
/// of pthread keys; a fiber's storage would have a copy of another thread's. They have functions to be
/// told of switches between stacks, but none for that. (Valgrind identifies threads by the kernel's
/// numbers and sees the thread pointer change.)
fn refuse_sanitizers() -> Result<(), String> {
    match sanitizer::present() {
        Some(tool) => Err(format!("{tool} tracks threads by their thread pointer")),
        None => Ok(()),
    }
}
