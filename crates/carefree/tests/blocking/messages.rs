//! `recvmmsg` and `sendmmsg`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::{mem, ptr, thread};

use carefree::{run, spawn};
use libc::{c_int, iovec, mmsghdr, timespec};

use crate::common::*;

/// Messages with room for 16 bytes each.
struct Messages {
    buffers: Vec<[u8; 16]>,
    vectors: Vec<iovec>,
    headers: Vec<mmsghdr>,
}

impl Messages {
    fn new(count: usize) -> Messages {
        let mut buffers = vec![[0u8; 16]; count];
        let mut vectors: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 16 })
            .collect();
        let headers = vectors.iter_mut().map(|vector| {
            // SAFETY: zeros are a header without anything.
            let mut header: mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header
        });
        let headers = headers.collect();
        Messages { buffers, vectors, headers }
    }

    fn of(texts: &[&str]) -> Messages {
        let mut messages = Messages::new(texts.len());
        for (index, text) in texts.iter().enumerate() {
            messages.buffers[index][..text.len()].copy_from_slice(text.as_bytes());
            messages.vectors[index].iov_len = text.len();
        }
        messages
    }

    fn receive(&mut self, fd: c_int, flags: c_int, time: *mut timespec) -> Result<i64, c_int> {
        let count = self.headers.len() as u32;
        // SAFETY: the array has as many messages as the call is told.
        checked(unsafe { libc::recvmmsg(fd, self.headers.as_mut_ptr(), count, flags as _, time) })
    }

    fn send(&mut self, fd: c_int, flags: c_int) -> Result<i64, c_int> {
        let count = self.headers.len() as u32;
        // SAFETY: the array has as many messages as the call is told.
        checked(unsafe { libc::sendmmsg(fd, self.headers.as_mut_ptr(), count, flags as _) })
    }

    fn texts(&self, count: usize) -> Vec<String> {
        let text = |index: usize| {
            let length = self.headers[index].msg_len as usize;
            String::from_utf8(self.buffers[index][..length].to_vec()).unwrap()
        };
        (0..count).map(text).collect()
    }
}

#[test]
fn several_messages_are_waited_for() {
    on_one_carrier(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let fd = one.as_raw_fd();
        let receiving = spawn(move || {
            let mut messages = Messages::new(4);
            let got = messages.receive(fd, 0, ptr::null_mut());
            (got, messages.texts(4))
        });
        for text in ["a", "bb", "ccc", "dddd", "left"] {
            carefree::sleep(MOMENT / 5);
            other.send(text.as_bytes()).unwrap();
        }
        let texts = ["a", "bb", "ccc", "dddd"].map(String::from).to_vec();
        assert_eq!(receiving.join().unwrap(), (Ok(4), texts));
        let mut messages = Messages::new(4);
        assert_eq!(messages.receive(fd, libc::MSG_WAITFORONE, ptr::null_mut()), Ok(1));
        assert_eq!(messages.texts(1), ["left"]);
    });
}

#[test]
fn wait_for_one_waits_for_one() {
    on_one_carrier(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let fd = one.as_raw_fd();
        let receiving = spawn(move || {
            let mut messages = Messages::new(4);
            let got = messages.receive(fd, libc::MSG_WAITFORONE, ptr::null_mut());
            (got, messages.texts(1))
        });
        carefree::sleep(MOMENT);
        other.send(b"one").unwrap();
        assert_eq!(receiving.join().unwrap(), (Ok(1), vec!["one".to_string()]));
    });
}

#[test]
fn the_timeout_is_looked_at_when_a_message_has_come() {
    on_one_carrier(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let fd = one.as_raw_fd();
        let receiving = spawn(move || {
            let mut time = timespec { tv_sec: 0, tv_nsec: 1000 };
            let got = Messages::new(4).receive(fd, 0, &raw mut time);
            (got, time.tv_sec, time.tv_nsec)
        });
        carefree::sleep(MOMENT);
        other.send(b"x").unwrap();
        assert_eq!(receiving.join().unwrap(), (Ok(1), 0, 0));
        let mut wrong = timespec { tv_sec: 0, tv_nsec: -1 };
        assert_eq!(Messages::new(1).receive(fd, 0, &raw mut wrong), Err(libc::EINVAL));
    });
}

#[test]
fn what_is_not_there_is_not_waited_for_if_the_caller_says_so() {
    run(|| {
        let (one, _other) = UnixDatagram::pair().unwrap();
        let fd = one.as_raw_fd();
        let mut messages = Messages::new(2);
        let none = ptr::null_mut();
        assert_eq!(messages.receive(fd, libc::MSG_DONTWAIT, none), Err(libc::EAGAIN));
        one.set_nonblocking(true).unwrap();
        assert_eq!(messages.receive(fd, 0, none), Err(libc::EAGAIN));
        assert_eq!(messages.receive(987_654, 0, none), Err(libc::EBADF));
        assert_eq!(messages.send(987_654, 0), Err(libc::EBADF));
    });
}

