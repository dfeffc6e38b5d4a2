//! `MSG_WAITALL`: receives that want all they ask for.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::Duration;

use carefree::spawn;
use libc::c_int;

use crate::common::*;

/// Peeks for a number of bytes.
const BOTH: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;

fn receive(from: &impl AsRawFd, length: usize, flags: c_int) -> Result<Vec<u8>, c_int> {
    let mut buffer = vec![0u8; length];
    // SAFETY: the buffer has the length that the call is told.
    let got = unsafe { libc::recv(from.as_raw_fd(), buffer.as_mut_ptr().cast(), length, flags) };
    let got = checked(got as i64)?;
    buffer.truncate(got as usize);
    Ok(buffer)
}

/// Writes `first` after a moment, and `second` after another.
fn in_two_parts(mut to: impl Write + Send + 'static, first: &'static [u8], second: &'static [u8]) {
    drop(spawn(move || {
        carefree::sleep(MOMENT);
        to.write_all(first).unwrap();
        carefree::sleep(MOMENT);
        to.write_all(second).unwrap();
        carefree::sleep(MOMENT * 4);
    }));
}

#[test]
fn waitall_gets_all() {
    on_one_carrier(|| {
        let (client, server) = tcp();
        in_two_parts(client, b"abc", b"def");
        assert_eq!(receive(&server, 6, libc::MSG_WAITALL).unwrap(), b"abcdef");
        let (client, server) = UnixStream::pair().unwrap();
        in_two_parts(client, b"abc", b"def");
        // The stream ends before all bytes have come.
        assert_eq!(receive(&server, 9, libc::MSG_WAITALL).unwrap(), b"abcdef");
    });
}

/// `recvmsg` into two buffers.
fn receive_two(fd: c_int, first: usize, second: usize) -> Result<Vec<u8>, c_int> {
    let mut buffers = [vec![0u8; first], vec![0u8; second]];
    let mut vectors =
        [first, second].map(|iov_len| libc::iovec { iov_base: ptr::null_mut(), iov_len });
    for (vector, buffer) in vectors.iter_mut().zip(&mut buffers) {
        vector.iov_base = buffer.as_mut_ptr().cast();
    }
    // SAFETY: zeros are a header without anything; the buffers stay.
    let got = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = 2;
        checked(libc::recvmsg(fd, &raw mut message, libc::MSG_WAITALL) as i64)?
    };
    let mut all = buffers.concat();
    all.truncate(got as usize);
    Ok(all)
}

#[test]
fn a_whole_message_is_received() {
    on_one_carrier(|| {
        let (client, server) = tcp();
        in_two_parts(client, b"abcd", b"efgh");
        assert_eq!(receive_two(server.as_raw_fd(), 3, 5).unwrap(), b"abcdefgh");
        let (mut client, server) = UnixStream::pair().unwrap();
        let fd = server.as_raw_fd();
        in_two_parts(client.try_clone().unwrap(), b"ab", b"cde");
        assert_eq!(receive_two(fd, 1, 4).unwrap(), b"abcde");
        // The call can be cut short, and keeps what has come by then.
        assert_eq!(cancelled(move || receive_two(fd, 2, 2)), Err(libc::ECANCELED));
        client.write_all(b"abc").unwrap();
        let part = carefree::timeout(MOMENT, || receive_two(fd, 2, 2));
        assert_eq!(part.unwrap().unwrap(), b"abc");
        server.set_read_timeout(Some(MOMENT)).unwrap();
        client.write_all(b"d").unwrap();
        assert_eq!(receive_two(fd, 2, 2).unwrap(), b"d");
        assert_eq!(receive_two(fd, 2, 2), Err(libc::EAGAIN));
        server.set_read_timeout(None).unwrap();
        client.write_all(b"ef").unwrap();
        drop(client);
        // When the writers in the background have closed their ends, the stream ends before all bytes have
        // come.
        assert_eq!(receive_two(fd, 2, 2).unwrap(), b"ef");
    });
}

