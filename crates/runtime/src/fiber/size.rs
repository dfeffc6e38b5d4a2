//! The sizes of fibers' stacks.

use std::io;
use std::num::NonZero;

use carefree_context::stack::{StackSize, StackSizeError, setting};
use carefree_context::tls;
use once_cell::race::OnceNonZeroUsize;

/// Bytes that the runtime keeps on a fiber's stack at most: its record and the closure.
pub(crate) const OWN_BYTES: usize = 1280;
/// Bytes for the runtime's frames that call the closure: one catches panics, and for a named fiber there is
/// std's function. Builds without optimization need about half of this.
const OWN_FRAMES: usize = 4096;
/// Usable bytes of a stack of the default size, at least, however much thread-local storage there is.
const LEAST: usize = 128 * 1024;

/// The number of the default class, plus one.
static DEFAULT: OnceNonZeroUsize = OnceNonZeroUsize::new();

/// The size of a stack of which the fiber's own code can use at least `bytes`; the guard, thread-local
/// storage and what the runtime keeps there are not counted in. std gives no thread less than
/// `PTHREAD_STACK_MIN`, whatever is asked for.
pub(crate) fn of(bytes: usize) -> Result<StackSize, StackSizeError> {
    // First without the rest: so an error names what was asked for.
    StackSize::new(bytes)?;
    StackSize::new(bytes.max(libc::PTHREAD_STACK_MIN).saturating_add(taken()))
}

/// Bytes that are not for the fiber's own code.
fn taken() -> usize {
    tls::mode().layout().map_or(0, |layout| layout.room()) + OWN_BYTES + OWN_FRAMES
}

/// The size of a fiber's stack where none is asked for.
#[inline(always)]
pub(crate) fn default() -> StackSize {
    match DEFAULT.get() {
        Some(class) => StackSize::of_class(class.get() - 1),
        None => find_out(),
    }
}

/// The smallest size from `size` on whose guard has so many bytes, of which 1 MiB count at most; or the largest
/// that there is.
pub(crate) fn guarded(size: StackSize, guard: usize) -> StackSize {
    const MOST: usize = 1 << 20;
    let mut sizes = (size.class()..StackSize::CLASSES).map(StackSize::of_class);
    sizes.find(|size| size.guard() >= guard.min(MOST)).unwrap_or(size)
}

#[cold]
fn find_out() -> StackSize {
    let size = asked().ok().flatten().unwrap_or_else(|| {
        let usual = StackSize::default();
        if usual.usable() >= LEAST + taken() { usual } else { of(LEAST).unwrap_or(usual) }
    });
    // Several threads may get here; all find the same.
    let _ = DEFAULT.set(NonZero::<usize>::MIN.saturating_add(size.class()));
    size
}

/// Checks the variables that set sizes, before the first fiber.
///
/// # Errors
/// When one of the variables is not a size.
pub(crate) fn configure() -> io::Result<()> {
    let wrong = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
    setting::check_guard().map_err(wrong)?;
    asked().map_err(wrong)?;
    Ok(())
}

/// Makes stacks of `bytes` the default, for a program whose threads become fibers; unless a default is known
/// already, or a variable sets it.
///
/// # Errors
/// When no stack has as many bytes.
pub(crate) fn set_default(bytes: usize) -> Result<(), StackSizeError> {
    if !matches!(asked(), Ok(None)) {
        return Ok(());
    }
    let size = of(bytes)?;
    if DEFAULT.set(NonZero::<usize>::MIN.saturating_add(size.class())).is_ok() {
        let _ = HOSTED.set(NonZero::<usize>::MIN.saturating_add(bytes));
    }
    Ok(())
}

/// Bytes that [`set_default`] has made the default, plus one.
static HOSTED: OnceNonZeroUsize = OnceNonZeroUsize::new();

/// Bytes that [`set_default`] has made the default.
pub(crate) fn hosted_default() -> Option<usize> {
    HOSTED.get().map(|bytes| bytes.get() - 1)
}

const VARIABLE: &str = "CAREFREE_STACK";

/// What `CAREFREE_STACK` asks for, for threads in place of fibers. (std itself obeys `RUST_MIN_STACK`.)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_guard_that_is_asked_for_chooses_a_larger_stack() {
        let small = StackSize::new(64 << 10).expect("a size");
        assert_eq!(guarded(small, 4096), small);
        for guard in [64 << 10, 512 << 10, 1 << 20, usize::MAX] {
            let size = guarded(small, guard);
            assert!(size >= small && size.guard() >= guard.min(1 << 20), "{guard}");
        }
    }
}
