//! The symbols of this crate win over libc's: for `std`, and for C libraries.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::ffi::{CString, c_int};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use carefree_interpose as _;

/// Whether `yield_now`, called by a fiber in a loop, lets another fiber of the same carrier run.
fn lets_others_run(yield_now: impl Fn() + Sync) -> bool {
    const TURNS: usize = 10_000;
    // Where time is virtual, no carrier is added for those that a fiber keeps waiting.
    let runtime = carefree_runtime::Runtime::builder().virtual_time(1).build().unwrap();
    runtime.run(|| {
        let reached = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&reached);
        let other = carefree_runtime::spawn(move || theirs.store(true, Relaxed));
        let reached = (0..TURNS).any(|_| {
            yield_now();
            reached.load(Relaxed)
        });
        other.join().unwrap();
        reached
    })
}

#[test]
fn over_libc_for_std() {
    assert!(!lets_others_run(std::hint::spin_loop), "the test cannot tell");
    assert!(lets_others_run(std::thread::yield_now));
}

#[test]
fn over_libc_for_a_c_library() {
    let directory = tempfile::tempdir().unwrap();
    let (source, library) = (directory.path().join("c.c"), directory.path().join("c.so"));
    std::fs::write(&source, "#include <sched.h>\nint give_way(void) { return sched_yield(); }\n")
        .unwrap();
    let Ok(compiled) =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status()
    else {
        return eprintln!("skipped: cc is not installed");
    };
    assert!(compiled.success());
    let library = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a library without constructors, and the type that its function has.
    let give_way = unsafe {
        let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let function = libc::dlsym(library, c"give_way".as_ptr());
        assert!(!function.is_null());
        std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> c_int>(function)
    };
    // SAFETY: it takes nothing.
    assert!(lets_others_run(|| assert_eq!(unsafe { give_way() }, 0)));
    // SAFETY: off a fiber it is libc's.
    assert_eq!(unsafe { give_way() }, 0);
}
