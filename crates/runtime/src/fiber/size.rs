//! How large fibers' stacks are.

use std::io;
use std::num::NonZero;

use carefree_context::stack::{StackSize, StackSizeError, setting};
use carefree_context::tls;
use once_cell::race::OnceNonZeroUsize;

/// What the runtime keeps on a fiber's stack at most: its bookkeeping, and the closure.
pub(crate) const OWN_BYTES: usize = 1280;
/// Frames of the runtime's own below a closure's: where it catches panics, and the first `main`-like
/// function of std's that it goes through. Builds without optimization need about half of it.
const OWN_FRAMES: usize = 4096;
/// What a program finds at least when nothing is asked for, however much thread-local storage it has.
const LEAST: usize = 128 * 1024;

/// The number of the default class, plus one.
static DEFAULT: OnceNonZeroUsize = OnceNonZeroUsize::new();

/// The size of a fiber's stack on which the fiber's own code finds at least `bytes`: without the
/// guard, thread-local storage, and what the runtime keeps there.
pub(crate) fn of(bytes: usize) -> Result<StackSize, StackSizeError> {
    // An error tells of what was asked for.
    StackSize::new(bytes)?;
    StackSize::new(bytes.saturating_add(taken()))
}

/// What is not for the fiber's own code.
fn taken() -> usize {
    tls::mode().layout().map_or(0, |layout| layout.room()) + OWN_BYTES + OWN_FRAMES
}

/// The size of the stack of a fiber for which none is asked.
#[inline(always)]
pub(crate) fn default() -> StackSize {
    match DEFAULT.get() {
        Some(class) => StackSize::of_class(class.get() - 1),
        None => find_out(),
    }
}

#[cold]
fn find_out() -> StackSize {
    let size = asked().ok().flatten().unwrap_or_else(|| {
        let usual = StackSize::default();
        if usual.usable() >= LEAST + taken() { usual } else { of(LEAST).unwrap_or(usual) }
    });
    // Whichever thread asks first: all find the same.
    let _ = DEFAULT.set(NonZero::<usize>::MIN.saturating_add(size.class()));
    size
}

/// Checks the environment's say on sizes, before the first fiber.
///
/// # Errors
/// When one of the variables is not a size.
pub(crate) fn configure() -> io::Result<()> {
    let wrong = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
    setting::check_guard().map_err(wrong)?;
    asked().map_err(wrong)?;
    Ok(())
}

const VARIABLE: &str = "CAREFREE_STACK";

/// What `CAREFREE_STACK` asks for, where threads stand in for fibers: std itself sees to
/// `RUST_MIN_STACK`.
pub(crate) fn by_variable() -> Option<usize> {
    setting::read(VARIABLE, usize::MAX).ok().flatten()
}

/// What `CAREFREE_STACK` asks for, or else `RUST_MIN_STACK`.
fn asked() -> Result<Option<StackSize>, String> {
    let ours = setting::read(VARIABLE, usize::MAX)?.map(|bytes| (VARIABLE, bytes));
    // As std reads it: what is not a plain number is not set.
    let stds = || {
        let bytes = carefree_settings::text("RUST_MIN_STACK")?.parse::<usize>().ok()?;
        Some(("RUST_MIN_STACK", bytes))
    };
    let Some((variable, bytes)) = ours.or_else(stds) else { return Ok(None) };
    of(bytes).map(Some).map_err(|error| format!("{variable}={bytes}: {error}"))
}
