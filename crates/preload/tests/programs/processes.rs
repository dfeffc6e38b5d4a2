//! Forks, programs that threads start, and what belongs to the whole process.

use std::ffi::OsStr;

use crate::common::{LIBRARY, compare, compare_c, compile, compile_parts, run};

/// As jemalloc's, tcmalloc's and Chromium's are.
#[test]
fn a_fork_asks_an_allocator_that_is_locked_for_nothing() {
    compare_c("fork_allocator.c");
}

#[test]
fn a_fork_does_not_wait_for_a_thread_that_waits_for_its_allocator() {
    compare_c("fork_loading.c");
}

/// Installed before there are threads, and so before the runtime's.
#[test]
fn handlers_of_forks_may_wait() {
    let parts: [(&str, &[&str]); 2] =
        [("libhandlers.so", LIBRARY), ("program", &["FOLDER/libhandlers.so"])];
    if let Some((_folder, [_, program])) = compile_parts("fork_handlers.c", parts) {
        compare(&[program.as_os_str()]);
    }
}

#[test]
fn threads_fork_and_start_programs() {
    compare_c("processes.c");
}

/// By any way to create one, also where threads fork at once, and where a child of `vfork` changes its mask.
#[test]
fn threads_and_processes_inherit_what_their_creator_has() {
    let Some(program) = compile("cc", &[], "inherit.c") else { return };
    // (Of no meaning natively.)
    let program = ["env", "CAREFREE_RUN_THREADS_FOR=stays,stays_too", program.to_str().unwrap()];
    compare(&program.map(OsStr::new));
}

/// By number as well, and while others of the creator's are ready to run.
#[test]
fn what_is_cloned_begins_as_its_creator() {
    compare_c("clone.c");
}

/// Also while handlers wait that the kernel calls meanwhile.
#[test]
fn programs_in_place_of_a_thread_inherit_its_signals() {
    compare_c("exec.c");
}

#[test]
fn the_child_of_a_fork_ends_with_its_last_thread() {
    let Some(program) = compile("cc", &[], "child_threads.c") else { return };
    for how in ["returns", "exits", "returns, joins", "exits, joins", "cancels, joins"] {
        compare(&[program.as_os_str(), OsStr::new(how)]);
    }
}

#[test]
fn threads_change_whose_the_process_is() {
    compare_c("identity.c");
}

/// Children of `vfork` look like the thread that waits for them.
#[test]
fn what_a_child_beside_its_parent_sets_is_its_own() {
    compare_c("vforked.c");
}

/// The kernel has one of its threads trace a child: so there is one carrier.
#[test]
fn traced_children_are_seen_to_stop() {
    let Some(program) = compile("cc", &[], "traced.c") else { return };
    let native = run(&[program.as_os_str()], None);
    for reactor in [None, Some("epoll")] {
        let fibers = run(&[program.as_os_str()], Some((1, reactor)));
        assert_eq!(fibers, native, "{reactor:?}");
    }
}

#[test]
fn processes_in_the_background_of_a_terminal_are_stopped() {
    compare_c("terminals.c");
}

#[test]
fn all_descriptors_may_be_closed() {
    compare_c("closes.c");
}

#[test]
fn what_the_kernel_keeps_for_one_thread_is_refused_and_told() {
    are_refused("rights.c", &["setfsuid", "setfsgid", "setresuid", "unshare"], &[]);
}

#[test]
fn a_sandbox_of_one_thread_is_refused_and_told() {
    let refused = [
        "seccomp",
        "PR_SET_SECCOMP",
        "PR_CAPBSET_DROP",
        "PR_SET_KEEPCAPS",
        "PR_SET_SECUREBITS",
        "PR_CAP_AMBIENT",
    ];
    are_refused("sandboxes.c", &refused, &["landlock_restrict_self"]);
}

/// Whether the program is refused `calls`, and those of `more` that the kernel has: a line for each says what to do.
fn are_refused(program: &str, calls: &[&str], more: &[&str]) {
    let Some(program) = compile("cc", &[], program) else { return };
    let output = run(&[program.as_os_str()], Some((2, None)));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "refused\n", "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    let named = told.lines().map(|line| {
        assert!(line.contains("--threads-for"), "{told}");
        line.strip_prefix("carefree: ").and_then(|line| line.split(' ').next()).unwrap()
    });
    let mut named: Vec<_> = named.filter(|name| !more.contains(name)).collect();
    named.sort_unstable();
    let mut calls = calls.to_vec();
    calls.sort_unstable();
    assert_eq!(named, calls, "{told}");
}
