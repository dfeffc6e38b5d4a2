//! What is received at the moment at which a limit ends, or a cancellation comes, is not lost.
//!
//! In each test, things arrive again and again just when their receivers give up. The test compares the number
//! sent with the number received.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use carefree::{
    Interrupted, Semaphore, TimedOut, run, spawn, timeout, timeout_with_value, try_block_on,
};

use crate::common::{LONG, MOMENT, cancelled, checked};

/// The limit of each wait, and about the time from one arrival to the next.
const LIMIT: Duration = Duration::from_micros(200);
const PAIRS: usize = 8;
const ROUNDS: usize = 250;

/// Sleeps about as long as the limit.
fn until_about_the_limit(round: usize) {
    carefree::sleep(LIMIT - Duration::from_micros(40) + Duration::from_micros(round as u64 % 64));
}

/// Runs `f` for several fibers at once, and sums up what they return.
fn several(f: impl Fn() -> usize + Clone + Send + 'static) -> usize {
    let fibers: Vec<_> = (0..PAIRS).map(|_| spawn(f.clone())).collect();
    fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum()
}

/// The result of a call under the limit: `None` if it was cut short, which the call and `timeout` must both
/// report.
fn received<T>(call: impl FnOnce() -> std::io::Result<T>) -> Option<T> {
    let (answer, limited) = timeout_with_value(LIMIT, call);
    match answer {
        Ok(value) => {
            assert_eq!(limited, Ok(()), "a call that received something counts as cut short");
            Some(value)
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert_eq!(limited, Err(TimedOut));
            None
        }
    }
}

#[test]
fn bytes() {
    let got = run(|| {
        several(|| {
            let (mut reader, mut writer) = UnixStream::pair().unwrap();
            let writing = spawn(move || {
                for round in 0..ROUNDS {
                    until_about_the_limit(round);
                    writer.write_all(&[1]).unwrap();
                }
            });
            let mut got = 0;
            loop {
                match received(|| reader.read(&mut [0; 8])) {
                    Some(0) => break,
                    Some(bytes) => got += bytes,
                    None => {}
                }
            }
            writing.join().unwrap();
            got
        })
    });
    assert_eq!(got, PAIRS * ROUNDS);
}

#[test]
fn connections() {
    let got = run(|| {
        several(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let connecting = spawn(move || {
                let answered = |round| {
                    until_about_the_limit(round);
                    let mut client = TcpStream::connect(address).unwrap();
                    // The end, if the connection was accepted and closed.
                    client.read(&mut [0; 1]).unwrap()
                };
                (0..ROUNDS).map(answered).sum::<usize>()
            });
            while !connecting.is_finished() {
                if let Some((mut server, _)) = received(|| listener.accept()) {
                    server.write_all(&[1]).unwrap();
                }
            }
            connecting.join().unwrap()
        })
    });
    assert_eq!(got, PAIRS * ROUNDS);
}

/// A call with one byte and room for one descriptor.
fn with_descriptor(
    descriptor: RawFd,
    call: impl FnOnce(*mut libc::msghdr) -> isize,
) -> (i64, RawFd) {
    let mut byte = [1u8];
    let mut data = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: zeros are a header without anything; then it describes the arrays above.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut data;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        let answer = call(&raw mut message);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let came = match header.is_null() {
            true => -1,
            false => libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned(),
        };
        (answer as i64, came)
    }
}

