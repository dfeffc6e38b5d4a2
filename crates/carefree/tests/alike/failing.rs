//! A disk that fails, and one that is slow: a file system whose disk is a thread of the test (FUSE).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{ptr, thread};

use carefree::{Runtime, spawn};
use libc::{c_int, iovec};

use crate::common::*;

/// From this offset on, the disk can be neither read nor written.
const GOOD: usize = 64 << 10;
const LENGTH: usize = 1 << 20;

/// The inode numbers of the files.
const NAMES: [(&[u8], u64); 3] = [(b"cached", 2), (b"direct", 3), (b"slow", 4)];
const ROOT: u64 = 1;
const DIRECT: u64 = 3;
const SLOW: u64 = 4;

/// The files of such a disk. It is gone with the last of them.
struct Disk {
    /// Through the page cache.
    cached: File,
    /// Past it.
    direct: File,
    /// A read of this one is answered when `is_patient` says so.
    slow: File,
    is_patient: Arc<AtomicBool>,
}

impl Disk {
    /// # Errors
    /// Where no file system can be mounted.
    fn new() -> io::Result<Disk> {
        let folder = Folder::new();
        let is_patient = Arc::new(AtomicBool::new(false));
        let server = Arc::clone(&is_patient);
        // In a mount namespace of its own, so that the mount goes with this process, however that ends.
        let mounted = thread::spawn(move || {
            let kernel = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
            let number = kernel.as_raw_fd();
            let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0\0");
            let place = format!("{}\0", folder.path().display());
            let (fuse, none) = (c"fuse".as_ptr(), ptr::null());
            let checked = |result: c_int| match result {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            };
            // SAFETY: strings.
            unsafe {
                checked(libc::unshare(libc::CLONE_NEWNS))?;
                let private = libc::MS_REC | libc::MS_PRIVATE;
                checked(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))?;
                let place = place.as_ptr().cast();
                checked(libc::mount(fuse, place, fuse, 0, options.as_ptr().cast()))?;
            }
            thread::spawn(move || serve(&kernel, &server));
            let open = |name: &str| {
                let path = folder.path().join(name);
                OpenOptions::new().read(true).write(true).open(path)
            };
            io::Result::Ok((open("cached")?, open("direct")?, open("slow")?))
        });
        let (cached, direct, slow) = mounted.join().unwrap()?;
        Ok(Disk { cached, direct, slow, is_patient })
    }

    /// Mounts one, if this machine allows it.
    fn or_skip() -> Option<Disk> {
        let disk = Disk::new();
        disk.inspect_err(|error| println!("skipped: no FUSE file system here: {error}")).ok()
    }
}

