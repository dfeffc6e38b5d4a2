//! What fibers do while the driver misbehaves.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use carefree::{JoinHandle, spawn, timeout_with_value};

use crate::plan;
use crate::stream::{
    By, checked, compare, fill, insist, is_want, read, read_all, write, write_all,
};

/// A program, as a fiber runs it; all that it spawns has ended when it returns.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Whether it ends no waits: then its calls may be made where they cannot be ended.
    pub(crate) calm: bool,
    pub(crate) run: fn(fastrand::Rng),
}

pub(crate) const ALL: &[Program] = &[
    Program { name: "pipe", calm: true, run: pipe },
    Program { name: "socketpair", calm: true, run: socketpair },
    Program { name: "tcp", calm: true, run: tcp },
    Program { name: "messages", calm: true, run: messages },
    Program { name: "counter", calm: true, run: counter },
    Program { name: "timers", calm: true, run: timers },
    Program { name: "poll", calm: true, run: poll },
    Program { name: "files", calm: true, run: files },
    Program { name: "splice", calm: true, run: splice },
    Program { name: "child", calm: true, run: child },
    Program { name: "timeouts", calm: false, run: timeouts },
    Program { name: "cancels", calm: false, run: cancels },
    Program { name: "closes", calm: false, run: closes },
    Program { name: "accepts", calm: false, run: accepts },
    Program { name: "late messages", calm: false, run: late_messages },
    Program { name: "late counter", calm: false, run: late_counter },
    Program { name: "sleeps", calm: false, run: sleeps },
];

fn finish<T>(fibers: impl IntoIterator<Item = JoinHandle<T>>) {
    for fiber in fibers {
        if let Err(panic) = fiber.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn micros(random: &mut fastrand::Rng, most: u64) -> Duration {
    Duration::from_micros(random.u64(0..most))
}

fn owned(fd: usize) -> OwnedFd {
    // SAFETY: just made, owned by nothing else.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// Both ends of a pipe; what is written to the second one is read from the first.
fn make_pipe(random: &mut fastrand::Rng) -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }).unwrap();
    if random.bool() {
        // SAFETY: no memory is involved.
        let _ = unsafe { libc::fcntl(ends[1], libc::F_SETPIPE_SZ, 4096) };
    }
    let [read, write] = ends.map(|end| owned(end as usize));
    (read, write)
}

fn make_pair(kind: i32, random: &mut fastrand::Rng) -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: room for two.
    checked(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }).unwrap();
    if random.bool() {
        let room = 4096i32;
        for end in ends {
            let (at, length) = ((&raw const room).cast(), size_of::<i32>() as u32);
            // SAFETY: the option is a number.
            unsafe { libc::setsockopt(end, libc::SOL_SOCKET, libc::SO_SNDBUF, at, length) };
        }
    }
    let [here, there] = ends.map(|end| owned(end as usize));
    (here, there)
}

/// A stream from one to the other, by pipe or by sockets.
fn make_stream(random: &mut fastrand::Rng) -> (OwnedFd, OwnedFd, bool) {
    if random.bool() {
        let (read, write) = make_pipe(random);
        (read, write, false)
    } else {
        let (read, write) = make_pair(libc::SOCK_STREAM, random);
        (read, write, true)
    }
}

fn pipe(mut random: fastrand::Rng) {
    let (from, to) = make_pipe(&mut random);
    let total = random.u64(1..100_000);
    let mut of_writer = random.fork();
    let writer = spawn(move || write_all(to.as_raw_fd(), 1, total, false, &mut of_writer));
    read_all(from.as_raw_fd(), 1, total, false, &mut random);
    finish([writer]);
}

/// Both ways at once.
fn socketpair(mut random: fastrand::Rng) {
    let (here, there) = make_pair(libc::SOCK_STREAM, &mut random);
    talk(here, there, &mut random);
}

