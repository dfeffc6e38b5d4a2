//! Pointers that lead nowhere: at the beginning, amid a buffer, amid several.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::{ptr, slice};

use libc::{c_void, iovec};

use crate::common::*;

const PAGE: usize = 4096;
/// Pages that are there.
const PAGES: usize = 80;

/// Memory behind which there is nothing.
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

    /// A buffer of which the first `there` bytes are there.
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

/// What there is of buffers, and how long they are said to be.
const PARTS: [(usize, usize); 7] = [
    (0, 10),
    (10, 20),
    (4096, 8192),
    (5000, 10_000),
    (70_000, 100_000),
    (200_000, 300_000),
    (300_000, 300_000),
];

/// A file, and what it is.
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
