//! The serve workload of docs/targets.md: a task of tokio's or a coroutine of may's for each
//! connection, and the least of HTTP that answers a GET. Neither has a server of its own; hyper, or
//! what stands on it, would do more. A backend is asked likewise, over connections that are kept, of
//! which one that is free serves whichever request comes next.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Runtime;

use crate::{Account, Orders, tell, threads_for};

/// What was received on a connection, and what is to be sent.
#[derive(Default)]
struct Talk {
    received: Vec<u8>,
    answer: Vec<u8>,
}

impl Talk {
    /// Takes the next request, if all of that is there: its target.
    fn target(&mut self) -> Option<String> {
        let end = head(&self.received)?;
        let head = String::from_utf8_lossy(&self.received[..end]);
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.received.drain(..end);
        Some(target)
    }

    /// Makes the answer with this body.
    fn answer(&mut self, body: &[u8]) {
        let length = body.len();
        self.answer.clear();
        // Writing to memory cannot fail.
        let _ = write!(
            self.answer,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
        );
        self.answer.extend_from_slice(body);
    }
}

/// The length of a head, if all of it is there.
fn head(received: &[u8]) -> Option<usize> {
    Some(received.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4)
}

fn plain(target: &str) -> Vec<u8> {
    format!("carefree {target}\n").into_bytes()
}

/// A backend, and the connections to it that are free.
struct Backend<S> {
    address: SocketAddr,
    free: Mutex<Vec<S>>,
}

impl<S> Backend<S> {
    fn new(address: SocketAddr) -> Arc<Backend<S>> {
        Arc::new(Backend { address, free: Mutex::default() })
    }

    fn pop(&self) -> Option<S> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn push(&self, stream: S) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }

    fn request(&self, target: &str) -> Vec<u8> {
        format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address).into_bytes()
    }
}

/// The body of a backend's answer, if all of that is there.
fn body(received: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let Some(end) = head(received) else { return Ok(None) };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) if head.starts_with("http/1.1 200 ") => {
            Ok(received[end..].get(..length).map(<[u8]>::to_vec))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the backend answered otherwise")),
    }
}

/// Sends all of it.
async fn send(stream: &tokio::net::TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        stream.writable().await?;
        match stream.try_write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Adds what comes next to what was received, unless the other side has closed.
async fn receive(stream: &tokio::net::TcpStream, received: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 1024];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => {
                received.extend_from_slice(&buffer[..count]);
                return Ok(true);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn ask(backend: &Backend<tokio::net::TcpStream>, target: &str) -> io::Result<Vec<u8>> {
    let stream = match backend.pop() {
        Some(stream) => stream,
        None => {
            let stream = tokio::net::TcpStream::connect(backend.address).await?;
            stream.set_nodelay(true)?;
            stream
        }
    };
    send(&stream, &backend.request(target)).await?;
    let mut received = Vec::with_capacity(512);
    loop {
        if !receive(&stream, &mut received).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(body) = body(&received)? {
            backend.push(stream);
            return Ok(body);
        }
    }
}

/// Answers until the client closes.
async fn attend(
    stream: tokio::net::TcpStream,
    backend: Option<Arc<Backend<tokio::net::TcpStream>>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut talk = Talk::default();
    loop {
        while let Some(target) = talk.target() {
            let body = match &backend {
                None => plain(&target),
                Some(backend) => ask(backend, &target).await?,
            };
            talk.answer(&body);
            send(&stream, &talk.answer).await?;
        }
        if !receive(&stream, &mut talk.received).await? {
            return Ok(());
        }
    }
}

async fn tasks(backend: Option<SocketAddr>) -> io::Result<u16> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    let backend = backend.map(Backend::new);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(attend(stream, backend.clone()));
        }
    });
    Ok(port)
}

fn ask_in_coroutine(backend: &Backend<may::net::TcpStream>, target: &str) -> io::Result<Vec<u8>> {
    let mut stream = match backend.pop() {
        Some(stream) => stream,
        None => {
            let stream = may::net::TcpStream::connect(backend.address)?;
            stream.set_nodelay(true)?;
            stream
        }
    };
    stream.write_all(&backend.request(target))?;
    let (mut received, mut buffer) = (Vec::with_capacity(512), [0; 1024]);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&buffer[..count]),
        }
        if let Some(body) = body(&received)? {
            backend.push(stream);
            return Ok(body);
        }
    }
}

fn attend_in_coroutine(
    mut stream: may::net::TcpStream,
    backend: Option<Arc<Backend<may::net::TcpStream>>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut talk, mut buffer) = (Talk::default(), [0; 1024]);
    loop {
        while let Some(target) = talk.target() {
            let body = match &backend {
                None => plain(&target),
                Some(backend) => ask_in_coroutine(backend, &target)?,
            };
            talk.answer(&body);
            stream.write_all(&talk.answer)?;
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => talk.received.extend_from_slice(&buffer[..count]),
        }
    }
}

fn coroutines(threads: usize, backend: Option<SocketAddr>) -> io::Result<u16> {
    may::config().set_workers(threads);
    let listener = may::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let backend = backend.map(Backend::new);
    may::go!(move || {
        while let Ok((stream, _)) = listener.accept() {
            let backend = backend.clone();
            may::go!(move || attend_in_coroutine(stream, backend));
        }
    });
    Ok(port)
}

/// The address of the backend, if there is to be one.
fn backend(orders: &Orders) -> Result<Option<SocketAddr>, String> {
    match orders.word("kind") {
        "plain" => Ok(None),
        "backend" => {
            let url = orders.word("backend");
            let address = url.strip_prefix("http://").and_then(|address| address.parse().ok());
            address.map(Some).ok_or_else(|| format!("'{url}' is no address of a backend on HTTP"))
        }
        kind => Err(format!("there is no kind '{kind}' of servers here")),
    }
}

pub fn take(orders: &Orders) -> Result<Account, String> {
    let backend = backend(orders)?;
    let runtime = match orders.word("unit") {
        "may" => None,
        _ => Some(Runtime::new().map_err(|error| error.to_string())?),
    };
    let port = match &runtime {
        Some(runtime) => runtime.block_on(tasks(backend)),
        None => coroutines(threads_for(orders), backend),
    };
    let port = port.map_err(|error| error.to_string())?;
    tell(&format!(r#"{{"phase":"serving","port":{port}}}"#));
    if let Some(runtime) = runtime {
        // Tasks of connections that are open are not waited for.
        runtime.shutdown_background();
    }
    Ok(Account::default())
}
