//! The end of the process where going on would be unsound.

use std::fmt;

use crate::text::Text;

/// Prints one line to standard error and aborts the process.
///
/// For what must not happen and has, in code from which no panic may unwind: the kernel or other threads use frames
/// above it, or it runs on a thread that others rely on. Asks no allocator, for its lock may be held.
///
/// ```no_run
/// carefree_ground::fatal::abort(format_args!("membarrier failed with errno {}", 1));
/// ```
#[cold]
pub fn abort(line: fmt::Arguments<'_>) -> ! {
    Text::print_line(format_args!("carefree: {line}; aborting"));
    std::process::abort();
}