#[test]
fn a_part_of_all_is_not_lost() {
    on_one_carrier(|| {
        let (mut client, server) = tcp();
        client.write_all(b"ab").unwrap();
        server.set_read_timeout(Some(MOMENT)).unwrap();
        assert_eq!(receive(&server, 6, libc::MSG_WAITALL).unwrap(), b"ab");
        assert_eq!(receive(&server, 6, libc::MSG_WAITALL), Err(libc::EAGAIN));
        server.set_read_timeout(None).unwrap();
        client.write_all(b"cd").unwrap();
        let other = server.try_clone().unwrap();
        assert_eq!(cancelled(move || receive(&other, 6, libc::MSG_WAITALL)).unwrap(), b"cd");
        client.write_all(b"ef").unwrap();
        // The call returns that part: for its caller it was not cut short.
        let part = carefree::timeout(MOMENT, || receive(&server, 6, libc::MSG_WAITALL));
        assert_eq!(part.unwrap().unwrap(), b"ef");
    });
}

#[test]
fn peeking_for_all_waits_for_all() {
    on_one_carrier(|| {
        let (client, server) = tcp();
        in_two_parts(client, b"abc", b"def");
        assert_eq!(receive(&server, 6, BOTH).unwrap(), b"abcdef");
        assert_eq!(receive(&server, 7, libc::MSG_PEEK).unwrap(), b"abcdef");
        assert_eq!(receive(&server, 6, libc::MSG_WAITALL).unwrap(), b"abcdef");
    });
}

#[test]
fn a_limit_on_receiving_all_holds_for_the_whole_call() {
    on_one_carrier(|| {
        let (mut client, server) = tcp();
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let drip = spawn(move || {
            for _ in 0..100 {
                carefree::sleep(Duration::from_millis(10));
                client.write_all(b".").unwrap();
            }
        });
        let got = receive(&server, 100, libc::MSG_WAITALL).unwrap().len();
        assert!(got < 60, "{got}");
        server.set_read_timeout(None).unwrap();
        assert_eq!(receive(&server, 100 - got, libc::MSG_WAITALL).unwrap().len(), 100 - got);
        drip.join().unwrap();
    });
}

#[test]
fn messages_are_not_joined_to_make_up_all() {
    on_one_carrier(|| {
        for kind in [libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
            let mut ends = [0; 2];
            // SAFETY: room for two numbers.
            let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
            assert_eq!(made, 0);
            // SAFETY: just made, and owned by nothing else.
            let [one, other] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
            let send = |text: &[u8]| {
                // SAFETY: as many bytes as is said.
                let sent =
                    unsafe { libc::send(other.as_raw_fd(), text.as_ptr().cast(), text.len(), 0) };
                assert_eq!(sent as usize, text.len());
            };
            send(b"ab");
            send(b"cd");
            assert_eq!(receive(&one, 8, libc::MSG_WAITALL).unwrap(), b"ab");
            assert_eq!(receive(&one, 8, BOTH).unwrap(), b"cd");
            assert_eq!(receive(&one, 8, libc::MSG_WAITALL).unwrap(), b"cd");
            // The same if they come later.
            carefree::scope(|s| {
                s.spawn(|| {
                    carefree::sleep(MOMENT);
                    send(b"ef");
                    send(b"gh");
                });
                assert_eq!(receive(&one, 8, libc::MSG_WAITALL).unwrap(), b"ef");
                assert_eq!(receive(&one, 8, libc::MSG_WAITALL).unwrap(), b"gh");
            });
        }
    });
}

#[test]
fn files_go_with_a_message_that_is_waited_for() {
    on_one_carrier(|| {
        let (sender, receiver) = UnixStream::pair().unwrap();
        let (mut passed, mut end) = UnixStream::pair().unwrap();
        drop(spawn(move || {
            carefree::sleep(MOMENT);
            let mut byte = 7u8;
            let mut buffer = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let mut control = [0u64; 4];
            // SAFETY: a message built as the manual has it.
            unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = &raw mut buffer;
                message.msg_iovlen = 1;
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = libc::CMSG_SPACE(4) as _;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(4) as _;
                libc::CMSG_DATA(header).cast::<c_int>().write(passed.as_raw_fd());
                assert_eq!(libc::sendmsg(sender.as_raw_fd(), &raw const message, 0), 1);
            }
            passed.flush().unwrap();
        }));
        let mut byte = 0u8;
        let mut buffer = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut control = [0u64; 4];
        // SAFETY: a message built as the manual has it.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut buffer;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let got = while_another_runs(|| {
                libc::recvmsg(receiver.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC)
            });
            assert_eq!((got, byte), (1, 7));
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!header.is_null());
            let fd = libc::CMSG_DATA(header).cast::<c_int>().read();
            assert_ne!(libc::fcntl(fd, libc::F_GETFD) & libc::FD_CLOEXEC, 0);
            assert_eq!(libc::write(fd, b"!".as_ptr().cast(), 1), 1);
            libc::close(fd);
        }
        let mut text = [0];
        end.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"!");
    });
}

