//! Files that are closed, replaced or shut down while fibers wait on them.

use std::ffi::CString;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use carefree::{run, spawn};
use libc::c_int;

use crate::common::*;

/// Reads from `fd` in a fiber of its own, which leaves the file open.
fn reading(fd: c_int) -> carefree::JoinHandle<Result<i64, c_int>> {
    let reading = spawn(move || {
        let mut byte = 0u8;
        // SAFETY: room for a byte.
        checked(unsafe { libc::read(fd, (&raw mut byte).cast(), 1) } as i64)
            .map(|n| n << 8 | i64::from(byte))
    });
    carefree::sleep(MOMENT);
    reading
}

const ONE_BYTE: i64 = 1 << 8;

#[test]
fn a_number_that_is_given_to_another_file_ends_the_reads_of_the_old_one() {
    on_one_carrier(|| {
        let (old, _writer) = UnixStream::pair().unwrap();
        let (new, mut other) = UnixStream::pair().unwrap();
        for replace in [
            // SAFETY: no memory is involved.
            |from, to| unsafe { libc::dup2(from, to) },
            // SAFETY: no memory is involved.
            |from, to| unsafe { libc::dup3(from, to, libc::O_CLOEXEC) },
        ] {
            let waits = reading(old.as_raw_fd());
            assert_eq!(replace(new.as_raw_fd(), old.as_raw_fd()), old.as_raw_fd());
            assert_eq!(waits.join().unwrap(), Err(libc::EBADF));
            let waits = reading(old.as_raw_fd());
            other.write_all(b"x").unwrap();
            assert_eq!(waits.join().unwrap(), Ok(ONE_BYTE | i64::from(b'x')));
        }
    });
}

#[test]
fn a_number_that_cannot_be_given_away_keeps_its_readers() {
    on_one_carrier(|| {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let fd = reader.as_raw_fd();
        let waits = reading(fd);
        // SAFETY: no memory is involved, in each.
        unsafe {
            assert_eq!(checked(libc::dup2(-1, fd)), Err(libc::EBADF));
            assert_eq!(checked(libc::dup2(1 << 20, fd)), Err(libc::EBADF));
            assert_eq!(checked(libc::dup3(-1, fd, 0)), Err(libc::EBADF));
            assert_eq!(checked(libc::dup3(writer.as_raw_fd(), fd, 0x7)), Err(libc::EINVAL));
            assert_eq!(libc::dup2(fd, fd), fd);
            assert_eq!(checked(libc::dup3(fd, fd, 0)), Err(libc::EINVAL));
            assert_eq!(checked(libc::close_range(fd as u32, fd as u32 - 1, 0)), Err(libc::EINVAL));
            assert_eq!(checked(libc::close_range(fd as u32, fd as u32, 0x40)), Err(libc::EINVAL));
        }
        writer.write_all(b"y").unwrap();
        assert_eq!(waits.join().unwrap(), Ok(ONE_BYTE | i64::from(b'y')));
    });
}

#[test]
fn a_range_of_numbers_is_closed() {
    on_one_carrier(|| {
        let (reader, _writer) = UnixStream::pair().unwrap();
        // SAFETY: no memory is involved, and no other file has such a high number.
        let high = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 700) };
        assert!(high >= 700);
        let waits = reading(high);
        // SAFETY: no memory is involved, and no other file has such a high number.
        assert_eq!(unsafe { libc::close_range(high as u32, high as u32, 0) }, 0);
        assert_eq!(waits.join().unwrap(), Err(libc::EBADF));
    });
}

#[test]
fn a_plain_thread_closes_what_a_fiber_waits_on() {
    on_one_carrier(|| {
        for _ in 0..20 {
            let (reader, _writer) = UnixStream::pair().unwrap();
            let fd = reader.into_raw_fd();
            let waits = reading(fd);
            std::thread::spawn(move || {
                // SAFETY: nothing owns it.
                assert_eq!(unsafe { libc::close(fd) }, 0);
            })
            .join()
            .unwrap();
            assert_eq!(waits.join().unwrap(), Err(libc::EBADF));
        }
    });
}