#[test]
fn descriptors() {
    let got = run(|| {
        several(|| {
            let (receiver, sender) = UnixDatagram::pair().unwrap();
            // Sends the writing end of a pipe. When the pipe has ended, each copy is known to be closed.
            let (mut end, each) = std::io::pipe().unwrap();
            let sending = spawn(move || {
                for round in 0..ROUNDS {
                    until_about_the_limit(round);
                    let (sent, _) = with_descriptor(each.as_raw_fd(), |message| {
                        // SAFETY: a header that is valid.
                        unsafe { libc::sendmsg(sender.as_raw_fd(), message, 0) }
                    });
                    assert_eq!(sent, 1);
                }
            });
            let (mut got, mut in_vain) = (0, 0);
            while got < ROUNDS {
                let message = received(|| {
                    let (answer, descriptor) = with_descriptor(-1, |message| {
                        // SAFETY: a header that is valid.
                        unsafe { libc::recvmsg(receiver.as_raw_fd(), message, 0) }
                    });
                    checked(answer).map_err(std::io::Error::from_raw_os_error)?;
                    // SAFETY: just received.
                    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
                });
                if let Some(descriptor) = message {
                    got += 1;
                    drop(descriptor);
                } else if sending.is_finished() {
                    // What was sent has arrived.
                    in_vain += 1;
                    assert!(in_vain < 50, "{got} of {ROUNDS} messages were received");
                }
            }
            sending.join().unwrap();
            assert_eq!(
                end.read(&mut [0]).unwrap(),
                0,
                "a descriptor was received and not given out"
            );
            got
        })
    });
    assert_eq!(got, PAIRS * ROUNDS);
}

#[test]
fn messages_of_a_channel() {
    let got = run(|| {
        several(|| {
            let (sender, receiver) = mpsc::channel();
            spawn(move || {
                for round in 0..ROUNDS {
                    until_about_the_limit(round);
                    sender.send(1usize).unwrap();
                }
            });
            let mut got = 0;
            loop {
                // A wait for a lock is not cut short; its own limit ends it.
                match timeout(LIMIT, || receiver.recv_timeout(LIMIT)) {
                    Ok(Ok(one)) => got += one,
                    Ok(Err(RecvTimeoutError::Timeout)) => {}
                    Ok(Err(RecvTimeoutError::Disconnected)) => return got,
                    Err(TimedOut) => panic!("a wait for a lock was cut short"),
                }
            }
        })
    });
    assert_eq!(got, PAIRS * ROUNDS);
}

#[test]
fn permits() {
    run(|| {
        let given = Arc::new(Semaphore::new(0));
        let giving = spawn({
            let given = Arc::clone(&given);
            move || {
                for round in 0..PAIRS * ROUNDS {
                    until_about_the_limit(round);
                    given.release(1);
                }
            }
        });
        let mut taken = 0;
        while !giving.is_finished() || given.available() > 0 {
            // If an `Err` dropped a permit, it would be released and taken again: more than were given.
            if let Ok(permit) = timeout(LIMIT, || given.acquire()) {
                permit.unwrap().forget();
                taken += 1;
            }
            assert!(taken <= PAIRS * ROUNDS, "a permit was taken and given back");
        }
        assert_eq!(taken, PAIRS * ROUNDS);
    });
}

#[test]
fn values_of_fibers() {
    run(|| {
        let mut late = 0;
        for round in 0..PAIRS * ROUNDS {
            let mut fiber = Some(spawn(move || {
                until_about_the_limit(round);
                Box::new(round)
            }));
            // `wait` only borrows the handle.
            let (ended, limited) = timeout_with_value(LIMIT, || fiber.as_ref().unwrap().wait());
            assert_eq!(ended.is_ok(), limited.is_ok());
            late += usize::from(ended.is_err());
            if round % 2 == 0 {
                assert_eq!(*fiber.take().unwrap().join().unwrap(), round);
                continue;
            }
            // `join` reports that it was cut short only if there is no value.
            let (joined, limited) = timeout_with_value(LIMIT, || fiber.take().unwrap().join());
            match joined {
                Ok(value) => assert_eq!((*value, limited), (round, Ok(()))),
                Err(payload) => {
                    assert!(payload.is::<TimedOut>() && limited.is_err());
                }
            }
        }
        assert!(late > 0, "no limit ended first");
    });
}