/// Answers the kernel until the file system is gone.
fn serve(kernel: &File, is_patient: &AtomicBool) {
    let mut request = vec![0u8; 1 << 20];
    loop {
        let place = request.as_mut_ptr().cast();
        // SAFETY: a buffer.
        let got = unsafe { libc::read(kernel.as_raw_fd(), place, request.len()) };
        if got < 0 {
            match io::Error::last_os_error().raw_os_error() {
                // The request was withdrawn, or a signal came.
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                _ => return,
            }
        }
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
        // After a header of 40 bytes: a number of the open file, an offset and a length.
        let (node, offset, length) = (long(16), long(48) as usize, word(56) as usize);
        let answer = match word(4) {
            LOOKUP => {
                let name = request[40..got as usize].split(|byte| *byte == 0).next();
                let found = NAMES.iter().find(|(known, _)| Some(*known) == name);
                found.map_or(Err(libc::ENOENT), |(_, node)| Ok(entry(*node)))
            }
            GETATTR | SETATTR => Ok([&[0; 16][..], &attributes(node)].concat()),
            OPEN => Ok(words(&[0, 0, u32::from(node == DIRECT), 0])),
            READ => {
                let begun = Instant::now();
                while node == SLOW && !is_patient.load(Ordering::SeqCst) {
                    if begun.elapsed() > Duration::from_secs(40) {
                        break;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                let end = (offset + length).min(LENGTH);
                if end > GOOD { Err(libc::EIO) } else { Ok(text(end)[offset..].to_vec()) }
            }
            WRITE if offset + length > GOOD => Err(libc::EIO),
            WRITE => Ok(words(&[length as u32, 0])),
            INIT => {
                let mut answer = words(&[7, 31, 128 << 10, 0, 0, 128 << 10, 1]);
                answer.resize(64, 0);
                Ok(answer)
            }
            // So a `close` and an `fsync` fail.
            FLUSH | FSYNC => Err(libc::EIO),
            RELEASE => Ok(Vec::new()),
            FORGET | BATCH_FORGET => continue,
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut all = words(&[16 + body.len() as u32, error as u32]);
        all.extend_from_slice(&request[8..16]);
        all.extend_from_slice(&body);
        // SAFETY: bytes.
        unsafe { libc::write(kernel.as_raw_fd(), all.as_ptr().cast(), all.len()) };
    }
}

// What the kernel asks for (linux/fuse.h).
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const BATCH_FORGET: u32 = 42;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, length) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 0),
        SLOW => (libc::S_IFREG | 0o644, GOOD as u64),
        _ => (libc::S_IFREG | 0o644, LENGTH as u64),
    };
    let mut all: Vec<u8> =
        [node, length, 0, 0, 0, 0].iter().flat_map(|long| long.to_ne_bytes()).collect();
    // Three times in nanoseconds; mode, links, user, group, device, block size, flags.
    all.extend(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    all
}

/// `struct fuse_entry_out`.
fn entry(node: u64) -> Vec<u8> {
    let mut all = node.to_ne_bytes().to_vec();
    all.resize(40, 0);
    all.extend(attributes(node));
    all
}

/// A call's result, the position after it, and a sum of the bytes it has read.
type Step = (Result, Result, u64);

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
}

/// Reads and writes in all ways before, across and behind the offset from which the disk fails.
fn across(file: &File) -> Vec<Step> {
    let mut steps = Vec::new();
    // SAFETY: no memory is involved. Nothing is read ahead of what is asked for.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let bytes = text(10_000);
    let (head, tail) = bytes.split_at(3000);
    for place in [0, 5_000, GOOD - 10_000, GOOD - 4096, GOOD - 100, GOOD, 500_000] {
        let at = place as libc::off_t;
        for length in [100, 4096, 10_000] {
            let mut room = vec![0u8; length];
            let halves = |room: &mut [u8]| -> [iovec; 2] {
                let (one, other) = room.split_at(length / 2);
                [buffer(one), buffer(other)]
            };
            for way in 0..4 {
                seek(file, at);
                room.fill(0);
                let to = room.as_mut_ptr().cast();
                let result = match way {
                    0 => read(file, to, length),
                    1 => readv(file, &halves(&mut room)),
                    2 => pread(file, to, length, at),
                    _ => {
                        let parts = halves(&mut room);
                        let fd = file.as_raw_fd();
                        // SAFETY: the kernel says what cannot be written.
                        checked(unsafe { libc::preadv(fd, parts.as_ptr(), 2, at) } as i64)
                    }
                };
                let got = result.unwrap_or(0) as usize;
                steps.push((result, position(file), sum(&room[..got])));
            }
        }
        for way in 0..3 {
            seek(file, at);
            let result = match way {
                0 => write(file, bytes.as_ptr().cast(), bytes.len()),
                1 => writev(file, &[buffer(head), buffer(tail)]),
                _ => pwrite(file, bytes.as_ptr().cast(), bytes.len(), at),
            };
            steps.push((result, position(file), 0));
        }
        for is_blocking in [true, false] {
            let (to, from) = UnixStream::pair().unwrap();
            to.set_nonblocking(!is_blocking).unwrap();
            seek(file, at);
            let (fd, none) = (file.as_raw_fd(), ptr::null_mut());
            // SAFETY: no place is given.
            let sent = checked(unsafe { libc::sendfile(to.as_raw_fd(), fd, none, 6000) } as i64);
            drop(to);
            let mut got = Vec::new();
            io::Read::read_to_end(&mut &from, &mut got).unwrap();
            steps.push((sent, position(file), sum(&got)));
        }
    }
    let fd = file.as_raw_fd();
    // SAFETY: numbers, and the last is a copy's own.
    unsafe {
        steps.push((checked(libc::fsync(fd)), Ok(0), 0));
        steps.push((checked(libc::fdatasync(fd)), Ok(0), 0));
        let copy = libc::dup(fd);
        steps.push((checked(libc::close(copy)), Ok(0), 0));
    }
    steps
}

