//! A Rust program that has fibers itself, with a copy of Carefree beside the library's.

use std::ffi::{CString, OsStr, c_int};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree::{TlsMode, platform, spawn};

use crate::{PROGRAM, run};

/// The library, loaded.
#[derive(Clone, Copy)]
struct Library {
    read_byte: extern "C" fn(c_int) -> isize,
    waiters: extern "C" fn(u32) -> u32,
    meetings: extern "C" fn(u32) -> u32,
    call_back: extern "C" fn(extern "C" fn(c_int) -> c_int, u32) -> c_int,
    has_fibers: extern "C" fn() -> c_int,
}

impl Library {
    fn load(path: &OsStr) -> Library {
        let path = CString::new(path.as_bytes()).unwrap();
        // SAFETY: loads the example's library; its functions have the types above.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!handle.is_null());
            let find = |name: &str| {
                let name = CString::new(name).unwrap();
                let found = libc::dlsym(handle, name.as_ptr());
                assert!(!found.is_null(), "{name:?}");
                found
            };
            use std::mem::transmute;
            Library {
                read_byte: transmute::<*mut _, extern "C" fn(c_int) -> isize>(find("read_byte")),
                waiters: transmute::<*mut _, extern "C" fn(u32) -> u32>(find("waiters")),
                meetings: transmute::<*mut _, extern "C" fn(u32) -> u32>(find("meetings")),
                call_back: transmute::<
                    *mut _,
                    extern "C" fn(extern "C" fn(c_int) -> c_int, u32) -> c_int,
                >(find("call_back")),
                has_fibers: transmute::<*mut _, extern "C" fn() -> c_int>(find("has_fibers")),
            }
        }
    }
}

/// Called on the library's fibers, which this copy of Carefree takes for threads.
extern "C" fn called(n: c_int) -> c_int {
    std::thread::sleep(Duration::from_millis(1));
    let own = spawn(move || n);
    own.join().unwrap()
}

/// Has that many fibers of this program's wait in the library's blocking read at once; returns how many threads
/// the process has meanwhile.
fn wait_in(library: Library, count: usize) -> usize {
    let (reader, mut writer) = UnixStream::pair().unwrap();
    let (file, begun) = (reader.as_raw_fd(), AtomicUsize::new(0));
    carefree::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                begun.fetch_add(1, Ordering::Relaxed);
                assert_eq!((library.read_byte)(file), 1);
            });
        }
        while begun.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        writer.write_all(&vec![0; count]).unwrap();
        threads
    })
}

/// The program.
#[test]
fn the_program() {
    let Some(path) = std::env::var_os(PROGRAM) else { return };
    assert!(platform().tls == TlsMode::Own || platform().hosted, "{:?}", platform());
    let library = Library::load(&path);
    assert_eq!((library.has_fibers)(), 1);
    assert!((library.waiters)(1000) < 200);
    assert_eq!((library.meetings)(200), 200);
    assert_eq!((library.call_back)(called, 20), (0..20).sum::<c_int>());
    // On fibers of this program's, what the library calls parks them.
    assert!(wait_in(library, 1000) < 200);
    // They wait for the library's fibers as threads do, each keeping its carrier.
    let waiting = (0..10).map(|_| spawn(move || assert_eq!((library.meetings)(20), 20)));
    waiting.collect::<Vec<_>>().into_iter().for_each(|fiber| fiber.join().unwrap());
    println!("\ndone");
    // What the harness prints after it is not looked at.
    std::process::exit(0);
}

#[test]
fn a_program_with_fibers_loads_one() {
    let program = std::env::current_exe().unwrap();
    let arguments = ["with_fibers::the_program", "--exact", "--nocapture"].map(OsStr::new);
    run(&[&[program.as_os_str()][..], &arguments].concat());
}