#[test]
fn the_output_of_futures() {
    run(|| {
        struct Slot {
            filled: AtomicUsize,
            waker: std::sync::Mutex<Option<std::task::Waker>>,
        }
        let slot = Arc::new(Slot { filled: AtomicUsize::new(0), waker: Default::default() });
        let filling = spawn({
            let slot = Arc::clone(&slot);
            move || {
                for round in 0..PAIRS * ROUNDS {
                    until_about_the_limit(round);
                    slot.filled.fetch_add(1, Ordering::SeqCst);
                    if let Some(waker) = slot.waker.lock().unwrap().take() {
                        waker.wake();
                    }
                }
            }
        });
        let mut got = 0;
        while !filling.is_finished() || slot.filled.load(Ordering::SeqCst) > 0 {
            // Takes all that is there.
            let future = std::future::poll_fn(|context| {
                *slot.waker.lock().unwrap() = Some(context.waker().clone());
                match slot.filled.swap(0, Ordering::SeqCst) {
                    0 => std::task::Poll::Pending,
                    some => std::task::Poll::Ready(some),
                }
            });
            let (output, limited) = timeout_with_value(LIMIT, || try_block_on(future));
            match output {
                Ok(some) => {
                    assert_eq!(limited, Ok(()));
                    got += some;
                }
                Err(why) => {
                    assert_eq!((why, limited), (Interrupted::TimedOut, Err(TimedOut)));
                }
            }
        }
        assert_eq!(got, PAIRS * ROUNDS);
    });
}

#[test]
fn bytes_that_come_with_a_cancellation() {
    let got = run(|| {
        several(|| {
            let mut got = 0;
            for round in 0..ROUNDS {
                let (reader, mut writer) = UnixStream::pair().unwrap();
                let reading = spawn({
                    let mut reader = reader.try_clone().unwrap();
                    move || {
                        let read = reader.read(&mut [0; 8]);
                        // Whatever the call returned, the next one reports the cancellation.
                        carefree::sleep(LONG);
                        let next = carefree::check();
                        (read, next)
                    }
                });
                let writing = spawn(move || {
                    until_about_the_limit(round);
                    writer.write_all(&[1]).unwrap();
                });
                until_about_the_limit(round / 8);
                reading.cancel();
                let (read, next) = reading.join().unwrap();
                assert_eq!(next, Err(Interrupted::Cancelled));
                writing.join().unwrap();
                got += match read {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                        (&reader).read(&mut [0; 8]).unwrap()
                    }
                };
            }
            got
        })
    });
    assert_eq!(got, PAIRS * ROUNDS);
}

#[test]
fn the_part_that_was_written() {
    run(|| {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        let data = vec![1; 1 << 22];
        // The call returns what it has done, and the next one is cut short at once.
        let (answers, limited) = timeout_with_value(MOMENT, || {
            let part = writer.write(&data);
            (part, writer.write(&data).unwrap_err().kind())
        });
        let part = answers.0.unwrap();
        assert!(part > 0 && part < data.len());
        assert_eq!((answers.1, limited), (ErrorKind::TimedOut, Err(TimedOut)));
        let again = timeout(MOMENT, || writer.write(&data));
        assert!(again.is_err(), "there was no room");
        drop(writer);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), part);

        let (_reader, mut writer) = UnixStream::pair().unwrap();
        let alone = timeout(MOMENT, || writer.write(&data));
        assert!(alone.unwrap().unwrap() < data.len());

        let (_reader, mut writer) = UnixStream::pair().unwrap();
        let data = Arc::new(data);
        let part = cancelled({
            let data = Arc::clone(&data);
            move || (writer.write(&data).unwrap(), carefree::check())
        });
        assert!(part.0 < data.len());
        assert_eq!(part.1, Err(Interrupted::Cancelled));
    });
}

/// A lock's own limit is not that of a `timeout` around it.
#[test]
fn what_is_not_cut_short_does_not_count_as_such() {
    run(|| {
        let waited = timeout(MOMENT, || {
            let lock = std::sync::Mutex::new(());
            let condition = std::sync::Condvar::new();
            condition.wait_timeout(lock.lock().unwrap(), 3 * MOMENT).unwrap().1.timed_out()
        });
        assert_eq!(waited, Ok(true));
        // Nor does the limit of a call that had a result, long afterwards.
        let finished = spawn(|| 7);
        while !finished.is_finished() {
            carefree::yield_now();
        }
        let joined = timeout(Duration::ZERO, || finished.join().unwrap());
        assert_eq!(joined, Ok(7));
        let nested = timeout(LONG, || timeout(MOMENT, || carefree::sleep(LONG)));
        assert_eq!(nested, Ok(Err(TimedOut)));
    });
}
