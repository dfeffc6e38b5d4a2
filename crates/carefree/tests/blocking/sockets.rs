//! `std::net` and `std::os::unix::net`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree::{run, scope, spawn};

use crate::common::{checked, on_one_carrier, while_another_runs};

/// Longer than any call in these tests takes.
const LONG: Duration = Duration::from_secs(60);

/// Each fiber gets one byte, whichever others are cancelled before its turn.
#[test]
fn a_crowd_reads_one_socket() {
    // Calls that a ring has woken in vain a hundred times get a thread of the kernel's each.
    let over_epoll = std::env::var("CAREFREE_REACTOR").is_ok_and(|reactor| reactor == "epoll");
    let many = if over_epoll { 2_000 } else { 100 };
    run(|| {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let reader = Arc::new(reader);
        let crowd: Vec<_> = (0..many)
            .map(|_| {
                let reader = reader.clone();
                spawn(move || (&*reader).read(&mut [0]).is_ok_and(|read| read == 1))
            })
            .collect();
        carefree::sleep(Duration::from_millis(5));
        // Few, so that the writer need not wait for bytes that no fiber reads.
        for cancelled in crowd.iter().step_by(50) {
            cancelled.cancel();
        }
        for _ in 0..many {
            writer.write_all(b"x").unwrap();
            carefree::yield_now();
        }
        // The rest is not read.
        drop(writer);
        let mut served = 0;
        for (number, fiber) in crowd.into_iter().enumerate() {
            let read = fiber.join().unwrap();
            assert!(read || number % 50 == 0, "{number} was given nothing");
            served += usize::from(read);
        }
        let mut left = Vec::new();
        (&*reader).read_to_end(&mut left).unwrap();
        assert_eq!(served + left.len(), many);
    });
}

#[test]
fn hundreds_of_connections_echo_at_once() {
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        const CONNECTIONS: usize = 300;
        let alive = AtomicUsize::new(0);
        scope(|s| {
            s.spawn(|| {
                for _ in 0..CONNECTIONS {
                    let (mut stream, _) = listener.accept().unwrap();
                    spawn(move || {
                        let mut buffer = [0; 64];
                        loop {
                            match stream.read(&mut buffer).unwrap() {
                                0 => return,
                                n => stream.write_all(&buffer[..n]).unwrap(),
                            }
                        }
                    });
                }
            });
            for number in 0..CONNECTIONS {
                let alive = &alive;
                s.spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    // All fibers wait here at the same time, and there are more of them than carriers.
                    alive.fetch_add(1, Ordering::SeqCst);
                    while alive.load(Ordering::SeqCst) < CONNECTIONS {
                        carefree::yield_now();
                    }
                    for round in 0..5 {
                        let text = format!("{number} {round}");
                        stream.write_all(text.as_bytes()).unwrap();
                        let mut answer = vec![0; text.len()];
                        stream.read_exact(&mut answer).unwrap();
                        assert_eq!(answer, text.as_bytes());
                    }
                });
            }
        });
    });
}

#[test]
fn a_reader_waits_for_a_writer_on_the_same_carrier() {
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        let reading = spawn(move || {
            let mut buffer = [0; 5];
            reader.read_exact(&mut buffer).unwrap();
            buffer
        });
        carefree::sleep(Duration::from_millis(5));
        writer.write_all(b"hel").unwrap();
        carefree::sleep(Duration::from_millis(5));
        writer.write_all(b"lo").unwrap();
        assert_eq!(&reading.join().unwrap(), b"hello");
    });
}

#[test]
fn a_write_that_does_not_fit_goes_on_as_it_is_read() {
    run(|| {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        let text: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
        let sent = text.clone();
        let writing = spawn(move || writer.write(&sent).unwrap());
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(writing.join().unwrap(), text.len());
        assert!(got == text);
    });
}

