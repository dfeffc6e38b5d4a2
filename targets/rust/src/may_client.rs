//! ureq, which waits in may's sockets and so lets other coroutines run: the client that carefree's
//! fibers and threads have, without a line of its own changed.

use std::io::{self, Read, Write};

use may::coroutine;
use may::net::TcpStream;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::Agent;

use crate::fetch::Errand;

/// In words, 256 KiB, as our own fibers have: ureq needs 24 KiB, and may's default is 32 with the
/// frames of all else.
const STACK_WORDS: usize = 0x8000;

/// A client, and with it the connections that are kept.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    errand: Errand,
}

impl Client {
    pub fn new(errand: Errand, requests: u64) -> Client {
        let most = requests as usize;
        let config = Config::builder()
            // Whatever the environment says of proxies, the server is on this machine.
            .proxy(None)
            // The defaults keep ten connections, three of them for one host.
            .max_idle_connections(most)
            .max_idle_connections_per_host(most)
            .build();
        let agent = Agent::with_parts(config, MayConnector, DefaultResolver::default());
        Client { agent, errand }
    }

    /// One round: a coroutine for each GET. Returns the bytes of all bodies.
    pub fn fetch_all(&self, count: u64) -> Result<u64, String> {
        let spawn = |_| {
            let client = self.clone();
            let builder = coroutine::Builder::new().stack_size(STACK_WORDS);
            may::go!(builder, move || client.get()).expect("a coroutine")
        };
        let coroutines: Vec<_> = (0..count).map(spawn).collect();
        let got = coroutines.into_iter().map(|one| one.join().expect("no unit panics"));
        // All are joined, whatever became of the first.
        let got: Vec<Result<u64, String>> = got.collect();
        got.into_iter().sum()
    }

    fn get(&self) -> Result<u64, String> {
        let mut request = self.agent.get(&self.errand.url);
        if !self.errand.keep_alive {
            request = request.header("Connection", "close");
        }
        let mut answer = request.call().map_err(|error| error.to_string())?;
        let body = self.read(answer.body_mut()).map_err(|error| error.to_string())?;
        let status = answer.status();
        self.errand.check(status, status == 200, body.len() as u64)
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

/// Connects by may's sockets.
#[derive(Debug)]
struct MayConnector;

impl Connector for MayConnector {
    type Out = MayTransport;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _chained: Option<()>,
    ) -> Result<Option<MayTransport>, ureq::Error> {
        let stream = TcpStream::connect(&details.addrs[..])?;
        if details.config.no_delay() {
            stream.set_nodelay(true)?;
        }
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(MayTransport { stream, buffers: LazyBuffers::new(input, output) }))
    }
}

/// What ureq's own transport does, without time-outs, of which the lab sets none.
#[derive(Debug)]
struct MayTransport {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Transport for MayTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _timeout: NextTimeout) -> Result<(), ureq::Error> {
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, _timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // may's sockets never block the kernel's way: without bytes, and without an end, a look is
        // refused.
        let looked = self.stream.inner().peek(&mut [0]);
        looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
