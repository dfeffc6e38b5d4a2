//! Where backtraces begin.

/// Calls `f`. std's short backtraces show no frame from a function on whose name contains this one's: what calls it is
/// not the program's. It is inlined, and then debug information has its name; so it takes no stack.
///
/// ```
/// let sum = carefree_context::backtrace::__rust_begin_short_backtrace(|| 1 + 2);
/// assert_eq!(sum, 3);
/// ```
#[inline(always)]
pub fn __rust_begin_short_backtrace<T>(f: impl FnOnce() -> T) -> T {
    f()
}
