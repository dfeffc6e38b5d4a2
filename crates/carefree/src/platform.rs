//! What of the platform Carefree uses, and why not more.

use std::sync::OnceLock;

use carefree_context::{arch, stack, tls};

pub use carefree_context::stack::GuardMode;
pub use carefree_reactor::Kind as ReactorKind;

/// How fibers see thread-local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Each fiber has its own, and may move between carriers.
    Own,
    /// Fibers see their carrier's and stay on that carrier. What keeps a waiting caller in a
    /// thread-local variable (std's channels and `std::thread::park`, parking_lot, crossbeam) takes
    /// two fibers of a carrier for one thread, and is not for fibers then.
    Shared,
}

/// What of the platform Carefree uses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Platform {
    /// How fibers see thread-local storage.
    pub tls: TlsMode,
    /// Why: in words.
    pub tls_reason: String,
    /// Bytes of thread-local storage each fiber carries; 0 in shared mode.
    pub tls_bytes: usize,
    /// Whether the thread pointer can be set without a system call (x86-64: `wrfsbase`).
    pub fsgsbase: bool,
    /// How stacks are guarded.
    pub guards: GuardMode,
    /// Why: in words.
    pub guards_reason: String,
    /// How fibers wait for files and sockets; `None` if `CAREFREE_REACTOR` asks for what cannot be
    /// had, and then no fiber can be spawned.
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
        // Some of the environment has its say on what is used.
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
        };
        Platform {
            tls,
            tls_reason,
            tls_bytes,
            fsgsbase: arch::fsgsbase(),
            guards: guards.mode,
            guards_reason: guards.reason.to_string(),
            reactor,
            reactor_reason,
        }
    })
}