/// A stream each way, until each end has said that it is through.
fn talk(here: OwnedFd, there: OwnedFd, random: &mut fastrand::Rng) {
    let ends = [Arc::new(here), Arc::new(there)];
    let totals = [random.u64(1..60_000), random.u64(1..60_000)];
    let mut fibers = Vec::new();
    for (n, (end, total)) in ends.iter().zip(totals).enumerate() {
        let (end, mut random) = (Arc::clone(end), random.fork());
        let fd = end.as_raw_fd();
        fibers.push(spawn(move || {
            write_all(fd, n as u64, total, true, &mut random);
            // SAFETY: no memory is involved.
            checked(unsafe { libc::shutdown(fd, libc::SHUT_WR) }).unwrap();
            drop(end);
        }));
    }
    for (n, end) in ends.iter().enumerate() {
        let (end, mut random) = (Arc::clone(end), random.fork());
        let other = 1 - n;
        fibers.push(spawn(move || {
            read_all(end.as_raw_fd(), other as u64, totals[other], true, &mut random);
        }));
    }
    finish(fibers);
}

/// A listener on loopback, and where.
fn listen() -> (OwnedFd, libc::sockaddr_in) {
    // SAFETY: plain old data; the kernel reads and writes an address, whose length is said.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let fd = owned(checked(libc::socket(libc::AF_INET, kind, 0)).unwrap());
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as _;
        address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let mut length = size_of_val(&address) as libc::socklen_t;
        checked(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length)).unwrap();
        checked(libc::listen(fd.as_raw_fd(), 64)).unwrap();
        let at = (&raw mut address).cast();
        checked(libc::getsockname(fd.as_raw_fd(), at, &raw mut length)).unwrap();
        (fd, address)
    }
}

fn connect(address: libc::sockaddr_in) -> OwnedFd {
    // SAFETY: an address, whose length is said.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let fd = owned(checked(libc::socket(libc::AF_INET, kind, 0)).unwrap());
        let length = size_of_val(&address) as libc::socklen_t;
        insist(|| checked(libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length)))
            .unwrap_or_else(|errno| panic!("connect: errno {errno}"));
        fd
    }
}

fn accept(listener: RawFd) -> Result<OwnedFd, i32> {
    // SAFETY: no address is asked for.
    let accept = || unsafe {
        checked(libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC))
    };
    insist(accept).map(owned)
}

/// Connections, each a pair of streams; several fibers accept.
fn tcp(mut random: fastrand::Rng) {
    let (listener, address) = listen();
    let listener = Arc::new(listener);
    let connections = random.usize(1..5);
    let mut fibers = Vec::new();
    for _ in 0..connections {
        let listener = Arc::clone(&listener);
        let mut of_server = random.fork();
        fibers.push(spawn(move || {
            let connection = accept(listener.as_raw_fd()).unwrap();
            let fd = connection.as_raw_fd();
            let total = of_server.u64(1..40_000);
            read_all(fd, 7, 5000, true, &mut of_server);
            write_all(fd, 8, total, true, &mut of_server);
        }));
        let mut of_client = random.fork();
        fibers.push(spawn(move || {
            let connection = connect(address);
            let fd = connection.as_raw_fd();
            write_all(fd, 7, 5000, true, &mut of_client);
            // SAFETY: no memory is involved.
            checked(unsafe { libc::shutdown(fd, libc::SHUT_WR) }).unwrap();
            let mut place = 0;
            loop {
                let by = By::draw(&mut of_client, true);
                match read(fd, 8, place, by, &mut of_client).unwrap() {
                    0 => break,
                    got => place += got as u64,
                }
            }
            assert!(place > 0, "the server has said nothing");
        }));
    }
    finish(fibers);
}

/// How long the `n`th message is.
fn length_of(n: u64) -> usize {
    (n as usize * 7919) % 1500 + 8
}

fn send_messages(fd: RawFd, messages: u64, random: &mut fastrand::Rng) {
    for n in 0..messages {
        let length = length_of(n);
        let by = By::draw(random, true);
        let sent = write(fd, 0, n << 20, length, by, random);
        assert_eq!(sent, Ok(length), "message {n} by {by:?}");
    }
}

