//! The serve workload of docs/targets.md: a task of tokio's or a coroutine of may's for each
//! connection, and the least of HTTP that answers a GET. Neither has a server of its own; hyper, or
//! what stands on it, would do more.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;

use tokio::runtime::Runtime;

use crate::{Account, Orders, tell, threads_for};

/// What was received on a connection, and what is to be sent.
#[derive(Default)]
struct Talk {
    received: Vec<u8>,
    answer: Vec<u8>,
}

impl Talk {
    /// Makes the answer to the next request, if all of that is there.
    fn answer(&mut self) -> bool {
        let Some(end) = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return false;
        };
        let head = String::from_utf8_lossy(&self.received[..end]);
        let body = format!("carefree {}\n", head.split(' ').nth(1).unwrap_or_default());
        let length = body.len();
        self.answer.clear();
        // Writing to memory cannot fail.
        let _ = write!(
            self.answer,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.received.drain(..end + 4);
        true
    }
}

/// Answers until the client closes.
async fn attend(stream: tokio::net::TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut talk, mut buffer) = (Talk::default(), [0; 1024]);
    loop {
        while talk.answer() {
            let mut sent = 0;
            while sent < talk.answer.len() {
                stream.writable().await?;
                match stream.try_write(&talk.answer[sent..]) {
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => talk.received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn tasks() -> io::Result<u16> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(attend(stream));
        }
    });
    Ok(port)
}

fn attend_in_coroutine(mut stream: may::net::TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut talk, mut buffer) = (Talk::default(), [0; 1024]);
    loop {
        while talk.answer() {
            stream.write_all(&talk.answer)?;
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => talk.received.extend_from_slice(&buffer[..count]),
        }
    }
}

fn coroutines(threads: usize) -> io::Result<u16> {
    may::config().set_workers(threads);
    let listener = may::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    may::go!(move || {
        while let Ok((stream, _)) = listener.accept() {
            may::go!(move || attend_in_coroutine(stream));
        }
    });
    Ok(port)
}

pub fn take(orders: &Orders) -> Result<Account, String> {
    let kind = orders.word("kind");
    if kind != "plain" {
        return Err(format!("there is no kind '{kind}' of servers here"));
    }
    let runtime = match orders.word("unit") {
        "may" => None,
        _ => Some(Runtime::new().map_err(|error| error.to_string())?),
    };
    let port = match &runtime {
        Some(runtime) => runtime.block_on(tasks()),
        None => coroutines(threads_for(orders)),
    };
    let port = port.map_err(|error| error.to_string())?;
    tell(&format!(r#"{{"phase":"serving","port":{port}}}"#));
    if let Some(runtime) = runtime {
        // Tasks of connections that are open are not waited for.
        runtime.shutdown_background();
    }
    Ok(Account::default())
}
