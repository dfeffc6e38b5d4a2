//! may: stackful coroutines on worker threads: one that is pinned like the other peers, or one for each
//! core.

use carefree_benches::machine;
use carefree_benches::peer::{Answer, Peer, Turn, stint, sum};
use may::coroutine::{self, JoinHandle};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) const PEER: Peer = Peer {
    name: "may",
    fewer: 1,
    coroutine: None,
    crowd: Some(crowd),
    sleepers: Some(sleepers),
    parked: Some(parked),
    readers: None,
    channel: Some(channel),
    crossbeam: None,
    elsewhere: None,
};

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    may::config().set_workers(machine::workers());
    // SAFETY: may asks that the body not overflow its stack and keep no reference to thread-local
    // storage across a switch. The bodies here are a few shallow calls and use none.
    unsafe { coroutine::spawn(body) }
}

fn join<T>(handle: JoinHandle<T>) -> T {
    handle.join().expect("a coroutine of may panicked")
}

fn crowd(units: usize, yields: u64) -> Answer {
    join(spawn(move || {
        // may keeps a thousand stacks at most unless told otherwise, and would map and unmap the
        // rest of a larger crowd each time. Told only here, as it maps as many right at its start.
        may::config().set_pool_capacity(units.max(1_000));
        let turn = Arc::new(Turn::default());
        let handles: Vec<_> = (0..units)
            .map(|me| {
                let turn = turn.clone();
                spawn(move || stint(me, yields, &turn, coroutine::yield_now))
            })
            .collect();
        sum(handles.into_iter().map(join))
    }))
}

fn sleepers(units: usize, span: Duration) -> usize {
    join(spawn(move || {
        let handles: Vec<_> = (0..units)
            .map(|_| {
                spawn(move || {
                    let start = Instant::now();
                    coroutine::sleep(span);
                    usize::from(start.elapsed() >= span)
                })
            })
            .collect();
        handles.into_iter().map(join).sum()
    }))
}

fn channel(rounds: u64) -> u64 {
    use may::sync::mpsc::channel;
    join(spawn(move || carefree_benches::ping_pong!(rounds, channel(), spawn, join)))
}

fn parked(units: usize, look: &mut dyn FnMut()) -> io::Result<usize> {
    let waiting = Arc::new(AtomicUsize::new(0));
    let released = Arc::new(AtomicBool::new(false));
    let handles: Vec<_> = (0..units)
        .map(|_| {
            let (waiting, released) = (waiting.clone(), released.clone());
            spawn(move || {
                waiting.fetch_add(1, Ordering::Relaxed);
                while !released.load(Ordering::Relaxed) {
                    coroutine::park();
                }
                1
            })
        })
        .collect();
    while waiting.load(Ordering::Relaxed) < units {
        std::thread::sleep(Duration::from_millis(1));
    }
    look();
    released.store(true, Ordering::Relaxed);
    for handle in &handles {
        handle.coroutine().unpark();
    }
    Ok(handles.into_iter().map(join).sum())
}
