//! Costs of a switch and its parts: the figures to which this repository's comments refer.
//!
//! `cargo run --release -p carefree-context --example switch_costs`

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use carefree_context::arch::{self, ThreadContext};
use carefree_context::stack::{StackPool, StackSize};
use carefree_context::tls::{self, Block};
use carefree_context::{Coroutine, Suspender};

const TIMES: u32 = 1_000_000;
const ROUNDS: usize = 11;

/// The median of some rounds, in nanoseconds for each of `per_round` things that `round` does.
fn median(per_round: u32, mut round: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / f64::from(per_round)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Two sides that switch to each other.
struct Pair {
    here: ThreadContext,
    there: ThreadContext,
}

macro_rules! switches {
    ($pool:expr, $switch:path, $own:literal) => {{
        unsafe extern "C" fn there(data: *mut u8) -> ! {
            let pair = data.cast::<Pair>();
            loop {
                // SAFETY: the other side waits in its switch.
                unsafe { $switch(&raw mut (*pair).there, &raw const (*pair).here) };
            }
        }
        let stack = $pool.acquire(StackSize::DEFAULT).expect("no stack");
        let layout = tls::mode().layout().filter(|_| $own);
        let block = layout.map(|layout| {
            // SAFETY: the stack is not in use, and fresh, so it reads as zero.
            unsafe { Block::build(layout, stack.limit()..stack.top()) }.expect("no memory")
        });
        let top = block.as_ref().map_or(stack.top(), Block::low);
        let tp = block.as_ref().map_or(arch::thread_pointer(), Block::thread_pointer);
        let mut pair =
            Pair { here: ThreadContext::of_this_thread(), there: ThreadContext::of_this_thread() };
        let pointer = &raw mut pair;
        // SAFETY: `there` only ever switches back, and is left suspended for good.
        unsafe {
            (*pointer).there = arch::prepare_thread(top, tp, there, pointer.cast());
            median(2 * TIMES, || {
                for _ in 0..TIMES {
                    $switch(&raw mut (*pointer).here, &raw const (*pointer).there);
                }
            })
        }
    }};
}

fn main() {
    let line = |what: &str, nanoseconds: f64| println!("{what:52} {nanoseconds:8.2} ns");
    let pool = StackPool::new();

    let body = |suspender: &Suspender<u32, u32>, mut value| {
        loop {
            value = suspender.suspend(value + 1);
        }
    };
    // SAFETY: it uses no thread-local variable.
    let mut coroutine = unsafe { Coroutine::<u32, u32, ()>::new(body) };
    let resume = median(2 * TIMES, || {
        for i in 0..TIMES {
            black_box(coroutine.resume(i));
        }
    });
    line("coroutine: resume or suspend", resume);

    line("fiber, from Rust", switches!(pool, arch::switch_thread_from_rust::<false>, false));
    line(
        "fiber, from C (floating-point control words read)",
        switches!(pool, arch::switch_thread::<false>, false),
    );
    if tls::mode().layout().is_some() {
        line(
            "fiber with its own thread-local storage",
            switches!(pool, arch::switch_thread_from_rust::<true>, true),
        );
    }

    let word = AtomicU64::new(0);
    let locked = median(TIMES, || {
        for _ in 0..TIMES {
            word.fetch_add(1, Ordering::Relaxed);
        }
    });
    line("a locked instruction", locked);
    let fenced = median(TIMES, || {
        for _ in 0..TIMES {
            word.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    });
    line("a store and a full fence", fenced);
    // SAFETY: no pointers are passed.
    let barrier = |command: i32| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if barrier(1 << 4) == 0 {
        let heavy = median(TIMES / 100, || {
            for _ in 0..TIMES / 100 {
                barrier(1 << 3);
            }
        });
        line("membarrier(2), this process on one processor", heavy);
    }
    if let Some(layout) = tls::mode().layout() {
        let refresh = median(TIMES / 10, || {
            for _ in 0..TIMES / 10 {
                layout.refresh().expect("nothing was loaded");
            }
        });
        line("a look for libraries loaded meanwhile", refresh);
    }
    if tls::mode().layout().is_some() {
        arch::force_no_fsgsbase();
        line(
            "fiber with its own, thread pointer by system call",
            switches!(pool, arch::switch_thread_from_rust::<true>, true),
        );
    }
}