#[test]
fn what_came_before_a_file_is_closed_is_not_lost() {
    // So that the others have begun to wait after a sleep.
    on_one_carrier(|| {
        for _ in 0..20 {
            let (reader, mut writer) = UnixStream::pair().unwrap();
            let waits = reading(reader.as_raw_fd());
            writer.write_all(b"z").unwrap();
            drop(reader);
            assert_eq!(waits.join().unwrap(), Ok(ONE_BYTE | i64::from(b'z')));

            let (reader, _writer) = UnixStream::pair().unwrap();
            let waits = reading(reader.as_raw_fd());
            reader.shutdown(Shutdown::Both).unwrap();
            drop(reader);
            assert_eq!(waits.join().unwrap(), Ok(0));

            // A listener that is shut down ends the calls that wait for a connection.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let fd = listener.as_raw_fd();
            let begins = Arc::new(AtomicBool::new(false));
            let begun = Arc::clone(&begins);
            let accepts = spawn(move || {
                let none = std::ptr::null_mut();
                begins.store(true, Ordering::Release);
                // SAFETY: no address is wanted.
                checked(unsafe { libc::accept(fd, none, none.cast()) })
            });
            while !begun.load(Ordering::Acquire) {
                carefree::yield_now();
            }
            carefree::sleep(MOMENT);
            // SAFETY: no memory is involved.
            assert_eq!(unsafe { libc::shutdown(fd, libc::SHUT_RDWR) }, 0);
            drop(listener);
            assert_eq!(accepts.join().unwrap(), Err(libc::EINVAL));
        }
    });
}

#[test]
fn closing_ends_every_kind_of_wait() {
    on_one_carrier(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap().into_raw_fd();
        let (full, _reader) = UnixStream::pair().unwrap();
        full.set_nonblocking(true).unwrap();
        while (&full).write(&[0; 4096]).is_ok() {}
        full.set_nonblocking(false).unwrap();
        let full = full.into_raw_fd();
        // SAFETY: no memory is involved.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let accepts = spawn(move || {
            // SAFETY: no address is wanted.
            checked(unsafe { libc::accept(listener, std::ptr::null_mut(), std::ptr::null_mut()) })
        });
        let sends = spawn(move || {
            // SAFETY: bytes to send.
            checked(unsafe { libc::send(full, [0u8; 9].as_ptr().cast(), 9, 0) } as i64)
        });
        let waits = spawn(move || {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: room for an event.
            checked(unsafe { libc::epoll_wait(epoll, &raw mut event, 1, -1) })
        });
        carefree::sleep(MOMENT);
        for fd in [listener, full, epoll] {
            // SAFETY: nothing owns them.
            assert_eq!(unsafe { libc::close(fd) }, 0);
        }
        for waits in [accepts, sends, waits] {
            assert_eq!(waits.join().unwrap(), Err(libc::EBADF));
        }
    });
}

#[test]
fn shutting_down_ends_waits() {
    on_one_carrier(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();
        let fd = listener.as_raw_fd();
        let accepts = spawn(move || {
            // SAFETY: no address is wanted.
            checked(unsafe { libc::accept(fd, std::ptr::null_mut(), std::ptr::null_mut()) })
        });
        let reads = reading(client.as_raw_fd());
        let writes = spawn({
            let client = client.try_clone().unwrap();
            move || loop {
                if let Err(error) = (&client).write(&[0; 1 << 16]) {
                    return error.kind();
                }
            }
        });
        carefree::sleep(MOMENT);
        client.shutdown(Shutdown::Both).unwrap();
        assert_eq!(reads.join().unwrap(), Ok(0));
        assert_eq!(writes.join().unwrap(), ErrorKind::BrokenPipe);
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::shutdown(fd, libc::SHUT_RD) }, 0);
        assert_eq!(accepts.join().unwrap(), Err(libc::EINVAL));
    });
}

