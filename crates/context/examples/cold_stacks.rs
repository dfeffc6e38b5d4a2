//! What does a stack cost that was never used before, and what do batches save?
//!
//! `cargo run --release -p carefree-context --example cold_stacks`
//!
//! Each line is a way to make stacks, of 256 KiB where it names no other size: nanoseconds per stack,
//! the least of interleaved rounds, spent on address space and advice (map), on guards, on allocating
//! the top page ahead of its use, and on the first write to it. The last lines are the pool itself, and
//! what memory its stacks took when a word at the top of each was written.

use carefree_context::stack::{self, Stack, StackPool, StackSize};
use std::time::{Duration, Instant};

const STACKS: usize = 8192;
const ROUNDS: usize = 9;
const SLOT: usize = 256 * 1024;
/// As the stacks of `carefree run`, whose programs' threads have 8 MiB.
const LARGE: usize = 16 << 20;
const PAGE: usize = 4096;

const MADV_POPULATE_WRITE: i32 = 23;
const MADV_GUARD_INSTALL: i32 = 102;
const PIDFD_SELF: i32 = -10_000;

#[derive(Clone, Copy, PartialEq)]
enum How {
    Not,
    Singly,
    Batched,
    Mprotect,
}

struct Way {
    name: &'static str,
    batch: usize,
    guard: How,
    guard_pages: usize,
    populate: How,
    pages: usize,
    slot: usize,
}

const fn way(name: &'static str, batch: usize, guard: How, populate: How) -> Way {
    Way { name, batch, guard, guard_pages: 1, populate, pages: 1, slot: SLOT }
}

const WAYS: &[Way] = &[
    way("no guard, page fault", 1, How::Not, How::Not),
    way("guard by mprotect, page fault", 1, How::Mprotect, How::Not),
    way("one by one: guard, page fault", 1, How::Singly, How::Not),
    way("one by one: guard, populate", 1, How::Singly, How::Singly),
    way("guards by 64, page fault", 64, How::Batched, How::Not),
    way("guards and populate by 8", 8, How::Batched, How::Batched),
    way("guards and populate by 32", 32, How::Batched, How::Batched),
    way("guards and populate by 64", 64, How::Batched, How::Batched),
    way("guards and populate by 128", 128, How::Batched, How::Batched),
    way("guards and populate by 1024", 1024, How::Batched, How::Batched),
    Way { guard_pages: 4, ..way("by 64, guards of 4 pages", 64, How::Batched, How::Batched) },
    Way { guard_pages: 16, ..way("by 64, guards of 16 pages", 64, How::Batched, How::Batched) },
    Way { guard_pages: 32, ..way("by 64, guards of 32 pages", 64, How::Batched, How::Batched) },
    Way { pages: 2, ..way("by 64, two pages used", 64, How::Batched, How::Not) },
    Way { pages: 2, ..way("by 64, two pages populated", 64, How::Batched, How::Batched) },
    Way { slot: LARGE, ..way("by 64, of 16 MiB", 64, How::Batched, How::Batched) },
    large("by 64, of 16 MiB, 16 pages of guard", 16),
    large("by 64, of 16 MiB, 256 pages of guard", 256),
];

const fn large(name: &'static str, guard_pages: usize) -> Way {
    Way { guard_pages, slot: LARGE, ..way(name, 64, How::Batched, How::Batched) }
}

/// Time spent on: map, guard, populate, touch.
type Sample = [Duration; 4];

fn check(result: libc::c_long, what: &str) {
    if result < 0 {
        eprintln!("{what}: {} (Linux 6.13 or newer is needed)", std::io::Error::last_os_error());
        std::process::exit(1);
    }
}

fn advise(how: How, ranges: &[libc::iovec], advice: i32) {
    match how {
        How::Not => {}
        How::Singly | How::Mprotect => {
            for range in ranges {
                // SAFETY: ranges of this program's own mapping, which holds nothing.
                let result = unsafe {
                    match how {
                        How::Mprotect => libc::mprotect(range.iov_base, range.iov_len, 0),
                        _ => libc::madvise(range.iov_base, range.iov_len, advice),
                    }
                };
                check(result.into(), "advice");
            }
        }
        How::Batched => {
            let (at, count) = (ranges.as_ptr(), ranges.len());
            // SAFETY: ranges of this program's own mapping, which holds nothing.
            let result = unsafe {
                libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, at, count, advice, 0)
            };
            check(result, "process_madvise");
        }
    }
}

