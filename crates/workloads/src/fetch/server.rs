//! An HTTP/1.1 server on loopback, in plain blocking code on threads.
//!
//! On threads, not on our fibers: what is measured must not be on both sides of the socket. Each
//! thread accepts a connection, serves it to its end and accepts the next. When the last free thread
//! is taken, it first starts another: one always accepts, and after the first crowd no thread is
//! started any more while a sample is taken.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::request::{self, HEAD_MOST, Parsed};
use super::response::{self, Body, Content, Encoding, Secret};
use crate::sys;

/// Threads there are at most, and so connections that are served at once.
const THREADS_MOST: usize = 4096;

/// Enough for a request's buffer and the frames beneath.
const STACK: usize = 128 << 10;

/// How a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From the end of a request to the start of its answer.
    pub latency: Duration,
    /// The body's length, bytes.
    pub body: usize,
    /// How the body's end is known.
    pub encoding: Encoding,
    /// How long a connection may say nothing before it is closed.
    pub patience: Duration,
}

impl Default for Settings {
    /// The defaults of `carefree bench fetch`.
    fn default() -> Settings {
        Settings {
            latency: Duration::from_millis(20),
            body: 1024,
            encoding: Encoding::Fixed,
            patience: Duration::from_secs(30),
        }
    }
}

/// What a server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that were answered, each with a whole body.
    pub answered: u64,
    /// Bytes of bodies in these answers, without heads and the marks of chunks.
    pub body_bytes: u64,
    /// Requests that got an error, or that were not answered because the client was gone.
    pub failed: u64,
    /// The most requests that were in hand at once.
    pub at_once: u64,
}

/// A server that is running. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    address: SocketAddr,
    settings: Settings,
    content: Content,
    /// Threads that wait for a connection.
    free: AtomicUsize,
    /// `None` once the server ends: then no thread and no connection may come any more.
    open: Mutex<Option<Open>>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    answered: AtomicU64,
    body_bytes: AtomicU64,
    failed: AtomicU64,
    at_once: AtomicU64,
    in_hand: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    threads: Vec<JoinHandle<()>>,
    streams: HashMap<u64, Arc<TcpStream>>,
}

