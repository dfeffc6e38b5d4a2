//! `TcpListener` and `TcpStream`.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use carefree::{scope, spawn};

use crate::kit::{LONG, many, on_a_fiber};

/// A listener and its address.
pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listener();
    let client = TcpStream::connect(address).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn connections_echo() {
    on_a_fiber(|| {
        let (listener, address) = listener();
        let connections = many(400);
        let server = spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
            }
        });
        scope(|s| {
            for number in 0..connections {
                s.spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    for round in 0..4 {
                        let text = format!("{number}: {round}\n");
                        stream.write_all(text.as_bytes()).unwrap();
                        let mut answer = vec![0; text.len()];
                        stream.read_exact(&mut answer).unwrap();
                        assert_eq!(answer, text.as_bytes());
                    }
                    stream.shutdown(Shutdown::Write).unwrap();
                    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
                });
            }
        });
        server.join().unwrap();
    });
}

#[test]
fn a_fiber_and_a_plain_thread_talk() {
    on_a_fiber(|| {
        let (listener, address) = listener();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        });
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"quiet").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "QUIET");
        thread.join().unwrap();
    });
}

#[test]
fn more_than_fits_into_the_socket_is_written_as_it_is_read() {
    on_a_fiber(|| {
        let (mut client, mut server) = pair();
        let text: Vec<u8> = (0..8_000_000u32).map(|i| (i >> 3) as u8).collect();
        let sent = text.clone();
        let writing = spawn(move || {
            client.write_all(&sent).unwrap();
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == text);
        writing.join().unwrap();
    });
}

#[test]
fn several_buffers_at_once() {
    on_a_fiber(|| {
        let (mut client, mut server) = pair();
        let reading = spawn(move || {
            let (mut first, mut second) = ([0; 3], [0; 10]);
            let read = server
                .read_vectored(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)])
                .unwrap();
            (read, first, second)
        });
        carefree::sleep(Duration::from_millis(5));
        let written = client.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cde")]).unwrap();
        assert_eq!(written, 5);
        assert_eq!(reading.join().unwrap(), (5, *b"abc", *b"de\0\0\0\0\0\0\0\0"));
    });
}

#[test]
fn peeking_leaves_the_data() {
    on_a_fiber(|| {
        let (mut client, mut server) = pair();
        let writing = spawn(move || {
            carefree::sleep(Duration::from_millis(10));
            client.write_all(b"peek").unwrap();
            client
        });
        let mut text = [0; 4];
        while server.peek(&mut text).unwrap() < 4 {}
        assert_eq!(&text, b"peek");
        text = [0; 4];
        server.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"peek");
        let client = writing.join().unwrap();
        server.set_nonblocking(true).unwrap();
        assert_eq!(server.peek(&mut text).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(client);
        server.set_nonblocking(false).unwrap();
        assert_eq!(server.peek(&mut text).unwrap(), 0);
    });
}

