//! What our own server asks its backend with: connections that are kept, and the least of HTTP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, PoisonError};

use crate::answer::Failure;

const FIELDS_MOST: usize = 64;

/// A backend, and the connections to it that are free.
#[derive(Debug)]
pub(super) struct Upstream {
    address: SocketAddr,
    free: Mutex<Vec<TcpStream>>,
}

impl Upstream {
    /// The backend at this address, `http://127.0.0.1:41023`.
    pub(super) fn new(url: &str) -> Result<Upstream, Failure> {
        let address = url.strip_prefix("http://").and_then(|address| address.parse().ok());
        let address = address
            .ok_or_else(|| Failure::new(format!("'{url}' is no address of a backend on HTTP")))?;
        Ok(Upstream { address, free: Mutex::default() })
    }

    /// The body of what it answers to a GET of this target.
    pub(super) fn get(&self, target: &str) -> io::Result<Vec<u8>> {
        // A statement of its own, for the lock is not to be held while connecting.
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut stream = match free {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes())?;
        let mut received = Vec::with_capacity(512);
        let mut buffer = [0; 1024];
        let body = loop {
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => received.extend_from_slice(&buffer[..count]),
            }
            if let Some(body) = whole(&received)? {
                break body;
            }
        };
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Ok(body)
    }
}

/// The body of an answer, if all of that is there.
fn whole(received: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MOST];
    let mut answer = httparse::Response::new(&mut fields);
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let head = match answer.parse(received).map_err(|error| wrong(error.to_string()))? {
        httparse::Status::Complete(head) => head,
        httparse::Status::Partial => return Ok(None),
    };
    let length = answer.headers.iter().find(|f| f.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|f| std::str::from_utf8(f.value).ok()?.trim().parse().ok());
    match (answer.code, length) {
        (Some(200), Some(length)) => Ok(received[head..].get(..length).map(<[u8]>::to_vec)),
        (code, _) => Err(wrong(format!("the backend answered {}", code.unwrap_or(0)))),
    }
}
