//! C code that is compiled with checks of its buffers' lengths parks as well.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::ffi::{CString, c_int};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use carefree_interpose as _;

const SOURCE: &str = "
#define _GNU_SOURCE
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
int by_read(int fd, int n) { char b[8]; return read(fd, b, n) == 1 ? b[0] : -1; }
int by_recv(int fd, int n) { char b[8]; return recv(fd, b, n, 0) == 1 ? b[0] : -1; }
int by_poll(int fd, int n) {
    struct pollfd p[2] = {{fd, POLLIN}, {-1}};
    return poll(p, n / 4, 60000) == 1 ? by_read(fd, n) : -1;
}
int by_recvfrom(int fd, int n) {
    char b[8];
    return recvfrom(fd, b, n, 0, 0, 0) == 1 ? b[0] : -1;
}
int by_ppoll(int fd, int n) {
    struct pollfd p[2] = {{fd, POLLIN}, {-1}};
    return ppoll(p, n / 4, 0, 0) == 1 ? by_read(fd, n) : -1;
}
/* What it reads goes through a file. */
int by_pread(int fd, int n) {
    char b[8];
    int c = by_read(fd, n), file = memfd_create(\"file\", MFD_CLOEXEC);
    b[0] = b[1] = c;
    c = write(file, b, 2) == 2 && pread(file, b, n, 0) == 2 && pread64(file, b + 4, n / 2, 1) == 1
        ? b[4] : -1;
    close(file);
    return c;
}
";

#[test]
fn checked_calls_park() {
    let directory = tempfile::tempdir().unwrap();
    let (source, library) = (directory.path().join("c.c"), directory.path().join("c.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let Ok(compiled) = Command::new("cc")
        .args(["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .status()
    else {
        return eprintln!("skipped: cc is not installed");
    };
    assert!(compiled.success());
    let library = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a library without constructors.
    let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    for name in [c"by_read", c"by_recv", c"by_poll", c"by_recvfrom", c"by_ppoll", c"by_pread"] {
        // SAFETY: the type that the functions of the library have.
        let function = unsafe {
            let function = libc::dlsym(library, name.as_ptr());
            assert!(!function.is_null());
            std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(c_int, c_int) -> c_int>(
                function,
            )
        };
        let runtime = carefree_runtime::Runtime::builder().carriers(1).build().unwrap();
        let got = runtime.run(move || {
            let (one, other) = UnixStream::pair().unwrap();
            // SAFETY: there is room for eight bytes, or two files.
            let getting = carefree_runtime::spawn(move || unsafe { function(one.as_raw_fd(), 8) });
            carefree_runtime::yield_now();
            std::io::Write::write_all(&mut &other, b"x").unwrap();
            getting.join().unwrap()
        });
        assert_eq!(got, c_int::from(b'x'), "{name:?}");
    }
}
