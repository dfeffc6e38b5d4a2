//! Bad pointers: from the start of a buffer, from its middle, and among several buffers.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::{ptr, slice};

use libc::{c_void, iovec};

use crate::common::*;

const PAGE: usize = 4096;
/// Mapped pages.
const PAGES: usize = 80;

/// Memory that is followed by an unmapped page.
struct Edge(*mut c_void);

impl Edge {
    fn new() -> Edge {
        // SAFETY: new pages, of which the last is made unreadable.
        unsafe {
            let memory = libc::mmap(
                ptr::null_mut(),
                (PAGES + 1) * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            let end = memory.wrapping_byte_add(PAGES * PAGE);
            assert_eq!(libc::mprotect(end, PAGE, libc::PROT_NONE), 0);
            let edge = Edge(memory);
            edge.bytes().copy_from_slice(&text(PAGES * PAGE));
            edge
        }
    }

    #[expect(clippy::mut_from_ref, reason = "the pages are not behind the reference")]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: there are so many, and no one else uses them.
        unsafe { slice::from_raw_parts_mut(self.0.cast(), PAGES * PAGE) }
    }

    /// A buffer of which only the first `there` bytes are mapped.
    fn with(&self, there: usize, length: usize) -> iovec {
        let base = self.0.wrapping_byte_add(PAGES * PAGE - there);
        iovec { iov_base: base, iov_len: length }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: the pages made above, which no one uses any more.
        unsafe { libc::munmap(self.0, (PAGES + 1) * PAGE) };
    }
}

/// For each buffer, how many of its bytes are mapped and how long the call is told that it is.
const PARTS: [(usize, usize); 7] = [
    (0, 10),
    (10, 20),
    (4096, 8192),
    (5000, 10_000),
    (70_000, 100_000),
    (200_000, 300_000),
    (300_000, 300_000),
];

/// A file and its kind.
type Named = (&'static str, File);

fn files(folder: &Folder) -> [Named; 2] {
    [("disk", folder.file("file")), ("memory", in_memory())]
}

#[test]
fn writing_to_files() {
    let folder = Folder::new();
    alike(|_| {
        let edge = Edge::new();
        let mut answers = Vec::new();
        for (name, file) in files(&folder) {
            for (there, length) in PARTS {
                let bad = edge.with(there, length);
                let good = edge.with(PAGES * PAGE, 6000);
                let results = [
                    write(&file, bad.iov_base, length),
                    writev(&file, &[bad]),
                    writev(&file, &[good, bad, good]),
                    pwrite(&file, bad.iov_base, length, 7),
                ];
                answers.push((name, there, results, position(&file), content(&file).len()));
            }
            write(&file, b"end".as_ptr().cast(), 3).unwrap();
            let content = content(&file);
            answers.push((name, 0, [Ok(0); 4], position(&file), content.len()));
            assert!(content.ends_with(b"end"), "{name}");
        }
        answers
    });
}

#[test]
fn reading_from_files() {
    let folder = Folder::new();
    alike(|_| {
        let edge = Edge::new();
        let mut answers = Vec::new();
        for (name, mut file) in files(&folder) {
            file.write_all(&text(2_000_000)).unwrap();
            seek(&file, 0);
            for (there, length) in PARTS {
                let bad = edge.with(there, length);
                let good = edge.with(PAGES * PAGE, 6000);
                edge.bytes().fill(0);
                let results = [
                    read(&file, bad.iov_base, length),
                    readv(&file, &[bad]),
                    readv(&file, &[good, bad, good]),
                    pread(&file, bad.iov_base, length, 7),
                ];
                answers.push((name, there, results, position(&file), edge.bytes().to_vec()));
            }
        }
        answers
    });
}

#[test]
fn through_pipes_and_sockets() {
    alike(|_| {
        let edge = Edge::new();
        let mut answers = Vec::new();
        for (there, length) in &PARTS[..4] {
            for is_pipe in [true, false] {
                let (mut from, to): (Box<dyn Read>, File) = if is_pipe {
                    let (from, to) = pipe();
                    (Box::new(from), to)
                } else {
                    let (from, to) = UnixStream::pair().unwrap();
                    (Box::new(from), std::os::fd::OwnedFd::from(to).into())
                };
                let bad = edge.with(*there, *length);
                let good = edge.with(PAGES * PAGE, 100);
                let results = [
                    write(&to, bad.iov_base, *length),
                    writev(&to, &[bad]),
                    writev(&to, &[good, bad, good]),
                ];
                drop(to);
                let mut got = Vec::new();
                from.read_to_end(&mut got).unwrap();
                answers.push((*there, is_pipe, results, got));
                let (from, mut to) = pipe();
                to.write_all(&text(30_000)).unwrap();
                edge.bytes().fill(0);
                let results = [
                    read(&from, bad.iov_base, *length),
                    readv(&from, &[bad]),
                    readv(&from, &[good, bad, good]),
                ];
                answers.push((*there, is_pipe, results, edge.bytes().to_vec()));
            }
        }
        answers
    });
}

/// Timeouts for `recvmmsg` that are unaligned, end with their page, are read-only, or null; with a message to
/// receive and without.
#[test]
fn times_of_several_messages() {
    alike(|_| {
        let edge = Edge::new();
        let (one, other) = UnixDatagram::pair().unwrap();
        let only_read = Edge::new();
        let good = libc::timespec { tv_sec: 1000, tv_nsec: 5 };
        let size = size_of::<libc::timespec>();
        let times = [size, size + 1, size + 3, size - 1, 8, 1, 0]
            .map(|there| edge.with(there, size).iov_base.cast::<libc::timespec>());
        let fixed = only_read.with(100, size).iov_base.cast::<libc::timespec>();
        let nowhere = [ptr::dangling_mut::<libc::timespec>(), ptr::without_provenance_mut(16)];
        // SAFETY: pages of our own.
        unsafe {
            fixed.write_unaligned(good);
            assert_eq!(libc::mprotect(only_read.0, PAGES * PAGE, libc::PROT_READ), 0);
        }
        let mut answers = Vec::new();
        for (number, time) in times.into_iter().chain([fixed]).chain(nowhere).enumerate() {
            for is_there in [false, true] {
                if is_there {
                    other.send(b"message").unwrap();
                }
                let mut bytes = [0u8; 16];
                let mut buffer = buffer(&bytes);
                // SAFETY: zeros are a message without room; the time is written where there is room.
                let (answer, left) = unsafe {
                    let mut message: libc::mmsghdr = std::mem::zeroed();
                    message.msg_hdr.msg_iov = &raw mut buffer;
                    message.msg_hdr.msg_iovlen = 1;
                    let has_room = number < 3;
                    if has_room {
                        time.write_unaligned(good);
                    }
                    let flags = libc::MSG_DONTWAIT;
                    let fd = one.as_raw_fd();
                    let answer = checked(libc::recvmmsg(fd, &raw mut message, 1, flags, time));
                    let left = has_room.then(|| time.read_unaligned());
                    (answer, left)
                };
                // The time that is left differs from run to run. That it was written does not.
                let told = left.map(|left| (left.tv_sec, left.tv_nsec) != (1000, 5));
                answers.push((number, is_there, answer, told));
                // Whether the message was taken.
                one.set_nonblocking(true).unwrap();
                answers.push((number, is_there, Ok(one.recv(&mut bytes).is_ok().into()), None));
                one.set_nonblocking(false).unwrap();
            }
        }
        // SAFETY: zeros are a message without room; the time is written where there is room.
        unsafe {
            let all = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(only_read.0, PAGES * PAGE, all), 0);
        }
        answers
    });
}
