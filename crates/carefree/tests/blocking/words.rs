//! `futex(2)`: waiting for words.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, thread};

use libc::{c_int, timespec};

use crate::common::*;

/// A call for two words that no other process sees.
fn call(
    operation: c_int,
    first: &AtomicU32,
    counts: [c_int; 2],
    second: &AtomicU32,
) -> Result<i64, c_int> {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let (first, second) = (first.as_ptr(), second.as_ptr());
    let [value, value_2] = counts;
    // SAFETY: two words that are there.
    checked(unsafe {
        libc::syscall(libc::SYS_futex, first, operation, value, value_2 as usize, second, 0)
    })
}

/// Waits for `word` to be no longer 0, until a time of `clock` or for so long.
fn wait(word: &AtomicU32, operation: c_int, time: Option<&timespec>) -> Result<i64, c_int> {
    let time = time.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: a word and a time that are there.
    checked(unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 0, time, ptr::null::<u32>(), !0)
    })
}

const WAITERS: u32 = 3;

/// Two words, for the first of which fibers or threads wait.
#[derive(Default)]
struct Words {
    words: [AtomicU32; 2],
    about_to_wait: AtomicU32,
    threads: Mutex<Vec<c_int>>,
}

impl Words {
    fn wait(&self) {
        self.about_to_wait.fetch_add(1, Ordering::SeqCst);
        wait(&self.words[0], libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, None).unwrap();
    }

    /// What a call answers that wakes and moves so many; then, how many were woken by the second word and the first.
    fn answers(&self, operation: c_int, counts: [c_int; 2]) -> [Result<i64, c_int>; 3] {
        let [first, second] = &self.words;
        let answer = call(operation, first, counts, second);
        let wake_all = |word| call(libc::FUTEX_WAKE, word, [c_int::MAX, 0], word);
        let second = wake_all(second);
        [answer, second, wake_all(first)]
    }

    fn on_threads(operation: c_int, counts: [c_int; 2]) -> [Result<i64, c_int>; 3] {
        let words = Words::default();
        thread::scope(|s| {
            for _ in 0..WAITERS {
                s.spawn(|| {
                    // SAFETY: no memory is involved.
                    words.threads.lock().unwrap().push(unsafe { libc::gettid() });
                    words.wait();
                });
            }
            while words.about_to_wait.load(Ordering::SeqCst) < WAITERS {
                thread::yield_now();
            }
            for thread in &*words.threads.lock().unwrap() {
                let status = format!("/proc/self/task/{thread}/stat");
                while !fs::read_to_string(&status).unwrap().contains(") S ") {
                    thread::yield_now();
                }
            }
            words.answers(operation, counts)
        })
    }

    fn on_fibers(operation: c_int, counts: [c_int; 2]) -> [Result<i64, c_int>; 3] {
        on_one_carrier(move || {
            let words = Words::default();
            carefree::scope(|s| {
                for _ in 0..WAITERS {
                    s.spawn(|| words.wait());
                }
                // Each goes on from there until it waits, for the carrier has no other work.
                while words.about_to_wait.load(Ordering::SeqCst) < WAITERS {
                    carefree::yield_now();
                }
                words.answers(operation, counts)
            })
        })
    }
}

/// The kernel counts those that were moved by either call, and refuses counts below zero.
#[test]
fn those_that_are_moved_to_another_word_are_counted() {
    for operation in [libc::FUTEX_REQUEUE, libc::FUTEX_CMP_REQUEUE] {
        for counts in [[1, 1], [0, 2], [1, 100], [0, 0], [2, 0], [-1, 1], [1, -1]] {
            let native = Words::on_threads(operation, counts);
            let told = Words::on_fibers(operation, counts);
            assert_eq!(told, native, "{operation} {counts:?}");
        }
    }
}

/// A clock is for a wait until a time. The kernel refuses it where there is none (but for Linux 4.5 to 5.12).
#[test]
fn a_clock_without_a_use_is_refused() {
    let answers = || {
        let words = <[AtomicU32; 2]>::default();
        let [first, second] = &words;
        let time = timespec { tv_sec: 0, tv_nsec: 1 };
        let mut answers = Vec::new();
        for private in [0, libc::FUTEX_PRIVATE_FLAG] {
            for operation in [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET] {
                let operation = operation | libc::FUTEX_CLOCK_REALTIME | private;
                answers.push(wait(first, operation, Some(&time)));
                first.store(1, Ordering::SeqCst);
                answers.push(wait(first, operation, None));
                first.store(0, Ordering::SeqCst);
            }
        }
        for operation in [libc::FUTEX_REQUEUE, libc::FUTEX_WAKE_OP, libc::FUTEX_WAKE_BITSET] {
            answers.push(call(operation | libc::FUTEX_CLOCK_REALTIME, first, [1, 1], second));
        }
        answers
    };
    let native = thread::spawn(answers).join().unwrap();
    let told = on_one_carrier(answers);
    assert_eq!(told, native);
}
