//! malloc on fibers that move.

use crate::harness::{bodies, run_all, yield_now};

#[test]
fn hundreds_of_moving_fibers_allocate_and_free() {
    for threads in [1, 2, 3] {
        // More fibers than blocks, so that blocks are reused.
        run_all(threads, 200, bodies(400, |seed| move || churn(seed as u64 + 1)));
    }
}

/// Allocates, grows and frees, moving in between, and checks that nothing else wrote there.
fn churn(seed: u64) {
    let mut state = seed;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut kept: Vec<(*mut u8, usize)> = Vec::new();
    let check = |(address, size): (*mut u8, usize)| {
        // SAFETY: allocated below, with this many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(address, size) };
        assert!(bytes.iter().all(|byte| *byte == size as u8));
    };
    for step in 0..200 {
        let size = 1 + random(if step % 20 == 0 { 100_000 } else { 1_500 }) as usize;
        match random(4) {
            0 | 1 => {
                // SAFETY: plain allocation, filled to its size.
                unsafe {
                    let address = libc::malloc(size).cast::<u8>();
                    assert!(!address.is_null());
                    address.write_bytes(size as u8, size);
                    kept.push((address, size));
                }
            }
            2 if !kept.is_empty() => {
                let (address, old) = kept.swap_remove(random(kept.len() as u64) as usize);
                check((address, old));
                // SAFETY: allocated above, not freed yet.
                unsafe {
                    let address = libc::realloc(address.cast(), size).cast::<u8>();
                    assert!(!address.is_null());
                    address.write_bytes(size as u8, size);
                    kept.push((address, size));
                }
            }
            _ => {
                if let Some(block) = kept.pop() {
                    check(block);
                    // SAFETY: allocated above, not freed yet.
                    unsafe { libc::free(block.0.cast()) };
                }
            }
        }
        if step % 3 == 0 {
            yield_now();
        }
    }
    for block in kept {
        check(block);
        // SAFETY: allocated above, not freed yet.
        unsafe { libc::free(block.0.cast()) };
    }
}