#[test]
fn nothing_is_lost_or_confused_while_a_number_keeps_changing_its_file() {
    const FILES: usize = 5;
    const ROUNDS: usize = 400;
    run(|| {
        let pairs: Vec<_> = (0..FILES).map(|_| UnixStream::pair().unwrap()).collect();
        let number = pairs[0].0.try_clone().unwrap().into_raw_fd();
        let over = std::sync::Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let over = over.clone();
                spawn(move || {
                    let mut read = [0; FILES];
                    while !over.load(Ordering::SeqCst) {
                        let mut byte = 0u8;
                        // SAFETY: room for a byte.
                        let got = unsafe { libc::read(number, (&raw mut byte).cast(), 1) };
                        match checked(got as i64) {
                            Ok(1) => read[usize::from(byte)] += 1,
                            Ok(0) | Err(libc::EBADF) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    read
                })
            })
            .collect();
        let replace = |index: usize| {
            // SAFETY: no memory is involved, and nothing owns the number.
            let replaced = unsafe { libc::dup2(pairs[index].0.as_raw_fd(), number) };
            assert_eq!(checked(replaced), Ok(i64::from(number)));
        };
        for round in 0..ROUNDS {
            let index = round * 7 % FILES;
            replace(index);
            (&pairs[index].1).write_all(&[index as u8]).unwrap();
            match round % 3 {
                0 => carefree::yield_now(),
                1 => carefree::sleep(std::time::Duration::from_micros(50)),
                _ => {}
            }
        }
        over.store(true, Ordering::SeqCst);
        replace(0);
        let (ended, _) = UnixStream::pair().unwrap();
        // SAFETY: no memory is involved, and nothing owns the number.
        let replaced = unsafe { libc::dup2(ended.as_raw_fd(), number) };
        assert_eq!(checked(replaced), Ok(i64::from(number)));
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        for (index, (reader, writer)) in pairs.into_iter().enumerate() {
            drop(writer);
            let mut left = Vec::new();
            (&reader).read_to_end(&mut left).unwrap();
            assert!(left.iter().all(|byte| usize::from(*byte) == index));
            let got: usize = read.iter().map(|read| read[index]).sum();
            assert_eq!(got + left.len(), ROUNDS / FILES, "of file {index}");
        }
        // SAFETY: no memory is involved, and nothing owns the number.
        unsafe { libc::close(number) };
    });
}

