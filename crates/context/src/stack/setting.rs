//! Settings of sizes, from the environment.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The least size of guards in bytes by `CAREFREE_GUARD`; 0 if that is not set or invalid.
pub(super) fn guard() -> usize {
    // Cached, because every stack needs it: the value plus one, or 0 before it was read.
    static GUARD: AtomicUsize = AtomicUsize::new(0);
    match GUARD.load(Ordering::Relaxed) {
        0 => {
            let asked = read_guard().ok().flatten().unwrap_or(0);
            GUARD.store(asked + 1, Ordering::Relaxed);
            asked
        }
        known => known - 1,
    }
}

/// The largest guard of any stack, where `CAREFREE_GUARD` does not ask for more: as large as the gap that Linux
/// keeps below a process's first stack.
const LARGEST: usize = 1 << 20;

/// Stacks of up to so many bytes have guards of no more than LIMIT.
static LIMITED: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(LARGEST);

/// The largest guard, in bytes, of a stack of so many bytes, where `CAREFREE_GUARD` does not ask for more.
pub(super) fn largest_guard(stack: usize) -> usize {
    if stack <= LIMITED.load(Ordering::Relaxed) { LIMIT.load(Ordering::Relaxed) } else { LARGEST }
}

/// Has stacks of up to `stack` bytes get guards of no more than `bytes`, unless `CAREFREE_GUARD` asks for it: for
/// programs that create many large stacks. The kernel takes time to mark each page of a guard.
///
/// To be called before there are such stacks, for a guard is known by its stack's size alone. To call it again
/// with the same numbers changes nothing.
pub fn limit_guards(stack: usize, bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
    LIMITED.store(stack, Ordering::Relaxed);
}

/// Checks that `CAREFREE_GUARD` is a size or not set.
///
/// # Errors
/// A line that says what is wrong. An invalid value counts as not set.
pub fn check_guard() -> Result<(), String> {
    read_guard().map(drop)
}

fn read_guard() -> Result<Option<usize>, String> {
    // More than any frame needs, and less than the largest class allows.
    read("CAREFREE_GUARD", 1 << 40)
}

/// Reads a number of bytes from the environment; `None` if `variable` is not set or empty.
///
/// # Errors
/// A line that says so, if the value is not a number, perhaps with a suffix, or is above `most`.
pub fn read(variable: &str, most: usize) -> Result<Option<usize>, String> {
    let Some(text) = carefree_settings::setting(variable).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    let up_to = if most == usize::MAX { String::new() } else { format!(" up to {most}") };
    match carefree_settings::bytes(&text).filter(|bytes| *bytes <= most) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(format!(
            "{variable}={text} is not a number of bytes{up_to}, such as 1048576, 1024K or 1M"
        )),
    }
}
