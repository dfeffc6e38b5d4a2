//! The load: connections to one server, and requests over them.
//!
//! One thread drives all connections, for a thread each would take more of the cores than many a
//! server. It sleeps until the next request is due or an answer comes.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

use super::connection::Connection;
use crate::answer::Failure;
use crate::unit::ns;

/// How long after the last request was due, or after any other, an answer may come.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the server may take to close connections that are done with; then the rest is closed
/// without it.
const PARTING: Duration = Duration::from_secs(2);

/// How often a caller is asked whether to go on.
const LOOK_UP: Duration = Duration::from_millis(50);

/// What came of requests at a fixed rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paced {
    /// Requests, all of which were answered.
    pub requests: u64,
    /// From the time at which the first one was due to the last answer, nanoseconds.
    pub ns: u64,
    /// Half of them were answered within this time of being due, nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1,000; none of fewer than 1,000 requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<u64>,
    /// All of them.
    pub most_ns: u64,
    /// How late the load itself was with 99 of 100 requests, a connection being free.
    pub late_p99_ns: u64,
}

/// What came of requests that were made as fast as answers came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rushed {
    /// Requests, all of which were answered.
    pub requests: u64,
    /// From the first one to the last answer, nanoseconds.
    pub ns: u64,
}

/// A client of one server on this machine.
pub struct Client<'a> {
    host: SocketAddr,
    /// Requests made so far: the number of the last one.
    made: u64,
    /// Connections that the server has closed, as it had said, and that others were opened for.
    closed: u64,
    /// The right answer to a GET of a target.
    answer_to: &'a dyn Fn(&str) -> String,
    /// Asked every now and then; an error ends what is under way.
    go_on: &'a dyn Fn() -> Result<(), Failure>,
}

impl std::fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Connections that are open. They are closed when this is dropped.
#[derive(Debug)]
pub struct Open(Vec<Connection>);

/// When requests are made.
#[derive(Clone, Copy)]
enum Pace {
    /// This many a second, so many of them.
    Rate(u64, u64),
    /// As soon as a connection is free, for so long.
    For(Duration),
}

/// A request that was answered.
struct Done {
    /// From when it was due, or, where no rate was to be kept, sent.
    latency: Duration,
    /// From when it was due and a connection was free, until it was sent.
    late: Duration,
}