#[test]
fn a_queue_of_connections_is_closed_under_its_waiters() {
    let directory = std::env::temp_dir().join(format!("carefree-queue-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("socket");
    on_one_carrier(move || {
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: no memory is involved. As many as it holds then: one.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let _first = UnixStream::connect(&path).unwrap();
        let connects: Vec<_> = (0..20)
            .map(|_| {
                let path = path.clone();
                spawn(move || {
                    UnixStream::connect(path).map(drop).map_err(|e| e.raw_os_error().unwrap())
                })
            })
            .collect();
        carefree::sleep(MOMENT);
        let mut cancel = connects;
        let stay = cancel.split_off(10);
        cancel.iter().for_each(|fiber| fiber.cancel());
        let late = timed_out(|| UnixStream::connect(&path));
        assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
        for fiber in cancel {
            assert_eq!(fiber.join().unwrap(), Err(libc::ECANCELED));
        }
        stay.iter().for_each(|fiber| assert!(!fiber.is_finished()));
        drop(listener);
        for fiber in stay {
            assert_eq!(fiber.join().unwrap(), Err(libc::ECONNREFUSED));
        }
        std::fs::remove_dir_all(directory).unwrap();
    });
}

/// Runs `f` in a child that shares this process's memory, as after `vfork`, on the child's own copy of `fd`.
fn in_a_vfork(f: fn(c_int) -> c_int, fd: c_int) -> c_int {
    extern "C" fn child(argument: *mut std::ffi::c_void) -> c_int {
        // SAFETY: as given below; the parent waits meanwhile.
        let (f, fd) = unsafe { *argument.cast::<(fn(c_int) -> c_int, c_int)>() };
        f(fd)
    }
    let mut stack = vec![0u128; 8192];
    let mut argument = (f, fd);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let mut status = 0;
    // SAFETY: the child has a stack, and ends before this goes on.
    unsafe {
        let top = stack.as_mut_ptr_range().end;
        let child = libc::clone(child, top.cast(), flags, (&raw mut argument).cast());
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn what_the_child_of_a_vfork_closes_is_not_closed_here() {
    on_one_carrier(|| {
        // SAFETY: no memory is involved.
        let close = |fd| unsafe { libc::close(fd) };
        // SAFETY: no memory is involved.
        let replace = |fd| unsafe { i32::from(libc::dup2(2, fd) != fd) };
        // SAFETY: no memory is involved.
        let close_all = |fd| unsafe { libc::close_range(fd as u32, u32::MAX, 0) };
        for change in [close, replace, close_all] {
            let (reader, mut writer) = UnixStream::pair().unwrap();
            let waits = reading(reader.as_raw_fd());
            assert_eq!(in_a_vfork(change, reader.as_raw_fd()), 0);
            carefree::sleep(MOMENT);
            assert!(!waits.is_finished());
            writer.write_all(b"x").unwrap();
            assert_eq!(waits.join().unwrap(), Ok(ONE_BYTE | i64::from(b'x')));
        }
    });
}

/// However a file is closed, what was noted about it does not apply to the next file of its number.
#[test]
fn streams_and_ranges_are_closed() {
    unsafe extern "C" {
        fn closefrom(first: c_int);
    }
    on_one_carrier(|| {
        let by_stream = |fd: c_int| {
            // SAFETY: a file that the stream owns from here on.
            unsafe { libc::fclose(libc::fdopen(fd, c"r+".as_ptr())) };
        };
        // SAFETY: no file has a number beyond this one's.
        let by_range = |fd: c_int| unsafe { closefrom(fd) };
        let closings: [&dyn Fn(c_int); 2] = [&by_stream, &by_range];
        for close in closings {
            let (old, _writer) = UnixStream::pair().unwrap();
            old.set_read_timeout(Some(MOMENT)).unwrap();
            // The last number that there may be: a range from there on is only this file.
            // SAFETY: there is room for the limits.
            let fd = unsafe {
                let mut limits: libc::rlimit = std::mem::zeroed();
                libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits);
                let last = limits.rlim_cur.min(1 << 20) as c_int - 1;
                libc::fcntl(old.as_raw_fd(), libc::F_DUPFD_CLOEXEC, last)
            };
            assert!(fd > 0);
            assert_eq!(reading(fd).join().unwrap(), Err(libc::EAGAIN));
            old.set_read_timeout(None).unwrap();
            let waits = reading(fd);
            close(fd);
            assert_eq!(waits.join().unwrap(), Err(libc::EBADF));
        }
    });
}

/// Duplicates `fd` to a number that no other test uses.
fn high(fd: c_int) -> c_int {
    static GIVEN: AtomicI32 = AtomicI32::new(1);
    // SAFETY: there is room for the limits; numbers.
    let copy = unsafe {
        let mut limits: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits);
        let last = limits.rlim_cur.min(1 << 20) as c_int - 1;
        let place = last - 8 * GIVEN.fetch_add(1, Ordering::Relaxed);
        libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, place)
    };
    assert!(copy > 0);
    copy
}

/// Gives the number `fd`, which was just closed, to another file by calls that the stand-ins do not see.
fn give(fd: c_int, to: c_int) {
    let arguments = [to as usize, fd as usize, libc::O_CLOEXEC as usize, 0, 0, 0];
    // SAFETY: no memory is involved, and the number is free.
    let given = unsafe { carefree_ground::kernel::call(libc::SYS_dup3, arguments) };
    assert_eq!(given, Ok(fd as usize));
}

/// A file in memory.
fn in_memory() -> OwnedFd {
    // SAFETY: a name, and the file is ours.
    unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"closing".as_ptr(), libc::MFD_CLOEXEC)) }
}

#[test]
fn closing_no_directory_is_an_error() {
    on_one_carrier(|| {
        // SAFETY: libc answers to no directory with an error.
        let closed = unsafe { libc::closedir(std::ptr::null_mut()) };
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((closed, errno), (-1, Some(libc::EINVAL)));
    });
}

