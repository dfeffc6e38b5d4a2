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
//! fields. Nothing here is a constant of some version; `layout.rs` finds everything anew in each
//! process:
//!
//! * sizes and field offsets from the tables glibc ships for debuggers (`_thread_db_*`), which
//!   have been stable since 2003 and which sanitizers read as well;
//! * where each module's variables lie, from `dl_iterate_phdr`;
//! * contents, by copying the block of a *pristine thread*: one started with `pthread_create` on a
//!   stack of ours that has run nothing yet (`pristine.rs`). Words of it that point into itself are
//!   rebased for every copy;
//! * destructors of pthread keys, by creating a key and finding its entry (`destructors.rs`).
//!
//! Before the first use a self-test (`selftest.rs`) runs a function on a block and checks what libc
//! and `std` make of it. If anything is not as expected the process uses
//! [shared mode](Mode::Shared): fibers see their carrier's thread-local storage and never leave
//! that carrier. [`mode`] says which it is and why; `CAREFREE_TLS=shared` forces it.
//!
//! # The life of a block
//!
//! `build` (pristine copy) → fiber runs → `run_destructors` on the fiber → idle → `reset` → next
//! fiber runs … → `retire` when the stack's memory is given back.
//!
//! `reset` gives every module its initial values again *except libc's own*: what libc keeps there
//! are caches (malloc's thread cache, resolver state, message buffers) that a real thread would
//! free on exit through functions we cannot call. Keeping them leaks nothing, keeps malloc warm, and
//! what a program could see of them (`errno`, the locale) is set anew as each fiber starts. For the
//! same reason `retire` remembers the words in which libc's part differs from a pristine one; the
//! next block that is built adopts them.
//!
//! # What is not as on a thread
//!
//! * A library loaded with `dlopen` whose code uses the *initial-exec* model needs room in every
//!   existing block. `CAREFREE_TLS_RESERVE` bytes (see [`Layout::reserve`]) are kept for such;
//!   fibers already alive see zeros in place of initial values.
//! * The kernel knows the carrier, not the fiber: signal masks, `gettid`, scheduling parameters,
//!   robust and priority-inheriting mutexes are the carrier's.

mod attributes;
mod block;
mod destructors;
mod discover;
mod layout;
mod libraries;
mod pristine;
mod probe;
mod robust;
mod selftest;
mod setxid;

use std::sync::OnceLock;

pub use block::Block;
pub use layout::Layout;

/// How fibers of this process see thread-local storage.
#[derive(Debug)]
pub enum Mode {
    /// Each fiber has its own, and may migrate between carriers.
    Own(&'static Layout),
    /// Fibers see their carrier's and stay on that carrier, for the reason given.
    Shared(String),
}

impl Mode {
    /// The layout of blocks, in own mode.
    pub fn layout(&self) -> Option<&'static Layout> {
        match self {
            Mode::Own(layout) => Some(layout),
            Mode::Shared(_) => None,
        }
    }
}

/// The mode of this process, found at the first call and fixed from then on.
///
/// `CAREFREE_TLS=shared` in the environment forces shared mode; `own` (the default) uses own mode
/// where the platform allows it.
pub fn mode() -> &'static Mode {
    static MODE: OnceLock<&'static Mode> = OnceLock::new();
    MODE.get_or_init(|| {
        // Fibers may outlive everything else, so what they are built from is never freed.
        let mode = match find() {
            Ok(layout) => Mode::Own(layout),
            Err(reason) => Mode::Shared(reason),
        };
        Box::leak(Box::new(mode))
    })
}

/// Finds the layout and tries it out.
fn find() -> Result<&'static Layout, String> {
    match std::env::var("CAREFREE_TLS").as_deref() {
        Err(_) | Ok("" | "own") => {}
        Ok("shared") => return Err("CAREFREE_TLS=shared asks for it".into()),
        Ok(other) => {
            return Err(format!(
                "CAREFREE_TLS={other} is neither `own` nor `shared`, so the safe one is taken"
            ));
        }
    }
    refuse_instrumentation()?;
    let layout: &'static Layout = Box::leak(Box::new(discover::discover()?));
    attributes::know(layout);
    selftest::run(layout).map_err(|what| format!("the self-test failed: {what}"))?;
    setxid::install(layout).map_err(|why| format!("libc's handler of set*id: {why}"))?;
    Ok(layout)
}

/// Tools that keep state of their own per thread do not expect the thread pointer to move.
fn refuse_instrumentation() -> Result<(), String> {
    for (symbol, tool) in [
        (c"__asan_init", "AddressSanitizer"),
        (c"__tsan_init", "ThreadSanitizer"),
        (c"__msan_init", "MemorySanitizer"),
    ] {
        if !layout::symbol(symbol).is_null() {
            return Err(format!("{tool} tracks threads by their thread pointer"));
        }
    }
    // Valgrind preloads a library of its own into every program it runs.
    if std::env::var_os("LD_PRELOAD")
        .is_some_and(|list| list.to_string_lossy().contains("vgpreload"))
    {
        return Err("valgrind tracks threads by their thread pointer".into());
    }
    Ok(())
}
