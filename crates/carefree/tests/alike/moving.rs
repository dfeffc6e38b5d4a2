//! `sendfile`, `splice` and `copy_file_range`: results, bytes and offsets.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use libc::{c_uint, off_t};

use crate::common::*;

/// An offset, or none.
fn place(at: &mut Option<off_t>) -> *mut off_t {
    at.as_mut().map_or(ptr::null_mut(), ptr::from_mut)
}

/// Ends of all kinds, freshly made: a regular file with contents, pipes and sockets with data in them.
struct Ends {
    disk: File,
    memory: File,
    appended: File,
    full_pipe: (File, File),
    empty_pipe: (File, File),
    sockets: (File, File),
    eventfd: File,
    zero: File,
    written_only: File,
}

const LENGTH: usize = 40_000;

impl Ends {
    fn new(folder: &Folder) -> Ends {
        let mut disk = folder.file("disk");
        disk.write_all(&text(LENGTH)).unwrap();
        seek(&disk, 100);
        let mut memory = in_memory();
        memory.write_all(&text(LENGTH)).unwrap();
        seek(&memory, 200);
        let path = folder.path().join("appended");
        let appended = OpenOptions::new().append(true).create(true).open(path).unwrap();
        let path = folder.path().join("written");
        let written_only = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let full_pipe = pipe();
        (&full_pipe.1).write_all(&text(5000)).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        (&one).write_all(&text(3000)).unwrap();
        let zero = OpenOptions::new().read(true).write(true).open("/dev/zero").unwrap();
        // SAFETY: a number.
        let eventfd = owned(unsafe { libc::eventfd(3, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) });
        Ends {
            disk,
            memory,
            appended,
            full_pipe,
            empty_pipe: pipe(),
            sockets: (OwnedFd::from(one).into(), OwnedFd::from(other).into()),
            eventfd: eventfd.into(),
            zero,
            written_only: written_only.unwrap(),
        }
    }

    fn sources(&self) -> [(&'static str, &File); 8] {
        [
            ("disk", &self.disk),
            ("memory", &self.memory),
            ("pipe", &self.full_pipe.0),
            ("a pipe's other end", &self.full_pipe.1),
            ("socket", &self.sockets.1),
            ("eventfd", &self.eventfd),
            ("zero", &self.zero),
            ("written only", &self.written_only),
        ]
    }

    fn targets(&self) -> [(&'static str, &File); 7] {
        [
            ("disk", &self.disk),
            ("memory", &self.memory),
            ("appended", &self.appended),
            ("pipe", &self.empty_pipe.1),
            ("a pipe's other end", &self.empty_pipe.0),
            ("socket", &self.sockets.0),
            ("zero", &self.zero),
        ]
    }

    /// The positions and contents of all ends.
    fn state(self) -> Vec<(Result, usize, u64)> {
        let sum = |bytes: &[u8]| {
            bytes.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
        };
        let mut state: Vec<_> = [&self.disk, &self.memory]
            .map(|file| (position(file), content(file).len(), sum(&content(file))))
            .into();
        state.push((position(&self.appended), self.appended.metadata().unwrap().len() as usize, 0));
        for (mut from, to) in [self.full_pipe, self.empty_pipe, (self.sockets.1, self.sockets.0)] {
            drop(to);
            let mut left = Vec::new();
            from.read_to_end(&mut left).unwrap();
            state.push((Ok(0), left.len(), sum(&left)));
        }
        state
    }
}

/// Offsets for the calls.
const PLACES: [Option<off_t>; 3] = [None, Some(1234), Some(-5)];

type Moved = (String, Result, Option<off_t>, Option<off_t>, Vec<(Result, usize, u64)>);

/// Every source to every target, at all offsets.
fn every_way(
    folder: &Folder,
    of_target: &[Option<off_t>],
    call: impl Fn(&File, *mut off_t, &File, *mut off_t) -> Result,
) -> Vec<Moved> {
    let mut all = Vec::new();
    let [sources, targets] = [8, 7];
    for (source, target) in (0..sources).flat_map(|source| (0..targets).map(move |t| (source, t))) {
        for from_at in PLACES {
            for to_at in of_target {
                let ends = Ends::new(folder);
                let ((from_name, from), (to_name, to)) =
                    (ends.sources()[source], ends.targets()[target]);
                let (mut from_at, mut to_at) = (from_at, *to_at);
                let result = call(from, place(&mut from_at), to, place(&mut to_at));
                let name = format!("{from_name} to {to_name}");
                all.push((name, result, from_at, to_at, ends.state()));
            }
        }
    }
    all
}

/// Compares the results one by one, so that a failure names the call.
fn alike_each(scenario: impl Fn() -> Vec<Moved> + Send + Sync) {
    let on_threads = scenario();
    let on_fibers = carefree::Runtime::builder().build().unwrap().run(&scenario);
    assert_eq!(on_fibers.len(), on_threads.len());
    let wrong: Vec<_> =
        on_fibers.iter().zip(&on_threads).filter(|(one, other)| one != other).collect();
    assert!(wrong.is_empty(), "on fibers and on threads: {:#?}", &wrong[..wrong.len().min(8)]);
}

#[test]
fn files_are_sent() {
    let folder = Folder::new();
    alike_each(|| {
        every_way(&folder, &[None], |from, from_at, to, _| {
            // SAFETY: a place or none.
            checked(
                unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), from_at, 3000) } as i64
            )
        })
    });
}

#[test]
fn bytes_are_spliced() {
    let folder = Folder::new();
    for flags in [0, libc::SPLICE_F_NONBLOCK] {
        alike_each(|| {
            every_way(&folder, &PLACES, |from, from_at, to, to_at| {
                let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
                // SAFETY: places or none.
                checked(unsafe { libc::splice(from, from_at, to, to_at, 2000, flags) } as i64)
            })
        });
    }
}

#[test]
fn ranges_are_copied() {
    let folder = Folder::new();
    alike_each(|| {
        every_way(&folder, &PLACES, |from, from_at, to, to_at| {
            let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
            // SAFETY: places or none.
            checked(unsafe { libc::copy_file_range(from, from_at, to, to_at, 2000, 0) } as i64)
        })
    });
}

/// Unknown flags, and a length of 0.
#[test]
fn odd_arguments() {
    let folder = Folder::new();
    let odd: [(usize, c_uint); 3] = [(0, 0), (100, 1 << 20), (usize::MAX, 0)];
    for (length, flags) in odd {
        alike_each(|| {
            every_way(&folder, &[None, Some(5)], |from, from_at, to, to_at| {
                let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
                // From a pipe to a socket, a call moves all there is.
                if length == usize::MAX {
                    // SAFETY: a place or none.
                    return checked(unsafe { libc::sendfile(to, from, from_at, length) } as i64);
                }
                // SAFETY: places or none.
                checked(unsafe { libc::splice(from, from_at, to, to_at, length, flags) } as i64)
            })
        });
    }
}
