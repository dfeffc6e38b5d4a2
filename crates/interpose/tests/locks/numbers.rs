//! System calls by their numbers on fibers: those that wait let other fibers run, all others are the kernel's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use carefree_runtime::{Runtime, sleep, spawn};

use crate::common::on_fibers;

const SHORT: Duration = Duration::from_millis(5);

fn errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// Runs `wait` and `other` as two fibers of one carrier. `wait` waits for what `other` does.
fn lets_others_run(wait: impl FnOnce() + Send, other: impl FnOnce() + Send + 'static) {
    Runtime::builder().carriers(1).build().unwrap().run(|| {
        let done = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&done);
        let other = spawn(move || {
            other();
            theirs.store(true, SeqCst);
        });
        wait();
        // It may go on elsewhere before `other` has: where calls take long, a carrier may have been added.
        other.join().unwrap();
        assert!(done.load(SeqCst));
    });
}

#[test]
fn reading_and_polling() {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let [from, to] = ends;
    let mut byte = 0u8;
    let place = &raw mut byte as usize;
    lets_others_run(
        // SAFETY: room for one byte.
        move || unsafe { assert_eq!(libc::syscall(libc::SYS_read, from, place, 1usize), 1) },
        // SAFETY: one byte.
        move || unsafe { assert_eq!(libc::syscall(libc::SYS_write, to, c"x".as_ptr(), 1usize), 1) },
    );
    assert_eq!(byte, b'x');
    lets_others_run(
        move || {
            let mut file = libc::pollfd { fd: from, events: libc::POLLIN, revents: 0 };
            let none = 0usize;
            // SAFETY: one file, no time, no mask.
            let ready = unsafe {
                libc::syscall(libc::SYS_ppoll, &raw mut file, 1usize, none, none, 8usize)
            };
            assert_eq!((ready, file.revents), (1, libc::POLLIN));
        },
        // SAFETY: one byte.
        move || unsafe { assert_eq!(libc::syscall(libc::SYS_write, to, c"y".as_ptr(), 1usize), 1) },
    );
    // SAFETY: made above.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_close, from), 0);
        libc::close(to);
    }
}

#[test]
fn sleeping() {
    lets_others_run(
        || {
            let time = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let begun = Instant::now();
            // SAFETY: a time.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_nanosleep, &raw const time, 0usize), 0);
                let clock = libc::CLOCK_MONOTONIC;
                let number = libc::SYS_clock_nanosleep;
                assert_eq!(libc::syscall(number, clock, 0, &raw const time, 0usize), 0);
                let wrong = libc::timespec { tv_sec: -1, tv_nsec: 0 };
                assert_eq!(libc::syscall(number, clock, 0, &raw const wrong, 0usize), -1);
            }
            assert_eq!(errno(), Some(libc::EINVAL));
            assert!(begun.elapsed() >= Duration::from_millis(40));
        },
        || sleep(Duration::from_millis(1)),
    );
}

#[test]
fn what_does_not_wait_is_the_kernels() {
    on_fibers(|| {
        // SAFETY: these touch nothing.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_getpid), i64::from(std::process::id()));
            assert_eq!(libc::syscall(libc::SYS_fcntl, -1, libc::F_GETFD), -1);
            assert_eq!(errno(), Some(libc::EBADF));
            // All six arguments reach the kernel.
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let map = libc::syscall(
                libc::SYS_mmap,
                0usize,
                4096usize,
                libc::PROT_READ,
                flags,
                -1,
                0usize,
            );
            assert!(map > 0);
            assert_eq!(libc::munmap(map as *mut _, 4096), 0);
        }
    });
}

fn futex(word: &AtomicU32, operation: i32, value: u32, rest: [usize; 3]) -> i64 {
    let [fourth, second, third] = rest;
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word, and arguments that the test has chosen for this operation.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, fourth, second, third)
    }
}

#[test]
fn futex_errors_are_the_kernels() {
    // On a thread, and then on fibers.
    let check = || {
        let word = AtomicU32::new(1);
        let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        let wait = |operation, value, time: Option<&libc::timespec>, mask| {
            let time = time.map_or(0, |time| std::ptr::from_ref(time) as usize);
            (futex(&word, operation, value, [time, 0, mask]), errno())
        };
        assert_eq!(wait(libc::FUTEX_WAIT, 2, None, 0), (-1, Some(libc::EAGAIN)));
        let soon = time(0, 1_000_000);
        assert_eq!(wait(libc::FUTEX_WAIT, 1, Some(&soon), 0), (-1, Some(libc::ETIMEDOUT)));
        let past = time(1, 0);
        let bits = libc::FUTEX_WAIT_BITSET;
        assert_eq!(wait(bits, 1, Some(&past), 1), (-1, Some(libc::ETIMEDOUT)));
        let of_day = bits | libc::FUTEX_CLOCK_REALTIME;
        assert_eq!(wait(of_day, 1, Some(&past), 1), (-1, Some(libc::ETIMEDOUT)));
        assert_eq!(wait(bits, 1, None, 0), (-1, Some(libc::EINVAL)));
        let wrong = time(0, 1_000_000_000);
        assert_eq!(wait(libc::FUTEX_WAIT, 1, Some(&wrong), 0), (-1, Some(libc::EINVAL)));
        assert_eq!(futex(&word, libc::FUTEX_WAKE, 5, [0; 3]), 0);
    };
    check();
    on_fibers(check);
}