/// Sends `text` with a file.
fn send_with_file(to: &UnixStream, text: &[u8]) {
    let mut buffer = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    let mut control = [0u64; 4];
    // SAFETY: a message built as the manual has it.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut buffer;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write(to.as_raw_fd());
        assert_eq!(libc::sendmsg(to.as_raw_fd(), &raw const message, 0), text.len() as isize);
    }
}

/// A part that a file came with ends a call that wants all, also if the caller has no room for the file.
#[test]
fn a_file_without_room_ends_a_call() {
    type Call = unsafe fn(c_int, *mut libc::mmsghdr) -> i64;
    /// The calls; each leaves the flags of the message in the header.
    const CALLS: [(&str, Call); 4] = [
        // SAFETY: the header is one of a buffer, as is asked of the caller.
        ("recv", |fd, message| unsafe {
            let to = *(*message).msg_hdr.msg_iov;
            libc::recv(fd, to.iov_base, to.iov_len, libc::MSG_WAITALL) as i64
        }),
        // SAFETY: the header is one of a buffer, as is asked of the caller.
        ("recvfrom", |fd, message| unsafe {
            let to = *(*message).msg_hdr.msg_iov;
            let (mut from, mut room) = ([0u8; 110], 110);
            let from = from.as_mut_ptr().cast();
            let (base, length) = (to.iov_base, to.iov_len);
            libc::recvfrom(fd, base, length, libc::MSG_WAITALL, from, &raw mut room) as i64
        }),
        // SAFETY: the header is one of a buffer, as is asked of the caller.
        ("recvmsg", |fd, message| unsafe {
            libc::recvmsg(fd, &raw mut (*message).msg_hdr, libc::MSG_WAITALL) as i64
        }),
        // SAFETY: the header is one of a buffer, as is asked of the caller.
        ("recvmmsg", |fd, message| unsafe {
            match libc::recvmmsg(fd, message, 1, libc::MSG_WAITALL as _, ptr::null_mut()) {
                1 => (*message).msg_len.into(),
                failed => failed.into(),
            }
        }),
    ];
    /// What three calls receive, and their messages' flags.
    fn answers(call: Call, later: bool, tells_sender: bool) -> [(i64, Vec<u8>, c_int); 3] {
        let (sender, receiver) = UnixStream::pair().unwrap();
        if tells_sender {
            let yes: c_int = 1;
            // SAFETY: a number, as the option wants it.
            let set = unsafe {
                let (fd, value) = (receiver.as_raw_fd(), (&raw const yes).cast());
                libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, value, 4)
            };
            assert_eq!(set, 0);
        }
        (&sender).write_all(b"ab").unwrap();
        let rest = move || {
            send_with_file(&sender, b"cd");
            (&sender).write_all(b"ef").unwrap();
            drop(sender);
        };
        carefree::scope(|s| {
            if later {
                s.spawn(move || {
                    carefree::sleep(MOMENT);
                    rest();
                });
            } else {
                rest();
            }
            [(); 3].map(|()| {
                let mut bytes = [0u8; 12];
                let mut buffer = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 12 };
                // SAFETY: zeros are a header without anything; the buffer is there.
                unsafe {
                    let mut message: libc::mmsghdr = std::mem::zeroed();
                    message.msg_hdr.msg_iov = &raw mut buffer;
                    message.msg_hdr.msg_iovlen = 1;
                    let got = call(receiver.as_raw_fd(), &raw mut message);
                    (got, bytes[..got.max(0) as usize].to_vec(), message.msg_hdr.msg_flags)
                }
            })
        })
    }
    for (name, call) in CALLS {
        for later in [false, true] {
            for tells_sender in [false, true] {
                let answers = move || answers(call, later, tells_sender);
                let native = std::thread::spawn(answers).join().unwrap();
                assert_eq!(native.each_ref().map(|(got, ..)| *got), [4, 2, 0], "{name}");
                let told = on_one_carrier(answers);
                assert_eq!(told, native, "{name}, later: {later}, {tells_sender}");
            }
        }
    }
}