fn sample(way: &Way) -> Sample {
    let mut spent = [Duration::ZERO; 4];
    let mut since = Instant::now();
    let mut lap = |part: usize| {
        spent[part] += since.elapsed();
        since = Instant::now();
    };
    let bytes = STACKS * way.slot;
    let align = 2 << 20;
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new mapping.
    let map =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes + 2 * align, protection, flags, -1, 0) };
    assert_ne!(map, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    let mut base = map.cast::<u8>().wrapping_add((map as usize).wrapping_neg() % align);
    if way.slot > align {
        // As in the pool, a guard shares a page table with the top page of the stack below.
        base = base.wrapping_add(align / 2);
    }
    // SAFETY: this program's own mapping.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_NOHUGEPAGE) };
    lap(0);
    let range = |offset: usize, bytes: usize| libc::iovec {
        iov_base: base.wrapping_add(offset).cast(),
        iov_len: bytes,
    };
    let mut ranges = Vec::with_capacity(way.batch);
    for first in (0..STACKS).step_by(way.batch) {
        let slots = first..first + way.batch;
        ranges.clear();
        ranges.extend(slots.clone().map(|slot| range(slot * way.slot, way.guard_pages * PAGE)));
        advise(way.guard, &ranges, MADV_GUARD_INSTALL);
        lap(1);
        ranges.clear();
        let used = way.pages * PAGE;
        ranges.extend(slots.clone().map(|slot| range((slot + 1) * way.slot - used, used)));
        advise(way.populate, &ranges, MADV_POPULATE_WRITE);
        lap(2);
        for slot in slots {
            for page in 1..=way.pages {
                // SAFETY: in the usable part of this program's own slot.
                unsafe { base.add((slot + 1) * way.slot - page * PAGE + 64).write_volatile(1) };
            }
        }
        lap(3);
    }
    // SAFETY: it is not used any more.
    unsafe { libc::munmap(map, bytes + 2 * align) };
    spent
}

/// A line of /proc/self/status, in bytes.
fn status(name: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let number = line.split_ascii_whitespace().nth(1).unwrap_or_default();
    number.parse().unwrap_or(0.0) * 1024.0
}

fn memory() {
    const MANY: usize = 100_000;
    let names = ["VmRSS", "VmPTE"];
    let mut stacks = Vec::with_capacity(MANY);
    let before = names.map(status);
    let pool = StackPool::new();
    for _ in 0..MANY {
        let stack = pool.acquire(StackSize::DEFAULT).expect("a stack");
        // SAFETY: in the usable part of this program's own stack.
        unsafe { stack.top().sub(64).write_volatile(1) };
        stacks.push(stack);
    }
    let after = names.map(status);
    for (name, (before, after)) in names.iter().zip(before.iter().zip(after)) {
        println!("{name}: {:.0} bytes per stack", (after - before) / MANY as f64);
    }
}

/// Cold acquire with first touch, and acquire and release when warm.
fn pool_sample() -> [Duration; 2] {
    let pool = StackPool::new();
    let mut stacks: Vec<Stack> = Vec::with_capacity(STACKS);
    let start = Instant::now();
    for _ in 0..STACKS {
        let stack = pool.acquire(StackSize::DEFAULT).expect("a stack");
        // SAFETY: in the usable part of this program's own stack.
        unsafe { stack.top().sub(64).write_volatile(1) };
        stacks.push(stack);
    }
    let cold = start.elapsed();
    stacks.truncate(1);
    let start = Instant::now();
    for _ in 0..STACKS {
        drop(pool.acquire(StackSize::DEFAULT).expect("a stack"));
    }
    [cold, start.elapsed()]
}

/// The least of all rounds: what it takes when nothing else wants the processor.
fn least(samples: impl Iterator<Item = Duration>) -> f64 {
    samples.min().unwrap_or_default().as_nanos() as f64 / STACKS as f64
}

fn main() {
    let guards = stack::guards();
    println!("guards: {} ({})", guards.mode, guards.reason);
    println!(
        "{:<37}{:>8} {:>7} {:>8} {:>7} {:>7}",
        "ns per stack", "map", "guard", "populate", "touch", "all"
    );
    let mut samples: Vec<Vec<Sample>> = WAYS.iter().map(|_| Vec::new()).collect();
    let mut pool = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (way, samples) in WAYS.iter().zip(&mut samples) {
            samples.push(sample(way));
        }
        for (all, one) in pool.iter_mut().zip(pool_sample()) {
            all.push(one);
        }
    }
    for (way, samples) in WAYS.iter().zip(&samples) {
        let part = |part: usize| least(samples.iter().map(|sample| sample[part]));
        let all = least(samples.iter().map(|sample| sample.iter().sum()));
        println!(
            "{:<37} {:>7.0} {:>7.0} {:>8.0} {:>7.0} {:>7.0}",
            way.name,
            part(0),
            part(1),
            part(2),
            part(3),
            all
        );
    }
    let [cold, warm] = pool;
    println!("{:<37} {:>40.0}", "the pool: acquire, first touch", least(cold.into_iter()));
    println!("{:<37} {:>40.0}", "the pool, warm: acquire, drop", least(warm.into_iter()));
    memory();
}
