//! What a crate that reports on the runtime is called for.

use std::io;
use std::sync::OnceLock;

use carefree_ground::text::Text;

/// The functions of such a crate. They may be called by any thread.
#[derive(Debug)]
pub struct Hooks {
    /// A runtime is about to be built: reads settings from the environment. An error is the builder's.
    pub configure: fn() -> io::Result<()>,
    /// The carriers of a runtime have been started. (There are none where threads stand in place of
    /// fibers.)
    pub carriers_started: fn(),
    /// Called in the child of a fork, whose only thread is the caller: the crate's own threads are gone.
    pub forked: fn(),
    /// Threads of its own that run. They wake no fiber that waits for another, so the search for
    /// deadlocks leaves them out.
    pub threads: fn() -> usize,
    /// Reports printed, for [`metrics`](crate::metrics).
    pub reports: fn() -> u64,
    /// Adds lines that say what each fiber and thread waits for, to the report of a deadlock. Must not
    /// allocate.
    pub list_waiters: fn(&mut Text),
}

static HOOKS: OnceLock<&'static Hooks> = OnceLock::new();

/// Has `hooks` called from now on, if they are the first that are registered: to be called before the
/// first runtime is built. Without hooks there is no watchdog, and a deadlock is reported in one line.
pub fn register(hooks: &'static Hooks) {
    let _ = HOOKS.set(hooks);
}

/// The hooks, if some have been registered.
pub(crate) fn get() -> Option<&'static Hooks> {
    HOOKS.get().copied()
}
