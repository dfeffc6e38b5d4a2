//! The rarer names of waiting calls, which C code and other languages use.

use std::ffi::{CStr, c_char, c_void};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::{Duration, Instant};

use carefree::spawn;
use libc::{c_int, epoll_event, hostent, iovec, off_t, servent, socklen_t, timespec};

use crate::common::*;

unsafe extern "C" {
    fn eventfd_read(fd: c_int, count: *mut u64) -> c_int;
    fn eventfd_write(fd: c_int, count: u64) -> c_int;
    fn epoll_pwait2(
        epoll: c_int,
        events: *mut epoll_event,
        count: c_int,
        time: *const timespec,
        mask: *const libc::sigset_t,
    ) -> c_int;
    fn preadv64v2(fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize;
    fn pwritev64v2(fd: c_int, of: *const iovec, count: c_int, offset: off_t, flags: c_int)
    -> isize;
    fn creat64(path: *const c_char, mode: libc::mode_t) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, ...) -> c_int;
    fn lockf64(fd: c_int, command: c_int, length: off_t) -> c_int;
    fn tcdrain(fd: c_int) -> c_int;
    fn gethostbyname(name: *const c_char) -> *mut hostent;
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent;
    fn gethostbyaddr(address: *const c_void, length: socklen_t, family: c_int) -> *mut hostent;
    fn gethostbyname_r(
        name: *const c_char,
        host: *mut hostent,
        buffer: *mut c_char,
        length: usize,
        found: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int;
    fn gethostbyname2_r(
        name: *const c_char,
        family: c_int,
        host: *mut hostent,
        buffer: *mut c_char,
        length: usize,
        found: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int;
    fn gethostbyaddr_r(
        address: *const c_void,
        address_length: socklen_t,
        family: c_int,
        host: *mut hostent,
        buffer: *mut c_char,
        length: usize,
        found: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int;
    fn getservbyname(name: *const c_char, protocol: *const c_char) -> *mut servent;
    fn getservbyport(port: c_int, protocol: *const c_char) -> *mut servent;
    fn __h_errno_location() -> *mut c_int;
}

/// A way to open a path with these flags.
type Open = fn(*const c_char, c_int) -> c_int;

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: a place for two descriptors, which nothing else owns.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

fn file() -> File {
    // SAFETY: a name; nothing else owns the descriptor.
    unsafe { File::from_raw_fd(libc::memfd_create(c"file".as_ptr(), libc::MFD_CLOEXEC)) }
}

/// Has another fiber write a byte after a moment.
fn later(mut to: impl Write + Send + 'static) -> carefree::JoinHandle<()> {
    spawn(move || {
        carefree::sleep(MOMENT);
        to.write_all(b"x").unwrap();
        carefree::sleep(MOMENT);
    })
}

#[test]
fn all_forms_of_epoll_wait() {
    on_one_carrier(|| {
        // SAFETY: descriptors and places that live until the calls return.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
            for form in 0..3 {
                let (near, far) = UnixStream::pair().unwrap();
                let added = libc::epoll_ctl(
                    epoll.as_raw_fd(),
                    libc::EPOLL_CTL_ADD,
                    near.as_raw_fd(),
                    &mut event,
                );
                assert_eq!(added, 0);
                let wait = move |epoll: c_int| {
                    let mut got = epoll_event { events: 0, u64: 0 };
                    let minute = timespec { tv_sec: 60, tv_nsec: 0 };
                    let none = ptr::null();
                    let count = match form {
                        0 => libc::epoll_wait(epoll, &mut got, 1, -1),
                        1 => libc::epoll_pwait(epoll, &mut got, 1, 60_000, none),
                        _ => epoll_pwait2(epoll, &mut got, 1, &minute, none),
                    };
                    (checked(count), { got.u64 })
                };
                let fd = epoll.as_raw_fd();
                assert_eq!(timed_out(|| wait(fd).0), Err(libc::ETIMEDOUT), "{form}");
                assert_eq!(cancelled(move || wait(fd).0), Err(libc::ECANCELED), "{form}");
                let writing = later(far);
                assert_eq!(wait(fd), (Ok(1), 7), "{form}");
                writing.join().unwrap();
            }
        }
    });
}

#[test]
fn all_forms_of_reading_and_writing_at_a_place() {
    on_one_carrier(|| {
        let file = file();
        let fd = file.as_raw_fd();
        let mut text = *b"0123456789";
        let mut place = [0u8; 4];
        let from = iovec { iov_base: text.as_mut_ptr().cast(), iov_len: 10 };
        let to = iovec { iov_base: place.as_mut_ptr().cast(), iov_len: 4 };
        // SAFETY: buffers of these lengths, which live on.
        unsafe {
            let writes = [
                libc::pwrite(fd, from.iov_base, 10, 0),
                libc::pwrite64(fd, from.iov_base, 10, 10),
                libc::pwritev(fd, &from, 1, 20),
                libc::pwritev64(fd, &from, 1, 30),
                libc::pwritev2(fd, &from, 1, 40, 0),
                pwritev64v2(fd, &from, 1, 50, 0),
            ];
            assert_eq!(writes, [10; 6]);
            let reads: [&dyn Fn(off_t) -> isize; 6] = [
                &|at| libc::pread(fd, to.iov_base, 4, at),
                &|at| libc::pread64(fd, to.iov_base, 4, at),
                &|at| libc::preadv(fd, &to, 1, at),
                &|at| libc::preadv64(fd, &to, 1, at),
                &|at| libc::preadv2(fd, &to, 1, at, 0),
                &|at| preadv64v2(fd, &to, 1, at, 0),
            ];
            for (number, read) in reads.iter().enumerate() {
                to.iov_base.cast::<u8>().write_bytes(0, 4);
                assert_eq!(read(10 * number as off_t + 3), 4);
                assert_eq!(to.iov_base.cast::<[u8; 4]>().read(), *b"3456", "{number}");
                assert_eq!(read(60), 0);
            }
            // Without an offset they work on files without a position, and wait.
            for later_form in [false, true] {
                let read: unsafe extern "C" fn(_, _, _, _, _) -> _ =
                    if later_form { preadv64v2 } else { libc::preadv2 };
                let (from, end) = pipe();
                let writing = later(end);
                assert_eq!(read(from.as_raw_fd(), &to, 1, -1, 0), 1);
                assert_eq!(to.iov_base.cast::<u8>().read(), b'x');
                writing.join().unwrap();
            }
            for later_form in [false, true] {
                let write: unsafe extern "C" fn(_, _, _, _, _) -> _ =
                    if later_form { pwritev64v2 } else { libc::pwritev2 };
                const ALL: usize = 300_000;
                let (mut out, end) = pipe();
                let fd = end.into_raw_fd();
                let reading = spawn(move || {
                    let mut all = vec![];
                    out.read_to_end(&mut all).unwrap();
                    all.len()
                });
                let mut much = vec![0u8; ALL];
                let much = iovec { iov_base: much.as_mut_ptr().cast(), iov_len: ALL };
                assert_eq!(write(fd, &much, 1, -1, 0), ALL as isize);
                assert_eq!(libc::close(fd), 0);
                assert_eq!(reading.join().unwrap(), ALL);
            }
        }
    });
}

#[test]
fn all_forms_of_opening_a_fifo() {
    on_one_carrier(|| {
        let name = format!("carefree-variants-{}", std::process::id());
        let path =
            std::ffi::CString::new(std::env::temp_dir().join(name).to_str().unwrap()).unwrap();
        let path: &'static CStr = Box::leak(path.into_boxed_c_str());
        let (reading, writing) = (libc::O_RDONLY, libc::O_WRONLY);
        // SAFETY: a path that stays.
        unsafe {
            assert_eq!(libc::mkfifo(path.as_ptr(), 0o600), 0);
            let pairs: [(Open, Open); 3] = [
                (|path, how| libc::open(path, how), |path, how| libc::open64(path, how)),
                (
                    |path, how| libc::openat(libc::AT_FDCWD, path, how),
                    |path, how| libc::openat64(libc::AT_FDCWD, path, how),
                ),
                (|path, how| libc::open(path, how), |path, _| creat64(path, 0o600)),
            ];
            for (one, other) in pairs {
                // Each open waits for the other end.
                let first = spawn(move || one(path.as_ptr(), reading));
                carefree::sleep(MOMENT);
                let second = other(path.as_ptr(), writing);
                let first = first.join().unwrap();
                assert!(first >= 0 && second >= 0);
                libc::close(first);
                libc::close(second);
            }
            let reader = spawn(move || libc::openat(libc::AT_FDCWD, path.as_ptr(), reading));
            let writer = libc::creat(path.as_ptr(), 0o600);
            let reader = reader.join().unwrap();
            assert!(reader >= 0 && writer >= 0);
            libc::close(reader);
            libc::close(writer);
            libc::unlink(path.as_ptr());
        }
    });
}

#[test]
fn locks_by_their_later_names() {
    on_one_carrier(|| {
        let name = format!("carefree-lockf64-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, [0; 10]).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (one, two) = (open(), open());
        // SAFETY: locks that stay as long as the calls.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_WRLCK as i16;
            assert_eq!(fcntl64(one.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock), 0);
            let fd = one.as_raw_fd();
            let unlocking = spawn(move || {
                carefree::sleep(MOMENT * 4);
                let mut lock: libc::flock = std::mem::zeroed();
                lock.l_type = libc::F_UNLCK as i16;
                fcntl64(fd, libc::F_OFD_SETLK, &raw const lock)
            });
            // A lock of the process conflicts with that of an open file.
            let locked = while_another_runs(|| lockf64(two.as_raw_fd(), libc::F_LOCK, 10));
            assert_eq!((locked, unlocking.join().unwrap()), (0, 0));
            let fd = two.as_raw_fd();
            let unlocking = spawn(move || {
                carefree::sleep(MOMENT * 4);
                lockf64(fd, libc::F_ULOCK, 10)
            });
            let command = libc::F_OFD_SETLKW;
            let locked = while_another_runs(|| fcntl64(one.as_raw_fd(), command, &raw const lock));
            assert_eq!((locked, unlocking.join().unwrap()), (0, 0));
        }
        drop(std::fs::remove_file(&path));
    });
}

#[test]
fn all_ways_to_the_disk() {
    on_one_carrier(|| {
        let name = format!("carefree-disk-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(&[1; 4096]).unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: a page that is mapped until its end.
        unsafe {
            assert_eq!(libc::fsync(fd), 0);
            assert_eq!(libc::fdatasync(fd), 0);
            assert_eq!(libc::syncfs(fd), 0);
            assert_eq!(libc::sync_file_range(fd, 0, 4096, libc::SYNC_FILE_RANGE_WRITE), 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let page = libc::mmap(ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd, 0);
            page.cast::<u8>().write(2);
            assert_eq!(libc::msync(page, 4096, libc::MS_SYNC), 0);
            libc::munmap(page, 4096);
            assert_eq!(checked(libc::syncfs(-1)), Err(libc::EBADF));
            assert_eq!(checked(libc::sync_file_range(-1, 0, 1, 0)), Err(libc::EBADF));
            assert_eq!(checked(libc::msync(ptr::dangling_mut(), 1, 0)), Err(libc::EINVAL));
            libc::sync();
        }
        assert_eq!(std::fs::read(&path).unwrap()[..2], [2, 1]);
        drop(std::fs::remove_file(&path));
    });
}

#[test]
fn sendfile_by_its_later_name() {
    on_one_carrier(|| {
        let mut from = file();
        const ALL: usize = 1 << 20;
        from.write_all(&vec![7; ALL]).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let sending = spawn(move || {
            let mut at = 0;
            let mut sent = 0;
            while sent < ALL {
                // SAFETY: a place for the offset.
                let more = unsafe {
                    libc::sendfile64(near.as_raw_fd(), from.as_raw_fd(), &mut at, ALL - sent)
                };
                assert!(more > 0);
                sent += more as usize;
            }
        });
        let mut got = vec![];
        far.read_to_end(&mut got).unwrap();
        sending.join().unwrap();
        assert!(got.len() == ALL && got.iter().all(|byte| *byte == 7));
    });
}

#[test]
fn a_terminal_is_drained() {
    on_one_carrier(|| {
        let (mut master, mut slave) = (0, 0);
        let none = ptr::null_mut();
        // SAFETY: places for two descriptors.
        unsafe {
            let opened = libc::openpty(&mut master, &mut slave, none, none.cast(), none.cast());
            assert_eq!(opened, 0);
            assert_eq!(libc::write(slave, b"text".as_ptr().cast(), 4), 4);
            assert_eq!(tcdrain(slave), 0);
            let (from, _to) = pipe();
            assert_eq!(checked(tcdrain(from.as_raw_fd())), Err(libc::ENOTTY));
            libc::close(master);
            libc::close(slave);
        }
    });
}

/// With `VMIN` 0, a read of a terminal returns 0 after a while, or at once.
#[test]
fn a_terminal_gives_up() {
    on_one_carrier(|| {
        let (mut master, mut slave) = (0, 0);
        let none = ptr::null_mut();
        // SAFETY: places for two descriptors, a terminal's settings, and data.
        unsafe {
            let opened = libc::openpty(&mut master, &mut slave, none, none.cast(), none.cast());
            assert_eq!(opened, 0);
            let mut settings: libc::termios = std::mem::zeroed();
            libc::tcgetattr(slave, &mut settings);
            libc::cfmakeraw(&mut settings);
            for tenths in [0, 1] {
                settings.c_cc[libc::VMIN] = 0;
                settings.c_cc[libc::VTIME] = tenths;
                assert_eq!(libc::tcsetattr(slave, libc::TCSANOW, &settings), 0);
                let mut buffer = [0u8; 8];
                let mut read = || libc::read(slave, buffer.as_mut_ptr().cast(), 8);
                let begin = Instant::now();
                assert_eq!(if tenths == 0 { read() } else { while_another_runs(&mut read) }, 0);
                assert!(begin.elapsed() >= Duration::from_millis(100 * u64::from(tenths)));
                assert_eq!(libc::write(master, b"text".as_ptr().cast(), 4), 4);
                assert_eq!(read(), 4);
            }
            // The settings are for reads of the slave, not of the master.
            spawn(move || {
                carefree::sleep(MOMENT);
                assert_eq!(libc::write(slave, b"text".as_ptr().cast(), 4), 4);
            });
            let mut buffer = [0u8; 8];
            let read = || libc::read(master, buffer.as_mut_ptr().cast(), 8);
            assert_eq!(while_another_runs(read), 4);
            libc::close(master);
            libc::close(slave);
        }
    });
}

/// A terminal takes a little at a time, and more when that was read.
#[test]
fn a_terminal_is_written_to_as_it_is_read() {
    on_one_carrier(|| {
        let (mut master, mut slave) = (0, 0);
        let none = ptr::null_mut();
        // SAFETY: places for two descriptors.
        unsafe {
            let opened = libc::openpty(&mut master, &mut slave, none, none.cast(), none.cast());
            assert_eq!(opened, 0);
            let (mut from, mut to) = (File::from_raw_fd(master), File::from_raw_fd(slave));
            let reading = spawn(move || {
                let mut text = vec![0; 50_000];
                from.read_exact(&mut text).map(|()| text.iter().all(|byte| *byte == b'x'))
            });
            to.write_all(&[b'x'; 50_000]).unwrap();
            assert!(reading.join().unwrap().unwrap());
        }
    });
}

#[test]
fn counts_by_their_own_functions() {
    on_one_carrier(|| {
        // SAFETY: a file of our own, and places for counts.
        unsafe {
            let counter = OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC));
            let fd = counter.as_raw_fd();
            let mut count = 0;
            spawn(move || {
                carefree::sleep(MOMENT);
                assert_eq!(eventfd_write(fd, 5), 0);
            });
            assert_eq!(while_another_runs(|| eventfd_read(fd, &mut count)), 0);
            assert_eq!(count, 5);
            // As much as it holds: one more write waits.
            assert_eq!(eventfd_write(fd, u64::MAX - 1), 0);
            let reading = spawn(move || {
                carefree::sleep(MOMENT);
                let mut count = 0;
                assert_eq!(eventfd_read(fd, &mut count), 0);
                count
            });
            assert_eq!(while_another_runs(|| eventfd_write(fd, 3)), 0);
            assert_eq!(reading.join().unwrap(), u64::MAX - 1);
            assert_eq!(eventfd_read(fd, &mut count), 0);
            assert_eq!(count, 3);
            assert_eq!(checked(eventfd_write(fd, u64::MAX)), Err(libc::EINVAL));
        }
    });
}

#[test]
fn hosts_and_services_are_looked_up() {
    on_one_carrier(|| {
        let name = c"localhost".as_ptr();
        let loopback = [127u8, 0, 0, 1];
        let first = |host: *const hostent| {
            // SAFETY: from a call that has just found it.
            unsafe {
                ((*host).h_addrtype == libc::AF_INET)
                    .then(|| **(*host).h_addr_list.cast::<*const [u8; 4]>())
            }
        };
        // SAFETY: strings and places for the answers, read before the next call.
        unsafe {
            let family = libc::AF_INET;
            assert_eq!(first(gethostbyname(name)), Some(loopback));
            assert_eq!(first(gethostbyname2(name, family)), Some(loopback));
            let host = gethostbyaddr(loopback.as_ptr().cast(), 4, family);
            assert!(!host.is_null() && *(*host).h_name != 0);

            let mut host: hostent = std::mem::zeroed();
            let mut buffer = [0; 4096];
            let (place, room) = (buffer.as_mut_ptr(), buffer.len());
            let mut found = ptr::null_mut();
            let mut error = 0;
            let failed = gethostbyname_r(name, &mut host, place, room, &mut found, &mut error);
            assert_eq!((failed, first(found)), (0, Some(loopback)));
            let failed =
                gethostbyname2_r(name, family, &mut host, place, room, &mut found, &mut error);
            assert_eq!((failed, first(found)), (0, Some(loopback)));
            let (address, length) = (loopback.as_ptr().cast(), 4);
            let failed = gethostbyaddr_r(
                address, length, family, &mut host, place, room, &mut found, &mut error,
            );
            assert_eq!((failed, found.is_null()), (0, false));

            // The error is reported to the fiber, not to the thread that made the call.
            *__h_errno_location() = 0;
            assert!(gethostbyname(c"no such name.invalid".as_ptr()).is_null());
            assert_ne!(*__h_errno_location(), 0);

            // Not every machine has a list of services, but both calls read the same one.
            let service = getservbyname(c"http".as_ptr(), c"tcp".as_ptr());
            if !service.is_null() {
                let port = (*service).s_port;
                assert_eq!(u16::from_be(port as u16), 80);
                assert!(!getservbyport(port, c"tcp".as_ptr()).is_null());
            }
        }
    });
}
