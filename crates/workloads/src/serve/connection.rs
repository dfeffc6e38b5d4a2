//! A connection of the load: one request at a time, and the answer to it checked.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use crate::answer::Failure;

/// Heads and bodies are some hundred bytes; what has not ended by then is none of ours.
const ANSWER_MOST: usize = 16 << 10;

const FIELDS_MOST: usize = 64;

/// Connections are kept for so many requests, at least. Some servers close them after a hundred.
const KEPT: u64 = 50;

/// A connection that is kept.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    host: SocketAddr,
    /// What was received of the answer so far.
    received: Vec<u8>,
    /// The request that is under way: its number, and the right answer.
    asked: Option<(u64, String)>,
    /// Requests that were answered over it.
    answered: u64,
    /// Whether the last answer said that the server closes it.
    is_over: bool,
}

impl Connection {
    /// Connects within `patience`, which is also the longest that an answer is waited for by
    /// [`Connection::answer`].
    pub(super) fn open(host: SocketAddr, patience: Duration) -> Result<Connection, Failure> {
        let open = || {
            let stream = TcpStream::connect_timeout(&host, patience)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(stream)
        };
        let stream = open().map_err(|error: io::Error| {
            Failure::new(format!("the server's port cannot be connected to: {error}"))
        })?;
        let (received, asked) = (Vec::new(), None);
        Ok(Connection { stream, host, received, asked, answered: 0, is_over: false })
    }

