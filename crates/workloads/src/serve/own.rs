//! Our own program for `serve`: a thread or a fiber for each connection, in blocking code.
//!
//! The standard library has no HTTP server. This is the least that is one: it reads the head of a
//! request by httparse, as hyper does, and answers with a head and a body.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::answer_to;
use crate::answer::{Account, Failure};
use crate::fetch::request::{self, Parsed};
use crate::own::{Words, tell};
use crate::sys;
use crate::unit::Unit;
use crate::unit::threads::{Fibers, Kernel, Threads};

/// Takes a sample in this process.
pub(crate) fn take(words: Words<'_>) -> Result<Account, Failure> {
    let kind = words.need("kind")?;
    if kind != "plain" {
        return Err(Failure::new(format!("there is no kind '{kind}' of servers here")));
    }
    match words.unit()? {
        Unit::Thread => serve::<Kernel>(),
        Unit::Fiber => serve::<Fibers>(),
        Unit::Coroutine => Err(Failure {
            message: "coroutines cannot wait for a socket".into(),
            advice: Some("serve has the units thread and fiber".into()),
        }),
    }
}

/// Serves until the lab answers. What then still runs ends with the process.
fn serve<U: Threads>() -> Result<Account, Failure> {
    let port = start::<U>().map_err(Failure::new)?;
    tell(&format!(r#"{{"phase":"serving","port":{port}}}"#));
    Ok(Account { units: 1, ..Account::default() })
}

/// Starts a server on a port that the kernel chooses.
fn start<U: Threads>() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    sys::raise_backlog(&listener)?;
    let port = listener.local_addr()?.port();
    // No handle is kept: threads and fibers alike end by themselves.
    let accept = move || {
        loop {
            let Ok((stream, _)) = listener.accept() else { return };
            let attend = move || {
                // A client that leaves is no mistake of the server's.
                let _ = attend(&stream);
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

/// Answers requests in their order until the client closes.
fn attend(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(1024);
    let mut buffer = [0; 1024];
    let mut answer = Vec::with_capacity(256);
    loop {
        let head = match request::parse(&received) {
            Parsed::Request(request) => request.head,
            Parsed::Partial => {
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    count => received.extend_from_slice(&buffer[..count]),
                }
                continue;
            }
            Parsed::Refused => {
                return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            }
        };
        let line = String::from_utf8_lossy(&received[..head]);
        let body = answer_to(line.split(' ').nth(1).unwrap_or_default());
        answer.clear();
        let length = body.len();
        write!(
            answer,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        stream.write_all(&answer)?;
        received.drain(..head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::Client;
    use std::time::Duration;

    fn go_on() -> Result<(), Failure> {
        Ok(())
    }

    #[test]
    fn threads_and_fibers_answer_every_request_of_the_load() {
        for start in [start::<Kernel>, start::<Fibers>] {
            let port = start().expect("a port on loopback");
            let mut client = Client::new(port, &go_on);
            client.ask(3).expect("three answers");
            let idle = client.hold(20).expect("twenty connections");
            let time = Duration::from_millis(100);
            let rushed = client.rush(4, time).expect("answers");
            assert!(rushed.requests >= 4 && rushed.ns >= 100_000_000, "{rushed:?}");
            let paced = client.pace(4, 200, time).expect("answers");
            assert_eq!(paced.requests, 20);
            // The last one is due after 95 ms.
            assert!(paced.ns >= 95_000_000, "{paced:?}");
            assert!(paced.p50_ns <= paced.p99_ns && paced.p99_ns <= paced.most_ns, "{paced:?}");
            assert_eq!(paced.p999_ns, None);
            drop(idle);
        }
    }
}
