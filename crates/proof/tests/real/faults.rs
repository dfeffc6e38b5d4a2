//! What goes wrong in the field, many times over; and nothing is lost by it: no fiber, no file, no
//! memory.
//!
//! Each runs in a process of its own, whose counts are then its own too.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree::{JoinHandle, Runtime, scope, spawn};

use crate::kit::{Random, in_a_process, is_child, many, on_a_fiber, until};

/// What a process has of things that can be lost.
#[derive(Clone, Debug)]
struct Belongings {
    fibers: u64,
    files: HashMap<String, usize>,
    /// Bytes allocated and not freed.
    heap: usize,
    /// Bytes of memory in use.
    resident: usize,
}

impl Belongings {
    fn count() -> Belongings {
        // What a descriptor refers to, without the number of a socket or of a pipe.
        let mut files = HashMap::new();
        for file in fs::read_dir("/proc/self/fd").unwrap() {
            let Ok(target) = fs::read_link(file.unwrap().path()) else { continue };
            let target = target.to_string_lossy().into_owned();
            *files.entry(target.split(":[").next().unwrap().to_owned()).or_default() += 1;
        }
        // SAFETY: numbers.
        let heap = unsafe { libc::mallinfo2() }.uordblks;
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        Belongings { fibers: carefree::metrics().alive, files, heap, resident: pages * 4096 }
    }

    /// Waits until no more fibers and files are there than before, and tells how much more memory is
    /// in use: bytes allocated and not freed, and bytes resident. A carrier that has not begun may
    /// since have opened so many files.
    fn grown(&self, files_of_a_carrier: usize) -> (usize, usize) {
        until("the fibers have ended", || carefree::metrics().alive <= self.fibers);
        let before = |name: &String| self.files.get(name).copied().unwrap_or(0);
        let allowed = |name: &String| match name.as_str() {
            // A carrier that had nothing to wait for when they were counted may have made its driver
            // since.
            ANONYMOUS => before(name).max(files_of_a_carrier * carefree::metrics().carriers),
            _ => before(name),
        };
        until("the files are closed", || {
            Belongings::count().files.iter().all(|(name, count)| *count <= allowed(name))
        });
        let now = Belongings::count();
        (now.heap.saturating_sub(self.heap), now.resident.saturating_sub(self.resident))
    }
}

/// What files are that have no name: rings, epoll instances, bells.
const ANONYMOUS: &str = "anon_inode";

/// How many files a carrier opens, by the time it has waited for a connection and for data; those
/// that it shares with others are counted as its own. To be asked before there are other carriers.
fn files_of_a_carrier() -> usize {
    let count = || Belongings::count().files.get(ANONYMOUS).copied().unwrap_or(0);
    let before = count();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let now = runtime.run(|| {
        let service = Service::new(echo);
        let mut stream = TcpStream::connect(service.address).unwrap();
        // Before the second answer has come, the service has waited for another connection.
        for _ in 0..2 {
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        count()
    });
    now - before
}

/// Has as many fibers at once as ever here, which go as deep: the stack of each is kept, with the
/// memory that was touched of it.
fn fill_pools() {
    on_a_fiber(|| {
        let all = Barrier::new(1500);
        let goes_deep = || {
            black_box([1u8; 32 << 10]);
            all.wait();
        };
        scope(|s| (0..1500).for_each(|_| drop(s.spawn(goes_deep))));
    });
}

/// Runs `round` twice so that all is there that is made once, counts, runs it `rounds` times more,
/// and counts again. What is kept for the next time may grow yet; but a loss is there each time.
fn expect_no_loss(rounds: usize, round: impl Fn(u64) + Send + Sync + Copy + 'static) {
    const TIMES: u64 = 5;
    let files_of_a_carrier = files_of_a_carrier();
    fill_pools();
    for warming in 0..2 {
        on_a_fiber(move || round(warming));
    }
    until("the fibers have ended", || carefree::metrics().alive == 0);
    let mut seen = Vec::new();
    for time in 1..=TIMES {
        let before = Belongings::count();
        for number in 0..rounds as u64 {
            on_a_fiber(move || round(100 * time + number));
        }
        let (heap, resident) = before.grown(files_of_a_carrier);
        // Less than a hundred bytes for each of a thousand connections. (Without malloc's caches for
        // each fiber, which fill slowly: `in_a_process` turns them off.)
        if heap < 100_000 && resident < 4 << 20 {
            return;
        }
        seen.push((heap, resident));
    }
    panic!("bytes allocated and not freed, and bytes of memory more, time after time: {seen:?}");
}

/// Connections that a [`Service`] could not accept when it tried.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// A server whose connections are served by `serve`; it ends when it is dropped, and then waits for
/// them.
struct Service {
    address: SocketAddr,
    accepting: Option<JoinHandle<Vec<JoinHandle<()>>>>,
}

impl Service {
    fn new(serve: fn(TcpStream) -> io::Result<()>) -> Service {
        Service::on(listener(), serve)
    }

    fn on(listener: TcpListener, serve: fn(TcpStream) -> io::Result<()>) -> Service {
        let address = listener.local_addr().unwrap();
        let accepting = spawn(move || {
            let mut serving = Vec::new();
            loop {
                match listener.accept() {
                    Ok((stream, _)) => serving.push(spawn(move || {
                        // What a connection came to is its own business.
                        let _ = serve(stream);
                    })),
                    Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => return serving,
                    // Reset before it was accepted, or there is no descriptor for it now.
                    Err(_) => {
                        REFUSED.fetch_add(1, Ordering::Relaxed);
                        carefree::sleep(Duration::from_millis(1));
                    }
                }
            }
        });
        Service { address, accepting: Some(accepting) }
    }
}

/// Lets many connections wait to be accepted.
fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: a call with numbers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1024) }, 0);
    listener
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        accepting.cancel();
        for connection in accepting.join().unwrap() {
            connection.join().unwrap();
        }
    }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read])?,
        }
    }
}

