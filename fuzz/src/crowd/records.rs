//! Records written to one file, and blocks read from one, by lanes that share its position or append.

use std::ffi::c_int;
use std::path::PathBuf;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::start::Start;
use crate::lane::Lanes;
use crate::object::Place;
use crate::system::{errno, name};
use crate::world::{directory, open};

/// How the lanes share the file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Sharing {
    /// By one number.
    Number,
    /// Each by a number of its own for the same open file.
    Copies,
    /// By one number of a file that is appended to.
    Appending,
    /// Each has opened the file to append to it.
    Opened,
}

/// Lanes that write records.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Records {
    pub place: Place,
    pub sharing: Sharing,
    pub lanes: u8,
    pub records: u16,
    /// Bytes of a record.
    pub size: u16,
    /// Each is written in three parts, by `writev`.
    pub vectored: bool,
    /// Mixed with reads, through another open file.
    pub reads: bool,
}

/// Lanes that read blocks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Readers {
    pub place: Place,
    pub copies: bool,
    pub lanes: u8,
    pub blocks: u16,
    /// Bytes of a block.
    pub size: u16,
    pub vectored: bool,
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![Just(Place::Disk), Just(Place::Memory)]
}

pub(super) fn records() -> impl Strategy<Value = Records> {
    let sharing = prop_oneof![
        2 => Just(Sharing::Number),
        1 => Just(Sharing::Copies),
        1 => Just(Sharing::Appending),
        1 => Just(Sharing::Opened),
    ];
    let flags = (any::<bool>(), any::<bool>());
    (place(), sharing, 2u8..9, 100u16..2000, 12u16..200, flags).prop_map(
        |(place, sharing, lanes, records, size, (vectored, reads))| Records {
            place,
            sharing,
            lanes,
            records,
            size,
            vectored,
            reads,
        },
    )
}

pub(super) fn readers() -> impl Strategy<Value = Readers> {
    (place(), any::<bool>(), 2u8..9, 100u16..4000, 12u16..200, any::<bool>()).prop_map(
        |(place, copies, lanes, blocks, size, vectored)| Readers {
            place,
            copies,
            lanes,
            blocks,
            size,
            vectored,
        },
    )
}

/// The record of a lane: its numbers, then bytes that follow from them.
fn record(lane: u16, number: u16, size: usize) -> Vec<u8> {
    let mut bytes = [lane.to_le_bytes(), number.to_le_bytes()].concat();
    bytes.extend((bytes.len()..size).map(|at| (at * 3 + usize::from(lane ^ number)) as u8));
    bytes
}

/// The numbers in a record that is whole.
fn numbers(bytes: &[u8]) -> Option<(u16, u16)> {
    let lane = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
    let number = u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?);
    (record(lane, number, bytes.len()) == bytes).then_some((lane, number))
}

/// Three parts of `bytes`.
fn parts(bytes: *mut u8, length: usize) -> [libc::iovec; 3] {
    let third = length / 3;
    [(0, third), (third, third), (2 * third, length - 2 * third)].map(|(at, length)| libc::iovec {
        iov_base: bytes.wrapping_add(at).cast(),
        iov_len: length,
    })
}

fn fresh(place: Place) -> PathBuf {
    directory(place).join("records")
}

fn copy(fd: c_int) -> c_int {
    // SAFETY: a call with a number.
    let copy = unsafe { libc::dup(fd) };
    assert!(copy >= 0);
    copy
}

fn close(fd: c_int) {
    // SAFETY: a number of ours.
    unsafe { libc::close(fd) };
}

/// Says how often each of `all` was seen where that is not once.
fn count(seen: impl Iterator<Item = (u16, u16)>, lanes: u16, each: u16) -> Vec<String> {
    let mut times = vec![0u32; usize::from(lanes) * usize::from(each)];
    let mut strange = 0;
    for (lane, number) in seen {
        match times.get_mut(usize::from(lane) * usize::from(each) + usize::from(number)) {
            Some(times) => *times += 1,
            None => strange += 1,
        }
    }
    let (lost, doubled) =
        (times.iter().filter(|t| **t == 0).count(), times.iter().filter(|t| **t > 1).count());
    match (lost, doubled, strange) {
        (0, 0, 0) => Vec::new(),
        _ => vec![format!(
            "of {} records {lost} lost, {doubled} doubled, {strange} strange",
            times.len()
        )],
    }
}

