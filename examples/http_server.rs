//! An HTTP server in blocking code: a fiber for each connection, or a thread.
//!
//! ```text
//! cargo run --release --example http_server
//! curl http://127.0.0.1:8080/
//! ```
//!
//! The code that serves a connection uses `std::net` and httparse, and knows nothing of fibers. A
//! fiber or a thread runs it, as `--on` says.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};

/// Answers every request with a greeting. Stop it with Ctrl-C.
#[derive(Debug, Parser)]
struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// What serves a connection.
    #[arg(long, value_enum, default_value = "fibers")]
    on: On,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum On {
    Fibers,
    Threads,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let listener = match listen(args.listen) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("http_server: cannot listen on {}: {error}", args.listen);
            return ExitCode::FAILURE;
        }
    };
    match listener.local_addr() {
        Ok(address) => println!("listening on {address}"),
        Err(error) => eprintln!("http_server: {error}"),
    }
    match args.on {
        On::Fibers => carefree::run(|| accept(&listener, args.on)),
        On::Threads => accept(&listener, args.on),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // Thousands of connections may wait to be accepted; std allows 128.
    // SAFETY: a call with numbers.
    match unsafe { libc::listen(listener.as_raw_fd(), 4096) } {
        0 => Ok(listener),
        _ => Err(io::Error::last_os_error()),
    }
}

fn accept(listener: &TcpListener, on: On) -> ! {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause(&error);
                continue;
            }
        };
        // An answer should not wait for more to send. A connection that breaks concerns no other.
        let serve = move || stream.set_nodelay(true).and_then(|()| serve(stream));
        let started = match on {
            On::Fibers => carefree::Builder::new().spawn(serve).map(drop),
            On::Threads => thread::Builder::new().spawn(serve).map(drop),
        };
        if let Err(error) = started {
            pause(&error);
        }
    }
}

/// Mostly a shortage of descriptors or memory, which may soon be over.
fn pause(error: &io::Error) {
    let advice = match error.raw_os_error() {
        Some(libc::EMFILE) => " (raise it with `ulimit -n`)",
        _ => "",
    };
    eprintln!("http_server: a connection was turned away: {error}{advice}");
    thread::sleep(Duration::from_millis(10));
}

/// The longest head of a request.
const HEAD_MAX: usize = 64 << 10;

/// Serves a connection to its end. Requests that came together are answered together.
fn serve(mut stream: impl Read + Write) -> io::Result<()> {
    // Small, for most requests are; it grows when one does not fit.
    let mut input = vec![0; 1 << 10];
    let mut output = Vec::new();
    // Bytes in the input buffer, and bytes of a request's body that are still to come.
    let (mut filled, mut body) = (0, 0);
    let mut date = Date::default();
    let mut open = true;
    while open {
        let read = stream.read(&mut input[filled..])?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let mut used = 0;
        while open {
            let skipped = body.min((filled - used) as u64);
            body -= skipped;
            used += skipped as usize;
            let request = match Request::parse(&input[used..filled]) {
                Ok(Some(request)) => request,
                Ok(None) => break,
                Err(status) => Request::bad(status),
            };
            used += request.head;
            body = request.body;
            open = request.keep_alive;
            answer(&mut output, &request, &mut date);
        }
        if !output.is_empty() {
            stream.write_all(&output)?;
            output.clear();
        }
        input.copy_within(used..filled, 0);
        filled -= used;
        if filled == input.len() {
            input.resize(2 * input.len(), 0);
        }
    }
    Ok(())
}

/// What the server needs of a request.
struct Request {
    /// Bytes of its head.
    head: usize,
    /// Bytes of the body that follows.
    body: u64,
    /// Whether the connection stays open for another.
    keep_alive: bool,
    /// Whether the answer's own body is asked for.
    whole: bool,
    status: &'static str,
}

impl Request {
    /// One after which there is nothing more to say.
    fn bad(status: &'static str) -> Request {
        Request { head: 0, body: 0, keep_alive: false, whole: true, status }
    }

    /// The request at the beginning of `input`; none if it is not all there yet; or the status that
    /// says what is wrong with it.
    fn parse(input: &[u8]) -> Result<Option<Request>, &'static str> {
        if input.is_empty() {
            return Ok(None);
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Request::new(&mut headers);
        let head = match parsed.parse(input) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) if input.len() < HEAD_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err("431 Request Header Fields Too Large");
            }
            Err(_) => return Err("400 Bad Request"),
        };
        let mut request = Request {
            head,
            body: 0,
            keep_alive: parsed.version == Some(1),
            whole: parsed.method != Some("HEAD"),
            status: if parsed.path == Some("/") { "200 OK" } else { "404 Not Found" },
        };
        for header in parsed.headers.iter() {
            let value = || std::str::from_utf8(header.value).map_err(|_| "400 Bad Request");
            if header.name.eq_ignore_ascii_case("content-length") {
                request.body = value()?.trim().parse().map_err(|_| "400 Bad Request")?;
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                return Err("501 Not Implemented");
            } else if header.name.eq_ignore_ascii_case("connection") {
                let value = value()?;
                let says =
                    |word| value.split(',').any(|said| said.trim().eq_ignore_ascii_case(word));
                request.keep_alive = !says("close") && (request.keep_alive || says("keep-alive"));
            }
        }
        Ok(Some(request))
    }
}

/// The time as answers tell it, written out once a second.
#[derive(Default)]
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn now(&mut self) -> &str {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = httpdate::fmt_http_date(now);
        }
        &self.text
    }
}

/// Writes a number out, without an allocation.
fn decimal(number: usize, digits: &mut [u8; 20]) -> &str {
    let mut rest: &mut [u8] = digits;
    write!(rest, "{number}").expect("64 bits have no more than 20 digits");
    let unused = rest.len();
    std::str::from_utf8(&digits[..20 - unused]).expect("digits are text")
}

fn answer(output: &mut Vec<u8>, request: &Request, date: &mut Date) {
    let text = if request.status == "200 OK" { "Hello, World!" } else { request.status };
    let connection = if request.keep_alive { "" } else { "Connection: close\r\n" };
    let body = if request.whole { text } else { "" };
    let mut say = |parts: &[&str]| {
        parts.iter().for_each(|part| output.extend_from_slice(part.as_bytes()));
    };
    say(&["HTTP/1.1 ", request.status, "\r\nContent-Type: text/plain\r\nContent-Length: "]);
    say(&[decimal(text.len(), &mut [0; 20])]);
    say(&["\r\nDate: ", date.now(), "\r\n", connection, "\r\n", body]);
}