#[test]
fn time_limits_of_a_socket_end_a_read() {
    run(|| {
        let (reader, _writer) = UnixStream::pair().unwrap();
        let other = reader.try_clone().unwrap();
        other.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let begun = Instant::now();
        let error = (&reader).read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(begun.elapsed() >= Duration::from_millis(20));
    });
}

#[test]
fn a_nonblocking_socket_does_not_wait() {
    run(|| {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        for _ in 0..40 {
            assert_eq!(reader.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        writer.write_all(b"x").unwrap();
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        // And back.
        reader.set_nonblocking(false).unwrap();
        let reading = spawn(move || reader.read(&mut [0; 8]).unwrap());
        carefree::sleep(Duration::from_millis(5));
        writer.write_all(b"yz").unwrap();
        assert_eq!(reading.join().unwrap(), 2);
    });
}

#[test]
fn cancellation_reaches_into_a_read() {
    run(|| {
        let (mut reader, _writer) = UnixStream::pair().unwrap();
        let reading = spawn(move || reader.read(&mut [0; 8]));
        carefree::sleep(Duration::from_millis(5));
        reading.cancel();
        let error = reading.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    });
}

#[test]
fn a_timeout_reaches_into_an_accept() {
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut error = None;
        let limited = carefree::timeout(Duration::from_millis(20), || {
            error = listener.accept().err();
        });
        assert!(limited.is_err());
        assert_eq!(error.unwrap().kind(), ErrorKind::TimedOut);
        // The cut call leaves nothing behind: the listener works.
        let client = spawn({
            let address = listener.local_addr().unwrap();
            move || TcpStream::connect(address).unwrap()
        });
        listener.accept().unwrap();
        client.join().unwrap();
    });
}

#[test]
fn what_was_read_is_not_lost_to_a_timeout() {
    run(|| {
        // Again and again, the data arrives about when the limit is reached.
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        const BYTES: usize = 200;
        let writing = spawn(move || {
            for byte in 0..BYTES {
                carefree::sleep(Duration::from_micros(500));
                writer.write_all(&[byte as u8]).unwrap();
            }
        });
        let mut got = Vec::new();
        while got.len() < BYTES {
            let mut byte = [0];
            let limit = Duration::from_micros(450);
            let mut read = Err(ErrorKind::Other.into());
            let _ = carefree::timeout(limit, || read = reader.read(&mut byte));
            if let Ok(1) = read {
                got.push(byte[0]);
            }
        }
        writing.join().unwrap();
        assert!(got.iter().enumerate().all(|(i, byte)| i as u8 == *byte), "{got:?}");
    });
}

#[test]
fn closing_ends_the_reads_of_others_and_the_number_starts_anew() {
    // On one carrier, so that after some yields the reader waits.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        for _ in 0..50 {
            let (mut reader, _writer) = UnixStream::pair().unwrap();
            let fd = reader.as_raw_fd();
            let reading = spawn(move || {
                let result = reader.read(&mut [0; 8]).map_err(|e| e.raw_os_error());
                std::mem::forget(reader);
                result
            });
            for _ in 0..3 {
                carefree::yield_now();
            }
            // SAFETY: the reader forgets it.
            assert_eq!(unsafe { libc::close(fd) }, 0);
            let (mut next, mut other) = UnixStream::pair().unwrap();
            other.write_all(b"new").unwrap();
            assert_eq!(reading.join().unwrap(), Err(Some(libc::EBADF)));
            let mut text = [0; 3];
            next.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"new");
        }
    });
}

#[test]
fn end_of_file_and_reset_are_seen() {
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let reading = spawn(move || {
            let end = server.read(&mut [0; 8]).unwrap();
            (server, end)
        });
        carefree::sleep(Duration::from_millis(2));
        client.shutdown(Shutdown::Write).unwrap();
        let (mut server, end) = reading.join().unwrap();
        assert_eq!(end, 0);
        // Half-closed: the other direction still works.
        server.write_all(b"bye").unwrap();
        let mut text = [0; 3];
        client.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"bye");
        // Closed with unread data: a reset.
        server.write_all(b"unread").unwrap();
        carefree::sleep(Duration::from_millis(2));
        let reading = spawn(move || server.read(&mut [0; 8]).map_err(|e| e.kind()));
        drop(client);
        let reset = reading.join().unwrap();
        assert!(matches!(reset, Ok(0) | Err(ErrorKind::ConnectionReset)), "{reset:?}");
    });
}