#[test]
fn timeouts_are_kept_and_can_be_asked_for() {
    on_a_fiber(|| {
        let (mut client, mut server) = pair();
        assert_eq!(client.read_timeout().unwrap(), None);
        assert_eq!(
            client.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        let limit = Duration::from_millis(30);
        client.set_read_timeout(Some(limit)).unwrap();
        client.set_write_timeout(Some(limit)).unwrap();
        // The kernel rounds up to its clock's ticks.
        assert!(client.read_timeout().unwrap() >= Some(limit));
        assert!(client.write_timeout().unwrap() >= Some(limit));
        for _ in 0..2 {
            let begun = Instant::now();
            assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(begun.elapsed() >= limit - Duration::from_millis(1));
        }
        // It does not end a read that finds data.
        server.write_all(b"in time").unwrap();
        let mut text = [0; 7];
        client.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"in time");
        // Writes until the buffers are full.
        let begun = Instant::now();
        let error = loop {
            match client.write(&[0; 65_536]) {
                Ok(written) => assert!(written > 0 && begun.elapsed() < LONG),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        client.set_read_timeout(None).unwrap();
        assert_eq!(client.read_timeout().unwrap(), None);
    });
}

#[test]
fn a_timeout_set_by_another_handle_holds() {
    on_a_fiber(|| {
        let (client, _server) = pair();
        let mut other = client.try_clone().unwrap();
        client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(other.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn nonblocking_streams_do_not_wait() {
    on_a_fiber(|| {
        let (listener, address) = listener();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = loop {
            match listener.accept() {
                Ok(accepted) => break accepted,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            carefree::yield_now();
        };
        client.set_nonblocking(true).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut written = 0;
        let error = loop {
            match client.write(&[1; 65_536]) {
                Ok(some) => written += some,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(client);
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), written);
    });
}

#[test]
fn a_clone_reads_while_the_other_writes() {
    on_a_fiber(|| {
        let (client, mut server) = pair();
        let mut reader = client.try_clone().unwrap();
        let reading = spawn(move || {
            let mut got = [0; 2];
            reader.read_exact(&mut got).unwrap();
            got
        });
        carefree::sleep(Duration::from_millis(5));
        (&client).write_all(b"ab").unwrap();
        let mut got = [0; 2];
        server.read_exact(&mut got).unwrap();
        server.write_all(&got).unwrap();
        assert_eq!(&reading.join().unwrap(), b"ab");
    });
}

#[test]
fn shutdown_ends_reads_that_wait_on_another_handle() {
    on_a_fiber(|| {
        let (client, _server) = pair();
        let mut reader = client.try_clone().unwrap();
        let reading = spawn(move || reader.read(&mut [0; 8]).unwrap());
        carefree::sleep(Duration::from_millis(10));
        client.shutdown(Shutdown::Read).unwrap();
        assert_eq!(reading.join().unwrap(), 0);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&client).write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn half_closed_connections_work_in_the_other_direction() {
    on_a_fiber(|| {
        let (mut client, mut server) = pair();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
        let writing = spawn(move || {
            for _ in 0..10 {
                carefree::sleep(Duration::from_millis(1));
                server.write_all(b"more").unwrap();
            }
        });
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "more".repeat(10));
        writing.join().unwrap();
    });
}

#[test]
fn settings_are_kept() {
    on_a_fiber(|| {
        let (client, server) = pair();
        client.set_nodelay(true).unwrap();
        assert!(client.nodelay().unwrap());
        client.set_ttl(77).unwrap();
        assert_eq!(client.ttl().unwrap(), 77);
        assert!(client.take_error().unwrap().is_none());
        assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
        assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
    });
}

#[test]
fn connecting_reports_errors() {
    on_a_fiber(|| {
        let closed = listener().1;
        assert_eq!(TcpStream::connect(closed).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let error = TcpStream::connect_timeout(&closed, LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let error = TcpStream::connect_timeout(&closed, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        // Of several addresses, the first that accepts is used.
        let (listener, open) = listener();
        let client = TcpStream::connect(&[closed, open][..]).unwrap();
        assert_eq!(client.peer_addr().unwrap(), open);
        listener.accept().unwrap();
        assert_eq!(TcpListener::bind(open).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert!(TcpStream::connect("not an address").is_err());
    });
}

#[test]
fn a_connection_in_time_and_one_too_late() {
    on_a_fiber(|| {
        let (listener, address) = listener();
        let client = TcpStream::connect_timeout(&address, LONG).unwrap();
        listener.accept().unwrap();
        drop(client);
        // When a listener's queue is full, Linux drops further connections.
        // SAFETY: accesses no memory.
        unsafe {
            use std::os::fd::AsRawFd;
            assert_eq!(libc::listen(listener.as_raw_fd(), 0), 0);
        }
        let _queued: Vec<_> = (0..2)
            .map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(50)))
            .collect();
        let begun = Instant::now();
        let limit = Duration::from_millis(50);
        let error = TcpStream::connect_timeout(&address, limit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() >= limit);
    });
}

#[test]
fn several_fibers_accept_from_one_listener() {
    on_a_fiber(|| {
        let (listener, address) = listener();
        let accepting: Vec<_> = (0..8)
            .map(|_| {
                let listener = listener.try_clone().unwrap();
                spawn(move || {
                    for _ in 0..10 {
                        let (mut stream, _) = listener.accept().unwrap();
                        stream.write_all(b"x").unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..80 {
            let mut stream = TcpStream::connect(address).unwrap();
            assert_eq!(stream.read(&mut [0; 8]).unwrap(), 1);
        }
        for fiber in accepting {
            fiber.join().unwrap();
        }
    });
}

#[test]
fn what_was_shut_down_neither_reads_nor_writes() {
    on_a_fiber(|| {
        let (mut client, server) = pair();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(client.write(&[1]).is_err());
        assert_eq!((&server).read(&mut [0]).unwrap(), 0);
        client.shutdown(Shutdown::Read).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        // Both directions at once, repeatedly, and through a clone.
        let again = client.try_clone().unwrap().shutdown(Shutdown::Both);
        assert!(again.is_ok() || again.unwrap_err().kind() == ErrorKind::NotConnected);
    });
}

#[test]
fn two_read_and_two_write_by_one_connection() {
    on_a_fiber(|| {
        let (client, server) = pair();
        let bytes = 400;
        let read = scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..bytes {
                        (&client).write_all(&[1]).unwrap();
                    }
                });
            }
            let readers = [0, 1].map(|_| {
                s.spawn(|| {
                    let mut all = 0;
                    loop {
                        match (&server).read(&mut [0; 7]).unwrap() {
                            0 => return all,
                            some => all += some,
                        }
                        if all >= bytes {
                            return all;
                        }
                    }
                })
            });
            carefree::sleep(Duration::from_millis(20));
            // A reader that got less than it wants ends here.
            server.shutdown(Shutdown::Read).unwrap();
            readers.map(|reader| reader.join().unwrap()).iter().sum::<usize>()
        });
        assert!(read <= 2 * bytes && read > 0, "{read}");
    });
}

#[test]
fn a_nonblocking_listener_would_block() {
    on_a_fiber(|| {
        let (listener, address) = listener();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(listener.incoming().next().unwrap().is_err());
        listener.set_nonblocking(false).unwrap();
        let client = spawn(move || TcpStream::connect(address).unwrap());
        assert!(listener.incoming().next().unwrap().is_ok());
        client.join().unwrap();
        assert!(listener.take_error().unwrap().is_none());
        // The address is free again at once.
        drop(listener);
        TcpListener::bind(address).unwrap();
    });
}
