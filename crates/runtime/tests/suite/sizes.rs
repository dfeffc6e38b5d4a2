//! Stack sizes: the size that was asked for, in any way, can be used.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;

use carefree_context::coroutine::{
    CoroutineState, Scope as CoroutineScope, Suspender, scope as coroutine_scope,
};
use carefree_context::stack;
use carefree_runtime::{Builder, on_large_stack, park, run, spawn, yield_now};

use crate::common::{in_a_process, is_child, own_tls, text};

/// Recurses until `bytes` lie between `top` and the current frame. An overflow ends the process.
#[inline(never)]
fn dig(top: usize, bytes: usize) -> usize {
    let frame = black_box([1_u8; 256]);
    let deep = top - frame.as_ptr().addr();
    if deep >= bytes { deep } else { dig(top, bytes) + usize::from(frame[7]) - 1 }
}

fn use_up(bytes: usize) {
    let local = 0_u8;
    assert!(dig((&raw const local).addr(), bytes) >= bytes);
}

/// The stack as libc knows it.
fn bounds() -> std::ops::Range<usize> {
    // SAFETY: the attributes are initialized by the call, read, and destroyed.
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes), 0);
        let (mut base, mut length) = (std::ptr::null_mut(), 0);
        assert_eq!(
            libc::pthread_attr_getstack(&raw const attributes, &raw mut base, &raw mut length),
            0
        );
        libc::pthread_attr_destroy(&raw mut attributes);
        base.addr()..base.addr() + length
    }
}

#[test]
fn what_is_asked_for_is_there() {
    // In steps of 4 KiB, so that some are just below the next size class.
    let sizes = (0..100).map(|n| n << 12).chain([57_240, 65_536, 1 << 20, 3 << 20, 16 << 20]);
    for bytes in sizes {
        let body = move || {
            use_up(bytes);
            if own_tls() {
                let local = 0_u8;
                let below = (&raw const local).addr() - bounds().start;
                assert!(below >= bytes, "libc knows of {below} bytes, {bytes} were asked for");
            }
        };
        Builder::new().stack_size(bytes).spawn(body).unwrap().join().unwrap();
    }
}

/// Code that gets along with the smallest of std's threads does so on the smallest fiber.
#[test]
fn small_stacks_are_as_large_as_a_threads() {
    for bytes in [0, 1, 4096] {
        let body = || use_up(libc::PTHREAD_STACK_MIN);
        Builder::new().stack_size(bytes).spawn(body).unwrap().join().unwrap();
    }
}

#[test]
fn the_environment_has_a_say() {
    const MEBIBYTE: usize = 1 << 20;
    if is_child() {
        let expected = std::env::var("EXPECTED").unwrap().parse::<usize>().unwrap();
        spawn(move || use_up(expected)).join().unwrap();
        // From a fiber as well, because carriers keep stacks at hand; and many at once.
        run(|| {
            let all: Vec<_> = (0..200).map(|_| spawn(move || use_up(expected))).collect();
            all.into_iter().for_each(|handle| handle.join().unwrap());
        });
        // A size that the builder sets counts instead.
        let own = Builder::new().stack_size(2 * expected).spawn(move || use_up(2 * expected));
        own.unwrap().join().unwrap();
        return;
    }
    let half = (MEBIBYTE / 2).to_string();
    for (environment, expected) in [
        (vec![], 128 << 10),
        (vec![("CAREFREE_STACK", "1M")], MEBIBYTE),
        (vec![("RUST_MIN_STACK", "1048576")], MEBIBYTE),
        (vec![("RUST_MIN_STACK", "1M")], 128 << 10),
        (vec![("RUST_MIN_STACK", &half), ("CAREFREE_STACK", "1024k")], MEBIBYTE),
        (vec![("CAREFREE_STACK", "20000")], 20_000),
        (vec![("CAREFREE_GUARD", "1M")], 128 << 10),
        (vec![("CAREFREE_GUARD", "3M"), ("CAREFREE_STACK", "1M")], MEBIBYTE),
    ] {
        let expected = expected.to_string();
        let environment: Vec<_> =
            environment.into_iter().chain([("EXPECTED", expected.as_str())]).collect();
        let output = in_a_process("sizes::the_environment_has_a_say", &environment);
        assert!(output.status.success(), "{environment:?}: {}", text(&output));
    }
}

/// Writes `distance` bytes below the end of the current stack and nothing in between, as C code does that has a
/// large frame and does not probe it.
#[inline(never)]
fn step_over(distance: usize) {
    let local = 0_u8;
    let here = (&raw const local).cast_mut();
    let stack = stack::find(here.addr()).expect("a stack of ours");
    let below = here.wrapping_sub(here.addr() - (stack.base + stack.guard) + distance);
    // SAFETY: none. The write hits a guard, which ends the process: that is the test.
    unsafe { below.write_volatile(1) };
}

