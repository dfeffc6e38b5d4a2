//! `poll`, `select` and `epoll_wait`.

use std::io::{Read, Write};
use std::mem;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};

use carefree::{run, scope, spawn};
use libc::{c_int, epoll_event, fd_set, pollfd, timespec, timeval};

use crate::common::*;

fn wanted(fd: c_int, events: i16) -> pollfd {
    pollfd { fd, events, revents: 0x55 }
}

fn poll(files: &mut [pollfd], timeout: c_int) -> Result<i64, c_int> {
    // SAFETY: an array and its length.
    checked(unsafe { libc::poll(files.as_mut_ptr(), files.len() as libc::nfds_t, timeout) })
}

fn set_of(files: &[c_int]) -> fd_set {
    // SAFETY: zeros are a set.
    let mut set = unsafe { mem::zeroed() };
    for &fd in files {
        // SAFETY: small numbers.
        unsafe { libc::FD_SET(fd, &mut set) };
    }
    set
}

fn has(set: &fd_set, fd: c_int) -> bool {
    // SAFETY: a small number.
    unsafe { libc::FD_ISSET(fd, set) }
}

struct Epoll(c_int);

impl Epoll {
    fn of(files: &[c_int], events: c_int) -> Epoll {
        // SAFETY: no memory is involved.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        for &fd in files {
            let mut event = epoll_event { events: events as u32, u64: fd as u64 };
            // SAFETY: a valid event.
            let added = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
            assert_eq!(added, 0);
        }
        Epoll(epoll)
    }

    fn wait(&self, timeout: c_int) -> Result<Vec<c_int>, c_int> {
        let mut events = [epoll_event { events: 0, u64: 0 }; 8];
        // SAFETY: an array and its length.
        let got = checked(unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), 8, timeout) })?;
        Ok(events[..got as usize].iter().map(|event| event.u64 as c_int).collect())
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::close(self.0) };
    }
}

/// Writes to `stream` in a moment.
fn soon(stream: &UnixStream) {
    let mut stream = stream.try_clone().unwrap();
    spawn(move || {
        carefree::sleep(MOMENT);
        stream.write_all(b"x").unwrap();
    });
}

#[test]
fn poll_waits_for_one_of_several() {
    on_one_carrier(|| {
        let pairs: Vec<_> = (0..20).map(|_| UnixStream::pair().unwrap()).collect();
        for chosen in [0, 7, 19] {
            let mut files: Vec<_> =
                pairs.iter().map(|(a, _)| wanted(a.as_raw_fd(), libc::POLLIN)).collect();
            soon(&pairs[chosen].1);
            assert_eq!(poll(&mut files, -1), Ok(1));
            for (index, file) in files.iter().enumerate() {
                assert_eq!(file.revents, if index == chosen { libc::POLLIN } else { 0 });
            }
            (&pairs[chosen].0).read_exact(&mut [0]).unwrap();
        }
    });
}

#[test]
fn poll_of_one_and_of_the_same_twice_and_of_none() {
    on_one_carrier(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let fd = one.as_raw_fd();
        soon(&other);
        let mut files = [wanted(fd, libc::POLLIN)];
        assert_eq!(poll(&mut files, -1), Ok(1));
        assert_eq!(files[0].revents, libc::POLLIN);
        (&one).read_exact(&mut [0]).unwrap();

        soon(&other);
        let mut files =
            [wanted(-1, libc::POLLIN), wanted(fd, libc::POLLIN), wanted(fd, libc::POLLIN)];
        assert_eq!(poll(&mut files, -1), Ok(2));
        assert_eq!(files.map(|file| file.revents), [0, libc::POLLIN, libc::POLLIN]);
        let mut files = [wanted(fd, libc::POLLIN | libc::POLLOUT), wanted(fd, libc::POLLPRI)];
        assert_eq!(poll(&mut files, -1), Ok(1));
        assert_eq!(files[0].revents, libc::POLLIN | libc::POLLOUT);

        let begun = Instant::now();
        while_another_runs(|| assert_eq!(poll(&mut [], 50), Ok(0)));
        while_another_runs(|| assert_eq!(poll(&mut [wanted(-1, libc::POLLIN)], 50), Ok(0)));
        assert!(begun.elapsed() >= Duration::from_millis(100));
    });
}