fn receive_message(fd: RawFd, n: u64, random: &mut fastrand::Rng) -> Result<(), i32> {
    let mut buffer = vec![0u8; 4096];
    let at = buffer.as_mut_ptr().cast();
    // SAFETY: the buffer is as long.
    let got = insist(|| unsafe {
        checked(match random.bool() {
            true => libc::recv(fd, at, 4096, 0),
            false => libc::read(fd, at, 4096),
        } as i64)
    })?;
    assert_eq!(got, length_of(n), "message {n}");
    compare(0, n << 20, &buffer[..got]);
    Ok(())
}

/// Messages keep their bounds and their order.
fn messages(mut random: fastrand::Rng) {
    let kind = if random.bool() { libc::SOCK_DGRAM } else { libc::SOCK_SEQPACKET };
    let (here, there) = make_pair(kind, &mut random);
    let count = random.u64(1..60);
    let mut of_sender = random.fork();
    let sender = spawn(move || send_messages(there.as_raw_fd(), count, &mut of_sender));
    for n in 0..count {
        receive_message(here.as_raw_fd(), n, &mut random).unwrap();
    }
    finish([sender]);
}

fn make_counter() -> OwnedFd {
    // SAFETY: no memory is involved.
    owned(checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }).unwrap())
}

fn add(fd: RawFd, value: u64) {
    // SAFETY: a number of eight bytes.
    let added = insist(|| checked(unsafe { libc::write(fd, (&raw const value).cast(), 8) } as i64));
    assert_eq!(added, Ok(8));
}

fn take(fd: RawFd) -> Result<u64, i32> {
    let mut value = 0u64;
    // SAFETY: room for eight bytes.
    let taken = insist(|| checked(unsafe { libc::read(fd, (&raw mut value).cast(), 8) } as i64))?;
    assert_eq!(taken, 8);
    assert!(value > 0);
    Ok(value)
}

fn adders(counter: &Arc<OwnedFd>, random: &mut fastrand::Rng) -> (u64, Vec<JoinHandle<()>>) {
    let each = random.u64(1..20);
    let fibers = (0..3).map(|_| {
        let (counter, mut random) = (Arc::clone(counter), random.fork());
        spawn(move || {
            for _ in 0..each {
                carefree::sleep(micros(&mut random, 200));
                add(counter.as_raw_fd(), 1);
            }
        })
    });
    (3 * each, fibers.collect())
}

/// What is added is taken once.
fn counter(mut random: fastrand::Rng) {
    let counter = Arc::new(make_counter());
    let (total, adders) = adders(&counter, &mut random);
    let mut taken = 0;
    while taken < total {
        taken += take(counter.as_raw_fd()).unwrap();
    }
    assert_eq!(taken, total);
    finish(adders);
}

fn timers(mut random: fastrand::Rng) {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    let timer = owned(checked(fd).unwrap());
    for _ in 0..random.u8(1..6) {
        let span = libc::timespec { tv_sec: 0, tv_nsec: random.i64(1..300_000) };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let once = libc::itimerspec { it_value: span, it_interval: none };
        // SAFETY: a time to read.
        let set = unsafe { libc::timerfd_settime(fd, 0, &raw const once, ptr::null_mut()) };
        checked(set).unwrap();
        assert_eq!(take(timer.as_raw_fd()), Ok(1));
    }
}