/// One frame of 520 KB steps over a small guard into a neighbour's stack.
#[test]
fn a_guard_as_large_as_asked_for_stops_large_frames() {
    const FRAME: usize = 520_000;
    if is_child() {
        let neighbours: Vec<_> = (0..16).map(|_| spawn(park)).collect();
        if std::env::var_os("LARGE").is_some() {
            // The same from a thread and from a fiber.
            let overflow = || on_large_stack(1 << 20, || step_over(FRAME));
            if std::env::var_os("THREAD").is_some() {
                overflow();
            } else {
                spawn(overflow).join().unwrap();
            }
        } else {
            Builder::new().name("c".into()).spawn(|| step_over(FRAME)).unwrap().join().unwrap();
        }
        neighbours.into_iter().for_each(|neighbour| neighbour.thread().unpark());
        return;
    }
    for (environment, says) in [
        (vec![("CAREFREE_GUARD", "1M")], "fiber 'c' has overflowed its stack of "),
        (vec![("CAREFREE_GUARD", "5M")], "fiber 'c' has overflowed its stack of "),
        (
            vec![("CAREFREE_GUARD", "1M"), ("CAREFREE_GUARDS", "mprotect")],
            "fiber 'c' has overflowed its stack of ",
        ),
        (
            vec![("LARGE", "1")],
            "a coroutine (or a call by on_large_stack) of fiber <unnamed> has overflowed its stack",
        ),
        (
            vec![("LARGE", "1"), ("THREAD", "1")],
            "a coroutine (or a call by on_large_stack) has overflowed its stack of ",
        ),
    ] {
        let name = "sizes::a_guard_as_large_as_asked_for_stops_large_frames";
        let output = in_a_process(name, &environment);
        let said = text(&output);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{environment:?}: {said}");
        assert!(said.contains(says), "{environment:?}: {said}");
        assert!(said.contains("CAREFREE_STACK") && said.contains("RUST_MIN_STACK"), "{said}");
    }
}

#[test]
fn a_deep_call_finds_a_large_stack() {
    for bytes in [0, 1 << 20, 8 << 20, 100 << 20] {
        let deep = move || {
            on_large_stack(bytes, || use_up(bytes));
            on_large_stack(bytes, || "a value")
        };
        assert_eq!(deep(), "a value");
        assert_eq!(spawn(deep).join().unwrap(), "a value");
    }
}

#[test]
fn a_large_stack_belongs_to_the_calling_fiber() {
    thread_local!(static NUMBER: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let handles: Vec<_> = (1..=20)
        .map(|n| {
            spawn(move || {
                let me = carefree_runtime::current().id();
                let before = bounds();
                NUMBER.set(n);
                let waits = || {
                    for _ in 0..50 {
                        yield_now();
                    }
                    assert_eq!(carefree_runtime::current().id(), me);
                    if own_tls() {
                        assert_eq!(NUMBER.get(), n);
                    }
                };
                let values = [1, 2, 3];
                let sum: u32 = on_large_stack(4 << 20, || {
                    waits();
                    let outer = bounds();
                    let nested = on_large_stack(8 << 20, || {
                        waits();
                        if own_tls() {
                            let local = 0_u8;
                            let inner = bounds();
                            assert!(inner.contains(&(&raw const local).addr()));
                            assert!(inner.len() >= 8 << 20 && !outer.contains(&inner.start));
                        }
                        values.iter().sum()
                    });
                    assert_eq!(bounds(), outer);
                    nested
                });
                assert_eq!(bounds(), before);
                waits();
                sum
            })
        })
        .collect();
    for handle in handles {
        assert_eq!(handle.join().unwrap(), 6);
    }
}

/// Whether libc's bounds of the caller's stack contain the current frame.
#[inline(never)]
fn knows_its_stack() -> bool {
    let local = 0_u8;
    bounds().contains(&(&raw const local).addr())
}

/// A coroutine that is suspended within a large call leaves that call's stack, and does not run on that of a
/// large call that resumes it.
#[test]
fn libc_knows_the_stack_of_coroutines_and_large_calls() {
    if !own_tls() {
        return;
    }
    let turns = || {
        let before = bounds();
        assert!(knows_its_stack());
        // SAFETY: the coroutine is suspended within Carefree's own calls alone.
        unsafe { coroutine_scope(suspends_in_a_large_call) };
        assert_eq!(bounds(), before);
    };
    spawn(turns).join().unwrap();
    std::thread::spawn(turns).join().unwrap();
}

fn suspends_in_a_large_call(scope: &CoroutineScope<'_>) {
    let before = bounds();
    let mut coroutine = scope.coroutine(|suspender: &Suspender<(), bool>, ()| {
        suspender.suspend(knows_its_stack());
        on_large_stack(4 << 20, || {
            suspender.suspend(knows_its_stack());
            suspender.suspend(knows_its_stack());
        });
        suspender.suspend(knows_its_stack());
    });
    assert_eq!(coroutine.resume(()), CoroutineState::Yielded(true), "in a coroutine");
    assert_eq!(coroutine.resume(()), CoroutineState::Yielded(true), "in its large call");
    assert_eq!(bounds(), before, "suspended within a large call");
    on_large_stack(8 << 20, || {
        let outer = bounds();
        assert!(knows_its_stack());
        assert_eq!(coroutine.resume(()), CoroutineState::Yielded(true), "back in it");
        assert_eq!(bounds(), outer);
        assert_eq!(coroutine.resume(()), CoroutineState::Yielded(true), "out of it");
        assert_eq!(bounds(), outer);
    });
    assert_eq!(bounds(), before, "after both");
    assert_eq!(coroutine.resume(()), CoroutineState::Complete(()));
}

/// However little a large call asks for, its stack takes this much address space.
#[test]
fn a_small_large_call_takes_four_mebibytes() {
    let stack = on_large_stack(1, || {
        let local = 0_u8;
        stack::find((&raw const local).addr()).unwrap()
    });
    assert_eq!((stack.size, stack.guard), (4 << 20, 1 << 20));
}

#[test]
fn a_panic_on_a_large_stack_goes_on_in_the_caller() {
    let caught = || {
        let before = bounds();
        let panics = || on_large_stack(1 << 20, || std::panic::resume_unwind(Box::new("deep")));
        let payload: Box<dyn std::any::Any + Send> = std::panic::catch_unwind(panics).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"deep"));
        assert_eq!(bounds(), before);
        assert!(!std::thread::panicking());
    };
    caught();
    spawn(caught).join().unwrap();
}
