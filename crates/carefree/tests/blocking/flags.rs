//! Flags, time limits and signals of calls that wait.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree::{run, spawn};
use libc::{c_int, c_void};

use crate::common::*;

/// On `AF_UNIX` a time limit on sending is for each part, so a reader that is slow does not end a long write.
#[test]
fn a_limit_on_sending_is_for_each_part() {
    const PART: usize = 200_000;
    const PARTS: usize = 6;
    on_one_carrier(|| {
        let (mut writer, mut reader) = UnixStream::pair().unwrap();
        writer.set_write_timeout(Some(Duration::from_millis(400))).unwrap();
        let reading = spawn(move || {
            for _ in 0..PARTS {
                carefree::sleep(Duration::from_millis(150));
                reader.read_exact(&mut vec![0; PART]).unwrap();
            }
        });
        assert_eq!(writer.write(&vec![7; PART * PARTS]).unwrap(), PART * PARTS);
        reading.join().unwrap();
    });
}

#[test]
fn a_limit_on_sending_holds_for_the_whole_call() {
    on_one_carrier(|| {
        let (client, server) = tcp();
        client.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let reader = spawn({
            let stop = stop.clone();
            move || {
                let mut server = server;
                let mut buffer = vec![0; 1 << 16];
                while !stop.load(Ordering::SeqCst) {
                    carefree::sleep(Duration::from_millis(2));
                    let _ = server.read(&mut buffer);
                }
            }
        });
        let data = vec![0u8; 512 << 20];
        let begun = Instant::now();
        // SAFETY: as many bytes as is said.
        let sent = unsafe { libc::send(client.as_raw_fd(), data.as_ptr().cast(), data.len(), 0) };
        assert!(sent > 0 && (sent as usize) < data.len(), "{sent}");
        // (All of it would take longer than 16 seconds.)
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        stop.store(true, Ordering::SeqCst);
        drop(client);
        reader.join().unwrap();
    });
}

#[test]
fn accepting_and_connecting_have_limits() {
    on_one_carrier(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limit = libc::timeval { tv_sec: 0, tv_usec: 50_000 };
        // SAFETY: a time.
        let set = unsafe {
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const limit).cast(),
                size_of_val(&limit) as u32,
            )
        };
        assert_eq!(set, 0);
        let accepted = while_another_runs(|| listener.accept());
        assert_eq!(accepted.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    });
}

/// A connect that fails because the queue is full leaves nothing under way.
#[test]
fn connecting_to_a_full_queue_has_a_limit() {
    on_one_carrier(|| {
        let name = format!("carefree-full-{}", std::process::id());
        let place = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&place).unwrap();
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let _first = UnixStream::connect_addr(&place).unwrap();
        // SAFETY: a socket of our own; a time and an address that are there.
        let connected = unsafe {
            let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0));
            let limit = libc::timeval { tv_sec: 0, tv_usec: 50_000 };
            let set = libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDTIMEO,
                (&raw const limit).cast(),
                size_of_val(&limit) as u32,
            );
            assert_eq!(set, 0);
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as u16;
            for (to, from) in address.sun_path[1..].iter_mut().zip(name.as_bytes()) {
                *to = *from as _;
            }
            let length = (size_of_val(&address.sun_family) + 1 + name.len()) as u32;
            while_another_runs(|| {
                checked(libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length))
            })
        };
        assert_eq!(connected, Err(libc::EAGAIN));
    });
}

/// A second call waits for the connection that the first has begun, and says so.
#[test]
fn a_connection_that_was_begun_has_a_limit_again() {
    let connect_twice = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        // Then the queue is full, and others are not answered.
        let _first = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // SAFETY: a socket of our own.
        let socket =
            unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)) };
        let limit = libc::timeval { tv_sec: 0, tv_usec: 50_000 };
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        };
        let fd = socket.as_raw_fd();
        let [limit_size, address_size] = [size_of_val(&limit), size_of_val(&address)];
        // SAFETY: a time and its length.
        let set = unsafe {
            let value = (&raw const limit).cast();
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, value, limit_size as u32)
        };
        assert_eq!(set, 0);
        // SAFETY: an address and its length.
        let connect = || unsafe {
            checked(libc::connect(fd, (&raw const address).cast(), address_size as u32))
        };
        [connect(), connect()]
    };
    // Other tests' signals may interrupt it on the thread.
    let undisturbed = || {
        let mut tries = (0..20).map(|_| connect_twice());
        tries.find(|results| !results.contains(&Err(libc::EINTR)))
    };
    assert_eq!(undisturbed(), Some([Err(libc::EINPROGRESS), Err(libc::EALREADY)]));
    on_one_carrier(move || {
        assert_eq!(connect_twice(), [Err(libc::EINPROGRESS), Err(libc::EALREADY)]);
    });
}