#[test]
fn poll_gives_up_in_time() {
    on_one_carrier(|| {
        let (one, two) = UnixStream::pair().unwrap();
        let mut files = [wanted(one.as_raw_fd(), libc::POLLIN), wanted(two.as_raw_fd(), 0)];
        for count in 1..=2 {
            let files = &mut files[..count];
            let begun = Instant::now();
            assert_eq!(while_another_runs(|| poll(files, 50)), Ok(0));
            assert!(begun.elapsed() >= Duration::from_millis(50));
            assert_eq!(files[0].revents, 0);
        }
    });
}

#[test]
fn poll_of_what_has_no_such_event_waits_for_its_time() {
    on_one_carrier(|| {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut files = [wanted(file.as_raw_fd(), libc::POLLPRI)];
        let begun = Instant::now();
        assert_eq!(while_another_runs(|| poll(&mut files, 50)), Ok(0));
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert_eq!(poll(&mut [wanted(file.as_raw_fd(), libc::POLLIN)], -1), Ok(1));
    });
}

#[test]
fn poll_says_what_is_not_open_and_what_is_being_closed() {
    run(|| {
        let (one, two) = UnixStream::pair().unwrap();
        let mut files = [wanted(one.as_raw_fd(), libc::POLLIN), wanted(987_654, libc::POLLIN)];
        assert_eq!(poll(&mut files, -1), Ok(1));
        assert_eq!(files.map(|file| file.revents), [0, libc::POLLNVAL]);

        for count in 1..=2 {
            let (other, peer) = UnixStream::pair().unwrap();
            let files =
                [wanted(other.as_raw_fd(), libc::POLLIN), wanted(two.as_raw_fd(), libc::POLLIN)];
            let polling = spawn(move || {
                let mut files = files;
                let polled = poll(&mut files[..count], -1);
                (polled, files[0].revents, files[1].revents)
            });
            carefree::sleep(MOMENT);
            drop(other);
            let revents = if count == 1 { 0x55 } else { 0 };
            assert_eq!(polling.join().unwrap(), (Ok(1), libc::POLLNVAL, revents));
            drop(peer);
        }
    });
}

#[test]
fn a_call_with_a_time_limit_outlasts_a_file_that_is_closed() {
    const MILLIS: c_int = 150;
    let limit = Duration::from_millis(MILLIS as u64);
    on_one_carrier(move || {
        let (silent, _peer) = UnixStream::pair().unwrap();
        let silent = silent.as_raw_fd();
        type Call = fn(c_int, c_int) -> (c_int, bool);
        let calls: [(&str, Call); 3] = [
            ("poll", |closed, silent| {
                let mut files = [wanted(closed, libc::POLLIN), wanted(silent, libc::POLLIN)];
                (poll(&mut files, MILLIS).unwrap() as c_int, files[0].revents == libc::POLLNVAL)
            }),
            ("select", |closed, silent| {
                let mut read = set_of(&[closed, silent]);
                let mut time = timeval { tv_sec: 0, tv_usec: i64::from(MILLIS) * 1000 };
                let most = closed.max(silent) + 1;
                let none = ptr::null_mut();
                // SAFETY: a set and a time.
                let selected =
                    unsafe { libc::select(most, &raw mut read, none, none, &raw mut time) };
                (selected, has(&read, closed) && !has(&read, silent))
            }),
            ("epoll_wait", |_, _| {
                let epoll = mem::ManuallyDrop::new(Epoll::of(&[], 0));
                let number = epoll.0;
                spawn(move || {
                    carefree::sleep(MOMENT);
                    // SAFETY: nothing else closes it.
                    assert_eq!(unsafe { libc::close(number) }, 0);
                });
                (epoll.wait(MILLIS).unwrap().len() as c_int + 1, true)
            }),
        ];
        for (name, call) in calls {
            let (other, _peer) = UnixStream::pair().unwrap();
            // A number that no other test gives a file.
            // SAFETY: no memory is involved; nothing else owns the copy.
            let other = unsafe {
                OwnedFd::from_raw_fd(libc::fcntl(other.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 760))
            };
            let closed = other.as_raw_fd();
            let begun = Instant::now();
            let calling = spawn(move || call(closed, silent));
            carefree::sleep(MOMENT);
            drop(other);
            assert_eq!(calling.join().unwrap(), (1, true), "{name}");
            assert!(begun.elapsed() >= limit, "{name}");
        }
    });
}

