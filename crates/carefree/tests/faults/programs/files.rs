//! Files with a position.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use carefree::spawn;

use super::finish;
use crate::plan;
use crate::stream::{checked, compare, fill, insist};

/// A file without a name.
fn make_file() -> OwnedFd {
    let path = std::env::temp_dir().join(format!(
        "carefree-faults-{}-{}",
        std::process::id(),
        fastrand::u64(..)
    ));
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.into()
}

/// Parts of a file are written and read by several fibers; a read returns all that it was asked for.
pub(super) fn files(mut random: fastrand::Rng) {
    const PART: usize = 20_000;
    let file = Arc::new(make_file());
    let fibers = (0..random.usize(1..4)).map(|part| {
        let (file, mut random) = (Arc::clone(&file), random.fork());
        spawn(move || {
            let fd = file.as_raw_fd();
            let from = (part * PART) as i64;
            let mut all = vec![0u8; PART];
            fill(part as u64, 0, &mut all);
            let at = all.as_ptr().cast();
            // SAFETY: the buffer is as long.
            let put = insist(|| checked(unsafe { libc::pwrite(fd, at, PART, from) } as i64));
            assert_eq!(put, Ok(PART));
            // SAFETY: no memory is involved.
            insist(|| checked(unsafe { libc::fdatasync(fd) })).unwrap();
            for _ in 0..6 {
                // Drops it from the page cache, so that the next read waits for the disk.
                // SAFETY: no memory is involved.
                unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
                let place = random.usize(0..PART);
                let length = random.usize(1..=PART - place);
                let mut buffer = vec![0u8; length];
                let (at, offset) = (buffer.as_mut_ptr().cast(), from + place as i64);
                // SAFETY: the buffer is as long.
                let got = insist(|| checked(unsafe { libc::pread(fd, at, length, offset) } as i64));
                let got = got.unwrap_or_else(|errno| panic!("pread: errno {errno}"));
                compare(part as u64, place as u64, &buffer[..got]);
                // A read that runs out of memory after a part returns the part.
                assert!(got == length || plan::fails(), "{got} of {length} bytes of a file");
            }
        })
    });
    finish(fibers.collect::<Vec<_>>());
}
