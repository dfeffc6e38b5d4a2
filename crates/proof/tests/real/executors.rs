//! Rayon's pool of threads and tokio's runtime, called from fibers.

use std::time::Duration;

use carefree::scope;
use rayon::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::{many, on_a_fiber, together};

#[test]
fn fibers_compute_on_rayon() {
    on_a_fiber(|| {
        scope(|s| {
            for number in 0..many(50) as u64 {
                s.spawn(move || {
                    let sum: u64 = (0..1000u64).into_par_iter().map(|i| i * number).sum();
                    assert_eq!(sum, 499_500 * number);
                    let (left, right) = rayon::join(|| number + 1, || number + 2);
                    assert_eq!(left + right, 2 * number + 3);
                });
            }
        });
    });
}

#[test]
fn a_separate_pool_runs_while_the_fiber_waits() {
    // On one carrier: another fiber must run while rayon computes.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let other = carefree::spawn(move || send.send(42).unwrap());
        let got = pool.install(move || receive.recv().unwrap());
        assert_eq!(got, 42);
        other.join().unwrap();
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn tokio_blocks_on_in_fibers() {
    // Long beside what a busy machine may delay them by.
    const LATENCY: Duration = Duration::from_millis(300);
    // On one carrier: if a runtime blocked it in `epoll_wait`, the others would stop.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let fibers = many(60);
        together(LATENCY * fibers as u32, || {
            scope(|s| {
                for number in 0..fibers {
                    s.spawn(move || {
                        let text = runtime().block_on(async {
                            let listener =
                                tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                            let address = listener.local_addr().unwrap();
                            let server = tokio::spawn(async move {
                                let (mut stream, _) = listener.accept().await.unwrap();
                                let mut text = [0; 4];
                                stream.read_exact(&mut text).await.unwrap();
                                tokio::time::sleep(LATENCY).await;
                                stream.write_all(&text).await.unwrap();
                            });
                            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                            stream.write_all(format!("{number:04}").as_bytes()).await.unwrap();
                            let mut text = String::new();
                            stream.read_to_string(&mut text).await.unwrap();
                            server.await.unwrap();
                            text
                        });
                        assert_eq!(text, format!("{number:04}"));
                    });
                }
            });
        });
    });
}

#[test]
fn tokio_and_blocking_code_between_fibers() {
    on_a_fiber(|| {
        let (send, receive) = tokio::sync::oneshot::channel();
        let waiting = carefree::spawn(move || runtime().block_on(receive).unwrap());
        carefree::sleep(Duration::from_millis(10));
        send.send("across").unwrap();
        assert_eq!(waiting.join().unwrap(), "across");
    });
}

#[test]
fn futures_without_a_runtime_run_on_the_fiber() {
    on_a_fiber(|| {
        let (send, mut receive) = tokio::sync::mpsc::channel(1);
        let sending = carefree::spawn(move || {
            for number in 0..1000 {
                carefree::block_on(send.send(number)).unwrap();
            }
        });
        let mut sum = 0;
        while let Some(number) = carefree::block_on(receive.recv()) {
            sum += number;
        }
        assert_eq!(sum, 499_500);
        sending.join().unwrap();
    });
}