#[test]
fn a_file_that_is_closed_is_ready_for_select() {
    on_one_carrier(|| {
        let ((silent, _peer), (other, _other_peer)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        // A number that no other test gives a file.
        // SAFETY: no memory is involved; nothing else owns the copy.
        let other = unsafe {
            OwnedFd::from_raw_fd(libc::fcntl(other.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 770))
        };
        let (silent, closed) = (silent.as_raw_fd(), other.as_raw_fd());
        let selecting = spawn(move || {
            let (mut read, mut except) = (set_of(&[closed, silent]), set_of(&[closed]));
            let (most, none) = (closed.max(silent) + 1, ptr::null_mut());
            // SAFETY: valid sets.
            let selected = unsafe {
                libc::select(most, &raw mut read, none, &raw mut except, ptr::null_mut())
            };
            (checked(selected), has(&read, closed), has(&read, silent), has(&except, closed))
        });
        carefree::sleep(MOMENT);
        drop(other);
        assert_eq!(selecting.join().unwrap(), (Ok(2), true, false, true));
    });
}

#[test]
fn a_hang_up_is_an_event() {
    run(|| {
        let (one, two) = UnixStream::pair().unwrap();
        let (three, _four) = UnixStream::pair().unwrap();
        let files = [wanted(one.as_raw_fd(), 0), wanted(three.as_raw_fd(), libc::POLLIN)];
        let polling = spawn(move || {
            let mut files = files;
            (poll(&mut files, -1), files[0].revents)
        });
        carefree::sleep(MOMENT);
        drop(two);
        assert_eq!(polling.join().unwrap(), (Ok(1), libc::POLLHUP));
    });
}

#[test]
fn ppoll_and_its_signals() {
    on_one_carrier(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let mut files = [wanted(one.as_raw_fd(), libc::POLLIN)];
        // SAFETY: valid arrays, times and sets of signals.
        unsafe {
            let mut mask: libc::sigset_t = mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut mask);
            let mut other_mask = mask;
            libc::sigaddset(&raw mut other_mask, libc::SIGUSR2);
            for mask in [ptr::null(), &raw const mask, &raw const other_mask] {
                let time = timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                let begun = Instant::now();
                let polled = while_another_runs(|| libc::ppoll(files.as_mut_ptr(), 1, &time, mask));
                assert_eq!(polled, 0);
                assert!(begun.elapsed() >= Duration::from_millis(20));
                soon(&other);
                assert_eq!(libc::ppoll(files.as_mut_ptr(), 1, ptr::null(), mask), 1);
                (&one).read_exact(&mut [0]).unwrap();
            }
            let wrong = timespec { tv_sec: 0, tv_nsec: -1 };
            let polled = libc::ppoll(files.as_mut_ptr(), 1, &wrong, ptr::null());
            assert_eq!(checked(polled), Err(libc::EINVAL));
        }
    });
}

