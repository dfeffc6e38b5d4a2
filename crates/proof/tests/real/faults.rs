//! Faults that occur in production, many times over, which must not leak fibers, files or memory.
//!
//! Each test runs in a process of its own, so that it can count what the process has.

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

/// The resources of a process that can leak.
#[derive(Clone, Debug)]
struct Resources {
    fibers: u64,
    files: HashMap<String, usize>,
    /// Bytes allocated and not freed.
    heap: usize,
    /// Bytes of memory in use.
    resident: usize,
}

impl Resources {
    fn count() -> Resources {
        // The kind of file of each descriptor: its link without the number of a socket or pipe.
        let mut files = HashMap::new();
        for file in fs::read_dir("/proc/self/fd").unwrap() {
            let Ok(target) = fs::read_link(file.unwrap().path()) else { continue };
            let target = target.to_string_lossy().into_owned();
            *files.entry(target.split(":[").next().unwrap().to_owned()).or_default() += 1;
        }
        // SAFETY: no preconditions.
        let heap = unsafe { libc::mallinfo2() }.uordblks;
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        Resources { fibers: carefree::metrics().alive, files, heap, resident: pages * 4096 }
    }

    /// Waits until there are no more fibers and files than before; returns how much more memory is
    /// in use: bytes allocated and not freed, and bytes resident. Each carrier may have opened
    /// `files_of_a_carrier` since.
    fn grown(&self, files_of_a_carrier: usize) -> (usize, usize) {
        until("the fibers have ended", || carefree::metrics().alive <= self.fibers);
        let before = |name: &String| self.files.get(name).copied().unwrap_or(0);
        let allowed = |name: &String| match name.as_str() {
            // A carrier that had not waited for anything when they were counted may have made its
            // driver since. One that was added keeps its driver in reserve.
            ANONYMOUS => {
                let counts = carefree::metrics();
                let carriers = counts.carriers + counts.added as usize;
                before(name).max(files_of_a_carrier * carriers)
            }
            _ => before(name),
        };
        until("the files are closed", || {
            Resources::count().files.iter().all(|(name, count)| *count <= allowed(name))
        });
        let now = Resources::count();
        (now.heap.saturating_sub(self.heap), now.resident.saturating_sub(self.resident))
    }
}

/// The kind of files without a name: rings, epoll instances, eventfds.
const ANONYMOUS: &str = "anon_inode";

/// How many files a carrier opens until it has waited for a connection and for data, including
/// those that it shares with other carriers. To be called before there are other carriers.
fn files_of_a_carrier() -> usize {
    let count = || Resources::count().files.get(ANONYMOUS).copied().unwrap_or(0);
    let before = count();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let now = runtime.run(|| {
        let service = Service::new(echo);
        let mut stream = TcpStream::connect(service.address).unwrap();
        // When the second answer has come, the service has waited for another connection.
        for _ in 0..2 {
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        count()
    });
    now - before
}

/// Runs as many fibers at once as any test here, with frames as deep: the pool keeps their stacks,
/// with the memory that was touched.
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

/// Runs `round` twice, so that everything that is made once exists, counts, runs it `rounds` times
/// more, and counts again. Caches may still grow, so this is repeated: a leak shows each time.
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
        let before = Resources::count();
        for number in 0..rounds as u64 {
            on_a_fiber(move || round(100 * time + number));
        }
        let (heap, resident) = before.grown(files_of_a_carrier);
        // Less than a hundred bytes for each of a thousand connections. (`in_a_process` turns malloc's
        // caches for each fiber off, which fill slowly.)
        if heap < 100_000 && resident < 4 << 20 {
            return;
        }
        seen.push((heap, resident));
    }
    panic!("allocated bytes and resident bytes grow each time: {seen:?}");
}

/// How often a [`Service`] failed to accept a connection.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// A server whose connections are served by `serve`. Dropping it ends it and waits for its
/// connections.
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
                        // The outcome of a connection does not matter here.
                        let _ = serve(stream);
                    })),
                    Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => return serving,
                    // The connection was reset before it was accepted, or there is no free descriptor.
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

/// A listener with a long queue of connections.
fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: accesses no memory.
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

/// Waits for the end of a request's head, which the tests never send.
fn await_head(mut stream: TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")
}

/// Closes a connection by a reset, which discards data in flight.
fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the value has the option's type.
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
                    // The other direction, which the reset ends as well.
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
                    // The clone keeps the connection open.
                    reading.cancel();
                    let _ = reading.join().unwrap();
                });
            }
        });
    });
}

#[test]
fn thousands_of_connections_are_dropped_during_a_request() {
    if !is_child() {
        return in_a_process("faults::thousands_of_connections_are_dropped_during_a_request");
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
            // More than the socket's buffer: it waits until the peer reads or closes.
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
                        // Reads everything.
                        0 => {
                            let read = io::copy(&mut stream, &mut io::sink()).unwrap();
                            assert_eq!(read, 6_000_000);
                        }
                        // Reads a part.
                        1 => stream.read_exact(&mut vec![0; 100_000]).unwrap(),
                        // Shuts reading down as well.
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
                    // It ends by an error or by the timeout.
                    let _ = carefree::timeout(limit, || -> io::Result<()> {
                        loop {
                            let mut stream = TcpStream::connect(address)?;
                            stream.write_all(&[7; 5000])?;
                            stream.read_exact(&mut [0; 5000])?;
                            // No more data comes.
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
    // SAFETY: only reads the structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Opens files until no descriptor is free.
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
        // The clients leave the server fewer descriptors than it needs to serve them all at once.
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
        // Now no descriptor is free for a client either.
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
    // Before the runtime has opened anything. The pairs to wait on exist already.
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
        // A server that waits for a connection can still be ended.
        let service = Service::on(listener, echo);
        carefree::sleep(Duration::from_millis(5));
        drop(service);
    });
    drop(files);
    // Soon after, with free descriptors, everything works.
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
