//! Ten thousand HTTP requests at once, each by blocking code on a fiber of its own.
//!
//! ```text
//! cargo run --release --example fetch_many
//! ```
//!
//! The server is this program, run once more: it waits before each answer, as a server does that
//! asks a database. The client is ureq, which knows nothing of fibers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use ureq::Agent;

/// Fetches from a slow server many times at once, and says how long that took.
#[derive(Debug, Parser)]
struct Args {
    /// Requests at once in each round.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Rounds. The first one opens the connections, which the others use again.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Milliseconds that the server takes over each answer.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    delay: u64,
    /// What makes a request.
    #[arg(long, value_enum, default_value = "fibers")]
    on: On,
    /// Be the server.
    #[arg(long, hide = true)]
    serve: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum On {
    Fibers,
    Threads,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = if args.serve { serve(&args) } else { fetch(&args) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fetch_many: {error}");
            ExitCode::FAILURE
        }
    }
}

// The client.

/// Requests that share an agent. ureq looks through all connections of an agent at each request.
const SHARING: usize = 20;

fn fetch(args: &Args) -> io::Result<()> {
    allow_files(args.requests)?;
    let server = Server::start(args)?;
    let requests = args.requests as usize;
    let delay = Duration::from_millis(args.delay);
    println!("{requests} requests at once, each answered after {delay:?}, on {:?}", args.on);
    let agents: Arc<[Agent]> = (0..requests.div_ceil(SHARING)).map(|_| agent()).collect();
    for round in 1..=args.rounds {
        let count = Arc::new(AtomicUsize::new(0));
        let work = {
            let (agents, count) = (agents.clone(), count.clone());
            let (addresses, on) = (server.addresses.clone(), args.on);
            move || all_at_once(on, requests, &agents, &addresses, &count)
        };
        let begun = Instant::now();
        let working = match args.on {
            On::Fibers => Working::Fiber(carefree::spawn(work)),
            On::Threads => Working::Thread(thread::spawn(work)),
        };
        show_progress(requests, &count, || working.is_finished());
        let took = working.join()?;
        let all = begun.elapsed();
        let warm = if round == 1 { "connections opened" } else { "connections kept" };
        println!(
            "round {round}: {:>6.1} ms for all, {:.0} requests/s; \
             one took {:.1} ms at the median, {:.1} ms at most ({warm})",
            milliseconds(all),
            requests as f64 / all.as_secs_f64(),
            milliseconds(took[took.len() / 2]),
            milliseconds(took[took.len() - 1]),
        );
    }
    Ok(())
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Small buffers, and no connection closed for being one too many.
fn agent() -> Agent {
    Agent::config_builder()
        .input_buffer_size(2048)
        .output_buffer_size(2048)
        .max_idle_connections(SHARING)
        .max_idle_connections_per_host(SHARING)
        .build()
        .new_agent()
}

/// Makes all requests and returns how long each took, in order; or the first error.
fn all_at_once(
    on: On,
    requests: usize,
    agents: &Arc<[Agent]>,
    addresses: &Arc<[SocketAddr]>,
    count: &Arc<AtomicUsize>,
) -> io::Result<Vec<Duration>> {
    let request = |number: usize| {
        let (agents, addresses, count) = (agents.clone(), addresses.clone(), count.clone());
        move || {
            // An agent always asks the same server, so that it can use its connections again.
            let group = number / SHARING;
            let begun = Instant::now();
            let done = get(&agents[group], addresses[group % addresses.len()]);
            count.fetch_add(1, Ordering::Relaxed);
            done.map(|()| begun.elapsed())
        }
    };
    let took: io::Result<Vec<Duration>> = match on {
        On::Fibers => {
            let spawned = (0..requests).map(|number| {
                // The first ones run meanwhile: to spawn ten thousand, on new stacks, takes a while.
                if number % 1000 == 999 {
                    carefree::yield_now();
                }
                carefree::spawn(request(number))
            });
            let spawned: Vec<_> = spawned.collect();
            spawned.into_iter().map(|fiber| fiber.join().expect("a request panicked")).collect()
        }
        On::Threads => {
            let spawned: io::Result<Vec<_>> =
                (0..requests).map(|n| thread::Builder::new().spawn(request(n))).collect();
            spawned?.into_iter().map(|thread| thread.join().expect("a request panicked")).collect()
        }
    };
    let mut took = took?;
    took.sort();
    Ok(took)
}

fn get(agent: &Agent, address: SocketAddr) -> io::Result<()> {
    let text = agent
        .get(format!("http://{address}/"))
        .call()
        .and_then(|mut response| response.body_mut().read_to_string())
        .map_err(|error| io::Error::other(format!("a request failed: {error}")))?;
    match text.as_str() {
        ANSWER => Ok(()),
        _ => Err(io::Error::other(format!("a request was answered with {text:?}"))),
    }
}

/// What makes the requests of a round.
enum Working<T> {
    Fiber(carefree::JoinHandle<T>),
    Thread(thread::JoinHandle<T>),
}

impl<T> Working<T> {
    fn is_finished(&self) -> bool {
        match self {
            Working::Fiber(fiber) => fiber.is_finished(),
            Working::Thread(thread) => thread.is_finished(),
        }
    }

    fn join(self) -> T {
        let joined = match self {
            Working::Fiber(fiber) => fiber.join(),
            Working::Thread(thread) => thread.join(),
        };
        joined.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}

/// Draws a bar on the terminal, if there is one, until `finished`.
fn show_progress(requests: usize, count: &AtomicUsize, finished: impl Fn() -> bool) {
    let bar = ProgressBar::new(requests as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:50} {pos}/{len}") {
        bar.set_style(style);
    }
    while !finished() {
        bar.set_position(count.load(Ordering::Relaxed) as u64);
        thread::sleep(Duration::from_millis(5));
    }
    bar.finish_and_clear();
}

// The server.

const ANSWER: &str = "Hello, World!";

/// Sockets to listen on: the kernel lets about 4,000 connections wait at each (net.core.somaxconn).
const LISTENERS: usize = 4;

/// The server's process, killed when dropped.
struct Server {
    process: Child,
    addresses: Arc<[SocketAddr]>,
}

impl Server {
    fn start(args: &Args) -> io::Result<Server> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .args(["--requests", &args.requests.to_string()])
            .args(["--delay", &args.delay.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = process.stdout.take().expect("it was piped");
        let mut server = Server { process, addresses: Arc::new([]) };
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        server.addresses = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match server.addresses.len() {
            LISTENERS => Ok(server),
            _ => Err(io::Error::other("the server did not start")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(args: &Args) -> io::Result<()> {
    allow_files(args.requests)?;
    let delay = Duration::from_millis(args.delay);
    let mut line = String::new();
    for _ in 0..LISTENERS {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // std asks for 128.
        // SAFETY: a call with numbers.
        if unsafe { libc::listen(listener.as_raw_fd(), 4096) } != 0 {
            return Err(io::Error::last_os_error());
        }
        line += &format!("{} ", listener.local_addr()?);
        carefree::spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => drop(carefree::spawn(move || answer(stream, delay))),
                    Err(error) => eprintln!("fetch_many: accepting failed: {error}"),
                }
            }
        });
    }
    println!("{}", line.trim_end());
    // Until the client closes.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Answers all requests of a connection.
fn answer(mut stream: TcpStream, delay: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{ANSWER}", ANSWER.len());
    let mut input = [0; 512];
    let mut filled = 0;
    loop {
        match stream.read(&mut input[filled..])? {
            // The end, or a request that no client of ours sends.
            0 => return Ok(()),
            read => filled += read,
        }
        if input[..filled].ends_with(b"\r\n\r\n") {
            filled = 0;
            thread::sleep(delay);
            stream.write_all(text.as_bytes())?;
        }
    }
}

/// Raises the limit on open files for this many connections.
fn allow_files(connections: u32) -> io::Result<()> {
    // For all else that is open.
    let need = u64::from(connections) + 100;
    // SAFETY: the structure is valid to write, then to read.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur
    };
    if limit < need {
        return Err(io::Error::other(format!(
            "{connections} connections need {need} open files, and this process may have {limit}: \
             raise the limit (`ulimit -Hn {need}` as root), or ask for fewer with --requests"
        )));
    }
    Ok(())
}
