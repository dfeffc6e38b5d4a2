//! The whole suite again, as on other kernels than this machine's.

use carefree_reactor::{Kind, faults};
use std::cell::Cell;
use std::process::Command;

const MODE: &str = "REACTOR_TEST_MODE";

fn mode() -> Option<String> {
    std::env::var(MODE).ok()
}

/// Makes the kernel look as old as the mode says, for the calling thread.
pub(crate) fn enter() {
    // The set-ups of a ring with newer flags are refused, this many times.
    let newer = match mode().as_deref() {
        None | Some("deferred" | "unheld") => return,
        Some("uring 5.13") => 1,
        Some("epoll 4.19") => 0,
        Some(other) => panic!("{MODE} is '{other}'"),
    };
    let refusals = Cell::new(newer);
    faults::set(Some(Box::new(move |number| match number {
        libc::SYS_io_uring_setup if refusals.get() > 0 => {
            refusals.set(refusals.get() - 1);
            Some(libc::EINVAL)
        }
        libc::SYS_epoll_pwait2 if newer == 0 => Some(libc::ENOSYS),
        // Pipes and the like do not support RWF_NOWAIT.
        libc::SYS_preadv2 | libc::SYS_pwritev2 if newer == 0 => Some(libc::EOPNOTSUPP),
        _ => None,
    })));
}

/// Whether only the owner finishes completions.
pub(crate) fn defers() -> bool {
    mode().as_deref() == Some("deferred")
}

/// Whether pipes do not support `RWF_NOWAIT`.
pub(crate) fn is_old_epoll() -> bool {
    mode().as_deref() == Some("epoll 4.19")
}

/// Whether a ring must hold no files.
pub(crate) fn holds_nothing() -> bool {
    mode().as_deref() == Some("unheld")
}

/// Whether the kernel makes the calls and holds their files while they wait.
pub(crate) fn holds_files(kind: Kind) -> bool {
    kind == Kind::Uring && !holds_nothing()
}

fn suite_as(mode_name: &str, filter: &str) {
    if mode().is_some() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([filter, "--skip", "modes::"]).env(MODE, mode_name);
    if mode_name == "deferred" {
        command.env("CAREFREE_URING", "deferred");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{mode_name}:\n{text}");
    assert!(text.contains("a_read_waits_for_data"), "the suite did not run:\n{text}");
}

#[test(seconds = 600)]
fn a_ring_of_linux_5_13() {
    suite_as("uring 5.13", "uring::");
}

#[test(seconds = 600)]
fn a_ring_with_deferred_completions() {
    suite_as("deferred", "uring::");
}

#[test(seconds = 600)]
fn a_ring_that_holds_no_files() {
    suite_as("unheld", "uring::");
}

#[test(seconds = 600)]
fn epoll_of_linux_4_19() {
    suite_as("epoll 4.19", "epoll::");
}
