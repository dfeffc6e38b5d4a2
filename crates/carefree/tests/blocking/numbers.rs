//! System calls by their numbers, through `syscall`.

use std::io::{Read, Write};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr;

use carefree::spawn;
use libc::{c_int, fd_set, siginfo_t, timespec};

use crate::common::*;
use crate::processes::child;

#[test]
fn they_wait_as_the_functions_do() {
    on_one_carrier(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let fd = one.as_raw_fd();
        let null = ptr::null_mut::<u8>();
        // SAFETY: the arguments that the manual names, all valid.
        unsafe {
            let mut read: fd_set = mem::zeroed();
            libc::FD_SET(fd, &raw mut read);
            let writing = spawn(move || {
                carefree::sleep(MOMENT);
                other.write_all(b"x").unwrap();
                other
            });
            let mask = [0usize, 8];
            let sets = [&raw mut read, ptr::null_mut(), ptr::null_mut()];
            let selected =
                libc::syscall(libc::SYS_pselect6, fd + 1, sets[0], sets[1], sets[2], null, &mask);
            assert_eq!(selected, 1);
            one.read_exact(&mut [0]).unwrap();
            let mut other = writing.join().unwrap();

            let child = child("sleep 0.05; exit 3");
            let mut info: siginfo_t = mem::zeroed();
            let waited = while_another_runs(|| {
                let (kind, id) = (libc::P_PID, child);
                libc::syscall(libc::SYS_waitid, kind, id, &raw mut info, libc::WEXITED, null)
            });
            assert_eq!((waited, info.si_status()), (0, 3));

            let time = timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let slept = while_another_runs(|| libc::syscall(libc::SYS_nanosleep, &time, null));
            assert_eq!(slept, 0);
            let wrong = timespec { tv_sec: 0, tv_nsec: -1 };
            let clock = libc::CLOCK_MONOTONIC;
            let slept = libc::syscall(libc::SYS_clock_nanosleep, clock, 0, &wrong, null);
            assert_eq!(checked(slept), Err(libc::EINVAL));

            let path = c"/proc/self/exe".as_ptr();
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags) as c_int;
            assert!(file >= 0);
            // More than fits: until it is read.
            let sending = spawn(move || {
                libc::syscall(libc::SYS_sendfile, fd, file, ptr::null_mut::<u8>(), 1_000_000)
            });
            let mut got = vec![0; 1_000_000];
            other.read_exact(&mut got).unwrap();
            assert_eq!(sending.join().unwrap(), 1_000_000);
            assert!(got[..] == std::fs::read("/proc/self/exe").unwrap()[..1_000_000]);
            assert_eq!(libc::syscall(libc::SYS_close, file), 0);

            let read = move || {
                let mut byte = 0u8;
                checked(libc::syscall(libc::SYS_read, fd, &raw mut byte, 1))
            };
            assert_eq!(timed_out(read), Err(libc::ETIMEDOUT));
        }
    });
}
