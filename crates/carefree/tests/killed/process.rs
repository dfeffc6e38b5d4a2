//! The process that is killed.

use std::env;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::case::{Case, Look, Place};

const CASE: &str = "CAREFREE_TEST_CASE";
const ADDRESS: &str = "CAREFREE_TEST_ADDRESS";
const PATH: &str = "CAREFREE_TEST_PATH";
const THREADS: &str = "CAREFREE_TEST_THREADS";

/// What waits: fibers over one of the reactors, or threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Uring,
    Epoll,
    Threads,
}

impl On {
    /// Runs `f`, which waits.
    pub(crate) fn spawn(self, f: impl FnOnce() + Send + 'static) {
        match self {
            On::Threads => drop(thread::spawn(f)),
            _ => drop(carefree::spawn(f)),
        }
    }
}

/// A process that waits, and its neighbour's part.
pub(crate) struct Process {
    child: Child,
    place: Place,
    begin: Box<dyn FnOnce() -> Look>,
}

/// What the neighbour does once the process has been killed.
pub(crate) struct Next {
    look: Look,
    killed: Instant,
    place: Place,
}

fn place() -> Place {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("carefree-killed-{}-{count}", process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    Place { address: free.local_addr().unwrap(), path: folder.join("place") }
}

impl Process {
    /// Starts it; returns when it waits.
    pub(crate) fn start(case: &Case, on: On) -> Process {
        let place = place();
        let begin = (case.prepare)(&place);
        let (mut here, there) = UnixStream::pair().unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["victim", "--exact", "--nocapture"])
            .env(CASE, case.name)
            .env(ADDRESS, place.address.to_string())
            .env(PATH, &place.path)
            .stdin(OwnedFd::from(there))
            .stdout(Stdio::null());
        match on {
            On::Threads => command.env(THREADS, "1"),
            On::Epoll => command.env("CAREFREE_REACTOR", "epoll"),
            On::Uring => command.env_remove("CAREFREE_REACTOR"),
        };
        let child = command.spawn().unwrap();
        drop(command);
        here.read_exact(&mut [0]).expect("the other process begins to wait");
        Process { child, place, begin }
    }

    pub(crate) fn kill(mut self) -> Next {
        let look = (self.begin)();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        Next { look, killed: Instant::now(), place: self.place }
    }
}

impl Next {
    /// The result of the first try.
    pub(crate) fn look(mut self) -> Result<(), String> {
        (self.look)().map_err(|error| error.to_string())
    }

    /// The time until a try succeeds.
    pub(crate) fn wait(mut self) -> Duration {
        while let Err(error) = (self.look)() {
            let waited = self.killed.elapsed();
            assert!(waited < Duration::from_secs(20), "still refused: {error}");
        }
        self.killed.elapsed()
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.place.path.parent().unwrap());
    }
}

/// In the process that is killed: waits for ever, as the environment asks for.
pub(crate) fn live(cases: &[Case]) {
    let Ok(name) = env::var(CASE) else { return };
    let case = cases.iter().find(|case| case.name == name).unwrap();
    let address: SocketAddr = env::var(ADDRESS).unwrap().parse().unwrap();
    let place = Place { address, path: env::var_os(PATH).unwrap().into() };
    let on = match (env::var_os(THREADS), env::var_os("CAREFREE_REACTOR")) {
        (Some(_), _) => On::Threads,
        (None, Some(_)) => On::Epoll,
        (None, None) => On::Uring,
    };
    let begin = move || {
        (case.wait)(on, &place);
        // Long enough for all waits to reach the kernel.
        thread::sleep(Duration::from_millis(30));
        // SAFETY: its parent's socket, which nothing else here uses.
        let mut parent = unsafe { <UnixStream as std::os::fd::FromRawFd>::from_raw_fd(0) };
        parent.write_all(&[1]).unwrap();
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    };
    match on {
        On::Threads => begin(),
        _ => carefree::run(begin),
    }
}

/// A try that the kernel answers with `result` as system calls do.
pub(crate) fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