/// Reads to the end of a head that never ends.
fn await_head(mut stream: TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")
}

/// Closes a connection by a reset: what is on its way is lost.
fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: an option with a value of its type.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}

#[test]
fn connections_are_reset_at_random_points() {
    if !is_child() {
        return in_a_process("faults::connections_are_reset_at_random_points");
    }
    expect_no_loss(many(12), |seed| {
        let service = Service::new(echo);
        let address = service.address;
        scope(|s| {
            for number in 0..80 {
                s.spawn(move || {
                    let mut random = Random(seed * 1000 + number);
                    let Ok(stream) = TcpStream::connect(address) else { return };
                    let mut reader = stream.try_clone().unwrap();
                    // The other direction, which the reset ends too.
                    let reading = spawn(move || io::copy(&mut reader, &mut io::sink()));
                    let text = vec![7; random.below(200_000) as usize];
                    for piece in text.chunks(1 + random.below(20_000) as usize) {
                        if (&stream).write_all(piece).is_err() {
                            break;
                        }
                        if random.below(4) == 0 {
                            carefree::yield_now();
                        }
                    }
                    if random.below(3) == 0 {
                        carefree::sleep(Duration::from_micros(random.below(500)));
                    }
                    if random.below(2) == 0 {
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                    reset(stream);
                    // The clone still has it open.
                    reading.cancel();
                    let _ = reading.join().unwrap();
                });
            }
        });
    });
}

#[test]
fn thousands_of_connections_are_dropped_amid_a_request() {
    if !is_child() {
        return in_a_process("faults::thousands_of_connections_are_dropped_amid_a_request");
    }
    // 500 in each round, and 10 rounds besides those to warm up.
    expect_no_loss(many(10), |seed| {
        let service = Service::new(await_head);
        let address = service.address;
        scope(|s| {
            for number in 0..500 {
                s.spawn(move || {
                    let mut random = Random(seed * 1000 + number);
                    let mut stream = TcpStream::connect(address).unwrap();
                    let request = b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
                    let sent = random.below(request.len() as u64) as usize;
                    stream.write_all(&request[..sent]).unwrap();
                    if random.below(2) == 0 {
                        reset(stream);
                    }
                });
            }
        });
    });
}

#[test]
fn peers_that_are_half_closed() {
    if !is_child() {
        return in_a_process("faults::peers_that_are_half_closed");
    }
    expect_no_loss(many(8), |seed| {
        let service = Service::new(|mut stream| {
            // More than fits: it waits for the peer to read, or to go.
            while stream.read(&mut [0; 64])? > 0 {}
            (0..1000).try_for_each(|_| stream.write_all(&[7; 6000]))
        });
        let address = service.address;
        scope(|s| {
            for number in 0..20 {
                s.spawn(move || {
                    let mut random = Random(seed * 1000 + number);
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream.write_all(b"that is all").unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    match random.below(3) {
                        // Reads it all.
                        0 => {
                            let read = io::copy(&mut stream, &mut io::sink()).unwrap();
                            assert_eq!(read, 6_000_000);
                        }
                        // Some of it.
                        1 => stream.read_exact(&mut vec![0; 100_000]).unwrap(),
                        // Closes its ears as well.
                        _ => stream.shutdown(Shutdown::Read).unwrap(),
                    }
                });
            }
        });
    });
}

#[test]
fn timeouts_and_cancellations_by_the_hundred() {
    if !is_child() {
        return in_a_process("faults::timeouts_and_cancellations_by_the_hundred");
    }
    expect_no_loss(many(10), |seed| {
        let service = Service::new(echo);
        let address = service.address;
        let fibers: Vec<_> = (0..100)
            .map(|number| {
                spawn(move || {
                    let mut random = Random(seed * 1000 + number);
                    let limit = Duration::from_micros(random.below(3000));
                    // Its result is the first error, or that it took too long: either may be.
                    let _ = carefree::timeout(limit, || -> io::Result<()> {
                        loop {
                            let mut stream = TcpStream::connect(address)?;
                            stream.write_all(&[7; 5000])?;
                            stream.read_exact(&mut [0; 5000])?;
                            // Nothing more comes.
                            stream.read_exact(&mut [0; 1])?;
                        }
                    });
                })
            })
            .collect();
        carefree::sleep(Duration::from_millis(1));
        for (number, fiber) in fibers.into_iter().enumerate() {
            if number % 3 == 0 {
                fiber.cancel();
            }
            fiber.join().unwrap();
        }
    });
}

fn limit_files(files: u64) {
    let limit = libc::rlimit { rlim_cur: files, rlim_max: files };
    // SAFETY: a valid structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Opens files until there are no more to be had.
fn open_all() -> Vec<File> {
    let mut files = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                return files;
            }
        }
    }
}