#[test]
fn messages_that_do_not_fit_go_as_they_are_read() {
    on_one_carrier(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        const COUNT: usize = 600;
        let receiving = spawn(move || {
            for number in 0..COUNT {
                let mut buffer = [0; 16];
                let length = other.recv(&mut buffer).unwrap();
                assert_eq!(buffer[..length], *number.to_string().as_bytes());
            }
        });
        let texts: Vec<_> = (0..COUNT).map(|number| number.to_string()).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let mut messages = Messages::of(&texts);
        assert_eq!(messages.send(one.as_raw_fd(), 0), Ok(COUNT as i64));
        assert!((0..COUNT).all(|i| messages.headers[i].msg_len as usize == texts[i].len()));
        receiving.join().unwrap();
    });
}

#[test]
fn a_stream_takes_all_of_each_message() {
    on_one_carrier(|| {
        let (one, mut other) = UnixStream::pair().unwrap();
        let text: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
        let expected = [&text[..], &text[..]].concat();
        let sending = spawn(move || {
            let mut messages = Messages::new(2);
            for vector in &mut messages.vectors {
                *vector = iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
            }
            let sent = messages.send(one.as_raw_fd(), 0);
            (sent, messages.headers[0].msg_len, messages.headers[1].msg_len)
        });
        let mut got = Vec::new();
        other.read_to_end(&mut got).unwrap();
        assert_eq!(sending.join().unwrap(), (Ok(2), 1_000_000, 1_000_000));
        assert!(got == expected);
    });
}

/// With `MSG_WAITALL`, a part of a message does not do. With `MSG_WAITFORONE`, it does for all but the first.
#[test]
fn each_message_of_a_stream_is_received_whole() {
    fn answer(
        one: &impl AsRawFd,
        other: impl Write + Send,
        flags: c_int,
    ) -> (Result<i64, c_int>, Vec<String>) {
        let mut other = other;
        other.write_all(b"ab").unwrap();
        carefree::scope(|s| {
            s.spawn(move || {
                carefree::sleep(MOMENT);
                other.write_all(b"cdefgh").unwrap();
            });
            let mut messages = Messages::new(2);
            for vector in &mut messages.vectors {
                vector.iov_len = 4;
            }
            let got = messages.receive(one.as_raw_fd(), flags | libc::MSG_WAITALL, ptr::null_mut());
            (got, messages.texts(2))
        })
    }
    fn answers() -> Vec<(Result<i64, c_int>, Vec<String>)> {
        let flags = [0, libc::MSG_WAITFORONE];
        let local = flags.map(|flags| {
            let (one, other) = UnixStream::pair().unwrap();
            answer(&one, other, flags)
        });
        let by_net = flags.map(|flags| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            answer(&one, listener.accept().unwrap().0, flags)
        });
        [local, by_net].concat()
    }
    let native = thread::spawn(answers).join().unwrap();
    assert!(native.iter().all(|(_, texts)| *texts == ["abcd", "efgh"]), "{native:?}");
    assert_eq!(on_one_carrier(answers), native);
}

#[test]
fn cancellation_and_timeouts_reach_in() {
    run(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let fd = one.as_raw_fd();
        let receive = move || Messages::new(3).receive(fd, 0, ptr::null_mut());
        assert_eq!(cancelled(receive), Err(libc::ECANCELED));
        assert_eq!(timed_out(receive), Err(libc::ETIMEDOUT));
        // What was received is kept.
        other.send(b"x").unwrap();
        assert_eq!(carefree::timeout(MOMENT, receive), Ok(Ok(1)));
    });
}

/// A refusal (ICMP) that comes after two messages is reported to the next call.
#[test]
fn an_error_after_some_messages_is_not_lost() {
    on_one_carrier(|| {
        let (one, other) = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap()).into();
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        let fd = one.as_raw_fd();
        let receive = move || {
            let mut messages = Messages::new(4);
            let got = messages.receive(fd, 0, ptr::null_mut());
            (got, messages.texts(2))
        };
        let receiving = spawn(receive);
        for text in ["a", "bb"] {
            carefree::sleep(MOMENT);
            other.send(text.as_bytes()).unwrap();
        }
        carefree::sleep(MOMENT);
        drop(other);
        one.send(b"is it open?").unwrap();
        let texts = ["a", "bb"].map(String::from).to_vec();
        assert_eq!(receiving.join().unwrap(), (Ok(2), texts));
        assert_eq!(receive().0, Err(libc::ECONNREFUSED));
    });
}

#[test]
fn a_call_deals_with_as_many_messages_as_the_kernel_would() {
    on_one_carrier(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let most = libc::UIO_MAXIOV as usize;
        let sending = spawn(move || {
            for _ in 0..most {
                other.send(b"x").unwrap();
            }
            other
        });
        let mut messages = Messages::new(most + 1);
        assert_eq!(messages.receive(one.as_raw_fd(), 0, ptr::null_mut()), Ok(most as i64));
        drop(sending.join().unwrap());
    });
}
