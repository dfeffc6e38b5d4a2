//! Files, their disks and their locks.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::*;

/// A call on a file that ends by itself, and what it must answer.
fn on_a_file(rounds: usize, answer: usize, call: fn(c_int) -> i64) -> Option<Scenario> {
    let file = unnamed();
    (&file).write_all(&[1; 4096]).unwrap();
    Some(Scenario::endless(rounds, move || {
        let got = counted(call(file.as_raw_fd()))?;
        assert_eq!(got, answer);
        Ok(got)
    }))
}

pub(super) fn pread() -> Option<Scenario> {
    on_a_file(30, 4096, |fd| {
        let mut room = [0u8; 4096];
        // SAFETY: there is as much room.
        unsafe { libc::pread(fd, room.as_mut_ptr().cast(), 4096, 0) as i64 }
    })
}

pub(super) fn copy_file_range() -> Option<Scenario> {
    on_a_file(10, 4096, |fd| {
        let to = unnamed();
        let mut place = 0;
        // SAFETY: a place to begin at.
        unsafe {
            libc::copy_file_range(fd, &raw mut place, to.as_raw_fd(), null_mut(), 4096, 0) as i64
        }
    })
}

pub(super) fn fsync() -> Option<Scenario> {
    // SAFETY: no memory is involved.
    on_a_file(10, 0, |fd| unsafe { libc::fsync(fd) }.into())
}

pub(super) fn sync_file_range() -> Option<Scenario> {
    // SAFETY: no memory is involved.
    on_a_file(10, 0, |fd| unsafe { libc::sync_file_range(fd, 0, 4096, 0) }.into())
}

pub(super) fn close() -> Option<Scenario> {
    on_a_file(30, 0, |fd| {
        // SAFETY: the duplicate is ours.
        unsafe { libc::close(libc::dup(fd)) }.into()
    })
}

/// One end of a FIFO, whose open ends when the other end is opened.
pub(super) fn open() -> Option<Scenario> {
    let folder = Directory::new();
    let path = folder.fifo();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let other = path.clone();
    Some(Scenario::new(
        move || {
            let at_once = libc::O_NONBLOCK;
            // If the other end is not being opened, this open waits.
            _ = OpenOptions::new().write(true).custom_flags(at_once).open(&other);
        },
        move || {
            // SAFETY: a name; the file is ours.
            unsafe {
                let fd = counted(libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC))?;
                libc::close(fd as c_int);
            }
            Ok(0)
        },
        move || {
            let numbers = fs::read_dir("/proc/self/fd").unwrap().flatten();
            let open = numbers.filter(|one| fs::read_link(one.path()).is_ok_and(|to| to == path));
            assert_eq!(open.count(), 0, "an end was opened for a call that was cut short");
            drop(folder);
            60
        },
    ))
}

/// A lock of a file, by a function that locks or unlocks a descriptor, and waits or not.
fn lock(change: fn(c_int, Change) -> c_int) -> Option<Scenario> {
    let folder = Directory::new();
    let path = folder.file();
    let open = || Arc::new(open_both(&path));
    let [holder, taker, third] = [open(), open(), open()];
    assert_eq!(change(holder.as_raw_fd(), Change::Lock), 0);
    let giver = Arc::clone(&holder);
    Some(Scenario::new(
        move || {
            assert_eq!(change(giver.as_raw_fd(), Change::Unlock), 0);
            carefree::sleep(Duration::from_micros(50));
            assert_eq!(change(giver.as_raw_fd(), Change::Lock), 0);
        },
        move || {
            counted(change(taker.as_raw_fd(), Change::Lock))?;
            assert_eq!(change(taker.as_raw_fd(), Change::Unlock), 0);
            Ok(0)
        },
        move || {
            let now = |file: &File| change(file.as_raw_fd(), Change::LockNow);
            assert_eq!(now(&third), -1, "the holder has lost its lock");
            assert_eq!(change(holder.as_raw_fd(), Change::Unlock), 0);
            assert_eq!(now(&third), 0, "a call that was cut short has the lock");
            drop(folder);
            60
        },
    ))
}

#[derive(Clone, Copy)]
enum Change {
    Lock,
    LockNow,
    Unlock,
}

pub(super) fn flock() -> Option<Scenario> {
    lock(|fd, change| {
        let how = match change {
            Change::Lock => libc::LOCK_EX,
            Change::LockNow => libc::LOCK_EX | libc::LOCK_NB,
            Change::Unlock => libc::LOCK_UN,
        };
        // SAFETY: no memory is involved.
        unsafe { libc::flock(fd, how) }
    })
}

pub(super) fn fcntl() -> Option<Scenario> {
    lock(|fd, change| {
        let (how, kind) = match change {
            Change::Lock => (libc::F_OFD_SETLKW, libc::F_WRLCK),
            Change::LockNow => (libc::F_OFD_SETLK, libc::F_WRLCK),
            Change::Unlock => (libc::F_OFD_SETLK, libc::F_UNLCK),
        };
        // SAFETY: zeros are a lock from the file's beginning to its end.
        unsafe {
            let mut lock: libc::flock = mem::zeroed();
            lock.l_type = kind as _;
            libc::fcntl(fd, how, &raw mut lock)
        }
    })
}
