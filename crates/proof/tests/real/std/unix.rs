//! `UnixListener`, `UnixStream` and `UnixDatagram`.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use carefree::{scope, spawn};

use crate::kit::{many, on_a_fiber};

#[test]
fn connections_over_a_path() {
    on_a_fiber(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let clients = many(100);
        let server = spawn(move || {
            for stream in listener.incoming().take(clients) {
                let mut stream = stream.unwrap();
                spawn(move || {
                    let mut text = String::new();
                    stream.read_to_string(&mut text).unwrap();
                    stream.write_all(text.to_uppercase().as_bytes()).unwrap();
                });
            }
        });
        scope(|s| {
            for number in 0..clients {
                let path = &path;
                s.spawn(move || {
                    let mut stream = UnixStream::connect(path).unwrap();
                    let text = format!("client {number}");
                    stream.write_all(text.as_bytes()).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut answer = String::new();
                    stream.read_to_string(&mut answer).unwrap();
                    assert_eq!(answer, text.to_uppercase());
                });
            }
        });
        server.join().unwrap();
        let error = UnixStream::connect(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(
            UnixStream::connect(folder.path().join("none")).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}

#[test]
fn a_full_queue_of_connections_is_waited_for() {
    on_a_fiber(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: accesses no memory.
        unsafe {
            use std::os::fd::AsRawFd;
            assert_eq!(libc::listen(listener.as_raw_fd(), 1), 0);
        }
        let clients = 12;
        scope(|s| {
            for _ in 0..clients {
                s.spawn(|| {
                    let mut stream = UnixStream::connect(&path).unwrap();
                    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 1);
                });
            }
            for _ in 0..clients {
                carefree::sleep(Duration::from_millis(1));
                listener.accept().unwrap().0.write_all(b"x").unwrap();
            }
        });
    });
}

#[test]
fn pairs_and_timeouts() {
    on_a_fiber(|| {
        let (mut one, mut two) = UnixStream::pair().unwrap();
        let limit = Duration::from_millis(15);
        one.set_read_timeout(Some(limit)).unwrap();
        let begun = Instant::now();
        assert_eq!(one.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(begun.elapsed() >= limit - Duration::from_millis(1));
        two.set_write_timeout(Some(limit)).unwrap();
        let error = loop {
            if let Err(error) = two.write(&[0; 65_536]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(one);
        assert_eq!(two.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn datagrams_keep_their_bounds() {
    on_a_fiber(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let receiving = spawn(move || {
            let mut sizes = Vec::new();
            let mut buffer = [0; 64];
            loop {
                match receiver.recv_from(&mut buffer).unwrap().0 {
                    0 => return sizes,
                    size => sizes.push(size),
                }
            }
        });
        let sender = UnixDatagram::unbound().unwrap();
        // More than a socket's queue holds (net.unix.max_dgram_qlen), so sending waits as well.
        let sizes: Vec<usize> = (0..many(400)).map(|i| 1 + i % 60).collect();
        for size in &sizes {
            assert_eq!(sender.send_to(&vec![7; *size], &path).unwrap(), *size);
        }
        sender.send_to(&[], &path).unwrap();
        assert_eq!(receiving.join().unwrap(), sizes);
        let (one, two) = UnixDatagram::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        two.send(b"abc").unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap(), 3);
    });
}
