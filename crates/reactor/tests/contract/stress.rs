//! Random operations from a seed, compared with counts of what must complete.

use super::kit::*;
use carefree_reactor::{Completions, Kind, clock};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

over_all! {
    every_operation_ends_once_and_no_byte_is_lost
    a_thousand_descriptors
}

/// An operation under way: its pair, and its buffer, which must not move. A poll has none.
type UnderWay = BTreeMap<u64, (usize, Option<Box<[u8]>>)>;

struct Pair {
    here: UnixStream,
    there: UnixStream,
    written: usize,
    read: usize,
}

fn every_operation_ends_once_and_no_byte_is_lost(kind: Kind) {
    for seed in 1..=4 {
        stress(kind, seed);
    }
}

fn stress(kind: Kind, seed: u64) {
    let mut random = Random(seed);
    let mut bench = Bench::new(kind);
    let mut pairs: Vec<Pair> = (0..8)
        .map(|_| {
            let (here, there) = UnixStream::pair().unwrap();
            there.set_nonblocking(true).unwrap();
            Pair { here, there, written: 0, read: 0 }
        })
        .collect();
    let mut under_way = UnderWay::new();
    let mut next = 0;
    for _ in 0..3_000 {
        let index = random.below(8) as usize;
        let pair = &mut pairs[index];
        match random.below(10) {
            0..=2 if under_way.len() < 400 => {
                let mut buffer = vec![0u8; 1 + random.below(100) as usize].into_boxed_slice();
                let op = match random.below(2) {
                    0 => receive(&pair.here, &mut buffer, 0),
                    _ => read(&pair.here, &mut buffer),
                };
                bench.start(next, op);
                under_way.insert(next, (index, Some(buffer)));
                next += 1;
            }
            3 if under_way.len() < 400 => {
                bench.start(next, poll(&pair.here, libc::POLLIN));
                under_way.insert(next, (index, None));
                next += 1;
            }
            4..=6 => {
                let length = random.below(200) as usize;
                match pair.there.write(&[index as u8 + 1; 200][..length]) {
                    Ok(count) => pair.written += count,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            7 => {
                // Also those that have completed.
                bench.driver.cancel(random.below(next + 1));
            }
            8 => {
                bench.driver.waker().wake();
                collect(&mut bench, &mut pairs, &mut under_way, None);
            }
            _ => {
                let soon = Duration::from_micros(random.below(200));
                let soon = clock::add(bench.driver.now(), soon);
                collect(&mut bench, &mut pairs, &mut under_way, Some(soon));
            }
        }
        assert_eq!(bench.driver.pending(), under_way.len());
    }
    // The peers hang up: all operations end.
    for pair in &pairs {
        pair.there.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let end = clock::after(PATIENCE);
    while !under_way.is_empty() {
        assert!(clock::now() < end, "{} do not end", under_way.len());
        let soon = bench.driver.now() + 1_000_000;
        collect(&mut bench, &mut pairs, &mut under_way, Some(soon));
    }
    for pair in &mut pairs {
        let mut left = Vec::new();
        pair.here.read_to_end(&mut left).unwrap();
        assert_eq!(pair.read + left.len(), pair.written, "seed {seed}");
    }
}

fn collect(bench: &mut Bench, pairs: &mut [Pair], under_way: &mut UnderWay, deadline: Option<u64>) {
    let mut out = Completions::new();
    match deadline {
        Some(deadline) => _ = bench.driver.wait(Some(deadline), &mut out),
        None => bench.driver.poll(&mut out),
    }
    for done in out.iter() {
        let (index, buffer) = under_way.remove(&done.token).expect("it ends once");
        match (buffer, done.result) {
            (_, result) if result == -libc::ECANCELED => {}
            (Some(buffer), result) => {
                assert!(result >= 0, "{result}");
                let got = &buffer[..result as usize];
                assert!(got.iter().all(|&byte| byte == index as u8 + 1), "another's data");
                pairs[index].read += got.len();
            }
            (None, result) => assert_eq!(result & libc::POLLIN as i32, libc::POLLIN.into()),
        }
    }
}

fn a_thousand_descriptors(kind: Kind) {
    // SAFETY: reads and writes a structure that lives until the calls return.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(20_000);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    let mut bench = Bench::new(kind);
    let mut pairs: Vec<_> = (0..500).map(|_| UnixStream::pair().unwrap()).collect();
    let mut buffers = vec![[0u8; 8]; pairs.len()];
    for round in 0..3u64 {
        for (token, (pair, buffer)) in pairs.iter().zip(&mut buffers).enumerate() {
            bench.start(token as u64, receive(&pair.0, buffer, 0));
        }
        bench.poll();
        for (token, pair) in pairs.iter_mut().enumerate() {
            pair.1.write_all(&(round * 1_000 + token as u64).to_le_bytes()).unwrap();
        }
        for (token, buffer) in (0..).zip(&buffers) {
            assert_eq!(bench.finish(token), 8);
            assert_eq!(u64::from_le_bytes(*buffer), round * 1_000 + token);
        }
    }
}
