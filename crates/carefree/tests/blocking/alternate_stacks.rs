//! `sigaltstack`: each fiber has a stack of its own for handlers, as far as it can tell.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree::{spawn, yield_now};
use libc::{c_int, c_void, stack_t};

use crate::common::*;

const NONE: stack_t = stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 };

fn current() -> stack_t {
    let mut current = NONE;
    // SAFETY: room for the answer.
    assert_eq!(unsafe { libc::sigaltstack(ptr::null(), &raw mut current) }, 0);
    current
}

fn set(stack: stack_t) -> Result<i64, c_int> {
    // SAFETY: none, or a mapping that lasts as long as the fiber, whose handlers are not called there.
    checked(unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) })
}

/// A mapping, which is gone when the thread has ended: what libraries do, for that ends the use of it.
struct Mapping(*mut c_void);

const BYTES: usize = 64 * 1024;

impl Mapping {
    fn new() -> Mapping {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let map = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
        assert_ne!(map, libc::MAP_FAILED);
        assert_eq!(set(stack_t { ss_sp: map, ss_flags: 0, ss_size: BYTES }), Ok(0));
        Mapping(map)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing else uses it: the thread ends.
        unsafe { libc::munmap(self.0, BYTES) };
    }
}

thread_local!(static OWN: Mapping = Mapping::new());

#[test]
fn each_fiber_has_its_own() {
    if std::env::var("CAREFREE_TLS").is_ok_and(|mode| mode == "shared") {
        // Thread-local variables of all kinds, this one among them, are the carrier's there.
        return;
    }
    on_one_carrier(|| {
        let carriers = current().ss_sp;
        let fibers = (0..4).map(|_| {
            spawn(|| {
                let own = OWN.with(|own| own.0);
                for _ in 0..4 {
                    yield_now();
                    let found = current();
                    assert_eq!((found.ss_sp, found.ss_flags, found.ss_size), (own, 0, BYTES));
                }
                assert_eq!(set(stack_t { ss_size: 100, ..current() }), Err(libc::ENOMEM));
                assert_eq!(set(stack_t { ss_flags: 3, ..current() }), Err(libc::EINVAL));
                // SAFETY: there is no memory.
                let wrong =
                    unsafe { libc::sigaltstack(ptr::without_provenance(8), ptr::null_mut()) };
                assert_eq!(checked(wrong), Err(libc::EFAULT));
                assert_eq!(current().ss_sp, own);
                // By its number, too.
                let disabled = stack_t { ss_flags: libc::SS_DISABLE, ..NONE };
                // SAFETY: a description.
                let by_number = unsafe {
                    libc::syscall(
                        libc::SYS_sigaltstack,
                        &raw const disabled,
                        ptr::null_mut::<stack_t>(),
                    )
                };
                assert_eq!(by_number, 0);
                assert_eq!(current().ss_flags, libc::SS_DISABLE);
            })
        });
        for fiber in fibers.collect::<Vec<_>>() {
            fiber.join().unwrap();
        }
        assert_eq!(current().ss_sp, carriers);
    });
}

/// Where the handler ran, and whether it could set another one.
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: c_int) {
    let here = 0u8;
    let found = current();
    // (In threads' place the stack is the thread's own, and reported so as well.)
    if found.ss_flags & libc::SS_ONSTACK != 0 {
        HANDLED.store(&raw const here as usize, Ordering::Relaxed);
    }
    let refused = set(stack_t { ss_flags: libc::SS_DISABLE, ..NONE }) == Err(libc::EPERM);
    REFUSED.store(refused.into(), Ordering::Relaxed);
}

/// The stack that a fiber has set and freed is not where a later signal is handled.
#[test]
fn what_an_ended_fiber_had_is_not_used() {
    let action = libc::sigaction {
        sa_sigaction: handler as *const () as usize,
        sa_flags: libc::SA_ONSTACK,
        // SAFETY: an empty set, and no function.
        ..unsafe { std::mem::zeroed() }
    };
    // SAFETY: a handler that only looks; no other test uses the signal.
    assert_eq!(unsafe { libc::sigaction(libc::SIGURG, &raw const action, ptr::null_mut()) }, 0);
    on_one_carrier(|| {
        let freed = spawn(|| OWN.with(|own| own.0 as usize)).join().unwrap();
        spawn(move || {
            // As large as programs have commonly: a library that looks for one of this size sets none.
            assert!(current().ss_size >= 256 * 1024 || std::env::var_os("CAREFREE_TLS").is_some());
            // SAFETY: no memory is involved.
            unsafe { libc::raise(libc::SIGURG) };
            let handled = HANDLED.load(Ordering::Relaxed);
            assert_ne!(handled, 0);
            assert!(!(freed..freed + BYTES).contains(&handled));
            assert_eq!(REFUSED.load(Ordering::Relaxed), 1);
        })
        .join()
        .unwrap();
    });
}
