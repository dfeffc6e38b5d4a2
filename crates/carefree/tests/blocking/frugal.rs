//! System calls that are not made: in a process of its own, where the kernel ends the program at such a call, or
//! where they are counted.

use std::ffi::c_long;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree::{TlsMode, platform};
use carefree_reactor::faults;
use carefree_testing::again;

use crate::common::*;

/// Ends the process when the calling thread makes one of these calls.
fn forbid(calls: &[c_long]) {
    let step =
        |code: u32, yes, no, k: u32| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        filter.push(step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    }
    filter.push(step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a filter that lives as long as the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0), 0);
    }
}

/// Runs the test `name` again in a process of its own; says whether this is it.
fn is_alone(name: &str) -> bool {
    if again::is_child() {
        return true;
    }
    let output = again::in_a_process(&format!("frugal::{name}"), &[]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    false
}

/// A connection whose first end is in non-blocking mode.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    server.set_nonblocking(true).unwrap();
    (server, client)
}

/// Sends the beginning of a file, and receives it.
fn pass(file: &File, (server, client): &mut (TcpStream, TcpStream), bytes: usize) {
    let mut place: libc::off_t = 0;
    let (to, from) = (server.as_raw_fd(), file.as_raw_fd());
    // SAFETY: a place.
    let sent = unsafe { libc::sendfile(to, from, &raw mut place, bytes) };
    assert!(sent > 0 && sent as i64 == place, "{}", std::io::Error::last_os_error());
    let mut received = vec![0; sent as usize];
    client.read_exact(&mut received).unwrap();
    assert!(received.iter().all(|byte| *byte == 7));
}

/// A server opens and sends the same files again and again: they are looked for in memory, page by page, once.
#[test]
fn a_file_that_was_sent_lately_is_not_looked_for_again() {
    if !is_alone("a_file_that_was_sent_lately_is_not_looked_for_again") {
        return;
    }
    const BYTES: usize = 60_000;
    on_one_carrier(|| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; BYTES]).unwrap();
        let mut byte = 0u8;
        let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let flags = libc::RWF_NOWAIT;
        // SAFETY: room for a byte. (By libc's name it would be Carefree's, which knows what to do without.)
        let looked = unsafe {
            libc::syscall(libc::SYS_preadv2, file.as_raw_fd(), &raw const part, 1, 0, 0, flags)
        };
        if looked != 1 {
            return println!("skipped: no reads that do not wait here");
        }
        let mut connection = connection();
        pass(file.as_file(), &mut connection, BYTES);
        let (first, second) = (File::open(file.path()).unwrap(), File::open(file.path()).unwrap());
        let looks = [libc::SYS_preadv2, libc::SYS_fstatfs, libc::SYS_lseek, libc::SYS_pread64];
        forbid(&looks);
        pass(&first, &mut connection, BYTES);
        pass(&second, &mut connection, BYTES);
        forbid(&[libc::SYS_fstat]);
        pass(&second, &mut connection, BYTES);
    });
}

/// An eventfd refuses to be written without waiting: that is tried once.
#[test]
fn a_write_that_cannot_be_tried_is_not_tried_again() {
    if !is_alone("a_write_that_cannot_be_tried_is_not_tried_again") {
        return;
    }
    on_one_carrier(|| {
        let make = |flags| {
            // SAFETY: the file is ours.
            unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, flags | libc::EFD_CLOEXEC)) }
        };
        let (events, waiting) = (make(libc::EFD_NONBLOCK), make(0));
        let write = |file: &OwnedFd, count: u64| {
            // SAFETY: a count.
            unsafe { libc::write(file.as_raw_fd(), (&raw const count).cast(), 8) }
        };
        let read = |file: &OwnedFd| {
            let mut count = 0u64;
            // SAFETY: room for a count.
            assert_eq!(unsafe { libc::read(file.as_raw_fd(), (&raw mut count).cast(), 8) }, 8);
            count
        };
        assert_eq!((write(&events, 1), write(&waiting, 1)), (8, 8));
        // In blocking mode it waits until there is room.
        const MOST: u64 = u64::MAX - 1;
        assert_eq!(write(&waiting, MOST - 1), 8);
        carefree::scope(|scope| {
            let writer = scope.spawn(|| write(&waiting, 5));
            carefree::yield_now();
            assert!(!writer.is_finished());
            assert_eq!(read(&waiting), MOST);
            assert_eq!(writer.join().unwrap(), 8);
        });
        forbid(&[libc::SYS_pwritev2, libc::SYS_fstat]);
        assert_eq!((write(&waiting, 2), read(&waiting)), (8, 7));
        assert_eq!(write(&events, 2), 8);
        assert_eq!(write(&events, MOST), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(read(&events), 3);
    });
}