/// libc closes files as part of other calls. What was noted about the old file must not be applied to the new
/// one, whose calls wait. (A call on it taken for one on a file in memory would block the carrier for ever.)
#[test]
fn what_libc_closes_is_forgotten() {
    on_one_carrier(|| {
        let by_directory = |fd: c_int| {
            // SAFETY: a directory that the stream owns from here on.
            unsafe { assert_eq!(libc::closedir(libc::fdopendir(fd)), 0) };
        };
        let by_queue = |fd: c_int| {
            // SAFETY: the number of a queue is that of a file, which is closed.
            unsafe { assert_eq!(libc::mq_close(fd), 0) };
        };
        let by_stream = |fd: c_int| {
            // SAFETY: a file that the stream owns from here on, and is closed with its successor.
            unsafe {
                let stream = libc::fdopen(fd, c"r".as_ptr());
                assert!(libc::freopen(c"/none/such".as_ptr(), c"r".as_ptr(), stream).is_null());
            }
        };
        let directory = || std::fs::File::open("/dev/shm").unwrap().into();
        type Closing<'a> = (&'a str, &'a dyn Fn() -> OwnedFd, &'a dyn Fn(c_int));
        let closings: [Closing<'_>; 3] = [
            ("closedir", &directory, &by_directory),
            ("mq_close", &in_memory, &by_queue),
            ("freopen", &in_memory, &by_stream),
        ];
        for (name, old, close) in closings {
            let old = old();
            let fd = high(old.as_raw_fd());
            // This call looks at what kind of file it is.
            // SAFETY: room for a byte.
            let read = unsafe { libc::read(fd, [0u8].as_mut_ptr().cast(), 1) };
            assert!(read <= 0, "{name}");
            close(fd);
            let (reader, writer) = pipe();
            give(fd, reader.as_raw_fd());
            let waits = reading(fd);
            std::fs::File::from(writer).write_all(b"x").unwrap();
            assert_eq!(waits.join().unwrap(), Ok(ONE_BYTE | i64::from(b'x')), "{name}");
            // SAFETY: ours.
            assert_eq!(unsafe { libc::close(fd) }, 0);
        }
    });
}

/// The number stays in use, by a file about which nothing is known yet.
#[test]
fn a_stream_that_is_opened_anew_is_another_file() {
    on_one_carrier(|| {
        let memory = in_memory();
        let fd = high(memory.as_raw_fd());
        // SAFETY: a file that the stream owns from here on.
        let stream = unsafe { libc::fdopen(fd, c"r".as_ptr()) };
        assert_eq!(reading(fd).join().unwrap(), Ok(0));
        let (reader, writer) = pipe();
        let path = format!("/proc/self/fd/{}\0", reader.as_raw_fd());
        // SAFETY: strings, and a stream that is open.
        let again = unsafe { libc::freopen(path.as_ptr().cast(), c"r".as_ptr(), stream) };
        assert_eq!(again, stream);
        // SAFETY: strings, and a stream that is open.
        assert_eq!(unsafe { libc::fileno(stream) }, fd);
        let waits = reading(fd);
        let mut writer = std::fs::File::from(writer);
        writer.write_all(b"x").unwrap();
        assert_eq!(waits.join().unwrap(), Ok(ONE_BYTE | i64::from(b'x')));
        // This, too, ends the waits for the file.
        let waits = reading(fd);
        // SAFETY: strings, and a stream that is open.
        let again = unsafe { libc::freopen(c"/dev/null".as_ptr(), c"r".as_ptr(), stream) };
        assert_eq!(again, stream);
        assert_eq!(waits.join().unwrap(), Err(libc::EBADF));
        // SAFETY: not used after this.
        assert_eq!(unsafe { libc::fclose(stream) }, 0);
    });
}

#[test]
fn closing_a_program_ends_the_reads_of_its_output() {
    let path = std::env::temp_dir().join(format!("carefree-closing-fifo-{}", std::process::id()));
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let fifo = path.clone();
    on_one_carrier(move || {
        // This writes nothing, and ends when the FIFO is closed.
        let command = CString::new(format!("cat '{}'", fifo.display())).unwrap();
        // SAFETY: strings.
        let stream = unsafe { libc::popen(command.as_ptr(), c"re".as_ptr()) };
        assert!(!stream.is_null());
        // SAFETY: it is open.
        let waits = reading(unsafe { libc::fileno(stream) });
        let address = stream as usize;
        // SAFETY: not used after this.
        let closing = spawn(move || unsafe { libc::pclose(address as *mut libc::FILE) });
        assert_eq!(waits.join().unwrap(), Err(libc::EBADF));
        drop(std::fs::OpenOptions::new().write(true).open(fifo).unwrap());
        assert_eq!(closing.join().unwrap(), 0);
    });
    std::fs::remove_file(path).unwrap();
}