#[test]
fn a_disk_that_fails() {
    if Disk::or_skip().is_none() {
        return;
    }
    let steps = alike(|on| {
        let disk = Disk::new().unwrap();
        let steps = std::sync::Mutex::new(Vec::new());
        on.run(vec![Box::new(|| {
            *steps.lock().unwrap() = [across(&disk.cached), across(&disk.direct)].concat();
        })]);
        steps.into_inner().unwrap()
    });
    assert!(steps.iter().filter(|step| step.0 == Err(libc::EIO)).count() > 50, "{steps:?}");
    assert!(steps.iter().filter(|step| step.0.is_ok()).count() > 50, "{steps:?}");
}

/// Runs `call` on the slow file, on the only carrier. The disk answers after another fiber has run.
fn beside_another(call: impl FnOnce(&File) -> i64 + Send + 'static) -> Option<i64> {
    let disk = Disk::or_skip()?;
    let answer = Runtime::builder().carriers(1).build().unwrap().run(move || {
        let is_patient = Arc::clone(&disk.is_patient);
        let calling = spawn(move || call(&disk.slow));
        let other = spawn(move || is_patient.store(true, Ordering::SeqCst));
        let answer = calling.join().unwrap();
        other.join().unwrap();
        answer
    });
    Some(answer)
}

/// No call that waits for the disk blocks the carrier.
#[test]
fn a_disk_that_takes_its_time() {
    let [to, from] = {
        let (to, from) = UnixStream::pair().unwrap();
        to.set_nonblocking(true).unwrap();
        [to, from].map(|end| File::from(OwnedFd::from(end)))
    };
    let send = |to: &File| {
        let to = to.try_clone().unwrap();
        move |file: &File| {
            let (to, from, none) = (to.as_raw_fd(), file.as_raw_fd(), ptr::null_mut());
            // SAFETY: no place is given.
            unsafe { libc::sendfile(to, from, none, 5000) as i64 }
        }
    };
    let begun = Instant::now();
    let Some(sent) = beside_another(send(&to)) else { return };
    assert_eq!(sent, 5000, "to a socket in non-blocking mode");
    let mut got = vec![0; 5000];
    io::Read::read_exact(&mut &from, &mut got).unwrap();
    assert!(got == text(GOOD)[..5000]);
    let read = |file: &File| read(file, [0u8; 100].as_mut_ptr().cast(), 100).unwrap();
    assert_eq!(beside_another(read), Some(100));
    let pread = |file: &File| pread(file, [0u8; 100].as_mut_ptr().cast(), 100, 50).unwrap();
    assert_eq!(beside_another(pread), Some(100));
    let (reader, writer) = pipe();
    let splice = move |file: &File| {
        let (from, to, none) = (file.as_raw_fd(), writer.as_raw_fd(), ptr::null_mut());
        // SAFETY: no places are given.
        unsafe { libc::splice(from, none, to, none, 100, 0) as i64 }
    };
    assert_eq!(beside_another(splice), Some(100));
    drop(reader);
    // The disk answers at the latest after this time, and then the calls above succeed all the same.
    assert!(begun.elapsed() < Duration::from_secs(40), "the carrier waited for the disk");
}
