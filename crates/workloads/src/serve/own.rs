//! Our own program for `serve`: a thread or a fiber for each connection, in blocking code.
//!
//! The standard library has no HTTP server. This is the least that is one: it reads the head of a
//! request by httparse, as hyper does, and answers with a head and a body.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;

use super::upstream::Upstream;
use super::{Kind, answer_to};
use crate::answer::{Account, Failure};
use crate::fetch::request::{self, Parsed};
use crate::own::{Words, tell};
use crate::sys;
use crate::unit::Unit;
use crate::unit::threads::{Fibers, Kernel, Threads};

/// Takes a sample in this process.
pub(crate) fn take(words: Words<'_>) -> Result<Account, Failure> {
    let backend = match words.need("kind")?.parse().map_err(Failure::new)? {
        Kind::Plain => None,
        Kind::Backend => Some(Upstream::new(words.need("backend")?)?),
    };
    match words.unit()? {
        Unit::Thread => serve::<Kernel>(backend),
        Unit::Fiber => serve::<Fibers>(backend),
        Unit::Coroutine => Err(Failure {
            message: "coroutines cannot wait for a socket".into(),
            advice: Some("serve has the units thread and fiber".into()),
        }),
    }
}

/// Serves until the lab answers. What then still runs ends with the process.
fn serve<U: Threads>(backend: Option<Upstream>) -> Result<Account, Failure> {
    let port = start::<U>(backend).map_err(Failure::new)?;
    tell(&format!(r#"{{"phase":"serving","port":{port}}}"#));
    Ok(Account { units: 1, ..Account::default() })
}

/// Starts a server on a port that the kernel chooses.
fn start<U: Threads>(backend: Option<Upstream>) -> io::Result<u16> {
    let backend = backend.map(Arc::new);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    sys::raise_backlog(&listener)?;
    let port = listener.local_addr()?.port();
    // No handle is kept: threads and fibers alike end by themselves.
    let accept = move || {
        loop {
            let Ok((stream, _)) = listener.accept() else { return };
            let backend = backend.clone();
            let attend = move || {
                // A client that leaves is no mistake of the server's. One that is left finds its
                // connection closed.
                let _ = attend(&stream, backend.as_deref());
            };
            if U::spawn(attend).is_err() {
                // The client finds its connection closed, and that is what it tells.
                continue;
            }
        }
    };
    drop(U::spawn(accept)?);
    Ok(port)
}

/// Bytes that are read at once. Requests have some hundred.
const ROOM: usize = 1024;

/// Answers requests in their order until the client closes.
fn attend(mut stream: &TcpStream, backend: Option<&Upstream>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // All that an idle connection keeps.
    let mut received = Vec::with_capacity(ROOM);
    loop {
        let head = match request::parse(&received) {
            Parsed::Request(request) => request.head,
            Parsed::Partial => {
                let before = received.len();
                received.resize(before + ROOM - before % ROOM, 0);
                let count = stream.read(&mut received[before..])?;
                if count == 0 {
                    return Ok(());
                }
                received.truncate(before + count);
                continue;
            }
            Parsed::Refused => {
                return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            }
        };
        let line = String::from_utf8_lossy(&received[..head]);
        let target = line.split(' ').nth(1).unwrap_or_default();
        let body = match backend {
            None => answer_to(target).into_bytes(),
            Some(backend) => backend.get(target)?,
        };
        let length = body.len();
        let mut answer = Vec::with_capacity(256);
        write!(
            answer,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
        )?;
        answer.extend_from_slice(&body);
        stream.write_all(&answer)?;
        received.drain(..head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{Backend, Client};
    use std::time::Duration;

    fn go_on() -> Result<(), Failure> {
        Ok(())
    }

    #[test]
    fn threads_and_fibers_answer_every_request_of_the_load() {
        for start in [start::<Kernel>, start::<Fibers>] {
            let port = start(None).expect("a port on loopback");
            let mut client = Client::new(port, &answer_to, &go_on);
            let mut idle = client.hold(20, 3).expect("twenty connections");
            client.ask(&mut idle).expect("twenty answers");
            assert_eq!(client.made(), 40);
            let time = Duration::from_millis(100);
            let mut busy = client.connect(4).expect("four connections");
            let rushed = client.rush(&mut busy, time).expect("answers");
            assert!(rushed.requests >= 4 && rushed.ns >= 100_000_000, "{rushed:?}");
            let paced = client.pace(&mut busy, 200, time).expect("answers");
            assert_eq!(paced.requests, 20);
            // The last one is due after 95 ms.
            assert!(paced.ns >= 95_000_000, "{paced:?}");
            assert!(paced.p50_ns <= paced.p99_ns && paced.p99_ns <= paced.most_ns, "{paced:?}");
            assert_eq!(paced.p999_ns, None);
            drop(idle);
        }
    }

    #[test]
    fn threads_and_fibers_pass_on_what_their_backend_says() {
        for start in [start::<Kernel>, start::<Fibers>] {
            let latency = Duration::from_millis(20);
            let backend = Backend::start(latency).expect("a port on loopback");
            let upstream = Upstream::new(&backend.url()).expect("an address");
            let port = start(Some(upstream)).expect("a port on loopback");
            let answer = |target: &str| backend.answer_to(target);
            let mut client = Client::new(port, &answer, &go_on);
            let mut open = client.hold(8, 8).expect("eight connections");
            client.ask(&mut open).expect("eight answers");
            let paced = client.pace(&mut open, 100, Duration::from_millis(100)).expect("answers");
            assert!(paced.p50_ns >= 20_000_000, "{paced:?}");
            let tally = backend.tally();
            assert_eq!((tally.answered, client.made(), tally.failed), (26, 26, 0));
            // Connections are kept for the next request.
            assert!(tally.connections <= 8, "{tally:?}");
        }
    }

    #[test]
    fn a_server_that_makes_the_answer_up_is_found_out() {
        let backend = Backend::start(Duration::ZERO).expect("a port on loopback");
        let port = start::<Kernel>(None).expect("a port on loopback");
        let answer = |target: &str| backend.answer_to(target);
        let wrong = Client::new(port, &answer, &go_on).hold(1, 1).expect_err("a wrong answer");
        assert!(wrong.message.contains(r#"answered by "carefree /1\n""#), "{wrong:?}");
    }
}