#[test]
fn select_waits_for_all_its_sets() {
    on_one_carrier(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let (full, _peer) = UnixStream::pair().unwrap();
        full.set_nonblocking(true).unwrap();
        while (&full).write(&[0; 4096]).is_ok() {}
        let (a, b) = (one.as_raw_fd(), full.as_raw_fd());
        let most = a.max(b) + 1;
        let mut read = set_of(&[a]);
        let mut write = set_of(&[b]);
        soon(&other);
        // SAFETY: valid sets and times.
        unsafe {
            let none = ptr::null_mut();
            let mut time = timeval { tv_sec: 60, tv_usec: 0 };
            let selected = libc::select(most, &raw mut read, &raw mut write, none, &raw mut time);
            assert_eq!(selected, 1);
            assert!(has(&read, a) && !has(&write, b));
            assert!(time.tv_sec < 60, "the time left is said");
            (&one).read_exact(&mut [0]).unwrap();

            let begun = Instant::now();
            let mut time = timeval { tv_sec: 0, tv_usec: 50_000 };
            let (mut read, mut write) = (set_of(&[a]), set_of(&[b]));
            let selected = while_another_runs(|| {
                libc::select(most, &raw mut read, &raw mut write, none, &raw mut time)
            });
            assert_eq!(selected, 0);
            assert!(begun.elapsed() >= Duration::from_millis(50));
            assert!(!has(&read, a) && !has(&write, b));
            assert_eq!((time.tv_sec, time.tv_usec), (0, 0));

            // As a sleep; and `pselect` leaves its timeout unchanged.
            let mut time = timeval { tv_sec: 0, tv_usec: 20_000 };
            assert_eq!(while_another_runs(|| libc::select(0, none, none, none, &raw mut time)), 0);
            let time = timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let mut read = set_of(&[a]);
            let null = ptr::null_mut();
            let selected = libc::pselect(most, &raw mut read, null, null, &time, ptr::null());
            assert_eq!(selected, 0);
            assert_eq!(time.tv_nsec, 20_000_000);

            // A number that no other test gives a file.
            let number = libc::fcntl(a, libc::F_DUPFD, 750);
            libc::close(number);
            let mut closed = set_of(&[number]);
            let selected = libc::select(number + 1, &raw mut closed, null, null, null.cast());
            assert_eq!(checked(selected), Err(libc::EBADF));
            assert_eq!(checked(libc::select(-1, null, null, null, null.cast())), Err(libc::EINVAL));
            let mut time = timeval { tv_sec: -1, tv_usec: 0 };
            let selected = libc::select(0, null, null, null, &raw mut time);
            assert_eq!(checked(selected), Err(libc::EINVAL));
        }
    });
}

#[test]
fn epoll_waits_for_its_files() {
    on_one_carrier(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let epoll = Epoll::of(&[one.as_raw_fd()], libc::EPOLLIN);
        soon(&other);
        assert_eq!(epoll.wait(-1), Ok(vec![one.as_raw_fd()]));
        (&one).read_exact(&mut [0]).unwrap();
        let begun = Instant::now();
        assert_eq!(while_another_runs(|| epoll.wait(50)), Ok(vec![]));
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert_eq!(epoll.wait(0), Ok(vec![]));
        // SAFETY: no memory is involved.
        let none = unsafe { libc::epoll_wait(epoll.0, ptr::null_mut(), 0, -1) };
        assert_eq!(checked(none), Err(libc::EINVAL));
        assert_eq!(mem::ManuallyDrop::new(Epoll(one.as_raw_fd())).wait(-1), Err(libc::EINVAL));
        assert_eq!(mem::ManuallyDrop::new(Epoll(987_654)).wait(-1), Err(libc::EBADF));
    });
}

/// Also where reads have found nothing before, after which calls are no longer tried first.
#[test]
fn epoll_wait_says_what_is_no_instance() {
    on_one_carrier(|| {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let writing = spawn(move || {
            for _ in 0..8 {
                carefree::sleep(MOMENT / 4);
                (&writer).write_all(b"x").unwrap();
            }
            writer
        });
        for _ in 0..8 {
            reader.read_exact(&mut [0]).unwrap();
        }
        let no_instance = mem::ManuallyDrop::new(Epoll(reader.as_raw_fd()));
        assert_eq!(no_instance.wait(MOMENT.as_millis() as c_int), Err(libc::EINVAL));
        assert_eq!(no_instance.wait(-1), Err(libc::EINVAL));
        drop(writing.join().unwrap());
    });
}

