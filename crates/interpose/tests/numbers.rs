//! The numbers that the kernel gives a program's files, in a process of this test's own.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use carefree_interpose as _;
use carefree_runtime::{Runtime, scope, sleep, spawn};

/// The numbers of all open files, but for the directory that is read.
fn numbers() -> BTreeSet<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let number =
        |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap().parse().unwrap();
    let numbers: BTreeSet<_> = entries.map(|entry| number(entry.unwrap())).collect();
    // SAFETY: no memory is involved.
    numbers.into_iter().filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).collect()
}

/// A file that was closed just before a fiber waited for it: its number must not become the ring's, or the
/// fiber would wait for that.
#[test]
fn what_the_runtime_opens_takes_no_low_number() {
    let before = numbers();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    runtime.run(|| {
        // All carriers have fibers that wait for files, for a listener and for a process.
        scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let (mut one, mut other) = UnixStream::pair().unwrap();
                    let writing = spawn(move || {
                        sleep(Duration::from_millis(5));
                        other.write_all(b"x").unwrap();
                    });
                    one.read_exact(&mut [0]).unwrap();
                    writing.join().unwrap();
                });
            }
            scope.spawn(|| {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let connecting = spawn(move || {
                    sleep(Duration::from_millis(5));
                    std::net::TcpStream::connect(address).unwrap();
                });
                listener.accept().unwrap();
                connecting.join().unwrap();
            });
            scope.spawn(|| assert!(std::process::Command::new("true").status().unwrap().success()));
        });
    });
    let opened: Vec<_> = numbers().difference(&before).copied().collect();
    assert!(opened.len() >= 2 && opened.iter().all(|&fd| fd >= 32), "{opened:?}");
}