/// The first packet cannot carry data yet (there is no cookie), so the call waits for the connection.
#[test]
fn data_goes_with_a_connection_or_after_it() {
    on_one_carrier(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // SAFETY: a socket of our own, data and an address that are there.
        let (socket, sent) = unsafe {
            let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0));
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as u16;
            address.sin_port = port.to_be();
            address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            let sent = libc::sendto(
                socket.as_raw_fd(),
                b"data".as_ptr().cast(),
                4,
                libc::MSG_FASTOPEN,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            );
            (socket, checked(sent as i64))
        };
        assert_eq!(sent, Ok(4));
        let mut data = [0; 4];
        listener.accept().unwrap().0.read_exact(&mut data).unwrap();
        assert_eq!(&data, b"data");
        drop(socket);
    });
}

static BROKEN_PIPES: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_broken_pipe(_: c_int) {
    BROKEN_PIPES.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_broken_pipe_is_signalled_unless_the_caller_does_not_want_it() {
    // SAFETY: a handler that only counts.
    unsafe { libc::signal(libc::SIGPIPE, count_broken_pipe as extern "C" fn(c_int) as usize) };
    on_one_carrier(|| {
        let data = vec![0u8; 1 << 20];
        let count = || BROKEN_PIPES.load(Ordering::SeqCst);
        for (flags, signals) in [(0, 1), (libc::MSG_NOSIGNAL, 0)] {
            let (client, server) = UnixStream::pair().unwrap();
            drop(spawn(move || {
                carefree::sleep(MOMENT);
                drop(server);
            }));
            let before = count();
            let mut sent = Ok(0);
            while sent.is_ok() {
                // SAFETY: as many bytes as is said.
                sent = checked(unsafe {
                    libc::send(
                        client.as_raw_fd(),
                        data.as_ptr().cast::<c_void>(),
                        data.len(),
                        flags,
                    )
                } as i64);
            }
            assert_eq!(sent, Err(libc::EPIPE));
            // Of two calls, the one that has sent a part succeeds without a signal.
            assert_eq!(count() - before, signals, "{flags}");
        }
        let mut ends = [0; 2];
        // SAFETY: room for two numbers.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        drop(spawn(move || {
            carefree::sleep(MOMENT);
            // SAFETY: nothing owns it.
            unsafe { libc::close(ends[0]) }
        }));
        let before = count();
        let mut sent = Ok(0);
        while sent.is_ok() {
            // A whole number of pages, so that no page of the pipe is left half full.
            // SAFETY: as many bytes as is said.
            sent = checked(
                unsafe { libc::write(ends[1], data.as_ptr().cast::<c_void>(), 65536) } as i64
            );
        }
        assert_eq!(sent, Err(libc::EPIPE));
        assert!(count() > before);
        // SAFETY: as many bytes as is said.
        unsafe { libc::close(ends[1]) };
    });
}

#[test]
fn a_datagram_too_long_says_so() {
    on_one_carrier(|| {
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = a.local_addr().unwrap();
        let later = b.try_clone().unwrap();
        drop(spawn(move || {
            carefree::sleep(MOMENT);
            later.send_to(b"0123456789", to).unwrap();
            carefree::sleep(MOMENT);
            later.send_to(b"0123456789", to).unwrap();
        }));
        let mut buffer = [0u8; 4];
        // SAFETY: the buffer has the length that the call is told.
        let got =
            unsafe { libc::recv(a.as_raw_fd(), buffer.as_mut_ptr().cast(), 4, libc::MSG_TRUNC) };
        assert_eq!(got, 10);
        // SAFETY: a message with one buffer and room for an address.
        unsafe {
            let mut buffer = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 4 };
            let mut name: libc::sockaddr_storage = std::mem::zeroed();
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut buffer;
            message.msg_iovlen = 1;
            message.msg_name = (&raw mut name).cast();
            message.msg_namelen = size_of_val(&name) as u32;
            assert_eq!(libc::recvmsg(a.as_raw_fd(), &raw mut message, 0), 4);
            assert_eq!(message.msg_flags & libc::MSG_TRUNC, libc::MSG_TRUNC);
            assert_eq!(message.msg_namelen, size_of::<libc::sockaddr_in>() as u32);
        }
    });
}