impl Records {
    pub(super) fn run(&self, lanes: Lanes) -> Vec<String> {
        let path = fresh(self.place);
        let _ = std::fs::remove_file(&path);
        let appending = matches!(self.sharing, Sharing::Appending | Sharing::Opened);
        let flags = libc::O_RDWR | libc::O_CREAT | if appending { libc::O_APPEND } else { 0 };
        let fd = open(&path, flags);
        let own = !matches!(self.sharing, Sharing::Number | Sharing::Appending);
        let start = Start::of(self.lanes);
        let handles: Vec<_> = (0..u16::from(self.lanes))
            .map(|lane| {
                let fd = match self.sharing {
                    Sharing::Number | Sharing::Appending => fd,
                    Sharing::Copies => copy(fd),
                    Sharing::Opened => open(&path, flags),
                };
                let other = self.reads.then(|| open(&path, libc::O_RDONLY));
                let (this, start) = (self.clone(), start.clone());
                lanes.spawn(move || {
                    start.wait();
                    let problems = this.write(fd, other, lane);
                    other.into_iter().for_each(close);
                    if own {
                        close(fd);
                    }
                    problems
                })
            })
            .collect();
        let mut problems: Vec<_> = handles.into_iter().flat_map(|handle| handle.join()).collect();
        close(fd);
        let bytes = std::fs::read(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        let expected = usize::from(self.lanes) * usize::from(self.records) * usize::from(self.size);
        if bytes.len() != expected {
            problems.push(format!("{} bytes instead of {expected}", bytes.len()));
        }
        let records = bytes.chunks(usize::from(self.size));
        let seen = records.map(|record| numbers(record).unwrap_or((u16::MAX, u16::MAX)));
        problems.extend(count(seen, u16::from(self.lanes), self.records));
        problems
    }

    fn write(&self, fd: c_int, other: Option<c_int>, lane: u16) -> Vec<String> {
        for number in 0..self.records {
            let mut bytes = record(lane, number, usize::from(self.size));
            let parts = parts(bytes.as_mut_ptr(), bytes.len());
            // SAFETY: buffers that live until then.
            let written = unsafe {
                match self.vectored {
                    true => libc::writev(fd, parts.as_ptr(), 3),
                    false => libc::write(fd, bytes.as_ptr().cast(), bytes.len()),
                }
            };
            if written != bytes.len() as isize {
                let how = if written < 0 { name(errno()) } else { written.to_string() };
                return vec![format!("a write of {} bytes: {how}", bytes.len())];
            }
            if let Some(other) = other {
                // SAFETY: as above.
                let read = unsafe { libc::read(other, bytes.as_mut_ptr().cast(), bytes.len()) };
                if read < 0 {
                    return vec![format!("a read: {}", name(errno()))];
                }
            }
        }
        Vec::new()
    }
}

impl Readers {
    pub(super) fn run(&self, lanes: Lanes) -> Vec<String> {
        let path = fresh(self.place);
        let size = usize::from(self.size);
        let bytes: Vec<u8> = (0..self.blocks).flat_map(|number| record(0, number, size)).collect();
        std::fs::write(&path, bytes).expect("room for a file");
        let fd = open(&path, libc::O_RDONLY);
        let start = Start::of(self.lanes);
        let handles: Vec<_> = (0..self.lanes)
            .map(|_| {
                let fd = if self.copies { copy(fd) } else { fd };
                let (this, start) = (self.clone(), start.clone());
                lanes.spawn(move || {
                    start.wait();
                    let read = this.read(fd);
                    if this.copies {
                        close(fd);
                    }
                    read
                })
            })
            .collect();
        let seen: Vec<_> = handles.into_iter().flat_map(|handle| handle.join()).collect();
        close(fd);
        let _ = std::fs::remove_file(&path);
        count(seen.into_iter(), 1, self.blocks)
    }

    fn read(&self, fd: c_int) -> Vec<(u16, u16)> {
        let mut seen = Vec::new();
        let mut bytes = vec![0u8; usize::from(self.size)];
        loop {
            let parts = parts(bytes.as_mut_ptr(), bytes.len());
            // SAFETY: buffers that live until then.
            let read = unsafe {
                match self.vectored {
                    true => libc::readv(fd, parts.as_ptr(), 3),
                    false => libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()),
                }
            };
            match read {
                0 => return seen,
                read if read == bytes.len() as isize => {
                    seen.push(numbers(&bytes).unwrap_or((u16::MAX, u16::MAX)));
                }
                _ => seen.push((u16::MAX, u16::MAX)),
            }
            if read < 0 {
                return seen;
            }
        }
    }
}
