//! One sample of each workload, for any peer.

use crate::machine;
use crate::memory::Memory;
use crate::peer::Peer;
use crate::scale::Scale;
use carefree_workloads::limits;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Units that wait in a read. Each needs two descriptors.
pub const READERS: usize = 8_000;

pub(crate) fn coroutine(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.coroutine?;
    let rounds: u64 = if scale.quick { 500_000 } else { 5_000_000 };
    let (nanos, sum) = scale.timed(|| run(rounds));
    assert_eq!(sum, rounds * (rounds + 1) / 2, "{}: a ball was lost", peer.name);
    Some(Ok(vec![nanos / (2 * rounds) as f64]))
}

pub(crate) fn yields(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.crowd?;
    let yields = scale.yields() / peer.fewer;
    let (nanos, answer) = scale.timed(|| run(2, yields));
    assert_eq!(answer.yields, 2 * yields, "{}: yields are missing", peer.name);
    // A yield that lets no other unit run is none. (Half suffices because of tokio: it wakes tasks in
    // the reverse order of their yields, so that of two tasks every other yield returns to its task.)
    // On several cores each unit may have one of its own.
    let share = answer.switched as f64 / answer.yields as f64;
    assert!(scale.all_cores || share > 0.49, "{}: {share} of the yields switched", peer.name);
    Some(Ok(vec![nanos / answer.yields as f64]))
}

pub(crate) fn hand_overs(
    peer: &Peer,
    run: fn(rounds: u64) -> u64,
    scale: Scale,
) -> Option<io::Result<Vec<f64>>> {
    let rounds = scale.hand_overs() / peer.fewer;
    let (nanos, sum) = scale.timed(|| run(rounds));
    assert_eq!(sum, rounds * (rounds + 1) / 2, "{}: a ball was lost", peer.name);
    Some(Ok(vec![nanos / (2 * rounds) as f64]))
}

pub(crate) fn spawns(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.crowd?;
    let units = (scale.crowd() / peer.fewer) as usize;
    let (nanos, answer) = scale.timed(|| run(units, 2));
    assert_eq!(answer.yields, 2 * units as u64, "{}: yields are missing", peer.name);
    Some(Ok(vec![nanos / units as f64]))
}

pub(crate) fn warm_spawns(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let _ = spawns(peer, scale)?;
    spawns(peer, scale)
}

pub(crate) fn throughput(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.crowd?;
    let _ = run(1_000, 100);
    let (nanos, answer) = scale.timed(|| run(1_000, 100));
    assert_eq!(answer.yields, 100_000, "{}: yields are missing", peer.name);
    Some(Ok(vec![nanos / 1e6]))
}

pub(crate) fn sleepers(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.sleepers?;
    let units = scale.sleepers();
    let _ = run(units, Duration::from_millis(1));
    let (start, cpu) = (Instant::now(), machine::cpu_time());
    let slept = run(units, Duration::from_millis(100));
    let (passed, used) = (start.elapsed(), machine::cpu_time() - cpu);
    assert_eq!(slept, units, "{}: some slept too short", peer.name);
    Some(Ok([passed, used].map(|time| time.as_nanos() as f64 / 1e6).to_vec()))
}

/// The processor time of each of a crowd that is alive at once, from its start to its end.
pub(crate) fn cold_sleepers(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.sleepers?;
    let units = scale.sleepers();
    let cpu = machine::cpu_time();
    let slept = run(units, Duration::from_millis(100));
    let used = machine::cpu_time() - cpu;
    assert_eq!(slept, units, "{}: some slept too short", peer.name);
    Some(Ok(vec![used.as_nanos() as f64 / units as f64]))
}

/// Memory in bytes grown while `units` wait, by [parts](Memory::parts), and the time until they all did.
/// `prepare` makes what a number of units needs, which does not count, and `run` has them wait.
fn grown<N>(
    peer: &Peer,
    units: usize,
    prepare: impl Fn(usize) -> io::Result<N>,
    run: impl Fn(N, &mut dyn FnMut()) -> io::Result<usize>,
) -> io::Result<([f64; 4], Duration)> {
    // One unit first: starting the runtime is not the unit's cost.
    run(prepare(1)?, &mut || ())?;
    let needs = prepare(units)?;
    let before = Memory::now()?;
    let start = Instant::now();
    let mut after = Err(io::Error::other("memory was not looked at"));
    let mut took = Duration::ZERO;
    let waited = run(needs, &mut || {
        took = start.elapsed();
        after = Memory::now();
    })?;
    let after = after?;
    assert_eq!(waited, units, "{}: some did not wait", peer.name);
    let (before, after) = (before.parts(), after.parts());
    Ok((std::array::from_fn(|part| after[part] as f64 - before[part] as f64), took))
}

pub(crate) fn parked(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let units = scale.parked();
    let kib = 1024.0 * units as f64;
    let grown = grown(peer, units, Ok, peer.parked?);
    Some(grown.map(|(parts, _)| parts.map(|bytes| bytes / kib).to_vec()))
}

pub(crate) fn reading(peer: &Peer, _: Scale) -> Option<io::Result<Vec<f64>>> {
    let pairs = |units| {
        limits::raise_open_files(2 * units as u64 + 100)?;
        (0..units).map(|_| UnixStream::pair()).collect()
    };
    let grown = grown(peer, READERS, pairs, peer.readers?);
    Some(grown.map(|([whole, ..], _)| vec![whole / (1024.0 * READERS as f64)]))
}

pub(crate) fn million(peer: &Peer, _: Scale) -> Option<io::Result<Vec<f64>>> {
    let gib = (1u64 << 30) as f64;
    let grown = grown(peer, 1_000_000, Ok, peer.parked?);
    Some(grown.map(|([whole, ..], took)| vec![whole / gib, took.as_secs_f64()]))
}
