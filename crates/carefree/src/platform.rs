//! What of the platform Carefree uses, and why not more.

use std::sync::OnceLock;

use carefree_context::{arch, object, stack, tls};
use carefree_ground::host;

pub use carefree_context::stack::GuardMode;
pub use carefree_reactor::Kind as ReactorKind;

/// Which thread-local storage fibers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Each fiber has its own, and may move between carriers.
    Own,
    /// Fibers use their carrier's and stay on that carrier: only where that was
    /// [asked for](share_thread_locals).
    Shared,
    /// Fibers cannot have their own here, so each is a thread of the kernel's: as right as with
    /// `std::thread`, and as slow.
    Threads,
}

/// What a copy of Carefree is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartOf {
    /// The program: its calls, and those of all its libraries, come to Carefree.
    Program,
    /// A library that the program is linked with, or that is preloaded: as for a program.
    Library,
    /// A library of a program that finds libc's functions first, as one that an interpreter loads. The library's
    /// own calls come to Carefree, and no others do.
    LibraryBehindLibc,
}

impl PartOf {
    fn find() -> PartOf {
        let own = object::own();
        match (own.is_program(), own.is_behind_libc()) {
            (true, _) => PartOf::Program,
            (false, false) => PartOf::Library,
            (false, true) => PartOf::LibraryBehindLibc,
        }
    }
}

/// What of the platform Carefree uses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Platform {
    /// Which thread-local storage fibers use.
    pub tls: TlsMode,
    /// Why: in words.
    pub tls_reason: String,
    /// Bytes of thread-local storage each fiber carries; 0 unless it is a fiber's own.
    pub tls_bytes: usize,
    /// Whether the program runs under `carefree run`, which makes its threads fibers. A fiber of this crate's is
    /// one of these threads then, so [`tls`](Self::tls) says `Threads`.
    pub hosted: bool,
    /// What this copy of Carefree is a part of.
    pub part_of: PartOf,
    /// Whether the thread pointer can be set without a system call (x86-64: `wrfsbase`).
    pub fsgsbase: bool,
    /// How stacks are guarded.
    pub guards: GuardMode,
    /// Why: in words.
    pub guards_reason: String,
    /// How fibers wait for files and sockets; `None` if `CAREFREE_REACTOR` asks for what is not available,
    /// and then no fiber can be spawned.
    pub reactor: Option<ReactorKind>,
    /// Why: in words.
    pub reactor_reason: String,
}

/// Looks at the platform; the first call does some work, later ones none.
///
/// ```
/// let platform = carefree::platform();
/// println!("thread-local storage: {:?}, since {}", platform.tls, platform.tls_reason);
/// ```
pub fn platform() -> &'static Platform {
    static PLATFORM: OnceLock<Platform> = OnceLock::new();
    PLATFORM.get_or_init(|| {
        // Reads the settings that decide what is used.
        carefree_runtime::prepare_process();
        let guards = stack::guards();
        let (reactor, reactor_reason) = match carefree_reactor::choice() {
            Ok(choice) => (Some(choice.kind), choice.reason.clone()),
            Err(error) => (None, error.to_string()),
        };
        let (tls, tls_reason, tls_bytes) = match tls::mode() {
            tls::Mode::Own(layout) => (
                TlsMode::Own,
                "libc's layout is known and the self-test passed".to_owned(),
                layout.size(),
            ),
            tls::Mode::Shared(reason) => (TlsMode::Shared, reason.clone(), 0),
            tls::Mode::Threads(reason) => (TlsMode::Threads, reason.clone(), 0),
        };
        Platform {
            tls,
            tls_reason,
            tls_bytes,
            hosted: host::is_there(),
            part_of: PartOf::find(),
            fsgsbase: arch::fsgsbase(),
            guards: guards.mode,
            guards_reason: guards.reason.to_string(),
            reactor,
            reactor_reason,
        }
    })
}

/// Has this process's fibers share the thread-local storage of their carriers, as
/// `CAREFREE_TLS=shared` does. Returns whether they do.
///
/// To be called before the first fiber and before [`platform`]: later, and where `CAREFREE_TLS` says
/// otherwise, it changes nothing and returns `false`.
///
/// This is for programs that want fibers where they could not have thread-local storage of their own,
/// and so would be [threads](TlsMode::Threads); and for those in which per-thread caches of an
/// allocator would cost more memory than they save time. A fiber then never leaves the carrier that it
/// started on.
///
/// # Safety
/// While a fiber waits, other fibers of its carrier run, and they read and write the same thread-local
/// variables. No code that runs on fibers, in any crate or C library, may rely on its thread-local
/// variables being its own across a call that may wait. Much sound code does, and its safe functions
/// then corrupt memory or hang:
///
/// * parking_lot, `std::sync::mpsc`, `std::thread::park`, crossbeam, rayon and tokio keep the waiting
///   thread in a thread-local variable, on lists of waiters: two fibers of a carrier are on the list as
///   one thread. (A contended `parking_lot::Mutex` crashes.)
/// * A reference that `LocalKey::with` lends, or a `RefCell` borrowed in it, is held while other fibers
///   borrow the same cell.
/// * What sets a thread-local variable for the time of a call and restores it after that, as `scoped_tls` does,
///   restores what is gone if fibers of one carrier wait within such calls, for they end in any order: as with
///   coroutines ([`coroutine_scope`](crate::coroutine_scope#safety)).
/// * A reentrant or recursive lock, and `std::io::Stdout`'s, lets a second fiber in, taking it for the
///   thread that holds it.
///
/// std's own locks and condition variables keep nothing of a waiter there, and are for fibers.
///
/// ```
/// // SAFETY: the fibers of this program use no library but std, and of that no channels.
/// let shared = unsafe { carefree::share_thread_locals() };
/// assert_eq!(shared, carefree::platform().tls == carefree::TlsMode::Shared);
/// ```
pub unsafe fn share_thread_locals() -> bool {
    // SAFETY: this function demands the same.
    unsafe { tls::ask_to_share() }
}