impl Server {
    /// Starts a server on a port of 127.0.0.1 that the kernel chooses.
    ///
    /// # Errors
    /// When there is no port, descriptor or thread to be had.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use carefree_workloads::fetch::{Server, Settings};
    ///
    /// let server = Server::start(Settings { body: 5, ..Settings::default() })?;
    /// let mut stream = std::net::TcpStream::connect(server.address())?;
    /// stream.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    /// let mut answer = String::new();
    /// stream.read_to_string(&mut answer)?;
    /// assert!(answer.ends_with("\r\n\r\nabcde"));
    /// assert_eq!(server.stop().answered, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start(settings: Settings) -> io::Result<Server> {
        let body = Body::new(settings.body, settings.encoding);
        Server::start_with(settings, Content::Same(body))
    }

    /// Starts a server that answers to each target as `secret` says, whatever the settings say of the
    /// body.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with_secret(settings: Settings, secret: Secret) -> io::Result<Server> {
        Server::start_with(settings, Content::Own(secret))
    }

    fn start_with(settings: Settings, content: Content) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        sys::raise_backlog(&listener)?;
        let shared = Arc::new(Shared {
            address: listener.local_addr()?,
            listener,
            settings,
            content,
            free: AtomicUsize::new(0),
            open: Mutex::new(Some(Open::default())),
            counts: Counts::default(),
        });
        Shared::hire(&shared)?;
        Ok(Server { shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The address to get.
    pub fn url(&self) -> String {
        format!("http://{}/", self.shared.address)
    }

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        let shared = &*self.shared;
        Tally {
            connections: shared.counts.connections.load(Relaxed),
            answered: shared.counts.answered.load(Relaxed),
            body_bytes: shared.counts.body_bytes.load(Relaxed),
            failed: shared.counts.failed.load(Relaxed),
            at_once: shared.counts.at_once.load(Relaxed),
        }
    }

    /// Closes all connections, waits for the threads and tells what was done.
    pub fn stop(self) -> Tally {
        self.end();
        self.tally()
    }

    fn end(&self) {
        let Some(open) = self.shared.lock().take() else {
            return;
        };
        sys::shut_down(&self.shared.listener);
        for stream in open.streams.values() {
            // It fails where the client has closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in open.threads {
            // A thread that panicked has said so on standard error.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread that accepts, unless there are enough or the server is ending.
    fn hire(shared: &Arc<Shared>) -> io::Result<()> {
        let mut open = shared.lock();
        let Some(open) = open.as_mut().filter(|open| open.threads.len() < THREADS_MOST) else {
            return Ok(());
        };
        let theirs = Arc::clone(shared);
        shared.free.fetch_add(1, Relaxed);
        let thread = thread::Builder::new()
            .name("fetch server".into())
            .stack_size(STACK)
            .spawn(move || Shared::work(&theirs))
            .inspect_err(|_| {
                shared.free.fetch_sub(1, Relaxed);
            })?;
        open.threads.push(thread);
        Ok(())
    }

    fn work(shared: &Arc<Shared>) {
        loop {
            let accepted = shared.listener.accept();
            let Ok((stream, _)) = accepted else {
                if shared.lock().is_none() {
                    return;
                }
                // Out of descriptors, or a client that was gone already.
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            if shared.free.fetch_sub(1, Relaxed) == 1 {
                // If no thread can be started, the next connection waits for the end of this one.
                let _ = Shared::hire(shared);
            }
            shared.attend(stream);
            shared.free.fetch_add(1, Relaxed);
        }
    }

    fn attend(&self, stream: TcpStream) {
        let number = self.counts.connections.fetch_add(1, Relaxed);
        let stream = Arc::new(stream);
        match self.lock().as_mut() {
            Some(open) => open.streams.insert(number, Arc::clone(&stream)),
            None => return,
        };
        // Whether a broken connection lost an answer has been counted.
        let _ = self.serve(&stream);
        if let Some(open) = self.lock().as_mut() {
            open.streams.remove(&number);
        }
    }

    /// Answers requests in their order until one side closes.
    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.settings.patience))?;
        // What was received and not yet used: a client may send its next request early.
        let mut received = Vec::with_capacity(1024);
        loop {
            let request = match self.next(stream, &mut received)? {
                Parsed::Partial => return Ok(()),
                Parsed::Request(request) => request,
                Parsed::Refused => {
                    self.counts.failed.fetch_add(1, Relaxed);
                    stream.write_all(&response::refuse())?;
                    return farewell(stream);
                }
            };
            let target = String::from_utf8_lossy(&received[..request.head]);
            let target = target.split(' ').nth(1).unwrap_or_default();
            let (answer, length) = self.content.answer(&request, target);
            received.drain(..request.head);
            let sent = {
                let in_hand = self.counts.in_hand.fetch_add(1, Relaxed) + 1;
                self.counts.at_once.fetch_max(in_hand, Relaxed);
                thread::sleep(self.settings.latency);
                // Before the answer is sent: the client may ask again at once, and is not counted twice.
                self.counts.in_hand.fetch_sub(1, Relaxed);
                // Before the answer is sent, so that a client with all answers finds them all counted.
                self.counts.answered.fetch_add(1, Relaxed);
                self.counts.body_bytes.fetch_add(length as u64, Relaxed);
                stream.write_all(&answer)
            };
            if let Err(error) = sent {
                self.counts.answered.fetch_sub(1, Relaxed);
                self.counts.body_bytes.fetch_sub(length as u64, Relaxed);
                self.counts.failed.fetch_add(1, Relaxed);
                return Err(error);
            }
            if !request.keep {
                return farewell(stream);
            }
        }
    }

    /// The next request; `Partial` where the client has closed, or said nothing for too long,
    /// between two of them.
    fn next(&self, mut stream: &TcpStream, received: &mut Vec<u8>) -> io::Result<Parsed> {
        let mut buffer = [0; 4096];
        loop {
            if !received.is_empty() {
                let parsed = request::parse(received);
                if parsed != Parsed::Partial {
                    return Ok(parsed);
                }
            }
            match stream.read(&mut buffer) {
                Ok(0) if received.is_empty() => return Ok(Parsed::Partial),
                Ok(0) => return Ok(Parsed::Refused),
                Ok(read) => received.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(match received.is_empty() {
                        true => Parsed::Partial,
                        false => Parsed::Refused,
                    });
                }
                Err(error) => return Err(error),
            }
            debug_assert!(received.len() < HEAD_MOST + buffer.len());
        }
    }
}

/// Ends a connection so that the answer arrives: closing with bytes unread would have the kernel
/// send a reset, which may destroy what the client has not read yet (RFC 9112, 9.6).
fn farewell(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let deadline = Instant::now() + Duration::from_secs(1);
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        if stream.read(&mut buffer)? == 0 {
            return Ok(());
        }
    }
}
