//! What the kernel answers to unusual calls, compared exactly.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::ptr;

use libc::{c_int, iovec};

use crate::common::*;

/// Files of all sorts that have something to read and room to be written to.
fn all_sorts(folder: &Folder) -> Vec<(&'static str, File)> {
    let mut disk = folder.file("disk");
    disk.write_all(&text(10_000)).unwrap();
    seek(&disk, 10);
    let path = folder.path().join("disk");
    let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
    let mut memory = in_memory();
    memory.write_all(&text(10_000)).unwrap();
    seek(&memory, 10);
    let (from, to) = pipe();
    (&to).write_all(b"in the pipe").unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    (&other).write_all(b"in the socket").unwrap();
    let (message, sender) = UnixDatagram::pair().unwrap();
    sender.send(b"a message").unwrap();
    let device = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).unwrap()
    };
    // SAFETY: numbers, and the files are ours.
    let [eventfd, timer, inotify, epoll] = unsafe {
        [
            owned(libc::eventfd(5, libc::EFD_CLOEXEC)),
            owned(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC)),
            owned(libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK)),
            owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)),
        ]
    };
    let soon = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    let time = libc::itimerspec { it_interval: soon, it_value: soon };
    // SAFETY: a time.
    let set =
        unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const time, ptr::null_mut()) };
    assert_eq!(set, 0);
    let mut sorts = vec![
        ("disk", disk),
        ("a pipe's reading end", from),
        ("a pipe's writing end", to),
        ("socket", OwnedFd::from(one).into()),
        ("its other end", OwnedFd::from(other).into()),
        ("message socket", OwnedFd::from(message).into()),
        ("its other end", OwnedFd::from(sender).into()),
        ("eventfd", eventfd.into()),
        ("timer", timer.into()),
        ("inotify", inotify.into()),
        ("epoll", epoll.into()),
        ("null", device("/dev/null")),
        ("zero", device("/dev/zero")),
        ("full", device("/dev/full")),
        ("terminal", device("/dev/ptmx")),
        ("memory", memory),
        ("directory", File::open(folder.path()).unwrap()),
        ("O_SYNC", open(libc::O_SYNC).unwrap()),
        ("O_APPEND", open(libc::O_APPEND).unwrap()),
        ("O_PATH", OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&path).unwrap()),
        ("status", File::open("/proc/self/status").unwrap()),
        ("limit", File::open("/proc/sys/fs/nr_open").unwrap()),
    ];
    if let Ok(direct) = open(libc::O_DIRECT) {
        sorts.push(("O_DIRECT", direct));
    }
    sorts
}

