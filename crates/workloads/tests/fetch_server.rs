//! The server of `fetch` with a common client, and with clients that misbehave.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use carefree_workloads::fetch::{Encoding, Server, Settings, Tally};

/// No latency, unless a test is about it.
const QUICK: Settings = Settings {
    latency: Duration::ZERO,
    body: 1024,
    encoding: Encoding::Fixed,
    patience: Duration::from_secs(30),
};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

const GET: &str = "GET / HTTP/1.1\r\nHost: lab\r\n\r\n";
const LAST: &str = "GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n";

fn start(settings: Settings) -> Server {
    Server::start(settings).expect("a port on loopback")
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends `text` as it is and reads until the server closes.
fn converse(server: &Server, text: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(text.as_bytes()).expect("a server that reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an end of the connection");
    String::from_utf8(answer).expect("plain text")
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "it never came to this: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_real_client_reads_both_encodings_at_all_sizes_over_one_connection() {
    for encoding in Encoding::ALL {
        for body in [0, 1, 512, 1024, 100_000] {
            let server = start(Settings { body, encoding, ..QUICK });
            let agent = ureq::Agent::new_with_defaults();
            for _ in 0..3 {
                let mut answer = agent.get(server.url()).call().expect("an answer");
                assert_eq!(answer.status(), 200);
                let read = answer.body_mut().read_to_vec().expect("a body");
                assert_eq!(read.len(), body, "{encoding}");
                assert!(read.iter().zip((b'a'..=b'z').cycle()).all(|(&is, should)| is == should));
            }
            drop(agent);
            let expected = Tally {
                connections: 1,
                answered: 3,
                body_bytes: 3 * body as u64,
                failed: 0,
                at_once: 1,
            };
            assert_eq!(server.stop(), expected, "{encoding}, {body} bytes");
        }
    }
}

#[test]
fn a_client_that_closes_each_time_is_seen_to_make_a_connection_each_time() {
    let server = start(QUICK);
    let agent = ureq::Agent::new_with_defaults();
    for _ in 0..5 {
        let mut answer =
            agent.get(server.url()).header("Connection", "close").call().expect("an answer");
        assert_eq!(answer.body_mut().read_to_vec().expect("a body").len(), 1024);
    }
    let tally = server.stop();
    assert_eq!((tally.connections, tally.answered), (5, 5));
}

#[test]
fn hundreds_of_connections_are_served_at_once() {
    const CLIENTS: usize = 400;
    let server = start(Settings { latency: Duration::from_millis(300), ..QUICK });
    let (ready, asked) = (Barrier::new(CLIENTS), Barrier::new(CLIENTS));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                ready.wait();
                let mut stream = connect(&server);
                // All connections are there before the first request, so that no client can be
                // done before another has begun.
                asked.wait();
                stream.write_all(LAST.as_bytes()).expect("a server that reads");
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).expect("an answer");
                assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
            });
        }
    });
    let tally = server.stop();
    assert_eq!((tally.connections, tally.answered), (CLIENTS as u64, CLIENTS as u64));
    assert!(tally.at_once > 100, "{tally:?}: they were served in turn");
}

#[test]
fn an_answer_takes_as_long_as_asked_and_others_do_not_wait_for_it() {
    let latency = Duration::from_millis(60);
    let server = start(Settings { latency, ..QUICK });
    let started = Instant::now();
    converse(&server, LAST);
    assert!(started.elapsed() >= latency);
    let took = || {
        let started = Instant::now();
        thread::scope(|scope| {
            (0..30).for_each(|_| drop(scope.spawn(|| converse(&server, LAST))));
        });
        started.elapsed()
    };
    // The best of several: the machine may be busy.
    let late: Vec<_> = (0..10).map(|_| took()).take_while(|&took| took >= latency * 30).collect();
    assert!(late.len() < 10, "one after the other: {late:?}");
}

#[test]
fn requests_sent_early_are_answered_in_turn_and_close_ends_the_connection() {
    let server = start(Settings { body: 3, ..QUICK });
    let answers = converse(&server, &format!("{GET}{GET}{LAST}{GET}"));
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{answers}");
    assert_eq!(answers.matches("\r\n\r\nabc").count(), 3, "{answers}");
    assert_eq!(answers.matches("Connection: close").count(), 1, "{answers}");
    assert_eq!(server.stop().answered, 3);
}

#[test]
fn a_request_in_pieces_is_one_request() {
    let server = start(Settings { body: 3, ..QUICK });
    let mut stream = connect(&server);
    for byte in GET.bytes().chain(LAST.bytes()) {
        stream.write_all(&[byte]).expect("a server that reads");
    }
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("an end");
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answers}");
}

#[test]
fn what_is_no_get_is_refused_and_the_next_client_gets_its_answer() {
    let server = start(QUICK);
    let endless = format!("GET / HTTP/1.1\r\nHost: lab\r\nX: {}", "x".repeat(40_000));
    let post = "POST / HTTP/1.1\r\nHost: lab\r\nContent-Length: 900\r\n\r\n";
    for text in ["what?\r\n\r\n", "GET / HTTP/7.0\r\nHost: lab\r\n\r\n", post, &endless] {
        let answer = converse(&server, text);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{text:?}: {answer}");
    }
    assert!(converse(&server, LAST).starts_with("HTTP/1.1 200 "));
    let tally = server.stop();
    assert_eq!((tally.answered, tally.failed), (1, 4));
}

#[test]
fn clients_that_leave_are_counted_as_failed_only_if_they_had_asked() {
    let server = start(Settings { body: 8 << 20, ..QUICK });
    // One that says nothing, one that leaves in the middle of its request, one that does not wait
    // for its answer.
    drop(connect(&server));
    let mut half = connect(&server);
    half.write_all(&GET.as_bytes()[..10]).expect("a server that reads");
    half.shutdown(Shutdown::Write).expect("a connection");
    let mut answer = String::new();
    half.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut gone = connect(&server);
    gone.write_all(GET.as_bytes()).expect("a server that reads");
    drop(gone);
    wait_for("two failed requests", || server.tally().failed == 2);
    let tally = server.stop();
    assert_eq!((tally.connections, tally.answered), (3, 0));
}

#[test]
fn a_client_that_says_nothing_is_closed_and_one_that_stops_in_between_is_told() {
    let server = start(Settings { patience: Duration::from_millis(300), ..QUICK });
    assert_eq!(converse(&server, ""), "");
    assert!(converse(&server, "GET / HTT").starts_with("HTTP/1.1 400 "));
}

#[test]
fn ending_waits_for_no_client() {
    let server = start(QUICK);
    let idle: Vec<TcpStream> = (0..10).map(|_| connect(&server)).collect();
    wait_for("ten connections", || server.tally().connections == 10);
    let address = server.address();
    let started = Instant::now();
    drop(server);
    assert!(started.elapsed() < PATIENCE, "it waited for clients that say nothing");
    for mut stream in idle {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the connection is closed");
    }
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
}
