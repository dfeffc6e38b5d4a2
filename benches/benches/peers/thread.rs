//! std::thread: the kernel's threads.

use carefree_benches::peer::{Answer, Peer, Turn, stint, sum};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) const PEER: Peer = Peer {
    name: "std::thread",
    fewer: 10,
    coroutine: None,
    crowd: Some(crowd),
    sleepers: Some(sleepers),
    parked: Some(parked),
    readers: Some(readers),
    channel: Some(channel),
    crossbeam: Some(crossbeam),
    elsewhere: None,
};

fn join<T>(handle: JoinHandle<T>) -> T {
    handle.join().expect("a thread panicked")
}

fn crowd(units: usize, yields: u64) -> Answer {
    let turn = Arc::new(Turn::default());
    let handles: Vec<_> = (0..units)
        .map(|me| {
            let turn = turn.clone();
            thread::spawn(move || stint(me, yields, &turn, thread::yield_now))
        })
        .collect();
    sum(handles.into_iter().map(join))
}

fn sleepers(units: usize, span: Duration) -> usize {
    let handles: Vec<_> = (0..units)
        .map(|_| {
            thread::spawn(move || {
                let start = Instant::now();
                thread::sleep(span);
                usize::from(start.elapsed() >= span)
            })
        })
        .collect();
    handles.into_iter().map(join).sum()
}

fn readers(sockets: Vec<(UnixStream, UnixStream)>, look: &mut dyn FnMut()) -> io::Result<usize> {
    carefree_benches::readers!(sockets, look, |body| Builder::new().spawn(body), join)
}

fn channel(rounds: u64) -> u64 {
    use std::sync::mpsc::channel;
    carefree_benches::ping_pong!(rounds, channel(), thread::spawn, join)
}

fn crossbeam(rounds: u64) -> u64 {
    use crossbeam_channel::unbounded;
    carefree_benches::ping_pong!(rounds, unbounded(), thread::spawn, join)
}

fn parked(units: usize, look: &mut dyn FnMut()) -> io::Result<usize> {
    let waiting = Arc::new(AtomicUsize::new(0));
    let released = Arc::new(AtomicBool::new(false));
    let mut handles = Vec::with_capacity(units);
    for _ in 0..units {
        let (waiting, released) = (waiting.clone(), released.clone());
        handles.push(Builder::new().spawn(move || {
            waiting.fetch_add(1, Ordering::Relaxed);
            while !released.load(Ordering::Relaxed) {
                thread::park();
            }
            1
        })?);
    }
    while waiting.load(Ordering::Relaxed) < units {
        thread::sleep(Duration::from_millis(1));
    }
    look();
    released.store(true, Ordering::Relaxed);
    for handle in &handles {
        handle.thread().unpark();
    }
    Ok(handles.into_iter().map(join).sum())
}
