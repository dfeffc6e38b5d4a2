//! Files: those that are always ready, and what only the kernel's workers can wait for.

use super::kit::*;
use carefree_reactor::{Kind, Op};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

over_all! {
    files_are_read_and_written_at_an_offset
}

fn files_are_read_and_written_at_an_offset(kind: Kind) {
    let mut bench = Bench::new(kind);
    // SAFETY: makes a file in memory, owned here.
    let file = unsafe {
        let fd = libc::memfd_create(c"contract".as_ptr(), libc::MFD_CLOEXEC);
        OwnedFd::from_raw_fd(fd)
    };
    let mut buffer = [0; 4];
    if bench.submit(1, write_at(&file, b"abcdef", 10)).is_err() {
        // Left to threads: then all of it.
        assert!(bench.submit(1, read(&file, &mut buffer)).is_err());
        assert!(bench.submit(1, Op::Sync { fd: file.as_raw_fd(), data_only: true }).is_err());
        return;
    }
    assert_eq!(bench.finish(1), 6);
    assert_eq!(bench.run(read_at(&file, &mut buffer, 12)), 4);
    assert_eq!(&buffer, b"cdef");
    assert_eq!(bench.run(read_at(&file, &mut buffer, 16)), 0);
    assert_eq!(bench.run(write(&file, b"01")), 2);
    assert_eq!(bench.run(write(&file, b"23")), 2);
    assert_eq!(bench.run(read_at(&file, &mut buffer, 0)), 4);
    assert_eq!(&buffer, b"0123");
    assert_eq!(bench.run(Op::Sync { fd: file.as_raw_fd(), data_only: true }), 0);
    assert_eq!(bench.run(Op::Sync { fd: file.as_raw_fd(), data_only: false }), 0);
}