#[test]
fn out_of_file_descriptors() {
    if !is_child() {
        return in_a_process("faults::out_of_file_descriptors");
    }
    limit_files(120);
    expect_no_loss(many(8), |_| {
        // The clients leave the server fewer than it needs to serve them all at once.
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..70).map(|_| TcpStream::connect(address).unwrap()).collect();
        let _service = Service::on(listener, echo);
        scope(|s| {
            for mut stream in clients {
                s.spawn(move || {
                    stream.write_all(b"x").unwrap();
                    stream.read_exact(&mut [0]).unwrap();
                    carefree::sleep(Duration::from_millis(20));
                });
            }
        });
        // And now there is none for a client either.
        until("all connections are closed", || carefree::metrics().alive <= 2);
        let files = open_all();
        let error = TcpStream::connect(address).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        drop(files);
        TcpStream::connect(address).unwrap();
    });
    assert!(REFUSED.load(Ordering::Relaxed) > 0, "the server was never out of descriptors");
}

#[test]
fn no_descriptor_is_left_for_the_reactor() {
    if !is_child() {
        return in_a_process("faults::no_descriptor_is_left_for_the_reactor");
    }
    // Before the runtime has made anything, and with pairs to wait on already there.
    let pairs: Vec<_> = (0..20).map(|_| std::os::unix::net::UnixStream::pair().unwrap()).collect();
    let listener = listener();
    limit_files(100);
    let files = open_all();
    on_a_fiber(move || {
        let echoing: Vec<_> = pairs
            .into_iter()
            .map(|(mut one, mut two)| {
                let reading = spawn(move || {
                    let mut text = [0; 4];
                    one.read_exact(&mut text).unwrap();
                    text
                });
                let writing = spawn(move || {
                    carefree::sleep(Duration::from_millis(5));
                    two.write_all(b"pear").unwrap();
                });
                (reading, writing)
            })
            .collect();
        for (reading, writing) in echoing {
            assert_eq!(&reading.join().unwrap(), b"pear");
            writing.join().unwrap();
        }
        // Even so a server that waits for a connection can be ended.
        let service = Service::on(listener, echo);
        carefree::sleep(Duration::from_millis(5));
        drop(service);
    });
    drop(files);
    // And soon with as many as it likes.
    std::thread::sleep(Duration::from_millis(200));
    on_a_fiber(|| {
        let service = Service::new(echo);
        let mut stream = TcpStream::connect(service.address).unwrap();
        stream.write_all(b"fig").unwrap();
        let mut text = [0; 3];
        stream.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"fig");
    });
}