/// A loop around `epoll_wait` reads until there is nothing more. The kernel says so itself, and its answer needs no look
/// at the file's mode.
#[test]
fn an_event_loop_asks_for_no_mode() {
    if !is_alone("an_event_loop_asks_for_no_mode") {
        return;
    }
    on_one_carrier(|| {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        let mut wanted = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        // SAFETY: the file is ours, and the event is there.
        let instance = unsafe {
            let instance = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let (fd, add) = (instance.as_raw_fd(), libc::EPOLL_CTL_ADD);
            assert_eq!(libc::epoll_ctl(fd, add, there.as_raw_fd(), &raw mut wanted), 0);
            instance
        };
        let mut turn = |pause: bool| {
            carefree::scope(|scope| {
                let client = scope.spawn(|| {
                    if pause {
                        carefree::sleep(Duration::from_millis(1));
                    }
                    here.write_all(b"x").unwrap();
                    here.read_exact(&mut [0]).unwrap();
                });
                let mut got = [libc::epoll_event { events: 0, u64: 0 }; 2];
                // SAFETY: room for two events.
                let found =
                    unsafe { libc::epoll_wait(instance.as_raw_fd(), got.as_mut_ptr(), 2, -1) };
                assert_eq!((found, { got[0].u64 }), (1, 7));
                assert_eq!(there.read(&mut [0; 8]).unwrap(), 1);
                assert_eq!(there.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
                there.write_all(b"y").unwrap();
                client.join().unwrap();
            });
        };
        (0..8).for_each(|count| turn(count % 2 == 0));
        forbid(&[libc::SYS_fcntl]);
        (0..40).for_each(|count| turn(count % 2 == 0));
        // (std looks at the flags of what it closes.)
        std::mem::forget((here, there, instance));
    });
}

/// Whether this is so in one of several tries: on a busy machine a thread that is put off causes more calls.
fn once_of_several(mut is_so: impl FnMut() -> bool) -> bool {
    (0..10).any(|_| is_so())
}

/// Calls that wait for operations, or hand them over; and calls that wake a carrier.
static CALLS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

fn count_call(number: c_long, _: &mut [usize; 6]) -> Option<i32> {
    let [waits, wakes] = &CALLS;
    let counted = match number {
        libc::SYS_io_uring_enter | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => waits,
        // To an eventfd: carriers with operations sleep in their reactor.
        libc::SYS_write => wakes,
        _ => return None,
    };
    counted.fetch_add(1, Ordering::Relaxed);
    None
}

/// Sleeps of threads that wake to look after carriers.
static LOOKS: AtomicUsize = AtomicUsize::new(0);

fn count_look(number: c_long, _: &mut [usize; 6]) -> Option<i32> {
    LOOKS.fetch_add(usize::from(number == libc::SYS_futex), Ordering::Relaxed);
    None
}

/// At a moderate rate a carrier sleeps before each request. It hands over the next read and sleeps in one call, and
/// wakes no other carrier for a request that it answers itself.
#[test]
fn a_request_after_a_pause_takes_one_call_of_its_carrier() {
    const REQUESTS: usize = 200;
    if !is_alone("a_request_after_a_pause_takes_one_call_of_its_carrier") {
        return;
    }
    let runtime = carefree::Runtime::builder().carriers(2).build().unwrap();
    assert_takes_few_calls(&runtime, REQUESTS);
}

/// So it is beside a fiber that waits in libc for a line, and has its carrier to itself: as the first thread of a
/// program does under `carefree run` that goes on until its input ends.
#[test]
fn a_carrier_that_a_fiber_keeps_asleep_is_no_reason_to_wake_another() {
    const REQUESTS: usize = 200;
    if platform().tls == TlsMode::Shared {
        return println!(
            "skipped: no carriers are added where fibers share their carrier's storage"
        );
    }
    if !is_alone("a_carrier_that_a_fiber_keeps_asleep_is_no_reason_to_wake_another") {
        return;
    }
    let runtime = carefree::Runtime::builder().carriers(2).build().unwrap();
    let (input, line) = std::io::pipe().unwrap();
    let reader = runtime.spawn(move || {
        let mut text = [0; 8];
        // SAFETY: a file of this fiber's, which the stream is to close; and room for a line.
        unsafe {
            let stream = libc::fdopen(input.into_raw_fd(), c"r".as_ptr());
            assert!(libc::fgets(text.as_mut_ptr(), 8, stream).is_null());
            libc::fclose(stream);
        }
    });
    // Two that compute need a third carrier.
    let busy: Vec<_> = (0..2)
        .map(|_| {
            runtime.spawn(|| {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(200) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    busy.into_iter().for_each(|busy| busy.join().unwrap());
    std::thread::sleep(Duration::from_millis(100));
    // Nothing goes on, so nothing is looked after.
    const IDLE: &faults::Hooks = &faults::Hooks { call: count_look, ..faults::Hooks::NONE };
    assert!(once_of_several(|| {
        LOOKS.store(0, Ordering::Relaxed);
        // SAFETY: it only counts.
        unsafe { faults::install(IDLE) };
        std::thread::sleep(Duration::from_millis(400));
        // SAFETY: these change nothing.
        unsafe { faults::install(&faults::Hooks::NONE) };
        let looks = LOOKS.load(Ordering::Relaxed);
        println!("{looks} looks");
        looks < 10
    }));
    // The time of that is told all the same.
    let kept = carefree_runtime::kept_carriers().1;
    assert!(kept > 300_000_000, "{kept} ns");
    assert_takes_few_calls(&runtime, REQUESTS);
    drop(line);
    reader.join().unwrap();
}

/// Asserts that a server waits about once a request, and wakes no other carrier for most of them.
fn assert_takes_few_calls(runtime: &carefree::Runtime, requests: usize) {
    assert!(once_of_several(|| {
        let (waits, wakes) = calls_for(runtime, requests);
        waits < requests * 3 / 2 && wakes < requests / 4
    }));
}

/// How many of [`CALLS`] a server makes on `runtime` for so many requests, each after a pause.
fn calls_for(runtime: &carefree::Runtime, requests: usize) -> (usize, usize) {
    const HOOKS: &faults::Hooks = &faults::Hooks { call: count_call, ..faults::Hooks::NONE };
    let mut clients = Vec::new();
    for _ in 0..8 {
        let (client, mut server) = UnixStream::pair().unwrap();
        clients.push(client);
        runtime.spawn(move || {
            let mut byte = [0];
            while server.read(&mut byte).unwrap() == 1 {
                server.write_all(&byte).unwrap();
            }
        });
    }
    let mut ask = |request: usize| {
        // This is a thread, as the client's would be.
        std::thread::sleep(Duration::from_millis(2));
        let client = &mut clients[request % 8];
        client.write_all(&[request as u8]).unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer[0], request as u8);
    };
    (0..16).for_each(&mut ask);
    CALLS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    // SAFETY: it only counts.
    unsafe { faults::install(HOOKS) };
    (0..requests).for_each(&mut ask);
    // SAFETY: these change nothing.
    unsafe { faults::install(&faults::Hooks::NONE) };
    let [waits, wakes] = CALLS.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{waits} waits and {wakes} wake-ups for {requests} requests");
    (waits, wakes)
}

/// Bytes for which a connection never has room.
const MORE: usize = 16 << 20;

/// A connection whose client has closed its direction, and which takes no more of the server's bytes.
fn half_closed() -> (TcpStream, TcpStream) {
    let (mut server, client) = connection();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    // (What was sent may move on, and make room.)
    for _ in 0..2 {
        while server.write(&[0; 1 << 16]).is_ok() {}
        std::thread::sleep(MOMENT);
    }
    while server.write(&[0; 1 << 16]).is_ok() {}
    (server, client)
}

/// Processor time that the calling thread has used.
fn time_used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Though something else has happened to the file that the kernel reports whenever it is asked.
#[test]
fn a_wait_for_what_does_not_happen_uses_no_processor() {
    const MILLIS: i32 = 400;
    let poll = |mut files: Vec<libc::pollfd>| {
        // SAFETY: an array and its length.
        unsafe { libc::poll(files.as_mut_ptr(), files.len() as libc::nfds_t, MILLIS) }
    };
    let wanted = |fd, events| libc::pollfd { fd, events, revents: 0 };
    let select = |fd: i32, write: bool| {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: i64::from(MILLIS) * 1000 };
        // SAFETY: zeros are a set, and the number is a small one.
        unsafe {
            let mut set = std::mem::zeroed::<libc::fd_set>();
            libc::FD_SET(fd, &raw mut set);
            let none = std::ptr::null_mut();
            let (write, except) = if write { (&raw mut set, none) } else { (none, &raw mut set) };
            libc::select(fd + 1, none, write, except, &raw mut time)
        }
    };
    on_one_carrier(move || {
        let (server, client) = half_closed();
        let (reader, _) = std::io::pipe().unwrap();
        let (full, end, pipe) = (server.as_raw_fd(), client.as_raw_fd(), reader.as_raw_fd());
        let waits: [(&str, &dyn Fn() -> i32); 6] = [
            ("poll for room", &|| poll(vec![wanted(full, libc::POLLOUT)])),
            ("poll for urgent data", &|| poll(vec![wanted(full, libc::POLLPRI)])),
            ("poll for nothing and for urgent data", &|| {
                poll(vec![wanted(full, 0), wanted(end, libc::POLLPRI)])
            }),
            ("select for room", &|| select(full, true)),
            ("select for urgent data where it is closed", &|| select(pipe, false)),
            ("select for room where none can be", &|| select(pipe, true)),
        ];
        for (name, wait) in waits {
            // (Some machines count what others use meanwhile.)
            let uses_none = once_of_several(|| {
                let begun = time_used();
                assert_eq!(wait(), 0, "{name}");
                time_used() - begun < Duration::from_millis(100)
            });
            assert!(uses_none, "{name}");
        }
        server.set_nonblocking(false).unwrap();
        server.set_write_timeout(Some(Duration::from_millis(MILLIS as u64))).unwrap();
        let (begun, since) = (time_used(), Instant::now());
        // (It may find a little room.)
        let _ = (&server).write(&vec![0; MORE]);
        assert!(since.elapsed() >= Duration::from_millis(MILLIS as u64), "it has not waited");
        let used = time_used() - begun;
        assert!(used < Duration::from_millis(100), "write: {used:?}");
    });
}

/// A ring gives an operation that it tries in vain a hundred times a thread of the kernel's.
#[test]
fn a_write_to_a_client_that_has_said_all_takes_no_thread_of_the_kernels() {
    if !is_alone("a_write_to_a_client_that_has_said_all_takes_no_thread_of_the_kernels") {
        return;
    }
    const WRITERS: usize = 20;
    on_one_carrier(|| {
        let connections: Vec<_> = (0..WRITERS).map(|_| connection()).collect();
        for (_, client) in &connections {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        carefree::scope(|scope| {
            for (server, _) in &connections {
                server.set_nonblocking(false).unwrap();
                let mut server = server;
                scope.spawn(move || {
                    // (Until the client hangs up.)
                    server.write_all(&vec![0; MORE]).unwrap_err();
                });
            }
            carefree::sleep(Duration::from_millis(500));
            let names = std::fs::read_dir("/proc/self/task").unwrap().map(|task| {
                std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
            });
            let workers = names.filter(|name| name.starts_with("iou-wrk")).count();
            for (_, client) in &connections {
                // Unread bytes make this a reset.
                client.shutdown(std::net::Shutdown::Both).unwrap();
            }
            for (server, _) in &connections {
                server.shutdown(std::net::Shutdown::Both).unwrap();
            }
            assert!(workers < WRITERS / 2, "{workers} threads for {WRITERS} writers");
        });
    });
}
