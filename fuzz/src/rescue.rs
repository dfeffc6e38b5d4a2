//! Ends waits: so that each call of a sequence comes to an end, and always the same one.
//!
//! A lane says before each call that may wait how that wait can be ended. The rescuer, another lane,
//! looks on, and when a call has taken longer than its patience, acts: it puts a few bytes where the
//! call reads, or reads all that comes where the call writes, until the call has ended. What it has
//! read goes into the log; what of its own bytes was not read it takes back.

use std::ffi::c_int;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::lane::{Handle, Lanes};
use crate::system::{is_ready, read_ready};
use crate::world::set_timer;

const LOOK: Duration = Duration::from_millis(1);
/// Between one attempt and the next: long enough for the call to have ended by the first.
const BETWEEN: Duration = Duration::from_millis(200);
/// How often it feeds before it shuts sockets down.
const ATTEMPTS: u32 = 3;

/// How a reading call's wait is ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Feed {
    /// So many bytes are written here, and taken back there.
    /// Where something is there already it is only done if `always`.
    Bytes {
        into: c_int,
        count: usize,
        out_of: c_int,
        always: bool,
    },
    /// The event's count is raised.
    Event(c_int),
    Timer(c_int),
    /// A connection to this listener is made.
    Connection(c_int),
    /// The socket is shut down: it has no other end.
    End(c_int),
}

/// How a call's wait is ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) feed: Vec<Feed>,
    /// Where what the call writes comes out.
    pub(crate) drain: Vec<c_int>,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.feed.is_empty() && self.drain.is_empty()
    }
}

const IDLE: u32 = 0;
const CALL: u32 = 1;
const ACTING: u32 = 2;
const ENDED: u32 = 3;

#[derive(Debug, Default)]
struct State {
    word: AtomicU32,
    calls: AtomicU32,
    over: AtomicBool,
    plan: Mutex<Plan>,
    drained: Mutex<Vec<u8>>,
}

/// A rescuer of one lane.
#[derive(Debug)]
pub(crate) struct Rescuer {
    state: Arc<State>,
    lane: Handle<()>,
}

impl Rescuer {
    pub(crate) fn start(lanes: Lanes, patience: Duration) -> Rescuer {
        let state = Arc::new(State::default());
        let theirs = Arc::clone(&state);
        Rescuer { state, lane: lanes.spawn(move || look_on(&theirs, patience)) }
    }

    /// Makes a call that may wait. If it had to be rescued, what the rescuer took out is the second
    /// value.
    pub(crate) fn around<T>(&self, plan: Plan, call: impl FnOnce() -> T) -> (T, Option<Vec<u8>>) {
        if plan.is_empty() {
            return (call(), None);
        }
        *self.state.plan.lock().unwrap() = plan;
        self.state.calls.fetch_add(1, Ordering::Relaxed);
        self.state.word.store(CALL, Ordering::Release);
        let value = call();
        let word = &self.state.word;
        if word.compare_exchange(CALL, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return (value, None);
        }
        word.store(ENDED, Ordering::Release);
        while word.load(Ordering::Acquire) != IDLE {
            thread::sleep(LOOK / 4);
        }
        (value, Some(mem::take(&mut *self.state.drained.lock().unwrap())))
    }

    pub(crate) fn end(self) {
        self.state.over.store(true, Ordering::Release);
        self.lane.join();
    }
}

fn look_on(state: &State, patience: Duration) {
    let mut seen = (0, Instant::now());
    while !state.over.load(Ordering::Acquire) {
        thread::sleep(LOOK);
        let calls = state.calls.load(Ordering::Relaxed);
        if state.word.load(Ordering::Acquire) != CALL || calls != seen.0 {
            seen = (calls, Instant::now());
            continue;
        }
        if seen.1.elapsed() < patience {
            continue;
        }
        let taken = state.word.compare_exchange(CALL, ACTING, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            act(state);
            state.word.store(IDLE, Ordering::Release);
        }
    }
}

/// Ends the wait, and puts things in order after it.
fn act(state: &State) {
    let plan = state.plan.lock().unwrap().clone();
    let mut drained = Vec::new();
    let ended = || state.word.load(Ordering::Acquire) == ENDED;
    let mut attempt = 0;
    while !ended() {
        for feed in &plan.feed {
            give(*feed, attempt);
        }
        attempt += 1;
        let next = Instant::now() + BETWEEN * attempt;
        while !ended() && Instant::now() < next {
            for fd in &plan.drain {
                read_ready(*fd, &mut drained);
            }
            thread::sleep(LOOK / 4);
        }
    }
    for feed in &plan.feed {
        if let Feed::Bytes { out_of, .. } = feed {
            read_ready(*out_of, &mut Vec::new());
        }
    }
    for fd in &plan.drain {
        read_ready(*fd, &mut drained);
    }
    *state.drained.lock().unwrap() = drained;
}

fn give(feed: Feed, attempt: u32) {
    match feed {
        Feed::Bytes { into, count, out_of, always } => {
            let bytes = vec![b'!'; count];
            let wanted = always || !is_ready(out_of, libc::POLLIN);
            if wanted && is_ready(into, libc::POLLOUT) {
                // SAFETY: a buffer that lives until then.
                unsafe { libc::write(into, bytes.as_ptr().cast(), count) };
            }
            if attempt >= ATTEMPTS {
                // SAFETY: calls with numbers.
                unsafe { libc::shutdown(out_of, libc::SHUT_RDWR) };
            }
        }
        Feed::Event(fd) => {
            let one = 1u64;
            // SAFETY: as above.
            unsafe { libc::write(fd, (&raw const one).cast(), 8) };
        }
        Feed::Timer(fd) => _ = set_timer(fd, true),
        Feed::Connection(fd) => connect(fd),
        // SAFETY: a call with numbers.
        Feed::End(fd) => _ = unsafe { libc::shutdown(fd, libc::SHUT_RDWR) },
    }
}

/// Connects to a listener, and closes the connection.
fn connect(listener: c_int) {
    // SAFETY: an address that is all zeros is one; the calls fill it, and read what they filled.
    unsafe {
        let mut address: libc::sockaddr_in = mem::zeroed();
        let mut length = size_of_val(&address) as libc::socklen_t;
        let place = (&raw mut address).cast();
        if libc::getsockname(listener, place, &mut length) != 0 {
            return;
        }
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
        libc::connect(fd, place, length);
        libc::close(fd);
    }
}