#[test]
fn datagrams_say_where_they_come_from() {
    run(|| {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        let two = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = one.local_addr().unwrap();
        let from = two.local_addr().unwrap();
        let receiving = spawn(move || {
            let mut buffer = [0; 16];
            let (length, address) = one.recv_from(&mut buffer).unwrap();
            (buffer[..length].to_vec(), address)
        });
        carefree::sleep(Duration::from_millis(5));
        two.send_to(b"datagram", to).unwrap();
        assert_eq!(receiving.join().unwrap(), (b"datagram".to_vec(), from));
    });
}

#[test]
fn a_refused_connection_is_an_error() {
    run(|| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(TcpStream::connect(port).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert!(TcpStream::connect_timeout(&port, LONG).is_err());
    });
}

#[test]
fn threads_and_fibers_talk_to_each_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(text.to_uppercase().as_bytes()).unwrap();
    });
    let answer = run(|| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"thread").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    server.join().unwrap();
    assert_eq!(answer, "THREAD");
}

#[test]
fn a_forked_child_closes_what_its_parents_fibers_wait_on() {
    run(|| {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        let fd = reader.as_raw_fd();
        let reading = spawn(move || reader.read(&mut [0; 8]).unwrap());
        carefree::sleep(Duration::from_millis(5));
        // SAFETY: the child makes system calls only.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                libc::_exit(if libc::dup2(1, fd) == fd && libc::close(fd) == 0 { 7 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
        // The parent's fiber has not noticed.
        writer.write_all(b"yes").unwrap();
        assert_eq!(reading.join().unwrap(), 3);
    });
}

unsafe extern "C" {
    fn fesetround(round: i32) -> i32;
    fn fegetround() -> i32;
}
#[cfg(target_arch = "x86_64")]
const UPWARD: i32 = 0x800;
#[cfg(target_arch = "aarch64")]
const UPWARD: i32 = 0x40_0000;

/// Calls `wait` with results rounded upward, as C code may; returns how they are rounded after it.
fn round_upward<R>(wait: impl FnOnce() -> R) -> (R, i32) {
    // SAFETY: no floating-point code runs until the mode is set back.
    unsafe { fesetround(UPWARD) };
    let result = wait();
    // SAFETY: as before.
    (result, unsafe { (fegetround(), fesetround(0)).0 })
}

/// C code may change the rounding mode and then wait.
#[test]
fn rounding_is_a_fibers_own() {
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        let reading = spawn(move || {
            let (read, round) = round_upward(|| reader.read(&mut [0; 8]));
            (read.unwrap(), round)
        });
        carefree::sleep(Duration::from_millis(5));
        // SAFETY: only reads it.
        assert_eq!(unsafe { fegetround() }, 0);
        writer.write_all(b"x").unwrap();
        assert_eq!(reading.join().unwrap(), (1, UPWARD));
    });
}

