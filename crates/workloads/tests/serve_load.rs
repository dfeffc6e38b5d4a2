//! The load of `serve` against servers that misbehave.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use carefree_workloads::answer::Failure;
use carefree_workloads::serve::{Client, answer_to};

fn go_on() -> Result<(), Failure> {
    Ok(())
}

/// The target of the next request; none when the client has closed.
fn next(mut stream: &TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let request = String::from_utf8(request).expect("plain text");
    Some(request.split(' ').nth(1).expect("a target").to_owned())
}

fn answer(mut stream: &TcpStream, body: &str) {
    let length = body.len();
    // A client that has seen enough is gone.
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
}

/// A server that serves each connection by `attend`, on threads that end with the test.
fn server(attend: impl Fn(&TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let port = listener.local_addr().expect("a port").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // Answers are written in pieces.
            stream.set_nodelay(true).expect("an option of TCP's");
            let attend = attend.clone();
            thread::spawn(move || attend(&stream));
        }
    });
    port
}

fn complaint<T>(result: Result<T, Failure>) -> String {
    result.map(|_| ()).expect_err("a failure").message
}

const TIME: Duration = Duration::from_millis(50);

#[test]
fn a_request_waits_from_when_it_was_due_though_no_connection_is_free() {
    const PAUSE: Duration = Duration::from_millis(400);
    // It stands still at its first request; ten are due meanwhile, all over one connection.
    let port = server(|stream| {
        let mut is_first = true;
        while let Some(target) = next(stream) {
            if std::mem::take(&mut is_first) {
                thread::sleep(PAUSE);
            }
            answer(stream, &answer_to(&target));
        }
    });
    let mut client = Client::new(port, &answer_to, &go_on);
    let mut one = client.connect(1).expect("a connection");
    let paced = client.pace(&mut one, 100, TIME * 2).expect("answers");
    assert_eq!(paced.requests, 10);
    // The tenth was due after 90 ms: all have waited for 310 ms or more, though nine of them were
    // under way for no time at all.
    assert!(paced.p50_ns >= 310_000_000, "{paced:?}");
    assert!(paced.most_ns >= 400_000_000, "{paced:?}");
}

#[test]
fn answers_that_are_lost_mixed_up_or_made_up_are_failures() {
    let closing = server(|stream| {
        let _ = next(stream);
    });
    let closed = complaint(Client::new(closing, &answer_to, &go_on).hold(1, 1));
    assert!(closed.contains("closed a connection that was to be kept"), "{closed}");

    let made_up = server(|stream| {
        while next(stream).is_some() {
            answer(stream, "carefree /1\n");
        }
    });
    let mut client = Client::new(made_up, &answer_to, &go_on);
    let _first = client.hold(1, 1).expect("the first one is right");
    let mut others = client.connect(2).expect("connections");
    let wrong = complaint(client.pace(&mut others, 100, TIME));
    assert!(wrong.contains("was answered by \"carefree /1\\n\""), "{wrong}");

    let talkative = server(|stream| {
        while let Some(target) = next(stream) {
            answer(stream, &answer_to(&target));
            answer(stream, &answer_to(&target));
        }
    });
    let mut client = Client::new(talkative, &answer_to, &go_on);
    let mut two = client.connect(2).expect("connections");
    let talked = complaint(client.rush(&mut two, TIME));
    // The second answer comes with the first, or in place of the next.
    let told = ["more than the answers", "was answered by"];
    assert!(told.iter().any(|words| talked.contains(words)), "{talked}");

    let gone = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let port = gone.local_addr().expect("a port").port();
    drop(gone);
    let refused = complaint(Client::new(port, &answer_to, &go_on).hold(1, 1));
    assert!(refused.contains("cannot be connected to"), "{refused}");
}

/// A server that closes each connection after so many answers, the last of which says so.
fn closing_after(most: u64) -> u16 {
    server(move |mut stream| {
        for count in 1.. {
            let Some(target) = next(stream) else { return };
            if count < most {
                answer(stream, &answer_to(&target));
                continue;
            }
            let body = answer_to(&target);
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}", body.len());
            let _ = write!(stream, "{head}\r\n\r\n{body}");
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    })
}

#[test]
fn a_server_may_close_a_connection_that_it_has_kept_for_long_if_it_says_so() {
    let port = closing_after(100);
    let mut client = Client::new(port, &answer_to, &go_on);
    let mut first = client.hold(1, 1).expect("answers");
    for _ in 0..250 {
        client.ask(&mut first).expect("an answer");
    }
    assert_eq!((client.made(), client.closed()), (251, 2));
    let mut other = client.connect(1).expect("a connection");
    let paced = client.pace(&mut other, 4_000, TIME).expect("answers");
    assert_eq!((paced.requests, client.closed()), (200, 4));

    let mut client = Client::new(closing_after(49), &answer_to, &go_on);
    let mut one = client.connect(1).expect("a connection");
    let early = complaint(client.rush(&mut one, Duration::from_secs(5)));
    assert!(early.contains("answer 49 of a connection was its last"), "{early}");
    assert!(early.contains("to be kept for 50 requests"), "{early}");
}

#[test]
fn a_load_that_is_to_end_ends() {
    // It never answers.
    let silent = server(|stream| while next(stream).is_some() {});
    let started = Instant::now();
    let go_on = || match started.elapsed() > TIME {
        true => Err(Failure::new("that is enough")),
        false => Ok(()),
    };
    let mut client = Client::new(silent, &answer_to, &go_on);
    let mut two = client.connect(2).expect("connections");
    let ended = complaint(client.pace(&mut two, 100, TIME));
    assert_eq!(ended, "that is enough");
}