/// Several streams, read by one fiber as `poll` says that they can be.
fn poll(mut random: fastrand::Rng) {
    let (mut ends, mut writers, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for stream in 0..random.u64(2..5) {
        let (from, to, is_socket) = make_stream(&mut random);
        let total = random.u64(1..10_000);
        let mut of_writer = random.fork();
        writers.push(spawn(move || {
            write_all(to.as_raw_fd(), stream, total, is_socket, &mut of_writer);
        }));
        ends.push((from, total));
        places.push(Some(0));
    }
    while places.iter().any(Option::is_some) {
        let mut list: Vec<libc::pollfd> = (ends.iter().zip(&places))
            .map(|((end, _), place)| libc::pollfd {
                fd: if place.is_some() { end.as_raw_fd() } else { -1 },
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let limit = if random.bool() { -1 } else { random.i32(0..3) };
        // SAFETY: as many as are said.
        let ready =
            insist(|| checked(unsafe { libc::poll(list.as_mut_ptr(), list.len() as u64, limit) }));
        let ready = ready.unwrap_or_else(|errno| panic!("poll: errno {errno}"));
        let marked = list.iter().filter(|one| one.revents != 0).count();
        assert_eq!(ready, marked);
        assert!(ready > 0 || limit >= 0, "poll ends for no reason");
        for (n, _) in list.iter().enumerate().filter(|(_, one)| one.revents != 0) {
            let place = places[n].unwrap();
            let got = read(list[n].fd, n as u64, place, By::Plain, &mut random).unwrap() as u64;
            if got == 0 {
                assert_eq!(place, ends[n].1);
            }
            places[n] = (got > 0).then_some(place + got);
        }
    }
    finish(writers);
}

/// A file without a name.
fn make_file() -> OwnedFd {
    let path = std::env::temp_dir().join(format!(
        "carefree-faults-{}-{}",
        std::process::id(),
        fastrand::u64(..)
    ));
    let options = io::Result::Ok(()).and_then(|()| {
        std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)
    });
    let file = options.unwrap();
    std::fs::remove_file(&path).unwrap();
    file.into()
}

/// Parts of a file are written and read by several fibers; a read returns all that it was asked for.
fn files(mut random: fastrand::Rng) {
    const PART: usize = 20_000;
    let file = Arc::new(make_file());
    let fibers = (0..random.usize(1..4)).map(|part| {
        let (file, mut random) = (Arc::clone(&file), random.fork());
        spawn(move || {
            let fd = file.as_raw_fd();
            let from = (part * PART) as i64;
            let mut all = vec![0u8; PART];
            fill(part as u64, 0, &mut all);
            let at = all.as_ptr().cast();
            // SAFETY: the buffer is as long.
            let put = insist(|| checked(unsafe { libc::pwrite(fd, at, PART, from) } as i64));
            assert_eq!(put, Ok(PART));
            // SAFETY: no memory is involved.
            insist(|| checked(unsafe { libc::fdatasync(fd) })).unwrap();
            for _ in 0..6 {
                // So that it is not in memory.
                // SAFETY: no memory is involved.
                unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
                let place = random.usize(0..PART);
                let length = random.usize(1..=PART - place);
                let mut buffer = vec![0u8; length];
                let (at, offset) = (buffer.as_mut_ptr().cast(), from + place as i64);
                // SAFETY: the buffer is as long.
                let got = insist(|| checked(unsafe { libc::pread(fd, at, length, offset) } as i64));
                // As a signal may cut it: what has come is right, and the rest follows.
                let got = got.unwrap_or_else(|errno| panic!("pread: errno {errno}"));
                compare(part as u64, place as u64, &buffer[..got]);
                // It may fail for want of memory after a part, and tells of the part.
                assert!(got == length || plan::fails(), "{got} of {length} bytes of a file");
            }
        })
    });
    finish(fibers.collect::<Vec<_>>());
}

/// A pipe into another.
fn splice(mut random: fastrand::Rng) {
    let (first, to) = make_pipe(&mut random);
    let (from, second) = make_pipe(&mut random);
    let total = random.u64(1..50_000);
    let mut of_writer = random.fork();
    let writer = spawn(move || write_all(to.as_raw_fd(), 3, total, false, &mut of_writer));
    let mut of_middle = random.fork();
    let middle = spawn(move || {
        loop {
            let length = of_middle.usize(1..20_000);
            let none = ptr::null_mut();
            let (first, second) = (first.as_raw_fd(), second.as_raw_fd());
            let moved = insist(|| {
                // SAFETY: no memory is involved.
                checked(unsafe { libc::splice(first, none, second, none, length, 0) } as i64)
            });
            if moved.unwrap_or_else(|errno| panic!("splice: errno {errno}")) == 0 {
                break;
            }
        }
    });
    read_all(from.as_raw_fd(), 3, total, false, &mut random);
    finish([writer, middle]);
}

fn child(mut random: fastrand::Rng) {
    // Rarely: it takes longer than all others.
    if random.u8(0..4) == 0 {
        assert!(std::process::Command::new("true").status().unwrap().success());
    }
}

/// Reads and writes that are cut short again and again.
fn timeouts(mut random: fastrand::Rng) {
    let (from, to, is_socket) = make_stream(&mut random);
    let total = random.u64(1..60_000);
    let mut of_writer = random.fork();
    let writer = spawn(move || {
        let mut place = 0;
        while place < total {
            let length = of_writer.u64(1..=20_000.min(total - place)) as usize;
            let by = By::draw(&mut of_writer, is_socket);
            let limit = micros(&mut of_writer, 400);
            let (put, result) = timeout_with_value(limit, || {
                write(to.as_raw_fd(), 4, place, length, by, &mut of_writer)
            });
            match put {
                Ok(put) => {
                    assert!(result.is_ok(), "told of a limit, and {put} bytes are written");
                    place += put as u64;
                }
                Err(libc::ETIMEDOUT) => assert!(result.is_err()),
                Err(errno) => panic!("write: errno {errno} by {by:?}"),
            }
            if of_writer.bool() {
                carefree::sleep(micros(&mut of_writer, 400));
            }
        }
    });
    let mut place = 0;
    loop {
        let by = By::draw(&mut random, is_socket);
        let limit = micros(&mut random, 400);
        let (got, result) =
            timeout_with_value(limit, || read(from.as_raw_fd(), 4, place, by, &mut random));
        match got {
            Ok(got) => {
                assert!(result.is_ok(), "told of a limit, and {got} bytes are read");
                place += got as u64;
                if got == 0 {
                    break;
                }
            }
            Err(libc::ETIMEDOUT) => assert!(result.is_err()),
            Err(errno) => panic!("read: errno {errno} by {by:?}"),
        }
    }
    assert_eq!(place, total);
    finish([writer]);
}

/// Readers that are cancelled; what one has read, the next one does not get.
fn cancels(mut random: fastrand::Rng) {
    let (from, to, is_socket) = make_stream(&mut random);
    let from = Arc::new(from);
    let total = random.u64(1..20_000);
    let mut of_writer = random.fork();
    let writer = spawn(move || {
        let mut place = 0;
        while place < total {
            carefree::sleep(micros(&mut of_writer, 200));
            let length = of_writer.u64(1..=2000.min(total - place)) as usize;
            let put = write(to.as_raw_fd(), 5, place, length, By::Plain, &mut of_writer);
            place += put.unwrap() as u64;
        }
    });
    let mut place = 0;
    loop {
        let (from, mut of_reader) = (Arc::clone(&from), random.fork());
        let by = By::draw(&mut random, is_socket);
        let reader = spawn(move || read(from.as_raw_fd(), 5, place, by, &mut of_reader));
        if random.u8(0..4) > 0 {
            carefree::sleep(micros(&mut random, 300));
        }
        reader.cancel();
        match reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(0) => break,
            Ok(got) => place += got as u64,
            Err(libc::ECANCELED) => {}
            Err(errno) => panic!("read: errno {errno} by {by:?}"),
        }
    }
    assert_eq!(place, total);
    finish([writer]);
}

/// A number for a descriptor that the kernel gives to no other file by itself.
fn high(fd: OwnedFd) -> RawFd {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let least = 500 + (NEXT.fetch_add(1, Ordering::Relaxed) % 400) as i32;
    same_number(fd, least)
}

/// The lowest free number from `least` on.
fn same_number(fd: OwnedFd, least: RawFd) -> RawFd {
    // SAFETY: no memory is involved.
    let number = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    checked(number).unwrap() as RawFd
}

/// Files that are closed while they are waited for, and whose numbers are used again at once.
fn closes(mut random: fastrand::Rng) {
    for _ in 0..random.u8(1..8) {
        let (from, to, is_socket) = make_stream(&mut random);
        let fd = high(from);
        let sent = random.u64(0..3) * 10;
        let begun = Arc::new(AtomicU64::new(0));
        let count = random.u64(1..4);
        let readers: Vec<_> = (0..count)
            .map(|_| {
                let begun = Arc::clone(&begun);
                spawn(move || {
                    let mut byte = [0u8; 10];
                    begun.fetch_add(1, Ordering::SeqCst);
                    // SAFETY: room for as many.
                    let read = unsafe { libc::read(fd, byte.as_mut_ptr().cast(), byte.len()) };
                    let answer = checked(read as i64);
                    let content = byte;
                    carefree::yield_now();
                    assert_eq!(content, std::hint::black_box(byte), "written to afterwards");
                    (answer, content)
                })
            })
            .collect();
        while begun.load(Ordering::SeqCst) < count {
            carefree::yield_now();
        }
        carefree::sleep(micros(&mut random, 200));
        if sent > 0 {
            let put = write(to.as_raw_fd(), 6, 0, sent as usize, By::Plain, &mut random);
            assert_eq!(put, Ok(sent as usize));
        }
        if random.bool() {
            carefree::sleep(micros(&mut random, 200));
        }
        // SAFETY: no memory is involved; the number is this fiber's.
        assert_eq!(unsafe { libc::close(fd) }, 0);
        let (new, other) = match is_socket {
            true => make_pair(libc::SOCK_STREAM, &mut random),
            false => make_pipe(&mut random),
        };
        // With one carrier, whichever has begun has parked, or has its answer. So another file may
        // have the number now: nothing of it is for the readers of the old one.
        let number = if plan::carriers() == 1 { same_number(new, fd) } else { high(new) };
        assert!(plan::carriers() != 1 || number == fd);
        let mut of_writer = random.fork();
        let writer =
            spawn(move || write_all(other.as_raw_fd(), 9, 3000, is_socket, &mut of_writer));
        let mut old = 0;
        for reader in readers {
            let (answer, content) = reader.join().unwrap();
            match answer {
                Ok(got) => {
                    assert!(got > 0, "a read ends for no reason");
                    let at = (0..sent).find(|&at| {
                        let mut wanted = vec![0; got];
                        fill(6, at, &mut wanted);
                        wanted == content[..got]
                    });
                    assert!(at.is_some(), "{:?} was not written there", &content[..got]);
                    old += got as u64;
                }
                Err(libc::EBADF) => {}
                Err(errno) if is_want(errno) => {}
                Err(errno) => panic!("read of a closed file: errno {errno}"),
            }
        }
        assert!(old <= sent, "{old} of {sent}");
        read_all(number, 9, 3000, is_socket, &mut random);
        // SAFETY: no memory is involved; the number is this fiber's.
        assert_eq!(unsafe { libc::close(number) }, 0);
        finish([writer]);
    }
}

/// Accepting that is cut short, timed out or cancelled: no connection is lost by it.
fn accepts(mut random: fastrand::Rng) {
    let (listener, address) = listen();
    let listener = Arc::new(listener);
    let clients = random.u64(1..6);
    let mut fibers = Vec::new();
    for client in 0..clients {
        let mut random = random.fork();
        fibers.push(spawn(move || {
            carefree::sleep(micros(&mut random, 600));
            let connection = connect(address);
            let fd = connection.as_raw_fd();
            let put = write(fd, client, 0, 100, By::Plain, &mut random);
            assert_eq!(put, Ok(100));
            read_all(fd, 100, 50, true, &mut random);
        }));
    }
    let served = Arc::new(AtomicU64::new(0));
    let mut accepted = 0;
    while accepted < clients {
        let fd = listener.as_raw_fd();
        let connection = if random.bool() {
            timeout_with_value(micros(&mut random, 300), || accept(fd)).0
        } else {
            let accepting = spawn(move || accept(fd));
            carefree::sleep(micros(&mut random, 300));
            accepting.cancel();
            accepting.join().unwrap()
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(libc::ETIMEDOUT | libc::ECANCELED) => continue,
            Err(errno) => panic!("accept: errno {errno}"),
        };
        accepted += 1;
        let (served, mut random) = (Arc::clone(&served), random.fork());
        fibers.push(spawn(move || {
            let fd = connection.as_raw_fd();
            let mut content = [0u8; 100];
            let at = content.as_mut_ptr().cast();
            // SAFETY: room for as many.
            let got =
                insist(|| checked(unsafe { libc::recv(fd, at, 100, libc::MSG_WAITALL) } as i64));
            // One that fails for want of memory after a part tells of the part.
            let mut got = got.unwrap();
            while got < 100 {
                let (at, left) = (content[got..].as_mut_ptr().cast(), 100 - got);
                // SAFETY: room for as many.
                let more =
                    insist(|| checked(unsafe { libc::recv(fd, at, left, 0) } as i64)).unwrap();
                assert!(more > 0);
                got += more;
            }
            let whose = (0..clients).find(|&client| {
                let mut wanted = [0; 100];
                fill(client, 0, &mut wanted);
                wanted == content
            });
            served
                .fetch_add(1 << (8 * whose.expect("it is one of the clients'")), Ordering::SeqCst);
            write_all(fd, 100, 50, true, &mut random);
        }));
    }
    finish(fibers);
    let each = (0..clients).fold(0, |all, client| all | 1 << (8 * client));
    assert_eq!(served.load(Ordering::SeqCst), each, "each once");
}

/// Messages for a receiver that gives up again and again.
fn late_messages(mut random: fastrand::Rng) {
    let (here, there) = make_pair(libc::SOCK_SEQPACKET, &mut random);
    let count = random.u64(1..40);
    let mut of_sender = random.fork();
    let sender = spawn(move || send_messages(there.as_raw_fd(), count, &mut of_sender));
    let mut n = 0;
    while n < count {
        let limit = micros(&mut random, 200);
        let fd = here.as_raw_fd();
        match timeout_with_value(limit, || receive_message(fd, n, &mut random)).0 {
            Ok(()) => n += 1,
            Err(libc::ETIMEDOUT) => {}
            Err(errno) => panic!("message {n}: errno {errno}"),
        }
    }
    finish([sender]);
}

/// A counter that several take from, each giving up again and again.
fn late_counter(mut random: fastrand::Rng) {
    let counter = Arc::new(make_counter());
    let (total, adders) = adders(&counter, &mut random);
    let taken = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let takers = (0..3).map(|_| {
        let (counter, mut random) = (Arc::clone(&counter), random.fork());
        let (taken, over) = (Arc::clone(&taken), Arc::clone(&over));
        spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let limit = micros(&mut random, 500);
                match timeout_with_value(limit, || take(counter.as_raw_fd())).0 {
                    Ok(value) => {
                        if taken.fetch_add(value, Ordering::SeqCst) + value == total {
                            over.store(true, Ordering::SeqCst);
                        }
                    }
                    Err(libc::ETIMEDOUT) => {}
                    Err(errno) => panic!("eventfd: errno {errno}"),
                }
            }
        })
    });
    finish(takers.collect::<Vec<_>>());
    finish(adders);
    assert_eq!(taken.load(Ordering::SeqCst), total);
}

fn sleeps(mut random: fastrand::Rng) {
    let fibers = (0..random.u8(1..20)).map(|_| {
        let mut random = random.fork();
        spawn(move || {
            for _ in 0..5 {
                let limit = micros(&mut random, 300);
                let span = micros(&mut random, 300);
                let _ = carefree::timeout(limit, || carefree::sleep(span));
            }
        })
    });
    finish(fibers.collect::<Vec<_>>());
}