/// The same of a wait for a word, which takes a shorter way from the second one on. The waker goes on from a wait
/// itself.
#[test]
fn rounding_is_a_fibers_own_where_it_waits_for_a_word() {
    const ROUNDS: u32 = 5;
    static WORD: AtomicU32 = AtomicU32::new(0);
    fn futex(operation: i32, value: u32) {
        let none = std::ptr::null::<libc::timespec>();
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: a word that is always there, and no time.
        unsafe { libc::syscall(libc::SYS_futex, WORD.as_ptr(), operation, value, none, 0, !0u32) };
    }
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let waiting = spawn(|| {
            for round in 0..ROUNDS {
                let ((), rounded) = round_upward(|| {
                    while WORD.load(Ordering::SeqCst) == round {
                        futex(libc::FUTEX_WAIT_BITSET, round);
                    }
                });
                assert_eq!(rounded, UPWARD);
            }
        });
        for round in 1..=ROUNDS {
            carefree::sleep(Duration::from_millis(2));
            // SAFETY: only reads it.
            assert_eq!(unsafe { fegetround() }, 0);
            WORD.store(round, Ordering::SeqCst);
            futex(libc::FUTEX_WAKE, 1);
        }
        waiting.join().unwrap();
    });
}

#[test]
fn datagrams_wait_for_room_and_arrive_whole() {
    run(|| {
        let path = std::env::temp_dir().join(format!("carefree-datagrams-{}", std::process::id()));
        let receiver = UnixDatagram::bind(&path).unwrap();
        // More than a queue holds, to a receiver named in each call, and to a connected one.
        let named = UnixDatagram::unbound().unwrap();
        let connected = UnixDatagram::unbound().unwrap();
        connected.connect(&path).unwrap();
        const EACH: usize = 150;
        let sending = [
            spawn({
                let path = path.clone();
                move || {
                    for size in 1..=EACH {
                        assert_eq!(named.send_to(&vec![1; size], &path).unwrap(), size);
                    }
                }
            }),
            spawn(move || {
                for size in 1..=EACH {
                    assert_eq!(connected.send(&vec![2; size]).unwrap(), size);
                }
            }),
        ];
        let mut next = [1, 1];
        for _ in 0..2 * EACH {
            let mut buffer = [0; 200];
            let size = receiver.recv(&mut buffer).unwrap();
            let from = usize::from(buffer[0]) - 1;
            assert_eq!(size, next[from]);
            next[from] += 1;
        }
        for fiber in sending {
            fiber.join().unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    });
}

/// `write` of no bytes, too.
#[test]
fn an_empty_message_is_one() {
    run(|| {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        one.connect(one.local_addr().unwrap()).unwrap();
        one.set_read_timeout(Some(LONG)).unwrap();
        // SAFETY: no byte is read.
        assert_eq!(unsafe { libc::write(one.as_raw_fd(), std::ptr::null(), 0) }, 0);
        assert_eq!(one.recv(&mut [0; 4]).unwrap(), 0);
    });
}

/// A socket of `AF_VSOCK`, of which a connection is given up after a tenth of a second.
fn virtual_socket() -> Result<OwnedFd, i32> {
    const CONNECT_TIMEOUT: libc::c_int = 6;
    let limit = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
    // SAFETY: the number is that of a new socket, which nothing else has; a time that lives until the call returns.
    unsafe {
        let fd = checked(libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0))?;
        let socket = OwnedFd::from_raw_fd(fd as i32);
        let (given, length) = ((&raw const limit).cast(), size_of_val(&limit) as libc::socklen_t);
        checked(libc::setsockopt(fd as i32, libc::AF_VSOCK, CONNECT_TIMEOUT, given, length))?;
        Ok(socket)
    }
}

/// `bind` or `connect`.
type WithAddress =
    unsafe extern "C" fn(libc::c_int, *const libc::sockaddr, libc::socklen_t) -> libc::c_int;

/// Binds to a port of a machine, or connects with it.
fn at_port(call: WithAddress, socket: &OwnedFd, machine: u32) -> Result<i64, i32> {
    // SAFETY: plain old data; an address that lives until the call returns.
    unsafe {
        let mut address: libc::sockaddr_vm = std::mem::zeroed();
        address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
        address.svm_port = 5_555;
        address.svm_cid = machine;
        let length = size_of_val(&address) as libc::socklen_t;
        checked(call(socket.as_raw_fd(), (&raw const address).cast(), length))
    }
}

