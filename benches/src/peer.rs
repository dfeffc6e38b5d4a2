//! What a peer can be asked to do.

use std::hint::black_box;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

pub use crate::boost::Answer;
use crate::machine;
use crate::scale::Scale;

/// One runtime or library, and how it does what the workloads ask for. `None` where it has no such
/// thing.
#[derive(Debug)]
pub struct Peer {
    /// The name of its column.
    pub name: &'static str,
    /// How many times fewer units or rounds it gets in the workloads that report time per unit, so
    /// that a slow peer does not make the whole run long.
    pub fewer: u64,
    /// `rounds` resumes of one coroutine and as many suspends. Each round a number goes in and
    /// comes back plus one; returns the sum of those.
    pub coroutine: Option<fn(rounds: u64) -> u64>,
    /// Starts `units` units that each yield `yields` times, and joins them all.
    pub crowd: Option<fn(units: usize, yields: u64) -> Answer>,
    /// Starts `units` units that each sleep for `span`, and joins them all. Returns how many slept
    /// at least that long by their own watch.
    pub sleepers: Option<fn(units: usize, span: Duration) -> usize>,
    /// Starts `units` units that wait for each other's release, calls `look` when all wait, releases
    /// and joins them. Returns how many waited.
    pub parked: Option<Parked>,
    /// Starts a unit for each of these sockets, which reads a byte from it in vain, and calls `look`
    /// when all wait; then hangs up on them and joins them. Returns how many were hung up on.
    pub readers: Option<Readers>,
    /// Sends a ball to and fro between two units, by two channels as the runtime's users have them:
    /// `rounds` times there and back, plus one at each hand-over. Returns the sum of what came back.
    pub channel: Option<fn(rounds: u64) -> u64>,
    /// The same by crossbeam's channels.
    pub crossbeam: Option<fn(rounds: u64) -> u64>,
    /// Takes samples in a program of its own, in place of the functions above; `None` for what it does not
    /// do.
    pub elsewhere: Option<Elsewhere>,
}

/// See [`Peer::elsewhere`].
pub type Elsewhere = fn(workload: &str, scale: Scale) -> Option<io::Result<Vec<f64>>>;

/// See [`Peer::readers`]; each pair is a socket to read from and its other end.
pub type Readers =
    fn(sockets: Vec<(UnixStream, UnixStream)>, look: &mut dyn FnMut()) -> io::Result<usize>;

/// [`Peer::readers`], where reading is a plain call. `$spawn` starts a unit and returns a handle, or an
/// error; `$join` joins it.
#[macro_export]
macro_rules! readers {
    ($sockets:expr, $look:expr, $spawn:expr, $join:expr) => {{
        let waiting = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (mut handles, mut others) = (Vec::new(), Vec::new());
        for (mut socket, other) in $sockets {
            others.push(other);
            let waiting = waiting.clone();
            handles.push($spawn(move || {
                waiting.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let read = std::io::Read::read(&mut socket, &mut [0]);
                usize::from(matches!(read, Ok(0)))
            })?);
        }
        while waiting.load(std::sync::atomic::Ordering::Relaxed) < handles.len() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // The last ones are still on their way into the kernel.
        std::thread::sleep(std::time::Duration::from_millis(100));
        $look();
        drop(others);
        Ok(handles.into_iter().map($join).sum())
    }};
}

/// The two ends of [`Peer::channel`], for channels whose `send` and `recv` are plain calls.
///
/// `$spawn` starts a unit and returns a handle that `$join` joins.
#[macro_export]
macro_rules! ping_pong {
    ($rounds:expr, $channel:expr, $spawn:expr, $join:expr) => {{
        let rounds: u64 = $rounds;
        let (to, from_here) = $channel;
        let (back, from_there) = $channel;
        let other = $spawn(move || {
            while let Ok(ball) = from_here.recv() {
                let ball: u64 = ball;
                if back.send(ball + 1).is_err() {
                    break;
                }
            }
        });
        let mut sum = 0;
        for round in 0..rounds {
            to.send(round).expect("the other unit receives");
            let ball: u64 = from_there.recv().expect("the other unit sends");
            sum += ball;
        }
        drop(to);
        $join(other);
        sum
    }};
}

/// See [`Peer::parked`].
pub type Parked = fn(units: usize, look: &mut dyn FnMut()) -> io::Result<usize>;

/// The unit that ran last, by which a unit sees whether its yield let another one run. On several cores
/// it is not looked at: cores that write to the same line would be all that is measured.
#[derive(Debug)]
pub struct Turn {
    last: AtomicUsize,
    one_core: bool,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { last: AtomicUsize::new(0), one_core: machine::workers() == 1 }
    }
}

impl Turn {
    /// Before a yield.
    #[inline(always)]
    pub fn take(&self, me: usize) {
        if self.one_core {
            self.last.store(me, Relaxed);
        }
    }

    /// After it: 1 if another unit has run since.
    #[inline(always)]
    pub fn passed(&self, me: usize) -> u64 {
        u64::from(self.one_core && self.last.load(Relaxed) != me)
    }
}

/// What one unit of a crowd does, where yielding is a plain call.
#[inline(always)]
pub fn stint(me: usize, yields: u64, turn: &Turn, yield_now: impl Fn()) -> Answer {
    let mut answer = Answer { yields: 0, switched: 0 };
    for _ in 0..black_box(yields) {
        turn.take(me);
        yield_now();
        answer.yields += 1;
        answer.switched += turn.passed(me);
    }
    answer
}

/// The answers of a crowd's units together.
pub fn sum(answers: impl Iterator<Item = Answer>) -> Answer {
    let nothing = Answer { yields: 0, switched: 0 };
    answers.fold(nothing, |sum, each| Answer {
        yields: sum.yields + each.yields,
        switched: sum.switched + each.switched,
    })
}
