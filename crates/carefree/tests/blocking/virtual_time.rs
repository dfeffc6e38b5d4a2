//! `std`'s waits and clocks on fibers with virtual time.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use carefree::{Runtime, scope, spawn};

const HOUR: Duration = Duration::from_secs(3600);

/// Runs `f` on a fiber with virtual time, which must not take real time.
fn at_once<T: Send>(f: impl FnOnce() -> T + Send) -> (T, Duration) {
    let runtime = Runtime::builder().virtual_time(7).build().unwrap();
    let begun = Instant::now();
    let value = runtime.run(f);
    assert!(begun.elapsed() < HOUR / 60, "it took {:?} of real time", begun.elapsed());
    (value, runtime.virtual_time().unwrap())
}

#[test]
fn sleeps_and_clocks_agree() {
    let (shown, passed) = at_once(|| {
        let (begun, day) = (Instant::now(), SystemTime::now());
        thread::sleep(2 * HOUR);
        (begun.elapsed(), day.elapsed().unwrap())
    });
    assert_eq!((shown.0, shown.1, passed), (2 * HOUR, 2 * HOUR, 2 * HOUR));
    // The same day in each run.
    let day = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(at_once(day).0, Duration::from_secs(1_577_836_800));
    // SAFETY: null is allowed.
    assert_eq!(at_once(|| unsafe { libc::time(std::ptr::null_mut()) }).0, 1_577_836_800);
    let of_day = || {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: a place for the answer; null is allowed.
        unsafe { libc::gettimeofday(&raw mut time, std::ptr::null_mut()) };
        (time.tv_sec, time.tv_usec)
    };
    assert_eq!(at_once(of_day).0, (1_577_836_800, 0));
    // Off such a fiber, it is today.
    assert!(carefree::run(day) > Duration::from_secs(1_700_000_000));
}

#[test]
fn timed_waits_of_std_are_over_at_once() {
    let ((), passed) = at_once(|| {
        let pair = (Mutex::new(()), Condvar::new());
        let guard = pair.0.lock().unwrap();
        assert!(pair.1.wait_timeout(guard, HOUR).unwrap().1.timed_out());
        let (send, receive) = mpsc::channel::<()>();
        assert_eq!(receive.recv_timeout(HOUR), Err(RecvTimeoutError::Timeout));
        drop(send);
        thread::park_timeout(HOUR);
    });
    assert_eq!(passed, 3 * HOUR);
}

#[test]
fn time_limits_of_sockets_are_virtual() {
    let ((), passed) = at_once(|| {
        let (mut near, _far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(HOUR)).unwrap();
        let error = near.read(&mut [0; 1]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        assert!(carefree::timeout(HOUR, || near.read(&mut [0; 1])).is_err());
    });
    assert!(passed >= HOUR && passed <= 2 * HOUR, "{passed:?}");
}

/// A server with slow answers, and clients that time out: a night's traffic in an instant.
#[test]
fn a_server_and_its_clients() {
    let history = |seed| {
        let runtime = Runtime::builder().virtual_time(seed).build().unwrap();
        let lines = runtime.run(|| {
            let lines = Arc::new(Mutex::new(Vec::new()));
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = spawn(move || {
                for _ in 0..6 {
                    let (mut client, _) = listener.accept().unwrap();
                    drop(spawn(move || {
                        let mut hours = [0];
                        client.read_exact(&mut hours).unwrap();
                        thread::sleep(u32::from(hours[0]) * HOUR);
                        // The client may have gone.
                        let _ = client.write_all(b"!");
                    }));
                }
            });
            scope(|scope| {
                for hours in 1..=6u8 {
                    let lines = Arc::clone(&lines);
                    scope.spawn(move || {
                        let begun = Instant::now();
                        let mut server = TcpStream::connect(address).unwrap();
                        server.write_all(&[hours]).unwrap();
                        server.set_read_timeout(Some(7 * HOUR / 2)).unwrap();
                        let answered = server.read_exact(&mut [0]).is_ok();
                        lines.lock().unwrap().push((hours, answered, begun.elapsed()));
                    });
                }
            });
            server.join().unwrap();
            Arc::into_inner(lines).unwrap().into_inner().unwrap()
        });
        (lines, runtime.virtual_time().unwrap())
    };
    let (mut lines, _) = history(1);
    lines.sort();
    let expected: Vec<_> = (1..=6u8)
        .map(|hours| match hours {
            1..=3 => (hours, true, u32::from(hours) * HOUR),
            _ => (hours, false, 7 * HOUR / 2),
        })
        .collect();
    assert_eq!(lines, expected);
}

/// A pipe without a writer never has urgent data, and is reported all the time.
#[test]
fn a_select_for_what_does_not_happen_is_over_at_once() {
    let (selected, passed) = at_once(|| {
        let (reader, _) = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let mut time = libc::timeval { tv_sec: 3600, tv_usec: 0 };
        // SAFETY: zeros are a set, and the number is a small one.
        unsafe {
            let mut except = std::mem::zeroed::<libc::fd_set>();
            libc::FD_SET(fd, &raw mut except);
            let none = std::ptr::null_mut();
            libc::select(fd + 1, none, none, &raw mut except, &raw mut time)
        }
    });
    assert_eq!((selected, passed), (0, HOUR));
}
