//! System calls by their numbers, through `syscall`.

use std::io::{Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::{ptr, thread};

use carefree::spawn;
use libc::{c_int, c_long, fd_set, pollfd, siginfo_t, timespec};

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
            // More than fits, so the call waits until some of it is read.
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

/// Calls that receive from a datagram socket.
#[test]
fn every_number_that_receives_waits() {
    on_one_carrier(|| {
        const NUMBERS: [i64; 6] = [
            libc::SYS_read,
            libc::SYS_readv,
            libc::SYS_preadv2,
            libc::SYS_recvfrom,
            libc::SYS_recvmsg,
            libc::SYS_recvmmsg,
        ];
        let null = ptr::null_mut::<u8>();
        for number in NUMBERS {
            let (one, other) = UnixDatagram::pair().unwrap();
            let writing = spawn(move || {
                carefree::sleep(MOMENT);
                other.send(b"x").unwrap();
                other
            });
            let mut byte = 0u8;
            let place = &raw mut byte;
            let mut vector = libc::iovec { iov_base: place.cast(), iov_len: 1 };
            let fd = one.as_raw_fd();
            // SAFETY: the arguments that the manual names; zeros are a header without anything.
            let got = unsafe {
                let mut messages: libc::mmsghdr = mem::zeroed();
                messages.msg_hdr.msg_iov = &raw mut vector;
                messages.msg_hdr.msg_iovlen = 1;
                let header = &raw mut messages.msg_hdr;
                match number {
                    libc::SYS_read => libc::syscall(number, fd, place, 1),
                    libc::SYS_readv => libc::syscall(number, fd, &raw const vector, 1),
                    libc::SYS_preadv2 => {
                        libc::syscall(number, fd, &raw const vector, 1, -1i64, 0, 0)
                    }
                    libc::SYS_recvfrom => libc::syscall(number, fd, place, 1, 0, null, null),
                    libc::SYS_recvmsg => libc::syscall(number, fd, header, 0),
                    _ => libc::syscall(number, fd, &raw mut messages, 1, 0, null),
                }
            };
            assert_eq!((got, byte), (1, b'x'), "number {number}");
            writing.join().unwrap();
        }
    });
}

#[test]
fn every_number_that_sends_waits_for_room() {
    on_one_carrier(|| {
        const NUMBERS: [i64; 6] = [
            libc::SYS_write,
            libc::SYS_writev,
            libc::SYS_pwritev2,
            libc::SYS_sendto,
            libc::SYS_sendmsg,
            libc::SYS_sendmmsg,
        ];
        let null = ptr::null_mut::<u8>();
        for number in NUMBERS {
            let (one, mut other) = UnixStream::pair().unwrap();
            let fd = one.as_raw_fd();
            const ALL: usize = 1 << 20;
            let reading = spawn(move || {
                let mut all = Vec::new();
                other.read_to_end(&mut all).unwrap();
                all.len()
            });
            let mut text = vec![0u8; ALL];
            let place = text.as_mut_ptr();
            let mut vector = libc::iovec { iov_base: place.cast(), iov_len: ALL };
            // SAFETY: the arguments that the manual names; zeros are a header without anything.
            let sent = unsafe {
                let mut messages: libc::mmsghdr = mem::zeroed();
                messages.msg_hdr.msg_iov = &raw mut vector;
                messages.msg_hdr.msg_iovlen = 1;
                let header = &raw mut messages.msg_hdr;
                match number {
                    libc::SYS_write => libc::syscall(number, fd, place, ALL),
                    libc::SYS_writev => libc::syscall(number, fd, &raw const vector, 1),
                    libc::SYS_pwritev2 => {
                        libc::syscall(number, fd, &raw const vector, 1, -1i64, 0, 0)
                    }
                    libc::SYS_sendto => libc::syscall(number, fd, place, ALL, 0, null, 0),
                    libc::SYS_sendmsg => libc::syscall(number, fd, header, 0),
                    _ => libc::syscall(number, fd, &raw mut messages, 1, 0),
                }
            };
            let expected = if number == libc::SYS_sendmmsg { 1 } else { ALL as i64 };
            assert_eq!(sent, expected, "number {number}");
            drop(one);
            assert_eq!(reading.join().unwrap(), ALL);
        }
    });
}

/// Fibers that wait on a descriptor are woken, whichever call replaces the file.
#[test]
fn numbers_that_close() {
    on_one_carrier(|| {
        for close in [libc::SYS_close, libc::SYS_close_range, libc::SYS_dup3] {
            let (one, other) = UnixStream::pair().unwrap();
            let fd = one.into_raw_fd();
            let waits = spawn(move || {
                let mut byte = 0u8;
                // SAFETY: there is room for a byte.
                checked(unsafe { libc::syscall(libc::SYS_read, fd, &raw mut byte, 1) })
            });
            carefree::sleep(MOMENT);
            // SAFETY: nothing owns the number.
            unsafe {
                match close {
                    libc::SYS_close => assert_eq!(libc::syscall(close, fd), 0),
                    libc::SYS_close_range => assert_eq!(libc::syscall(close, fd, fd, 0), 0),
                    _ => {
                        let flags = libc::O_CLOEXEC;
                        let given = libc::syscall(close, other.as_raw_fd(), fd, flags);
                        assert_eq!(given, i64::from(fd));
                        libc::syscall(libc::SYS_close, fd);
                    }
                }
            }
            assert_eq!(waits.join().unwrap(), Err(libc::EBADF), "number {close}");
        }
    });
}

/// By its number, a call that waits says how much time is left. The functions do not.
#[test]
fn the_time_that_is_left_is_told() {
    type Wait = unsafe fn(*mut pollfd, *mut fd_set, *mut timespec) -> c_long;
    const WAITS: [(&str, Wait); 4] = [
        // SAFETY: what the manual asks for is there, as is asked of the caller.
        ("SYS_ppoll", |file, _, time| unsafe {
            libc::syscall(libc::SYS_ppoll, file, 1, time, ptr::null::<u8>(), 8)
        }),
        // SAFETY: what the manual asks for is there, as is asked of the caller.
        ("SYS_pselect6", |file, set, time| unsafe {
            let (most, null, mask) = ((*file).fd + 1, ptr::null::<u8>(), [0usize, 8]);
            libc::syscall(libc::SYS_pselect6, most, set, null, null, time, &raw const mask)
        }),
        // SAFETY: what the manual asks for is there, as is asked of the caller.
        ("ppoll", |file, _, time| unsafe { libc::ppoll(file, 1, time, ptr::null()).into() }),
        // SAFETY: what the manual asks for is there, as is asked of the caller.
        ("pselect", |file, set, time| unsafe {
            let (most, null) = ((*file).fd + 1, ptr::null_mut());
            libc::pselect(most, set, null, null, time, ptr::null()).into()
        }),
    ];
    /// What a call answers; whether the time is as before, and is over.
    fn answer(wait: Wait, has_news: bool, given: [i64; 2]) -> (Result<i64, c_int>, bool, bool) {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        if has_news {
            writer.write_all(b"x").unwrap();
        }
        let mut file = pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut time = timespec { tv_sec: given[0] as _, tv_nsec: given[1] as _ };
        // SAFETY: a file, a set that has it and a time, which are there.
        let answer = unsafe {
            let mut set: fd_set = mem::zeroed();
            libc::FD_SET(file.fd, &raw mut set);
            checked(wait(&raw mut file, &raw mut set, &raw mut time))
        };
        let time = [time.tv_sec, time.tv_nsec];
        (answer, time == given, time == [0, 0])
    }
    for (name, wait) in WAITS {
        for (has_news, time) in
            [(false, [0, 1_000_000]), (true, [1000, 0]), (true, [0, 0]), (false, [0, -1])]
        {
            let native = thread::spawn(move || answer(wait, has_news, time)).join().unwrap();
            let told = on_one_carrier(move || answer(wait, has_news, time));
            assert_eq!(told, native, "{name} {has_news} {time:?}");
        }
    }
}
