//! Several drivers: on the same descriptors, and across `fork`.

use super::kit::*;
use carefree_reactor::Completions;
use carefree_reactor::Kind;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

over_all! {
    two_drivers_wait_for_one_socket
    two_drivers_accept_from_one_listener
    an_inherited_listener_is_not_blocked_in
    a_forked_child_does_not_affect_its_parents_driver
}

fn two_drivers_wait_for_one_socket(kind: Kind) {
    let mut benches = [Bench::new(kind), Bench::new(kind)];
    let (here, there) = UnixDatagram::pair().unwrap();
    let mut buffers = [[0; 4]; 2];
    for (bench, buffer) in benches.iter_mut().zip(&mut buffers) {
        bench.start(1, receive(&here, buffer, 0));
        bench.is_waiting(1);
    }
    there.send(b"a").unwrap();
    there.send(b"b").unwrap();
    for bench in &mut benches {
        assert_eq!(bench.finish(1), 1);
    }
    let mut letters = buffers.map(|buffer| buffer[0]);
    letters.sort_unstable();
    assert_eq!(&letters, b"ab");
}

/// Programs that this one starts inherit the listener: a thread that notices a connection may be
/// too late, and only the kernel accepts without checking first.
fn an_inherited_listener_is_not_blocked_in(kind: Kind) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut bench = Bench::new(kind);
    bench.start(1, accept(&listener));
    bench.driver.cancel(1);
    assert_eq!(bench.finish(1), -libc::ECANCELED);
    // SAFETY: accesses no memory.
    assert_eq!(unsafe { libc::fcntl(listener.as_raw_fd(), libc::F_SETFD, 0) }, 0);
    let submitted = bench.submit(1, accept(&listener));
    assert_eq!(submitted.is_ok(), kind == Kind::Uring);
    if submitted.is_ok() {
        bench.driver.cancel(1);
        assert_eq!(bench.finish(1), -libc::ECANCELED);
    }
}

/// The listener blocks, and a thread that notices a connection may find it taken: neither may block in
/// `accept`.
fn two_drivers_accept_from_one_listener(kind: Kind) {
    const CONNECTIONS: usize = 300;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (tell, wakers) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let tell = tell.clone();
            let (listener, accepted, stop) = (&listener, &accepted, &stop);
            scope.spawn(move || {
                let mut bench = Bench::new(kind);
                tell.send(bench.driver.waker()).unwrap();
                bench.start(1, accept(listener));
                while !stop.load(Ordering::SeqCst) {
                    let mut out = Completions::new();
                    bench.driver.wait(None, &mut out);
                    for done in out.iter() {
                        assert!(done.result >= 0, "{}", done.result);
                        // SAFETY: a new descriptor, which nothing else owns.
                        drop(unsafe { OwnedFd::from_raw_fd(done.result) });
                        accepted.fetch_add(1, Ordering::SeqCst);
                        bench.start(1, accept(listener));
                    }
                }
                bench.driver.cancel(1);
                assert_eq!(bench.finish(1), -libc::ECANCELED);
            });
        }
        for _ in 0..CONNECTIONS {
            TcpStream::connect_timeout(&address, PATIENCE)
                .expect("a connection should be accepted");
        }
        let end = std::time::Instant::now() + PATIENCE;
        while accepted.load(Ordering::SeqCst) < CONNECTIONS {
            assert!(std::time::Instant::now() < end, "not all were accepted");
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        for waker in wakers.iter().take(2) {
            waker.wake();
        }
    });
}

fn a_forked_child_does_not_affect_its_parents_driver(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    bench.start(1, read(&reader, &mut buffer));
    bench.is_waiting(1);
    let fresh = driver(kind);
    let parents = std::mem::replace(&mut bench.driver, fresh);
    // SAFETY: the child uses no lock that another thread of the parent could hold: libc
    // reinitialises its allocator's locks.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the child's only thread, which was in no call of the reactor.
        unsafe { carefree_reactor::after_fork() };
        parents.abandon();
        let works = std::panic::catch_unwind(|| {
            let mut mine = Bench::new(kind);
            let (reader, mut writer) = pipe().unwrap();
            let mut buffer = [0; 4];
            mine.start(1, read(&reader, &mut buffer));
            mine.poll();
            writer.write_all(b"child").unwrap();
            mine.finish(1) == 4 && &buffer == b"chil"
        });
        // SAFETY: no preconditions; runs no exit handlers of the parent's.
        unsafe { libc::_exit(if matches!(works, Ok(true)) { 0 } else { 1 }) };
    }
    assert!(child > 0);
    bench.driver = parents;
    let mut status = 0;
    // SAFETY: only writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's driver does not work");
    bench.is_waiting(1);
    writer.write_all(b"abc").unwrap();
    assert_eq!(bench.finish(1), 3);
    let waker = bench.driver.waker();
    waker.wake();
    assert!(bench.driver.wait(None, &mut Completions::new()));
}