#[test]
fn terminals_timers_and_watches_are_waited_for() {
    on_one_carrier(|| {
        // SAFETY: no memory but what is named, and room for it.
        unsafe {
            let (mut main, mut side) = (0, 0);
            let null = ptr::null_mut();
            assert_eq!(
                libc::openpty(&raw mut main, &raw mut side, null, ptr::null(), ptr::null()),
                0
            );
            let write = spawn(move || {
                carefree::sleep(MOMENT * 10);
                assert_eq!(libc::write(main, b"hello\n".as_ptr().cast(), 6), 6);
            });
            let mut line = [0u8; 16];
            let got = while_another_runs(|| libc::read(side, line.as_mut_ptr().cast(), 16));
            assert_eq!((got, &line[..6]), (6, &b"hello\n"[..]));
            write.join().unwrap();
            let mut echo = [0u8; 16];
            assert_eq!(libc::read(main, echo.as_mut_ptr().cast(), 16), 7);
            let end = spawn(move || {
                let mut byte = 0u8;
                checked(libc::read(main, (&raw mut byte).cast(), 1) as i64)
            });
            carefree::sleep(MOMENT);
            libc::close(side);
            assert_eq!(end.join().unwrap(), Err(libc::EIO));
            libc::close(main);

            let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
            let soon = libc::itimerspec {
                it_interval: std::mem::zeroed(),
                it_value: libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 },
            };
            libc::timerfd_settime(timer, 0, &raw const soon, ptr::null_mut());
            let mut count = 0u64;
            let got = while_another_runs(|| libc::read(timer, (&raw mut count).cast(), 8));
            assert_eq!((got, count), (8, 1));
            libc::close(timer);

            let watch = libc::inotify_init1(0);
            let directory =
                std::env::temp_dir().join(format!("carefree-flags-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let path = std::ffi::CString::new(directory.to_str().unwrap()).unwrap();
            assert!(libc::inotify_add_watch(watch, path.as_ptr(), libc::IN_CREATE) > 0);
            let create = spawn({
                let directory = directory.clone();
                move || {
                    carefree::sleep(MOMENT * 10);
                    std::fs::write(directory.join("file"), "").unwrap();
                }
            });
            let mut events = [0u8; 512];
            let got = while_another_runs(|| libc::read(watch, events.as_mut_ptr().cast(), 512));
            assert!(got > 0);
            create.join().unwrap();
            std::fs::remove_dir_all(directory).unwrap();
            libc::close(watch);
        }
    });
}

#[test]
fn the_later_forms_have_flags() {
    run(|| {
        let mut ends = [0; 2];
        let mut byte = 0u8;
        let buffer = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: room for what is said.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            let [from, to] = ends;
            let read = |offset, flags| {
                checked(libc::preadv2(from, &raw const buffer, 1, offset, flags) as i64)
            };
            assert_eq!(read(-1, libc::RWF_NOWAIT), Err(libc::EAGAIN));
            assert_eq!(read(-1, 1 << 30), Err(libc::EOPNOTSUPP));
            assert_eq!(read(0, 0), Err(libc::ESPIPE));
            assert_eq!(
                checked(libc::preadv(from, &raw const buffer, 1, -1) as i64),
                Err(libc::EINVAL)
            );
            assert_eq!(checked(libc::pwrite(to, buffer.iov_base, 1, -1) as i64), Err(libc::EINVAL));
            assert_eq!(checked(libc::readv(from, &raw const buffer, -1) as i64), Err(libc::EINVAL));
            assert_eq!(checked(libc::read(-1, buffer.iov_base, 1) as i64), Err(libc::EBADF));
            assert_eq!(checked(libc::write(from, buffer.iov_base, 1) as i64), Err(libc::EBADF));
            assert_eq!(
                checked(libc::recv(from, buffer.iov_base, 1, 0) as i64),
                Err(libc::ENOTSOCK)
            );
            assert_eq!(checked(libc::read(from, ptr::dangling_mut(), 0) as i64), Ok(0));
            assert_eq!(libc::write(to, b"z".as_ptr().cast(), 1), 1);
            assert_eq!(checked(libc::read(from, 8 as *mut c_void, 1) as i64), Err(libc::EFAULT));
            assert_eq!(read(-1, 0), Ok(1));
            assert_eq!(byte, b'z');
            // The error is reported although there is nothing to read.
            let many = vec![buffer; libc::UIO_MAXIOV as usize + 1];
            let read_many = libc::readv(from, many.as_ptr(), many.len() as c_int);
            assert_eq!(checked(read_many as i64), Err(libc::EINVAL));
            let endless = libc::iovec { iov_len: usize::MAX, ..buffer };
            for _ in 0..6 {
                let read_endless = libc::readv(from, &raw const endless, 1);
                assert_eq!(checked(read_endless as i64), Err(libc::EINVAL));
                let read_endless = libc::read(from, endless.iov_base, endless.iov_len);
                assert_eq!(checked(read_endless as i64), Err(libc::EFAULT));
            }
            libc::close(from);
            libc::close(to);
            let event = libc::eventfd(0, libc::EFD_CLOEXEC);
            assert_eq!(checked(libc::read(event, buffer.iov_base, 1) as i64), Err(libc::EINVAL));
            libc::close(event);
        }
    });
}

#[test]
fn short_writes_to_a_pipe_are_not_mixed() {
    run(|| {
        let mut ends = [0; 2];
        // SAFETY: room for two numbers.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        let [from, to] = ends;
        let writers: Vec<_> = (0..16u8)
            .map(|letter| {
                spawn(move || {
                    let text = [letter; 1000];
                    for _ in 0..40 {
                        // SAFETY: as many bytes as is said.
                        assert_eq!(unsafe { libc::write(to, text.as_ptr().cast(), 1000) }, 1000);
                    }
                })
            })
            .collect();
        let mut all = Vec::new();
        while all.len() < 16 * 40 * 1000 {
            let mut buffer = [0u8; 3000];
            // SAFETY: the buffer has the length that the call is told.
            let got = unsafe { libc::read(from, buffer.as_mut_ptr().cast(), 3000) };
            all.extend_from_slice(&buffer[..got as usize]);
        }
        assert!(all.chunks(1000).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        // SAFETY: nothing owns them.
        unsafe { libc::close(from) };
        // SAFETY: nothing owns them.
        unsafe { libc::close(to) };
    });
}
