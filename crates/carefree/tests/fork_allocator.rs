//! A program's allocator that its handlers of forks lock: the runtime's handlers, which come between them, ask it
//! for nothing.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carefree::{offload, spawn, yield_now};

const LONG: Duration = Duration::from_secs(1000);

thread_local! {
    /// Whether the caller forks, and has the allocator locked.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

struct Checked;

impl Checked {
    fn check(what: &str) {
        if FORKS.get() {
            FORKS.set(false);
            eprintln!("{what} amid a fork: {}", std::backtrace::Backtrace::force_capture());
            std::process::abort();
        }
    }
}

// SAFETY: the memory is the system allocator's.
unsafe impl GlobalAlloc for Checked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Checked::check("memory is asked for");
        // SAFETY: `System` asks its callers for what this function asks of its own.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Checked::check("memory is given back");
        // SAFETY: all memory that `alloc` gives out is from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Checked = Checked;

unsafe extern "C" fn lock() {
    FORKS.set(true);
}

unsafe extern "C" fn unlock() {
    FORKS.set(false);
}

/// Forks some times; the children do so as well, until `depth` is 0, and some have fibers of their own.
fn fork_some(depth: usize) {
    for turn in 0..3 {
        // SAFETY: the child calls nothing that waits for what the parent's other threads would do.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            if turn > 0 {
                spawn(yield_now).join().unwrap();
            }
            if depth > 0 {
                fork_some(depth - 1);
            }
            // SAFETY: it ends the process.
            unsafe { libc::_exit(turn) };
        }
        let mut status = 0;
        // SAFETY: room for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == turn, "{status:#x}");
    }
}

/// Starts fibers that wait in most ways, for good. What they wait for is returned.
fn waiting() -> impl Sized {
    let lock = Arc::new(Mutex::new(()));
    std::mem::forget(Box::leak(Box::new(Arc::clone(&lock))).lock());
    let (sender, receiver) = channel::<u8>();
    let (mut reader, writer) = UnixStream::pair().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    drop(spawn(|| carefree::sleep(LONG)));
    drop(spawn(std::thread::park));
    drop(spawn(|| offload(|| std::thread::sleep(LONG))));
    drop(spawn(move || drop(lock.lock())));
    drop(spawn(move || receiver.recv()));
    drop(spawn(move || reader.read(&mut [0])));
    drop(spawn(move || listener.accept()));
    drop(spawn(|| Command::new("true").status()));
    carefree::sleep(Duration::from_millis(20));
    (sender, writer, folder)
}

#[test]
fn a_fork_asks_an_allocator_that_is_locked_for_nothing() {
    const CHILD: &str = "CAREFREE_TEST_FORKS";
    if std::env::var_os(CHILD).is_some() {
        // (libc asks for room for these.)
        // SAFETY: functions of this program, which may be called at any fork.
        assert_eq!(unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) }, 0);
        fork_some(0);
        let ends = spawn(waiting).join().unwrap();
        fork_some(1);
        spawn(|| fork_some(1)).join().unwrap();
        drop(ends);
        // The fibers wait on.
        std::process::exit(0);
    }
    for settings in [
        [("CAREFREE_REACTOR", "uring"), ("CAREFREE_CARRIERS", "2")],
        [("CAREFREE_REACTOR", "epoll"), ("CAREFREE_WATCH", "1000")],
        [("CAREFREE_TLS", "shared"), ("CAREFREE_CARRIERS", "2")],
        [("CAREFREE_TLS", "threads"), ("CAREFREE_CARRIERS", "2")],
    ] {
        let name = "a_fork_asks_an_allocator_that_is_locked_for_nothing";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .envs(settings)
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{settings:?}: {}\n{said}", output.status);
    }
}
