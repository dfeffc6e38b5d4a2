//! tokio: stackless tasks on the current-thread runtime, the faster of its two on one core, or on all cores
//! on the other, with its default number of workers.

use carefree_benches::machine;
use carefree_benches::peer::{Answer, Peer, Turn, sum};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};

pub(crate) const PEER: Peer = Peer {
    name: "tokio",
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

/// Runs a future as users' programs would: by the current-thread runtime, or as a task of the other one,
/// whose workers take tasks that its own spawn faster than the main thread's.
fn block_on<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    if machine::workers() == 1 {
        block_on_here(future)
    } else {
        block_on_here(async { join(tokio::spawn(future)).await })
    }
}

/// The same by the calling thread, whichever the runtime.
fn block_on_here<T>(future: impl Future<Output = T>) -> T {
    // Started at first use as a program's would be.
    thread_local! {
        static RUNTIME: Runtime = match machine::workers() {
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        }
        .enable_time()
        .build()
        .expect("tokio's runtime starts");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

async fn join<T>(handle: JoinHandle<T>) -> T {
    handle.await.expect("a task of tokio panicked")
}

fn crowd(units: usize, yields: u64) -> Answer {
    block_on(async move {
        let turn = Arc::new(Turn::default());
        let handles: Vec<_> = (0..units)
            .map(|me| {
                let turn = turn.clone();
                tokio::spawn(async move {
                    let mut answer = Answer { yields: 0, switched: 0 };
                    for _ in 0..yields {
                        turn.take(me);
                        yield_now().await;
                        answer.yields += 1;
                        answer.switched += turn.passed(me);
                    }
                    answer
                })
            })
            .collect();
        let mut answers = Vec::with_capacity(units);
        for handle in handles {
            answers.push(join(handle).await);
        }
        sum(answers.into_iter())
    })
}

fn sleepers(units: usize, span: Duration) -> usize {
    block_on(async move {
        let handles: Vec<_> = (0..units)
            .map(|_| {
                tokio::spawn(async move {
                    let start = Instant::now();
                    tokio::time::sleep(span).await;
                    usize::from(start.elapsed() >= span)
                })
            })
            .collect();
        let mut slept = 0;
        for handle in handles {
            slept += join(handle).await;
        }
        slept
    })
}

fn channel(rounds: u64) -> u64 {
    use tokio::sync::mpsc::unbounded_channel;
    // Both are tasks: what `block_on` itself runs is woken in another way.
    block_on(async move {
        let (to, mut from_here) = unbounded_channel();
        let (back, mut from_there) = unbounded_channel();
        let other = tokio::spawn(async move {
            while let Some(ball) = from_here.recv().await {
                let ball: u64 = ball;
                if back.send(ball + 1).is_err() {
                    break;
                }
            }
        });
        let one = tokio::spawn(async move {
            let mut sum = 0;
            for round in 0..rounds {
                to.send(round).expect("the other task receives");
                let ball: u64 = from_there.recv().await.expect("the other task sends");
                sum += ball;
            }
            sum
        });
        let sum = join(one).await;
        join(other).await;
        sum
    })
}

fn parked(units: usize, look: &mut dyn FnMut()) -> io::Result<usize> {
    block_on_here(async move {
        let release = Arc::new(Semaphore::new(0));
        let waiting = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..units)
            .map(|_| {
                let (release, waiting) = (release.clone(), waiting.clone());
                tokio::spawn(async move {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    // An error is the semaphore closed: the release.
                    usize::from(release.acquire().await.is_err())
                })
            })
            .collect();
        while waiting.load(Ordering::Relaxed) < units {
            yield_now().await;
        }
        look();
        release.close();
        let mut waited = 0;
        for handle in handles {
            waited += join(handle).await;
        }
        Ok(waited)
    })
}
