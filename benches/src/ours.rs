//! Carefree.

use crate::peer::{Answer, Peer, Turn, stint, sum};
use carefree::{CoroutineScope, CoroutineState, JoinHandle, coroutine_scope};
use std::hint::black_box;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Carefree.
pub const PEER: Peer = Peer {
    name: "carefree",
    fewer: 1,
    coroutine: Some(coroutine),
    crowd: Some(crowd),
    sleepers: Some(sleepers),
    parked: Some(parked),
    readers: Some(readers),
    channel: Some(channel),
    crossbeam: Some(crossbeam),
    elsewhere: None,
};

fn coroutine(rounds: u64) -> u64 {
    // SAFETY: the coroutine suspends within no call that sets a thread-local variable.
    unsafe { coroutine_scope(|scope| rally(scope, rounds)) }
}

fn rally(scope: &CoroutineScope<'_>, rounds: u64) -> u64 {
    let mut coroutine = scope.coroutine(|suspender, mut ball: u64| {
        while ball != u64::MAX {
            ball = suspender.suspend(ball + 1);
        }
    });
    let mut sum = 0;
    for round in 0..rounds {
        match coroutine.resume(black_box(round)) {
            CoroutineState::Yielded(ball) => sum += ball,
            CoroutineState::Complete(()) => unreachable!("it goes on until u64::MAX"),
        }
    }
    coroutine.resume(u64::MAX);
    sum
}

fn join<T>(handle: JoinHandle<T>) -> T {
    handle.join().expect("a fiber panicked")
}

fn crowd(units: usize, yields: u64) -> Answer {
    carefree::run(move || {
        let turn = Arc::new(Turn::default());
        let handles: Vec<_> = (0..units)
            .map(|me| {
                let turn = turn.clone();
                carefree::spawn(move || stint(me, yields, &turn, carefree::yield_now))
            })
            .collect();
        sum(handles.into_iter().map(join))
    })
}

fn sleepers(units: usize, span: Duration) -> usize {
    carefree::run(move || {
        let handles: Vec<_> = (0..units)
            .map(|_| {
                carefree::spawn(move || {
                    let start = Instant::now();
                    carefree::sleep(span);
                    usize::from(start.elapsed() >= span)
                })
            })
            .collect();
        handles.into_iter().map(join).sum()
    })
}

fn readers(sockets: Vec<(UnixStream, UnixStream)>, look: &mut dyn FnMut()) -> io::Result<usize> {
    crate::readers!(sockets, look, |body| carefree::Builder::new().spawn(body), join)
}

/// std's channels, as in a program that has replaced its threads by fibers.
fn channel(rounds: u64) -> u64 {
    use std::sync::mpsc::channel;
    carefree::run(move || crate::ping_pong!(rounds, channel(), carefree::spawn, join))
}

fn crossbeam(rounds: u64) -> u64 {
    use crossbeam_channel::unbounded;
    carefree::run(move || crate::ping_pong!(rounds, unbounded(), carefree::spawn, join))
}

fn parked(units: usize, look: &mut dyn FnMut()) -> io::Result<usize> {
    let waiting = Arc::new(AtomicUsize::new(0));
    let released = Arc::new(AtomicBool::new(false));
    let mut handles = Vec::with_capacity(units);
    for _ in 0..units {
        let (waiting, released) = (waiting.clone(), released.clone());
        handles.push(carefree::Builder::new().spawn(move || {
            waiting.fetch_add(1, Ordering::Relaxed);
            while !released.load(Ordering::Relaxed) {
                carefree::park();
            }
            1
        })?);
    }
    while waiting.load(Ordering::Relaxed) < units {
        std::thread::sleep(Duration::from_millis(1));
    }
    look();
    released.store(true, Ordering::Relaxed);
    for handle in &handles {
        handle.thread().unpark();
    }
    Ok(handles.into_iter().map(join).sum())
}
