//! The examples do what they say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// An example's program, which Cargo builds beside the tests.
fn example(name: &str) -> Command {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path = path.join("examples").join(name);
    assert!(path.exists(), "{} is not built", path.display());
    Command::new(path)
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A server that has said where it listens; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(name: &str, arguments: &[&str]) -> Server {
        let mut process = example(name)
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Server { process, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// All that the server answers to `request` before it closes the connection.
    fn answer(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const LAST: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn http_server_speaks_http() {
    for on in ["fibers", "threads"] {
        let server = Server::start("http_server", &["--on", on]);
        let answer = server.answer(LAST.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        assert!(answer.contains("\r\nContent-Length: 13\r\n"), "{answer}");
        assert!(answer.contains("\r\nDate: "), "{answer}");
        assert!(answer.ends_with("\r\n\r\nHello, World!"), "{answer}");
        // HTTP/1.0 closes unless told otherwise.
        let answer = server.answer(b"GET /none HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
        // Several at once, one with a body, are answered in turn.
        let several = format!(
            "GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 26\r\n\r\nGET /none HTTP/1.1\r\n\r\nabcd\
             HEAD / HTTP/1.1\r\n\r\n{LAST}"
        );
        let answer = server.answer(several.as_bytes());
        assert_eq!(answer.matches("200 OK").count(), 4, "{answer}");
        assert_eq!(answer.matches("Hello, World!").count(), 3, "{answer}");
        // A head that comes in pieces, and is longer than the first buffer.
        let mut stream = server.connect();
        for piece in ["GET / HT", "TP/1.1\r\nX: ", &"x".repeat(5000), "\r\nConnection: close\r"] {
            stream.write_all(piece.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        stream.write_all(b"\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
}

#[test]
fn http_server_says_what_is_wrong() {
    let server = Server::start("http_server", &[]);
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n".to_owned(), "400 Bad Request"),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "501 Not Implemented"),
        (
            format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100)),
            "431 Request Header Fields Too Large",
        ),
    ] {
        let answer = server.answer(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
    let output = example("http_server").args(["--listen", &server.address]).output().unwrap();
    assert!(!output.status.success());
    let (_, said) = text(&output);
    assert!(said.starts_with("http_server: cannot listen on 127.0.0.1:"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn chat_server_passes_on_what_is_said() {
    let server = Server::start("chat_server", &[]);
    let join = |name: &str| {
        let mut stream = server.connect();
        writeln!(stream, "{name}").unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        (stream, lines, first)
    };
    let (mut ada, mut to_ada, first) = join("Ada");
    assert!(first.ends_with("here are you alone"), "{first}");
    let (mut bob, mut to_bob, first) = join("Bob");
    assert!(first.ends_with("here are Ada"), "{first}");
    assert_eq!(to_ada.next().unwrap(), "* Bob is here");
    let (_, mut to_other, first) = join("Bob");
    assert!(first.ends_with("That name is taken."), "{first}");
    assert_eq!(to_other.next(), None);
    writeln!(ada, "hello").unwrap();
    assert_eq!(to_bob.next().unwrap(), "Ada: hello");
    writeln!(bob, "hi there").unwrap();
    assert_eq!(to_ada.next().unwrap(), "Bob: hi there");
    // Many connections that come, read and leave.
    let crowd: Vec<_> = (0..50).map(|number| join(&format!("guest {number}"))).collect();
    writeln!(ada, "so many!").unwrap();
    for (_, mut lines, _) in crowd {
        assert!(lines.any(|line| line == "Ada: so many!"));
    }
    drop((bob, to_bob));
    assert!(to_ada.any(|line| line == "* Bob has left"));
}

#[test]
fn fetch_many_fetches() {
    for on in ["fibers", "threads"] {
        let output = example("fetch_many")
            .args(["--requests", "300", "--rounds", "2", "--delay", "20", "--on", on])
            .output()
            .unwrap();
        let (said, complaints) = text(&output);
        assert!(output.status.success(), "{complaints}");
        assert_eq!(said.lines().filter(|line| line.starts_with("round ")).count(), 2, "{said}");
    }
    let output = example("fetch_many").args(["--requests", "4000000000"]).output().unwrap();
    let (_, said) = text(&output);
    assert!(!output.status.success() && said.contains("ulimit -Hn"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn pg_pool_says_why_it_cannot_connect() {
    // With a database it is tested where there is one: `clients_of_postgresql` makes the same calls.
    let output = example("pg_pool").args(["--database", "host=/none user=me"]).output().unwrap();
    let (_, said) = text(&output);
    assert!(!output.status.success());
    assert!(said.starts_with("pg_pool: cannot connect to \"host=/none user=me\": "), "{said}");
    assert_eq!(said.lines().count(), 1);
    let output = example("pg_pool").args(["--database", "nonsense"]).output().unwrap();
    assert!(text(&output).1.starts_with("pg_pool: --database: "));
}

#[test]
fn all_of_them_have_help() {
    for name in ["chat_server", "fetch_many", "http_server", "pg_pool"] {
        let output = example(name).arg("--help").output().unwrap();
        assert!(output.status.success());
        assert!(text(&output).0.contains("Usage: "), "{name}");
    }
}
