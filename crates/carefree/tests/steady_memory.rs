//! What a carrier needs again and again, it keeps. Page faults are counted for the whole process, so this test has one
//! of its own.

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use carefree::Runtime;

/// Page faults of this process that needed no reading.
fn faults() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call writes to `usage`.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_minflt
}

/// A carrier that wakes for a deadline while an operation is under way, and then for that operation.
#[test]
fn no_memory_is_mapped_anew_for_each_completion() {
    const ROUNDS: i64 = 200;
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let grown = runtime.run(|| {
        let (mut writes, mut reads) = UnixStream::pair().unwrap();
        let reader = carefree::spawn(move || {
            let mut byte = [0];
            while reads.read(&mut byte).unwrap() == 1 {}
        });
        let mut round = || {
            carefree::sleep(Duration::from_millis(2));
            writes.write_all(b"x").unwrap();
        };
        (0..20).for_each(|_| round());
        let before = faults();
        (0..ROUNDS).for_each(|_| round());
        let grown = faults() - before;
        drop(writes);
        reader.join().unwrap();
        grown
    });
    assert!(grown < ROUNDS / 4, "{grown} page faults in {ROUNDS} rounds");
}