#[test]
fn each_event_of_an_epoll_that_many_wait_for_is_seen_once() {
    run(|| {
        let epoll = Epoll::of(&[], 0);
        let pairs: Vec<_> = (0..50).map(|_| UnixStream::pair().unwrap()).collect();
        for (one, _) in &pairs {
            let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
            let mut event = epoll_event { events, u64: one.as_raw_fd() as u64 };
            // SAFETY: a valid event.
            let added = unsafe {
                libc::epoll_ctl(epoll.0, libc::EPOLL_CTL_ADD, one.as_raw_fd(), &raw mut event)
            };
            assert_eq!(added, 0);
        }
        let number = epoll.0;
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                spawn(move || {
                    let epoll = mem::ManuallyDrop::new(Epoll(number));
                    let mut seen = Vec::new();
                    loop {
                        match epoll.wait(1000).unwrap() {
                            some if some.is_empty() => return seen,
                            some => seen.extend(some),
                        }
                    }
                })
            })
            .collect();
        for (_, other) in &pairs {
            (&*other).write_all(b"x").unwrap();
            carefree::yield_now();
        }
        let mut seen: Vec<_> =
            waiting.into_iter().flat_map(|fiber| fiber.join().unwrap()).collect();
        seen.sort_unstable();
        let mut all: Vec<_> = pairs.iter().map(|(one, _)| one.as_raw_fd()).collect();
        all.sort_unstable();
        assert_eq!(seen, all);
    });
}

#[test]
fn cancellation_and_timeouts_reach_in() {
    run(|| {
        let (one, two) = UnixStream::pair().unwrap();
        let fds = [one.as_raw_fd(), two.as_raw_fd()];
        for count in 1..=2 {
            let waits = move || {
                let mut files = fds.map(|fd| wanted(fd, libc::POLLIN));
                poll(&mut files[..count], -1)
            };
            assert_eq!(cancelled(waits), Err(libc::ECANCELED));
            assert_eq!(timed_out(waits), Err(libc::ETIMEDOUT));
        }
        let epoll = Epoll::of(&fds, libc::EPOLLIN);
        let number = epoll.0;
        let waits = move || mem::ManuallyDrop::new(Epoll(number)).wait(-1);
        assert_eq!(cancelled(waits), Err(libc::ECANCELED));
        assert_eq!(timed_out(waits), Err(libc::ETIMEDOUT));
        let waits = move || {
            let mut read = set_of(&fds);
            let null = ptr::null_mut();
            // SAFETY: valid sets.
            checked(unsafe { libc::select(1000, &raw mut read, null, null, null.cast()) })
        };
        assert_eq!(cancelled(waits), Err(libc::ECANCELED));
        assert_eq!(timed_out(waits), Err(libc::ETIMEDOUT));
        // No waiter is left on the files.
        soon(&two);
        assert_eq!(epoll.wait(-1), Ok(vec![fds[0]]));
    });
}

#[test]
fn many_polls_of_many_files_at_once() {
    run(|| {
        let pairs: Vec<_> = (0..64).map(|_| UnixStream::pair().unwrap()).collect();
        let fds: Vec<_> = pairs.iter().map(|(one, _)| one.as_raw_fd()).collect();
        let fds: &[c_int] = &fds;
        scope(|s| {
            let polls: Vec<_> = (0..64)
                .map(|first: usize| {
                    s.spawn(move || {
                        let mut files: Vec<_> =
                            (first..64).map(|i| wanted(fds[i], libc::POLLIN)).collect();
                        let polled = poll(&mut files, 60_000).unwrap() as usize;
                        assert_eq!(files.iter().filter(|file| file.revents != 0).count(), polled);
                        polled
                    })
                })
                .collect();
            carefree::sleep(MOMENT);
            // The last file is in all of the lists.
            (&pairs[63].1).write_all(b"x").unwrap();
            for poll in polls {
                assert_eq!(poll.join().unwrap(), 1);
            }
        });
    });
}

