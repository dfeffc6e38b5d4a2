//! The Rust side of the workload: GETs by ureq, one after the other, by a thread each, or by a
//! fiber each. Blocking code, and the same for all three.

use std::io::{self, Read};

use ureq::Agent;

use crate::answer::Failure;
use crate::unit::Unit;
use crate::unit::threads::{Fibers, Kernel, Threads};

/// What to get, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Errand {
    /// GETs in each round.
    pub(crate) requests: u64,
    pub(crate) url: String,
    /// The body each of them has to bring, bytes.
    pub(crate) body: u64,
    /// Whether connections are kept for the next round, and in turn for the next GET.
    pub(crate) keep_alive: bool,
    /// Bytes to ask the client for at a time; 0: all of the body at once.
    pub(crate) read_size: usize,
}

/// The units that make the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One GET after the other.
    Sequential,
    /// A unit for each GET: a thread or a fiber. Coroutines cannot wait for a socket.
    Each(Unit),
}

/// A client, and with it the connections that are kept.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
    errand: Errand,
}

impl Client {
    pub(crate) fn new(errand: Errand) -> Client {
        let most = usize::try_from(errand.requests).unwrap_or(usize::MAX);
        let agent = Agent::config_builder()
            // Whatever the environment says of proxies, the server is on this machine.
            .proxy(None)
            // The defaults keep ten connections, three of them for one host: then most rounds
            // connect anew.
            .max_idle_connections(most)
            .max_idle_connections_per_host(most)
            .build()
            .new_agent();
        Client { agent, errand }
    }

    /// One round. Returns the bytes of all bodies.
    pub(crate) fn fetch_all(&self, way: Way) -> Result<u64, Failure> {
        match way {
            Way::Sequential => (0..self.errand.requests).map(|_| self.get()).sum(),
            Way::Each(Unit::Thread) => self.crowd::<Kernel>(),
            // The program runs as a fiber too, as a main loop would: what starts and ends on a
            // carrier uses the same stacks again.
            Way::Each(Unit::Fiber) => carefree::run(|| self.crowd::<Fibers>()),
            Way::Each(Unit::Coroutine) => Err(Failure {
                message: "coroutines cannot wait for a socket".into(),
                advice: Some("fetch has the units sequential, thread and fiber".into()),
            }),
        }
    }

    fn crowd<U: Threads>(&self) -> Result<u64, Failure> {
        let client = self.clone();
        U::crowd(self.errand.requests, move || client.get())?.into_iter().sum()
    }

    fn get(&self) -> Result<u64, Failure> {
        let mut request = self.agent.get(&self.errand.url);
        if !self.errand.keep_alive {
            request = request.header("Connection", "close");
        }
        let mut answer = request.call().map_err(Failure::new)?;
        let body = self.read(answer.body_mut()).map_err(Failure::new)?;
        let (length, status) = (body.len() as u64, answer.status());
        if status != 200 || length != self.errand.body {
            let expected = self.errand.body;
            return Err(Failure::new(format!(
                "{status} with {length} bytes, not 200 with {expected}"
            )));
        }
        Ok(length)
    }

    fn read(&self, body: &mut ureq::Body) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let mut reader = body.as_reader();
        if self.errand.read_size == 0 {
            reader.read_to_end(&mut all)?;
            return Ok(all);
        }
        let mut part = vec![0; self.errand.read_size];
        loop {
            match reader.read(&mut part)? {
                0 => return Ok(all),
                read => all.extend_from_slice(&part[..read]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::{Encoding, Server, Settings};
    use std::time::Duration;

    fn server(encoding: Encoding) -> Server {
        let settings = Settings {
            latency: Duration::from_millis(2),
            encoding,
            body: 700,
            ..Settings::default()
        };
        Server::start(settings).expect("a port on loopback")
    }

    fn errand(server: &Server) -> Errand {
        let url = server.url();
        Errand { requests: 6, url, body: 700, keep_alive: false, read_size: 0 }
    }

    const WAYS: [Way; 3] = [Way::Sequential, Way::Each(Unit::Thread), Way::Each(Unit::Fiber)];

    #[test]
    fn every_way_gets_everything_and_keeps_connections_only_if_asked() {
        for way in WAYS {
            for encoding in Encoding::ALL {
                for keep_alive in [false, true] {
                    let server = server(encoding);
                    let client = Client::new(Errand { keep_alive, ..errand(&server) });
                    for _ in 0..2 {
                        assert_eq!(client.fetch_all(way), Ok(6 * 700), "{way:?}");
                    }
                    drop(client);
                    let tally = server.stop();
                    assert_eq!(tally.answered, 12, "{way:?}");
                    match keep_alive {
                        true => assert!(tally.connections <= 6, "{way:?}: {tally:?}"),
                        false => assert_eq!(tally.connections, 12, "{way:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_body_read_byte_by_byte_is_the_same_body() {
        let server = server(Encoding::Chunked);
        for read_size in [1, 7, 4096] {
            let client = Client::new(Errand { read_size, ..errand(&server) });
            assert_eq!(client.fetch_all(Way::Sequential), Ok(6 * 700));
        }
    }

    #[test]
    fn a_wrong_body_and_a_server_that_is_gone_are_failures_with_a_reason() {
        let server = server(Encoding::Fixed);
        let errand = Errand { body: 701, ..errand(&server) };
        for way in WAYS {
            let failure = Client::new(errand.clone()).fetch_all(way).expect_err("a wrong length");
            assert_eq!(failure.message, "200 OK with 700 bytes, not 200 with 701");
        }
        drop(server);
        let failure = Client::new(errand).fetch_all(Way::Each(Unit::Thread));
        let message = failure.expect_err("no server").message;
        assert!(message.contains("refused"), "{message}");
    }

    #[test]
    fn coroutines_are_refused() {
        let server = server(Encoding::Fixed);
        assert!(Client::new(errand(&server)).fetch_all(Way::Each(Unit::Coroutine)).is_err());
    }
}