type Answer = (&'static str, String, Result, Result);

/// Makes `call` on each of these files, freshly made, under a time limit, because calls that wait are not
/// compared.
fn of_all_sorts(folder: &Folder, what: &str, call: impl Fn(&File) -> Result) -> Vec<Answer> {
    (0..all_sorts(folder).len())
        .map(|sort| {
            let (name, file) = all_sorts(folder).swap_remove(sort);
            // Positions of /proc files depend on how long their texts are.
            let result = call(&file);
            let place = if name == "status" { Ok(0) } else { position(&file) };
            (
                name,
                what.to_owned(),
                if name == "status" { result.and(Ok(0)) } else { result },
                place,
            )
        })
        .collect()
}

/// Compares the answers one by one, so that a failure names the call.
///
/// Needs a process of its own ([alone]). A process that another test starts has a copy of each open file until
/// its exec, so a file that is closed here would stay open, and a write to a socket whose other end was closed
/// would succeed.
fn alike_each(scenario: impl Fn() -> Vec<Answer> + Send + Sync) {
    let on_threads = scenario();
    let on_fibers = carefree::Runtime::builder().build().unwrap().run(&scenario);
    assert_eq!(on_fibers.len(), on_threads.len());
    let wrong: Vec<_> =
        on_fibers.into_iter().zip(on_threads).filter(|(one, other)| one != other).collect();
    assert!(wrong.is_empty(), "on fibers and on threads: {wrong:#?}");
}

#[test]
fn calls_without_a_byte() {
    if alone("answers::calls_without_a_byte") {
        return;
    }
    let folder = Folder::new();
    alike_each(|| {
        let nothing = iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut all = of_all_sorts(&folder, "read", |file| read(file, ptr::dangling_mut(), 0));
        all.extend(of_all_sorts(&folder, "write", |file| write(file, ptr::dangling(), 0)));
        all.extend(of_all_sorts(&folder, "readv", |file| readv(file, &[nothing])));
        all.extend(of_all_sorts(&folder, "writev", |file| writev(file, &[nothing, nothing])));
        all.extend(of_all_sorts(&folder, "readv of none", |file| readv(file, &[])));
        all.extend(of_all_sorts(&folder, "writev of none", |file| writev(file, &[])));
        all.extend(of_all_sorts(&folder, "pread", |file| pread(file, ptr::dangling_mut(), 0, 3)));
        all.extend(of_all_sorts(&folder, "pwrite", |file| pwrite(file, ptr::dangling(), 0, 3)));
        all
    });
}

#[test]
fn calls_with_a_few_bytes() {
    if alone("answers::calls_with_a_few_bytes") {
        return;
    }
    let folder = Folder::new();
    alike_each(|| {
        let mut all = Vec::new();
        for length in [1, 7, 8, 9, 5000] {
            let of = |name: &str| format!("{name} of {length}");
            let bytes = text(length);
            let from = bytes.as_ptr().cast();
            all.extend(of_all_sorts(&folder, &of("write"), |file| write(file, from, length)));
            all.extend(of_all_sorts(&folder, &of("pwrite"), |file| pwrite(file, from, length, 3)));
            let places = [-1, -5, i64::MAX];
            for at in places {
                let name = of(&format!("at {at}, pwrite"));
                all.extend(of_all_sorts(&folder, &name, |file| pwrite(file, from, length, at)));
            }
            let read = |name: &str, read: &dyn Fn(&File, *mut u8) -> Result| {
                of_all_sorts(&folder, &of(name), |file| {
                    // These have nothing to read, and would wait.
                    if is_dry(file) { Ok(-7) } else { read(file, vec![0; length].as_mut_ptr()) }
                })
            };
            all.extend(read("read", &|file, to| super::common::read(file, to.cast(), length)));
            all.extend(read("pread", &|file, to| pread(file, to.cast(), length, 3)));
            for at in places {
                let name = format!("pread at {at}");
                all.extend(read(&name, &|file, to| pread(file, to.cast(), length, at)));
            }
        }
        all
    });
}

/// Whether a read would wait.
fn is_dry(file: &File) -> bool {
    let mut one = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: an array of one.
    unsafe { libc::poll(&raw mut one, 1, 0) == 0 }
}

#[test]
fn the_flags_of_the_later_forms() {
    if alone("answers::the_flags_of_the_later_forms") {
        return;
    }
    let folder = Folder::new();
    let flags: [c_int; 8] = [
        0,
        libc::RWF_HIPRI,
        libc::RWF_DSYNC,
        libc::RWF_SYNC,
        libc::RWF_NOWAIT,
        libc::RWF_APPEND,
        libc::RWF_HIPRI | libc::RWF_APPEND,
        1 << 20,
    ];
    alike_each(|| {
        let mut all = Vec::new();
        for flags in flags {
            for at in [-1, 5, -2] {
                let bytes = text(20);
                let parts = [buffer(&bytes[..5]), buffer(&bytes[5..])];
                let what = |name: &str| format!("{name} at {at} with {flags:#x}");
                all.extend(of_all_sorts(&folder, &what("pwritev2"), |file| {
                    // SAFETY: two buffers.
                    checked(unsafe {
                        libc::pwritev2(file.as_raw_fd(), parts.as_ptr(), 2, at, flags)
                    } as i64)
                }));
                all.extend(of_all_sorts(&folder, &what("preadv2"), |file| {
                    if is_dry(file) {
                        return Ok(-7);
                    }
                    let mut room = [0; 20];
                    let (head, tail) = room.split_at_mut(5);
                    let parts = [buffer(head), buffer(tail)];
                    // SAFETY: two buffers.
                    checked(
                        unsafe { libc::preadv2(file.as_raw_fd(), parts.as_ptr(), 2, at, flags) }
                            as i64,
                    )
                }));
            }
        }
        // Whether a disk answers without waiting depends on what the kernel writes to it at that moment.
        let nowait = format!("with {:#x}", libc::RWF_NOWAIT);
        all.retain(|(name, what, ..)| *name != "O_DIRECT" || !what.ends_with(&nowait));
        all
    });
}

#[test]
fn numbers_of_buffers_and_of_files() {
    if alone("answers::numbers_of_buffers_and_of_files") {
        return;
    }
    let folder = Folder::new();
    alike_each(|| {
        let mut byte = [0u8; 1];
        let one = iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let many = vec![one; 1025];
        let absurd = [iovec { iov_len: usize::MAX, ..one }];
        let two_absurd = [iovec { iov_len: isize::MAX as usize, ..one }; 2];
        let mut all = of_all_sorts(&folder, "writev of many", |file| writev(file, &many));
        all.extend(of_all_sorts(&folder, "readv of many", |file| readv(file, &many)));
        all.extend(of_all_sorts(&folder, "writev of an absurd one", |f| writev(f, &absurd)));
        all.extend(of_all_sorts(&folder, "readv of an absurd one", |f| readv(f, &absurd)));
        all.extend(of_all_sorts(&folder, "writev of less than none", |file| {
            // SAFETY: the kernel says that it cannot be.
            checked(unsafe { libc::writev(file.as_raw_fd(), &raw const one, -1) } as i64)
        }));
        all.extend(of_all_sorts(&folder, "absurd read", |file| {
            read(file, one.iov_base, usize::MAX)
        }));
        all.extend(of_all_sorts(&folder, "absurd write", |file| {
            write(file, one.iov_base, usize::MAX)
        }));
        for wrong in [-1, 987_654] {
            all.push(("no file", "read".into(), read(&wrong, one.iov_base, 1), Ok(0)));
            all.push(("no file", "write".into(), write(&wrong, one.iov_base, 1), Ok(0)));
            all.push(("no file", "read of none".into(), read(&wrong, one.iov_base, 0), Ok(0)));
            all.push(("no file", "writev".into(), writev(&wrong, &two_absurd), Ok(0)));
            all.push(("no file", "pread".into(), pread(&wrong, one.iov_base, 1, -1), Ok(0)));
        }
        all
    });
}

/// Some files of the kernel's answer by which thread asks.
#[test]
fn files_of_the_kernel_are_written_by_the_carrier() {
    let name = alike(|_| {
        let mut file = OpenOptions::new().write(true).open("/proc/thread-self/comm").unwrap();
        file.write_all(b"renamed").unwrap();
        std::fs::read_to_string("/proc/thread-self/comm").unwrap()
    });
    assert_eq!(name, "renamed\n");
}

/// Such a file polls ready when its text has changed since the last read. A read never waits.
#[test]
fn a_file_of_the_kernels_that_is_not_ready_is_read() {
    const PATH: &str = "/proc/bus/input/devices";
    if !std::path::Path::new(PATH).exists() {
        println!("skipped: there is no {PATH}");
        return;
    }
    let ends = alike(|_| {
        let file = File::open(PATH).unwrap();
        let mut bytes = [0u8; 1 << 16];
        // Reads it to its end, and once more.
        let mut read = || read(&file, bytes.as_mut_ptr().cast(), bytes.len());
        while read().unwrap() > 0 {}
        [read(), read()]
    });
    assert_eq!(ends, [Ok(0), Ok(0)]);
}
