// Switch and allocation of Rust's threads, by hand: nanoseconds on standard output.
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let count: u32 = words[3].parse().expect("a number");
    let (units, yields) = if words[1] == "switch" { (2, count / 2) } else { (count, 1) };
    let barrier = Arc::new(Barrier::new(units as usize));
    let start = Instant::now();
    let threads: Vec<_> = (0..units)
        .map(|_| {
            let barrier = barrier.clone();
            thread::spawn(move || {
                barrier.wait();
                (0..yields).for_each(|_| thread::yield_now());
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    println!("{}", start.elapsed().as_nanos() as f64 / f64::from(count));
}