    /// Whether the server has said, with its last answer, that it closes this connection.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends the request of this number, which `answer` is the right answer to. The one before has been
    /// answered, so there is room for it.
    pub(super) fn ask(&mut self, number: u64, answer: String) -> Result<(), Failure> {
        debug_assert_eq!(self.asked, None);
        let request = format!("GET /{number} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.write_all(request.as_bytes()).map_err(|error| broken(Some(number), &error))?;
        self.asked = Some((number, answer));
        Ok(())
    }

    /// Says that no more requests come. One that is broken by now needs no word.
    pub(super) fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Waits until the server has closed its side; whether it has in this time.
    pub(super) fn has_closed_within(&self, time: Duration) -> bool {
        // A time of nothing would be no limit. What else is sent, or breaks, is no wait either.
        let limit = Some(time.max(Duration::from_millis(1)));
        let _ = self.stream.set_read_timeout(limit);
        !matches!(
            recv(self.stream.as_raw_fd(), &mut [0; 64], MsgFlags::empty()),
            Err(Errno::EAGAIN)
        )
    }

    /// Waits for the answer.
    pub(super) fn answer(&mut self) -> Result<u64, Failure> {
        loop {
            if let Some(number) = self.receive(MsgFlags::empty())? {
                return Ok(number);
            }
        }
    }

    /// Takes what has come; the number of the request if that was the whole answer to it.
    pub(super) fn answered(&mut self) -> Result<Option<u64>, Failure> {
        self.receive(MsgFlags::MSG_DONTWAIT)
    }

    fn receive(&mut self, flags: MsgFlags) -> Result<Option<u64>, Failure> {
        let mut buffer = [0; 4096];
        let count = match recv(self.stream.as_raw_fd(), &mut buffer, flags) {
            Ok(0) => return Err(Failure::new(CLOSED)),
            Ok(count) => count,
            Err(Errno::EINTR) => return Ok(None),
            Err(Errno::EAGAIN) if flags.contains(MsgFlags::MSG_DONTWAIT) => return Ok(None),
            Err(error) => {
                let number = self.asked.as_ref().map(|(number, _)| *number);
                return Err(broken(number, &error.into()));
            }
        };
        let (number, right) = self.asked.as_ref().ok_or_else(|| Failure::new(UNASKED))?;
        let number = *number;
        self.received.extend_from_slice(&buffer[..count]);
        let Some(answer) = check(&self.received, number, right)? else {
            return Ok(None);
        };
        self.received.clear();
        self.asked = None;
        self.answered += 1;
        if answer.is_last && self.answered < KEPT {
            return Err(Failure::new(format!(
                "answer {} of a connection was its last, by Connection: close; connections are to be kept \
                 for {KEPT} requests at least",
                self.answered
            )));
        }
        self.is_over = answer.is_last;
        Ok(Some(number))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

const UNASKED: &str = "the server sent more than the answers to its requests";

const CLOSED: &str = "the server closed a connection that was to be kept";

fn broken(asked: Option<u64>, error: &io::Error) -> Failure {
    match (error.kind(), asked) {
        (io::ErrorKind::WouldBlock, Some(number)) => {
            Failure::new(format!("request {number} was not answered"))
        }
        _ => Failure::new(format!("a connection to the server broke: {error}")),
    }
}

/// A whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered {
    /// Whether the server closes the connection.
    is_last: bool,
}

/// The answer to the request of this number, which is `right`, if these bytes are the whole of it;
/// nothing yet, if they are its beginning.
fn check(received: &[u8], number: u64, right: &str) -> Result<Option<Answered>, Failure> {
    let wrong = |what: String| Err(Failure::new(format!("request {number} {what}")));
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MOST];
    let mut answer = httparse::Response::new(&mut fields);
    let head = match answer.parse(received) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) if received.len() < ANSWER_MOST => return Ok(None),
        _ => return wrong("was answered by something else than HTTP/1.1".into()),
    };
    if answer.code != Some(200) || answer.version != Some(1) {
        let (code, version) = (answer.code.unwrap_or(0), answer.version.unwrap_or(0));
        return wrong(format!("was answered by HTTP/1.{version} {code}, not HTTP/1.1 200"));
    }
    let field = |name: &str| {
        let found = answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| String::from_utf8_lossy(field.value.trim_ascii()).into_owned())
    };
    let is_last = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let Some(length) = field("content-length").and_then(|value| value.parse::<usize>().ok()) else {
        return wrong("was answered without a Content-Length".into());
    };
    let body = &received[head..];
    if length != right.len() || !right.as_bytes().starts_with(&body[..body.len().min(length)]) {
        let body = String::from_utf8_lossy(&body[..body.len().min(length).min(60)]);
        return wrong(format!("was answered by {body:?} ({length} bytes), not by {right:?}"));
    }
    if body.len() > length {
        return Err(Failure::new(UNASKED));
    }
    Ok((body.len() == length).then_some(Answered { is_last }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "carefree /17\n";

    const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\nX: y\r\n\r\ncarefree /17\n";

    #[test]
    fn an_answer_is_awaited_to_its_end() {
        for end in 0..GOOD.len() {
            assert_eq!(check(&GOOD.as_bytes()[..end], 17, RIGHT), Ok(None), "{end}");
        }
        let whole = |answer: &str| check(answer.as_bytes(), 17, RIGHT);
        assert_eq!(whole(GOOD), Ok(Some(Answered { is_last: false })));
        let last = GOOD.replacen("X: y", "connection: Close", 1);
        assert_eq!(whole(&last), Ok(Some(Answered { is_last: true })));
    }

    #[test]
    fn another_answer_is_told() {
        let told = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            check(GOOD.replacen(from, to, 1).as_bytes(), 17, RIGHT).expect_err("wrong").message
        };
        for (from, to, what) in [
            ("/17", "/71", r#"request 17 was answered by "carefree /71\n" (13 bytes), not by "#),
            ("13", "12", "(12 bytes), not by"),
            ("200 OK", "404 Not Found", "by HTTP/1.1 404, not HTTP/1.1 200"),
            ("HTTP/1.1", "HTTP/1.0", "by HTTP/1.0 200, not HTTP/1.1 200"),
            ("Content-Length: 13", "Transfer-Encoding: chunked", "without a Content-Length"),
            ("HTTP/1.1", "SMTP", "something else than HTTP/1.1"),
            ("/17\n", "/17\nHTTP/1.1 200 OK", "more than the answers"),
        ] {
            let told = told(from, to);
            assert!(told.contains(what), "{to}: {told}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(ANSWER_MOST));
        assert!(check(endless.as_bytes(), 17, RIGHT).is_err());
    }
}
