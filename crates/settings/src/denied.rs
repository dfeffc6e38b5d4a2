//! Programs whose threads stay threads under `carefree run`.

use std::ffi::CStr;

/// Names of files, and why their threads stay threads.
const DENIED: &[(&str, &str)] = &[
    ("java", "the JVM waits by system calls of its own, and gains nothing"),
    ("valgrind", "valgrind runs programs on a processor of its own"),
    ("rr", "rr records the threads that the kernel knows"),
    ("gdb", "gdb traces by one of the kernel's threads"),
];

/// The section that the linker of Go writes into programs.
pub const GO_SECTION: &str = ".go.buildinfo";
/// Why the threads of programs in Go stay threads. (Only with cgo does libc create them.)
pub const GO: &str =
    "Go's runtime gives its threads signals and stacks for them by system calls of its own";

/// Why the threads of a program stay threads if the program, or a library that it is linked to, asks for stacks that can
/// be executed. Nested functions of GNU C need such stacks.
pub const EXECUTABLE: &str =
    "its threads need stacks that can be executed, which fibers do not have";

/// A function of each sanitizer that looks after threads.
pub const SANITIZERS: &[&CStr] =
    &[c"__asan_init", c"__hwasan_init", c"__msan_init", c"__tsan_init"];
/// What a program has, as a weak symbol, that a sanitizer is linked into statically. (One that has Carefree itself has
/// it, too, and not weak.)
pub const INTERCEPTED: &CStr = c"pthread_create";
/// Why the threads of programs with one of these stay threads.
pub const SANITIZED: &str =
    "a sanitizer or its like is built into it, which looks after the kernel's threads";

/// The most bytes of thread-local storage that a program and the libraries it begins with may have, if its threads
/// are to be fibers.
pub const MOST_STORAGE: u64 = 1 << 20;

/// Parts of what these have preloaded into the programs that they run.
const PRELOADED: &[&str] = &["/vgpreload_", "/librrpreload"];

/// Why the threads of the program in a file of this name stay threads, if they do.
///
/// ```
/// assert!(carefree_settings::denied::why("java").is_some());
/// assert!(carefree_settings::denied::why("javascript").is_none());
/// ```
pub fn why(name: &str) -> Option<&'static str> {
    DENIED.iter().find(|(denied, _)| *denied == name).map(|(_, why)| *why)
}

/// Whether the calling program is one of these, or run by one.
pub fn is_denied() -> bool {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    why(&name).is_some() || PRELOADED.iter().any(|part| preloaded.contains(part))
}