/// Fibers that wait for the word with the masks given; each returns when it was woken.
fn waiting(word: &'static AtomicU32, masks: &[u32]) -> Vec<carefree_runtime::JoinHandle<i64>> {
    let fibers = masks
        .iter()
        .map(|&mask| spawn(move || futex(word, libc::FUTEX_WAIT_BITSET, 0, [0, 0, mask as usize])))
        .collect();
    // No sleep is long enough on every machine. Moving all waiters to another word and back counts them.
    let spare = AtomicU32::new(0);
    let moved = |from: &AtomicU32, to: &AtomicU32| {
        let many = i32::MAX as usize;
        futex(from, libc::FUTEX_CMP_REQUEUE, 0, [many, to.as_ptr() as usize, 0])
    };
    let begun = Instant::now();
    loop {
        let count = moved(word, &spare);
        assert_eq!(moved(&spare, word), count);
        if usize::try_from(count) == Ok(masks.len()) {
            return fibers;
        }
        assert!(begun.elapsed() < crate::common::LONG, "{count} of {masks:?} wait");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn futex_wakes_by_mask_and_moves() {
    on_fibers(|| {
        let [first, second]: [&'static AtomicU32; 2] =
            [Box::leak(Box::new(AtomicU32::new(0))), Box::leak(Box::new(AtomicU32::new(0)))];
        let fibers = waiting(first, &[1, 2, 2]);
        assert_eq!(futex(first, libc::FUTEX_WAKE_BITSET, 9, [0, 0, 2]), 2);
        assert_eq!(futex(first, libc::FUTEX_WAKE_BITSET, 9, [0, 0, 3]), 1);
        fibers.into_iter().for_each(|fiber| assert_eq!(fiber.join().unwrap(), 0));

        let fibers = waiting(first, &[1; 5]);
        let other = second.as_ptr() as usize;
        // The word has another value.
        assert_eq!(futex(first, libc::FUTEX_CMP_REQUEUE, 1, [2, other, 7]), -1);
        assert_eq!(errno(), Some(libc::EAGAIN));
        assert_eq!(futex(first, libc::FUTEX_CMP_REQUEUE, 1, [2, other, 0]), 3);
        assert_eq!(futex(second, libc::FUTEX_WAKE, 9, [0; 3]), 2);
        // (The manual says that those which it moves are not counted, but they are.)
        assert_eq!(futex(first, libc::FUTEX_REQUEUE, 0, [9, other, 0]), 2);
        assert_eq!(futex(first, libc::FUTEX_WAKE, 9, [0; 3]), 0);
        assert_eq!(futex(second, libc::FUTEX_WAKE, 9, [0; 3]), 2);
        fibers.into_iter().for_each(|fiber| assert_eq!(fiber.join().unwrap(), 0));

        // Sets the second word to 5. It was 0, so waiters of both words are woken.
        let (mut fibers, more) = (waiting(first, &[1; 2]), waiting(second, &[1; 2]));
        fibers.extend(more);
        let code = (5 << 12) as usize; // FUTEX_OP_SET, 5, FUTEX_OP_CMP_EQ, 0
        assert_eq!(futex(first, libc::FUTEX_WAKE_OP, 1, [9, other, code]), 3);
        assert_eq!(second.load(SeqCst), 5);
        assert_eq!(futex(first, libc::FUTEX_WAKE_OP, 1, [9, other, code]), 1);
        fibers.into_iter().for_each(|fiber| assert_eq!(fiber.join().unwrap(), 0));
    });
}

#[test]
fn threads_get_their_turn() {
    // A thread waits in the kernel, and fibers wait for the same word again and again.
    on_fibers(|| {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let awake = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&awake);
        let thread = std::thread::spawn(move || {
            futex(word, libc::FUTEX_WAIT, 0, [0; 3]);
            theirs.store(true, SeqCst);
        });
        sleep(SHORT * 4);
        let over: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let fibers: Vec<_> = (0..4)
            .map(|_| {
                spawn(move || {
                    while !over.load(SeqCst) {
                        futex(word, libc::FUTEX_WAIT, 0, [0; 3]);
                    }
                })
            })
            .collect();
        let begun = Instant::now();
        while !awake.load(SeqCst) {
            assert!(begun.elapsed() < crate::common::LONG, "the thread starves");
            futex(word, libc::FUTEX_WAKE, 1, [0; 3]);
            carefree_runtime::yield_now();
        }
        over.store(true, SeqCst);
        word.store(1, SeqCst);
        futex(word, libc::FUTEX_WAKE, 100, [0; 3]);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        thread.join().unwrap();
    });
}

#[test]
fn waiting_for_one_of_several_words() {
    on_fibers(|| {
        #[repr(C)]
        struct Waiter {
            value: u64,
            word: u64,
            flags: u32,
            reserved: u32,
        }
        let words: &'static [AtomicU32; 2] =
            Box::leak(Box::new([AtomicU32::new(0), AtomicU32::new(0)]));
        let waiter = |word: &AtomicU32| Waiter {
            value: 0,
            word: word.as_ptr() as u64,
            flags: 2 | 128, // FUTEX2_SIZE_U32, FUTEX2_PRIVATE
            reserved: 0,
        };
        let waker = spawn(|| {
            sleep(SHORT);
            words[1].store(1, SeqCst);
            futex(&words[1], libc::FUTEX_WAKE, 1, [0; 3]);
        });
        let waiters = words.each_ref().map(waiter);
        let number = libc::SYS_futex_waitv;
        // SAFETY: two waiters, no time.
        let woken = unsafe { libc::syscall(number, waiters.as_ptr(), 2, 0, 0usize, 0) };
        match errno() {
            Some(libc::ENOSYS) if woken < 0 => eprintln!("skipped: this kernel has no futex_waitv"),
            error => assert!(woken == 1 || error == Some(libc::EAGAIN), "{woken} {error:?}"),
        }
        waker.join().unwrap();
    });
}
