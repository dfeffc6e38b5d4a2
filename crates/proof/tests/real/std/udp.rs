//! `UdpSocket`.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use carefree::{scope, spawn};

use crate::kit::{many, on_a_fiber};

fn pair() -> (UdpSocket, UdpSocket) {
    let one = UdpSocket::bind("127.0.0.1:0").unwrap();
    let two = UdpSocket::bind("127.0.0.1:0").unwrap();
    (one, two)
}

#[test]
fn datagrams_arrive_whole_and_with_their_sender() {
    on_a_fiber(|| {
        let (one, two) = pair();
        let (to, from) = (one.local_addr().unwrap(), two.local_addr().unwrap());
        let receiving = spawn(move || {
            let mut buffer = [0; 4];
            let first = one.recv_from(&mut buffer).unwrap();
            let text = buffer;
            // The rest of a datagram that is longer than the buffer is lost.
            let second = one.recv_from(&mut buffer).unwrap();
            (first, text, second, buffer)
        });
        carefree::sleep(Duration::from_millis(5));
        two.send_to(b"ab", to).unwrap();
        two.send_to(b"cdefgh", to).unwrap();
        let (first, text, second, rest) = receiving.join().unwrap();
        assert_eq!((first, &text[..2]), ((2, from), &b"ab"[..]));
        assert_eq!((second, &rest), ((4, from), b"cdef"));
    });
}

#[test]
fn connected_sockets_send_and_peek() {
    on_a_fiber(|| {
        let (one, two) = pair();
        one.connect(two.local_addr().unwrap()).unwrap();
        two.connect(one.local_addr().unwrap()).unwrap();
        let receiving = spawn(move || {
            let mut buffer = [0; 8];
            let peeked = one.peek(&mut buffer).unwrap();
            let (length, _) = one.peek_from(&mut buffer).unwrap();
            let received = one.recv(&mut buffer).unwrap();
            (peeked, length, received, one)
        });
        carefree::sleep(Duration::from_millis(5));
        two.send(b"hello").unwrap();
        let (peeked, length, received, one) = receiving.join().unwrap();
        assert_eq!((peeked, length, received), (5, 5, 5));
        one.set_nonblocking(true).unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn an_empty_datagram_is_received() {
    on_a_fiber(|| {
        let (one, two) = pair();
        two.send_to(b"", one.local_addr().unwrap()).unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap(), 0);
    });
}

#[test]
fn timeouts_are_kept() {
    on_a_fiber(|| {
        let (one, _two) = pair();
        let limit = Duration::from_millis(20);
        one.set_read_timeout(Some(limit)).unwrap();
        assert!(one.read_timeout().unwrap() >= Some(limit));
        let begun = Instant::now();
        assert_eq!(one.recv_from(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(begun.elapsed() >= limit - Duration::from_millis(1));
    });
}

#[test]
fn an_unused_port_refuses() {
    on_a_fiber(|| {
        let (one, two) = pair();
        one.connect(two.local_addr().unwrap()).unwrap();
        drop(two);
        one.send(b"x").unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn hundreds_of_fibers_ask_one_server() {
    on_a_fiber(|| {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let clients = many(100);
        let serving = spawn(move || {
            let mut buffer = [0; 16];
            loop {
                let (length, from) = server.recv_from(&mut buffer).unwrap();
                if length == 0 {
                    return;
                }
                server.send_to(&buffer[..length], from).unwrap();
            }
        });
        scope(|s| {
            for number in 0..clients {
                s.spawn(move || {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    socket.connect(address).unwrap();
                    let text = number.to_string();
                    let mut answer = [0; 16];
                    // Datagrams may be lost when a buffer is full, even on one machine.
                    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                    let length = (0..20)
                        .find_map(|_| {
                            socket.send(text.as_bytes()).unwrap();
                            socket.recv(&mut answer).ok()
                        })
                        .unwrap();
                    assert_eq!(&answer[..length], text.as_bytes());
                });
            }
        });
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"", address).unwrap();
        serving.join().unwrap();
    });
}
