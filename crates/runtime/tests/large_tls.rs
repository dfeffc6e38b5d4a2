//! A program with more thread-local storage than the smallest stacks have room for.

// Under loom there are models of the runtime's parts, and no runtime.
#![cfg(not(loom))]

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::cell::RefCell;

use carefree_context::tls;
use carefree_runtime::{Builder, spawn, yield_now};

const LARGE: usize = 20_000;

thread_local! {
    static BUFFER: RefCell<[u8; LARGE]> = const { RefCell::new([7; LARGE]) };
}

/// Fills the buffer with `new`. Returns whether it was full of `old`.
fn refill(old: u8, new: u8) -> bool {
    BUFFER.with_borrow_mut(|buffer| {
        let was = buffer.iter().all(|byte| *byte == old);
        buffer.fill(new);
        was
    })
}

/// Thread-local storage does not count against the stack size that is asked for.
#[test]
fn a_small_stack_has_room_beside_it() {
    if tls::mode().layout().is_none() {
        return;
    }
    let handle = Builder::new().stack_size(16 << 10).spawn(|| refill(7, 1)).unwrap();
    assert!(handle.join().unwrap());
}

#[test]
fn it_is_each_fibers_own() {
    if tls::mode().layout().is_none() {
        return;
    }
    let handles: Vec<_> = (0..50)
        .map(|n| {
            spawn(move || {
                let fresh = refill(7, n);
                yield_now();
                fresh && refill(n, 0)
            })
        })
        .collect();
    for handle in handles {
        assert!(handle.join().unwrap());
    }
}
