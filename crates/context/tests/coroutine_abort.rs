//! What aborts the program, and with which line. Each case runs in a process of its own.

mod owned;
mod reexec;

use std::os::unix::process::ExitStatusExt;
use std::panic::resume_unwind;
use std::process::Output;

use carefree_context::coroutine::Suspender;
use owned::{owned, symmetric};

const CHILD: &str = "CAREFREE_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn in_child(test: &str) -> Output {
    reexec::this_program()
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap()
}

#[track_caller]
fn assert_aborts(test: &str, line: &str) {
    let output = in_child(test);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}\n{errors}", output.status);
    let said: Vec<&str> = errors.lines().filter(|said| said.starts_with("carefree:")).collect();
    assert_eq!(said, [line], "{errors}");
}

/// Suspends in its destructor.
struct SuspendsInDrop<'a>(&'a Suspender<(), ()>);

impl Drop for SuspendsInDrop<'_> {
    fn drop(&mut self) {
        self.0.suspend(());
    }
}

const SUSPENDED: &str = "carefree: a coroutine was suspended in a destructor while it was unwinding, \
                         which would leave its panic to its resumer: do not suspend in Drop; aborting";

#[test]
fn suspending_in_a_destructor_when_dropped() {
    if is_child() {
        let mut coroutine = owned(|suspender, ()| {
            let _it = SuspendsInDrop(suspender);
            suspender.suspend(());
        });
        coroutine.resume(());
        drop(coroutine);
        return;
    }
    assert_aborts("suspending_in_a_destructor_when_dropped", SUSPENDED);
}

#[test]
fn suspending_in_a_destructor_when_panicking() {
    if is_child() {
        let mut coroutine = owned(|suspender, ()| {
            let _it = SuspendsInDrop(suspender);
            resume_unwind(Box::new("a panic"));
        });
        coroutine.resume(());
        return;
    }
    assert_aborts("suspending_in_a_destructor_when_panicking", SUSPENDED);
}

#[test]
fn transferring_in_a_destructor_when_panicking() {
    if is_child() {
        struct Finally<F: FnMut()>(F);
        impl<F: FnMut()> Drop for Finally<F> {
            fn drop(&mut self) {
                (self.0)();
            }
        }
        let mut coroutine = symmetric::<(), (), ()>(|suspender, ()| {
            let mut target = Some(owned(|suspender: &Suspender<(), ()>, ()| suspender.suspend(())));
            let _it = Finally(|| suspender.transfer(target.take().unwrap(), |_me| ()));
            resume_unwind(Box::new("a panic"));
        });
        coroutine.resume(());
        return;
    }
    assert_aborts("transferring_in_a_destructor_when_panicking", SUSPENDED);
}

#[test]
fn suspending_in_a_destructor_without_a_panic_is_fine() {
    let mut coroutine = owned::<(), (), u8>(|suspender, ()| {
        drop(SuspendsInDrop(suspender));
        5
    });
    coroutine.resume(());
    assert!(matches!(
        coroutine.resume(()),
        carefree_context::coroutine::CoroutineState::Complete(5)
    ));
}

#[test]
fn a_destructor_that_panics_while_the_coroutine_is_unwound() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("bomb");
        }
    }
    if is_child() {
        let mut coroutine = owned::<(), (), ()>(|suspender, ()| {
            let _bomb = Bomb;
            suspender.suspend(());
        });
        coroutine.resume(());
        drop(coroutine);
        return;
    }
    // As anywhere in Rust: std prints this line.
    let output = in_child("a_destructor_that_panics_while_the_coroutine_is_unwound");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
    assert!(errors.contains("bomb") && errors.contains("aborting"), "{errors}");
}

#[test]
fn overflowing_the_stack() {
    #[inline(never)]
    fn endless(depth: usize) -> usize {
        let frame = std::hint::black_box([depth; 100]);
        if depth == usize::MAX { 0 } else { endless(depth + 1) + frame[depth % 100] }
    }
    if is_child() {
        let mut coroutine = owned::<(), (), usize>(|_, ()| endless(0));
        coroutine.resume(());
        return;
    }
    let output = in_child("overflowing_the_stack");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
    assert!(
        errors.contains("carefree: a coroutine has overflowed its stack of 192 KiB"),
        "{errors}"
    );
    assert!(errors.contains("coroutine_with_stack_size"), "{errors}");
}