/// A machine that is not there does not answer.
#[test]
fn a_virtual_machine_that_does_not_answer_is_given_up() {
    const NOWHERE: u32 = 79;
    let connect = || at_port(libc::connect, &virtual_socket()?, NOWHERE);
    let natively = std::thread::spawn(connect).join().unwrap();
    if natively != Err(libc::ETIMEDOUT) {
        return eprintln!("skipped: a connection of AF_VSOCK is not given up, but {natively:?}");
    }
    on_one_carrier(move || {
        assert_eq!(while_another_runs(connect), natively);
        let socket = virtual_socket().unwrap();
        // It can try again.
        for _ in 0..2 {
            assert_eq!(at_port(libc::connect, &socket, NOWHERE), natively);
        }
    });
}

#[test]
fn a_machine_connects_to_itself() {
    const SELF: u32 = libc::VMADDR_CID_LOCAL;
    let listener = virtual_socket().and_then(|socket| {
        at_port(libc::bind, &socket, SELF)?;
        // SAFETY: no memory is involved.
        checked(unsafe { libc::listen(socket.as_raw_fd(), 5) })?;
        Ok(socket)
    });
    let listener = match listener {
        Ok(listener) => listener,
        Err(errno) => return eprintln!("skipped: no AF_VSOCK within this machine ({errno})"),
    };
    run(move || {
        let client = spawn(|| at_port(libc::connect, &virtual_socket()?, SELF));
        // SAFETY: neither address nor length is asked for.
        let accepted = unsafe {
            libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut())
        };
        assert_eq!(client.join().unwrap(), Ok(0));
        // SAFETY: nothing else has the number.
        drop(unsafe { OwnedFd::from_raw_fd(accepted) });
    });
}

/// A shutdown ends a wait for messages also on an unconnected socket.
#[test]
fn a_shutdown_ends_a_wait_for_messages() {
    run(|| {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let theirs = socket.clone();
        // Not `UdpSocket::recv_from`, which would look at an address that the kernel has not written.
        let receiving = spawn(move || {
            let mut length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            // SAFETY: room for four bytes and an address.
            let received = unsafe {
                let mut from: libc::sockaddr_in = std::mem::zeroed();
                libc::recvfrom(
                    theirs.as_raw_fd(),
                    [0u8; 4].as_mut_ptr().cast(),
                    4,
                    0,
                    (&raw mut from).cast(),
                    &raw mut length,
                )
            };
            (received, length)
        });
        let theirs = socket.clone();
        // For the first of these calls, the file is not noted as a socket yet.
        let reading = spawn(move || {
            // SAFETY: room for four bytes.
            unsafe { libc::read(theirs.as_raw_fd(), [0u8; 4].as_mut_ptr().cast(), 4) }
        });
        carefree::sleep(Duration::from_millis(5));
        // SAFETY: no memory is involved. It fails, for there is no connection, and takes effect.
        unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
        assert_eq!(reading.join().unwrap(), 0);
        assert_eq!(receiving.join().unwrap(), (0, 0), "no bytes, and no address");
    });
}

#[test]
fn accepting_on_a_socket_that_does_not_listen_fails() {
    run(|| {
        let messages = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (pair, _other) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let accept = |fd: &dyn AsRawFd| {
            let none = std::ptr::null_mut();
            // SAFETY: no address is asked for.
            let accepted = unsafe { libc::accept(fd.as_raw_fd(), none, none.cast()) };
            assert_eq!(accepted, -1);
            std::io::Error::last_os_error().raw_os_error()
        };
        // The second round is after a fork: over epoll, a listener that other processes may share is treated
        // differently.
        for _ in 0..2 {
            assert_eq!(accept(&messages), Some(libc::EOPNOTSUPP));
            assert_eq!(accept(&pair), Some(libc::EINVAL));
            assert_eq!(accept(&file), Some(libc::ENOTSOCK));
            // SAFETY: the child ends at once.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(0);
                }
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
    });
}
