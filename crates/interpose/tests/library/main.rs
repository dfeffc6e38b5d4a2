//! A C library, compiled by the test: its calls reach ours, from fibers and from threads.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use carefree_interpose as _;
use carefree_runtime::{Runtime, spawn};

/// The address of a function of the library; `None` where there is no C compiler.
fn function(name: &str) -> Option<usize> {
    static LIBRARY: OnceLock<Option<usize>> = OnceLock::new();
    let library = (*LIBRARY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library/library.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-fexceptions", "-pthread", "-o"])
            .args([&library, &source])
            .status();
        let Ok(compiled) = compiled else {
            eprintln!("skipped: cc is not installed");
            return None;
        };
        assert!(compiled.success());
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: a library without constructors. It is never closed.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Some(library as usize)
    }))?;
    let name = CString::new(name).unwrap();
    // SAFETY: a library that was opened, and a name.
    let address = unsafe { libc::dlsym(library as *mut _, name.as_ptr()) };
    assert!(!address.is_null());
    Some(address as usize)
}

/// A function of the library as a pointer of its type.
macro_rules! function {
    ($name:literal, $type:ty) => {
        match function($name) {
            // SAFETY: the type that the source has.
            Some(address) => unsafe { std::mem::transmute::<usize, $type>(address) },
            None => return,
        }
    };
}

/// Runs `f` as a fiber where there is one carrier, and where there are two.
fn on_fibers(f: impl Fn() + Send + Sync + Copy + 'static) {
    for carriers in [1, 2] {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            Runtime::builder().carriers(carriers).build().unwrap().run(f);
            send.send(()).unwrap();
        });
        receive.recv_timeout(Duration::from_secs(60)).expect("it hangs or has panicked");
    }
}

#[test]
fn a_queue() {
    let put = function!("queue_put", unsafe extern "C" fn(i64));
    let take = function!("queue_take", unsafe extern "C" fn() -> i64);
    on_fibers(move || {
        // SAFETY: they take numbers.
        let producer = move || (1..=200).for_each(|item| unsafe { put(item) });
        // SAFETY: as above.
        let consumer = move || (0..100).map(|_| unsafe { take() }).sum::<i64>();
        let producers: Vec<_> = (0..4).map(|_| spawn(producer)).collect();
        let thread = std::thread::spawn(producer);
        let consumers: Vec<_> = (0..7).map(|_| spawn(consumer)).collect();
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(consumer)).collect();
        producers.into_iter().for_each(|fiber| fiber.join().unwrap());
        thread.join().unwrap();
        let sum: i64 = consumers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<i64>()
            + threads.into_iter().map(|thread| thread.join().unwrap()).sum::<i64>();
        assert_eq!(sum, 5 * 20_100);
    });
}

#[test]
fn turns_by_c11() {
    let begin = function!("turns_begin", unsafe extern "C" fn() -> i32);
    let take = function!("turn_take", unsafe extern "C" fn(i32, i32));
    on_fibers(move || {
        // SAFETY: set up before it is used; the others take numbers.
        assert_eq!(unsafe { begin() }, 1);
        // SAFETY: as above.
        let turns = move |me| move || (0..50).for_each(|_| unsafe { take(me, 4) });
        let fibers: Vec<_> = (0..3).map(|me| spawn(turns(me))).collect();
        let thread = std::thread::spawn(turns(3));
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        thread.join().unwrap();
    });
}

#[test]
fn threads_can_be_cancelled_as_ever() {
    let can = function!("can_be_cancelled", unsafe extern "C" fn(i64) -> i32);
    for (what, call) in
        ["read", "poll", "sleep", "sem_wait", "pthread_cond_wait"].iter().enumerate()
    {
        // SAFETY: it takes a number.
        assert_eq!(unsafe { can(what as i64) }, 1, "{call}");
    }
}