impl<'a> Client<'a> {
    /// A client of the server at this port of 127.0.0.1, which is to answer as `answer_to` says.
    pub fn new(
        port: u16,
        answer_to: &'a dyn Fn(&str) -> String,
        go_on: &'a dyn Fn() -> Result<(), Failure>,
    ) -> Client<'a> {
        Client { host: (Ipv4Addr::LOCALHOST, port).into(), made: 0, closed: 0, answer_to, go_on }
    }

    /// Requests made so far.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Connections so far that the server has closed after an answer that said so. Others were opened in
    /// their place.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// Opens connections that stay open. The server may not know of all of them yet.
    ///
    /// # Errors
    /// When one of them cannot be had.
    pub fn connect(&self, connections: u64) -> Result<Open, Failure> {
        Ok(Open((0..connections).map(|_| self.open()).collect::<Result<_, _>>()?))
    }

    /// Opens connections that stay open, and uses each once, so that the server has them all; at most
    /// `at_once` requests are under way.
    ///
    /// # Errors
    /// When one of them cannot be had, or used.
    pub fn hold(&mut self, connections: u64, at_once: u64) -> Result<Open, Failure> {
        let mut open = Open(Vec::new());
        while (open.0.len() as u64) < connections {
            let missing = connections - open.0.len() as u64;
            let mut some = self.connect(missing.min(at_once.max(1)))?;
            self.ask(&mut some)?;
            open.0.append(&mut some.0);
        }
        Ok(open)
    }

    /// Closes these connections, `at_once` of them at a time, the next when the server has closed its
    /// side of them. A server that has a thread for each would otherwise have them all ready at one
    /// moment: ten thousand threads of Python's, each of which looks every 5 ms whether it may have the
    /// interpreter, answer no request for many seconds.
    ///
    /// # Errors
    /// When it is not to go on.
    pub fn close(&self, open: Open, at_once: u64) -> Result<(), Failure> {
        // A chunk fits any memory there is for the connections.
        let at_once = usize::try_from(at_once.max(1)).unwrap_or(usize::MAX);
        let mut waits = true;
        for some in open.0.chunks(at_once) {
            (self.go_on)()?;
            some.iter().for_each(Connection::finish);
            let until = Instant::now() + PARTING;
            waits = waits
                && some.iter().all(|connection| {
                    connection.has_closed_within(until.saturating_duration_since(Instant::now()))
                });
        }
        Ok(())
    }

    /// Makes a request over each of these connections at once, and waits for all answers.
    ///
    /// # Errors
    /// When one of them is not answered as it should be.
    pub fn ask(&mut self, open: &mut Open) -> Result<(), Failure> {
        for connection in &mut open.0 {
            self.send(connection)?;
        }
        for connection in &mut open.0 {
            connection.answer()?;
            self.keep(connection)?;
            (self.go_on)()?;
        }
        Ok(())
    }

    /// Makes requests over these connections for so long, each as soon as the one before it on its
    /// connection has been answered.
    ///
    /// # Errors
    /// When one of them is not answered as it should be.
    pub fn rush(&mut self, open: &mut Open, time: Duration) -> Result<Rushed, Failure> {
        let (done, time) = self.drive(open, Pace::For(time))?;
        Ok(Rushed { requests: done.len() as u64, ns: ns(time) })
    }

    /// Makes `rate` requests a second for so long, over these connections.
    ///
    /// # Errors
    /// When one of them is not answered as it should be, or some seconds late.
    pub fn pace(&mut self, open: &mut Open, rate: u64, time: Duration) -> Result<Paced, Failure> {
        // Far below 2^64: a rate of some thousands, for some seconds.
        let requests = (u128::from(rate) * time.as_nanos()).div_ceil(1_000_000_000) as u64;
        let (done, time) = self.drive(open, Pace::Rate(rate, requests))?;
        let mut latencies: Vec<u64> = done.iter().map(|done| ns(done.latency)).collect();
        let mut late: Vec<u64> = done.iter().map(|done| ns(done.late)).collect();
        latencies.sort_unstable();
        late.sort_unstable();
        Ok(Paced {
            requests,
            ns: ns(time),
            p50_ns: reached(&latencies, 500),
            p99_ns: reached(&latencies, 990),
            p999_ns: (requests >= 1_000).then(|| reached(&latencies, 999)),
            most_ns: reached(&latencies, 1_000),
            late_p99_ns: reached(&late, 990),
        })
    }

    fn open(&self) -> Result<Connection, Failure> {
        (self.go_on)()?;
        Connection::open(self.host, PATIENCE)
    }

    /// Opens another connection in place of one that the server closes, as servers do that keep one for
    /// so many requests.
    fn keep(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        if connection.is_over() {
            self.closed += 1;
            *connection = self.open()?;
        }
        Ok(())
    }

    /// Makes the next request over this connection.
    fn send(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        self.made += 1;
        connection.ask(self.made, (self.answer_to)(&format!("/{}", self.made)))
    }

    /// Makes requests at a pace until all are answered: what became of each, and how long it took.
    fn drive(&mut self, open: &mut Open, pace: Pace) -> Result<(Vec<Done>, Duration), Failure> {
        // Else the kernel wakes it up to 50 microseconds late. It cannot fail for a time above zero.
        let _ = set_timerslack(1);
        let connections = &mut open.0;
        let start = Instant::now();
        // Those that are free, the one that has been free for longest first.
        let mut free: VecDeque<(usize, Instant)> =
            (0..connections.len()).map(|at| (at, start)).collect();
        // What is under way on each: since when it is due, and how late it was sent.
        let mut under_way = vec![(start, Duration::ZERO); connections.len()];
        let due = |number: u64| match pace {
            Pace::Rate(rate, _) => start + Duration::from_secs_f64(number as f64 / rate as f64),
            Pace::For(_) => start,
        };
        let (mut sent, mut done) = (0, Vec::new());
        let mut looked_up = start;
        loop {
            let now = Instant::now();
            let left = match pace {
                Pace::Rate(_, requests) => sent < requests,
                Pace::For(time) => now < start + time,
            };
            if !left && done.len() as u64 == sent {
                return Ok((done, now - start));
            }
            if now - looked_up >= LOOK_UP {
                looked_up = now;
                (self.go_on)()?;
                overdue(pace, start, now, done.len() as u64, sent)?;
            }
            let next = due(sent);
            if left && next <= now {
                if let Some((at, since)) = free.pop_front() {
                    self.send(&mut connections[at])?;
                    let now = Instant::now();
                    // Without a rate it is due when it is sent.
                    under_way[at] = match pace {
                        Pace::Rate(..) => (next, now - since.max(next)),
                        Pace::For(_) => (now, Duration::ZERO),
                    };
                    sent += 1;
                    continue;
                }
            }
            let until = match left && !free.is_empty() {
                true => next.saturating_duration_since(now).min(LOOK_UP),
                false => LOOK_UP,
            };
            for at in readable(connections, until)? {
                if connections[at].answered()?.is_some() {
                    let now = Instant::now();
                    let (since, late) = under_way[at];
                    done.push(Done { latency: now - since, late });
                    self.keep(&mut connections[at])?;
                    free.push_back((at, now));
                }
            }
        }
    }
}