#[test]
fn a_connection_with_a_time_limit() {
    on_one_carrier(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(TcpStream::connect_timeout(&address, LONG).is_ok());
    });
}

/// Pseudorandom numbers, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn events_limits_and_cancellations_in_any_order_lose_nothing() {
    const BYTES: usize = 300;
    run(|| {
        scope(|s| {
            for seed in 1..=20 {
                s.spawn(move || {
                    let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
                    let (readers, writers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
                    let mut chance = Chance(seed);
                    let writing = spawn(move || {
                        for _ in 0..BYTES {
                            let chosen = chance.below(3) as usize;
                            (&writers[chosen]).write_all(b"x").unwrap();
                            if chance.below(3) == 0 {
                                carefree::sleep(Duration::from_micros(chance.below(200)));
                            }
                        }
                        writers
                    });
                    let mut chance = Chance(seed + 1000);
                    let mut got = 0;
                    while got < BYTES {
                        let fds = [0, 1, 2].map(|i: usize| readers[i].as_raw_fd());
                        let span = Duration::from_micros(chance.below(300));
                        let poll_now = move || {
                            let mut files = fds.map(|fd| wanted(fd, libc::POLLIN));
                            let polled = poll(&mut files, 1000);
                            (polled, files.map(|file| file.revents))
                        };
                        // The wait is cut short by a limit, by a cancellation, or not at all.
                        let mut answer = (Err(libc::ETIMEDOUT), [0; 3]);
                        match chance.below(3) {
                            0 => answer = poll_now(),
                            1 => _ = carefree::timeout(span, || answer = poll_now()),
                            _ => {
                                let polling = spawn(poll_now);
                                carefree::sleep(span);
                                polling.cancel();
                                answer = polling.join().unwrap();
                            }
                        }
                        match answer {
                            (Ok(_), revents) => {
                                for (reader, _) in
                                    readers.iter().zip(revents).filter(|(_, events)| *events != 0)
                                {
                                    let mut buffer = [0; 64];
                                    got += (&*reader).read(&mut buffer).unwrap();
                                }
                            }
                            (Err(errno), _) => {
                                assert!([libc::ETIMEDOUT, libc::ECANCELED].contains(&errno));
                            }
                        }
                    }
                    writing.join().unwrap();
                    assert_eq!(got, BYTES);
                });
            }
        });
    });
}

#[test]
fn select_looks_no_further_than_there_are_numbers() {
    // As programs do that pass the largest number of files. In a process of its own: where other tests have
    // opened thousands of files, the kernel would look at more bits as well. A child's table of files is as large as
    // this process's, so the process is a child of a shell's.
    const ALONE: &str = "CAREFREE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "ready::select_looks_no_further_than_there_are_numbers";
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$0\" \"$@\"; exit $?"]).arg(std::env::current_exe().unwrap());
        let output = shell.args(["--exact", name]).env(ALONE, "1").output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
        return;
    }
    on_one_carrier(|| {
        let (reader, writer) = UnixStream::pair().unwrap();
        soon(&writer);
        // A set at the end of readable memory.
        // SAFETY: a mapping of our own, the second page of which is only kept from being read.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let pages = libc::mmap(ptr::null_mut(), 8192, protection, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(pages.byte_add(4096), 4096, libc::PROT_NONE), 0);
            let set = pages.byte_add(4096 - size_of::<fd_set>()).cast::<fd_set>();
            libc::FD_SET(reader.as_raw_fd(), &mut *set);
            let null = ptr::null_mut();
            let got = while_another_runs(|| libc::select(1 << 20, set, null, null, null.cast()));
            assert_eq!(checked(got), Ok(1));
            assert!(has(&*set, reader.as_raw_fd()));
            libc::munmap(pages, 8192);
        }
    });
}