/// Fails where answers are not to be hoped for any more.
fn overdue(pace: Pace, start: Instant, now: Instant, done: u64, sent: u64) -> Result<(), Failure> {
    let (time, asked) = match pace {
        Pace::Rate(rate, requests) => {
            (Duration::from_secs_f64(requests as f64 / rate as f64), requests)
        }
        Pace::For(time) => (time, sent),
    };
    if now < start + time + PATIENCE {
        return Ok(());
    }
    let advice = match pace {
        Pace::Rate(rate, _) => Some(format!("ask less often than {rate} times a second: --rate")),
        Pace::For(_) => None,
    };
    let late = PATIENCE.as_secs();
    let message =
        format!("{done} of {asked} requests were answered {late} s after the last was due");
    Err(Failure { message, advice })
}

/// The connections on which something has come, or will not come any more, before this time is over.
fn readable(connections: &[Connection], time: Duration) -> Result<Vec<usize>, Failure> {
    let polled = connections.iter().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN));
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    match ppoll(&mut polled, Some(TimeSpec::from(time)), None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(Failure::new(format!("the load cannot wait: {error}"))),
    }
    let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
    Ok((0..polled.len()).filter(|&at| is_ready(&polled[at])).collect())
}

/// The value that so many of a thousand do not exceed.
fn reached(sorted: &[u64], of_a_thousand: usize) -> u64 {
    let count = (sorted.len() * of_a_thousand).div_ceil(1_000);
    sorted.get(count.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;

    use super::*;

    /// A server that takes so long to close a connection whose client has finished, on a thread for
    /// each; with how many of them had finished and were not closed at one moment, at most.
    fn slow_to_close(time: Duration) -> (u16, Arc<AtomicU64>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (open, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let told = most.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (open, most) = (open.clone(), most.clone());
                thread::spawn(move || {
                    let mut stream = stream.expect("a connection");
                    stream.read_to_end(&mut Vec::new()).expect("the end");
                    most.fetch_max(open.fetch_add(1, SeqCst) + 1, SeqCst);
                    thread::sleep(time);
                    open.fetch_sub(1, SeqCst);
                });
            }
        });
        (port, told)
    }

    fn connections(port: u16, count: usize) -> (Client<'static>, Open) {
        let client = Client::new(port, &|_| String::new(), &|| Ok(()));
        let open = (0..count).map(|_| client.open()).collect::<Result<_, _>>();
        (client, Open(open.expect("connections")))
    }

    #[test]
    fn connections_are_closed_as_the_server_can_take_it() {
        let (port, most) = slow_to_close(Duration::from_millis(5));
        let (client, open) = connections(port, 23);
        client.close(open, 4).expect("an end");
        let most = most.load(SeqCst);
        assert!((1..=4).contains(&most), "{most}");
    }

    #[test]
    fn a_server_that_does_not_close_is_not_waited_for_again_and_again() {
        let (port, _) = slow_to_close(Duration::from_secs(600));
        let (client, open) = connections(port, 40);
        let started = Instant::now();
        client.close(open, 2).expect("an end");
        let took = started.elapsed();
        // (For each pair of them it would take twenty times as long.)
        assert!(took >= PARTING && took < 15 * PARTING, "{took:?}");
    }

    #[test]
    fn a_share_of_the_requests_is_rounded_up() {
        let sorted: Vec<u64> = (1..=1_000).collect();
        assert_eq!(
            [500, 990, 999, 1_000].map(|share| reached(&sorted, share)),
            [500, 990, 999, 1_000]
        );
        assert_eq!(reached(&sorted[..10], 990), 10);
        assert_eq!(reached(&sorted[..1], 500), 1);
        assert_eq!(reached(&[], 500), 0);
    }
}
