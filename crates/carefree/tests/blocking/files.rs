//! Calls on files that wait: for the other end of a FIFO, for a lock, for the disk.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use carefree::{run, scope, spawn};
use libc::c_int;

use crate::common::*;

/// A folder for a test's files.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("carefree-files-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn fifo(&self) -> PathBuf {
        let path = self.0.join("fifo");
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        path
    }

    pub(crate) fn file(&self) -> PathBuf {
        let path = self.0.join("file");
        fs::write(&path, [0; 100]).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn for_writing(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

fn is_nonblocking(file: &File) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

#[test]
fn the_ends_of_a_fifo_wait_for_each_other() {
    on_one_carrier(|| {
        let directory = Directory::new();
        let path = directory.fifo();
        // Either end may be opened first.
        for reader_first in [true, false] {
            let opened = Arc::new(AtomicBool::new(false));
            let first = spawn({
                let (path, opened) = (path.clone(), Arc::clone(&opened));
                move || {
                    let file = if reader_first { File::open(path) } else { for_writing(&path) };
                    opened.store(true, Ordering::SeqCst);
                    file.unwrap()
                }
            });
            carefree::sleep(MOMENT);
            assert!(!opened.load(Ordering::SeqCst), "the other end is not there yet");
            let second = if reader_first { for_writing(&path) } else { File::open(&path) }.unwrap();
            // The open returns although nothing was written.
            let first = first.join().unwrap();
            assert!(!is_nonblocking(&first) && !is_nonblocking(&second));
            let (mut reader, mut writer) =
                if reader_first { (first, second) } else { (second, first) };
            let reading = spawn(move || {
                let mut text = String::new();
                reader.read_to_string(&mut text).unwrap();
                text
            });
            carefree::sleep(MOMENT);
            writer.write_all(b"through the fifo").unwrap();
            drop(writer);
            assert_eq!(reading.join().unwrap(), "through the fifo");
        }
    });
}

#[test]
fn a_writer_that_is_gone_again_was_there() {
    on_one_carrier(|| {
        let directory = Directory::new();
        let path = directory.fifo();
        for text in ["", "text"] {
            let reading = spawn({
                let path = path.clone();
                move || fs::read_to_string(path).unwrap()
            });
            carefree::sleep(MOMENT);
            // The writer is another process, which has closed its end when the reader looks.
            let script = format!("printf '{text}' > {}", path.display());
            assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
            assert_eq!(reading.join().unwrap(), text);
        }
        // The other way round: the writer waits for a reader. (Of another FIFO: a child that some other test has forked
        // may have inherited an end of the first, and have it open until its exec.)
        let another = Directory::new();
        let path = another.fifo();
        let writing = spawn({
            let path = path.clone();
            move || fs::write(path, "from a fiber").unwrap()
        });
        let output = Command::new("cat").arg(&path).output().unwrap();
        writing.join().unwrap();
        assert_eq!(output.stdout, b"from a fiber");
    });
}

#[test]
fn many_fifos_at_once() {
    run(|| {
        let directory = Directory::new();
        scope(|s| {
            for number in 0..300 {
                let path = directory.0.join(number.to_string());
                let name = CString::new(path.to_str().unwrap()).unwrap();
                // SAFETY: a string.
                assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
                let other = path.clone();
                s.spawn(move || assert_eq!(fs::read(path).unwrap(), number.to_string().as_bytes()));
                s.spawn(move || fs::write(other, number.to_string()).unwrap());
            }
        });
    });
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    run(|| {
        let directory = Directory::new();
        let path = directory.fifo();
        let options = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(options.unwrap_err().raw_os_error(), Some(libc::ENXIO));
        let reader =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        assert!(is_nonblocking(&reader));
        assert_eq!(File::open(directory.0.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        let new = OpenOptions::new().write(true).create_new(true).open(&path).unwrap_err();
        assert_eq!(new.kind(), ErrorKind::AlreadyExists);
        let file = directory.file();
        assert_eq!(fs::read(&file).unwrap(), [0; 100]);
        let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(!is_nonblocking(&both));
    });
}

#[test]
fn cancellation_and_timeouts_reach_into_open() {
    run(|| {
        // One FIFO for each: a child of another test may have inherited a reader's end until its exec, which
        // would let a writer in.
        let directories = (Directory::new(), Directory::new());
        let (read, written) = (directories.0.fifo(), directories.1.fifo());
        let (one, two) = (read.clone(), written.clone());
        let errno = |file: std::io::Result<File>| file.unwrap_err().raw_os_error();
        assert_eq!(cancelled(move || errno(File::open(one))), Some(libc::ECANCELED));
        assert_eq!(cancelled(move || errno(for_writing(&two))), Some(libc::ECANCELED));
        assert_eq!(timed_out(|| errno(File::open(&read))), Some(libc::ETIMEDOUT));
        assert_eq!(timed_out(|| errno(for_writing(&written))), Some(libc::ETIMEDOUT));
    });
}

/// The ways to lock all of a file, and to unlock it.
#[derive(Clone, Copy, Debug)]
enum Lock {
    Flock,
    Open,
}

impl Lock {
    fn call(self, file: &File, kind: c_int, wait: bool) -> Result<i64, c_int> {
        let fd = file.as_raw_fd();
        // SAFETY: a lock that stays as long as the call.
        checked(unsafe {
            match self {
                Lock::Flock => {
                    let operation = match kind {
                        libc::F_WRLCK => libc::LOCK_EX,
                        libc::F_RDLCK => libc::LOCK_SH,
                        _ => libc::LOCK_UN,
                    };
                    libc::flock(fd, operation | if wait { 0 } else { libc::LOCK_NB })
                }
                Lock::Open => {
                    let mut lock: libc::flock = std::mem::zeroed();
                    lock.l_type = kind as i16;
                    let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
                    libc::fcntl(fd, command, &raw const lock)
                }
            }
        })
    }
}

const LOCKS: [Lock; 2] = [Lock::Flock, Lock::Open];

pub(crate) fn open_both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_lock_excludes_hundreds_of_fibers() {
    run(|| {
        let directory = Directory::new();
        let path = directory.file();
        for lock in LOCKS {
            let inside = AtomicUsize::new(0);
            let total = AtomicUsize::new(0);
            scope(|s| {
                for _ in 0..200 {
                    s.spawn(|| {
                        let file = open_both(&path);
                        lock.call(&file, libc::F_WRLCK, true).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        carefree::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        // Every second one unlocks by closing the file.
                        if total.fetch_add(1, Ordering::SeqCst) % 2 == 0 {
                            lock.call(&file, libc::F_UNLCK, true).unwrap();
                        }
                    });
                }
            });
            assert_eq!(total.load(Ordering::SeqCst), 200);
        }
    });
}

#[test]
fn locks_are_waited_for_while_others_run() {
    on_one_carrier(|| {
        let directory = Directory::new();
        let path = directory.file();
        for lock in LOCKS {
            let (one, two) = (open_both(&path), open_both(&path));
            lock.call(&one, libc::F_RDLCK, true).unwrap();
            lock.call(&two, libc::F_RDLCK, true).unwrap();
            assert_eq!(lock.call(&two, libc::F_WRLCK, false), Err(libc::EAGAIN), "{lock:?}");
            let other = spawn(move || {
                carefree::sleep(MOMENT * 4);
                lock.call(&one, libc::F_UNLCK, true).unwrap();
            });
            while_another_runs(|| lock.call(&two, libc::F_WRLCK, true).unwrap());
            other.join().unwrap();
        }
    });
}

#[test]
fn a_lock_of_another_process_is_waited_for() {
    if Command::new("flock").arg("--version").output().is_err() {
        return eprintln!("skipped: flock is not installed");
    }
    on_one_carrier(|| {
        let directory = Directory::new();
        let path = directory.file();
        let mut other = Command::new("flock")
            .arg(&path)
            .args(["-c", "echo locked; sleep 0.1"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        other.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
        let file = open_both(&path);
        assert_eq!(Lock::Flock.call(&file, libc::F_WRLCK, false), Err(libc::EAGAIN));
        while_another_runs(|| Lock::Flock.call(&file, libc::F_WRLCK, true).unwrap());
        assert!(other.wait().unwrap().success());
    });
}

#[test]
fn cancellation_and_timeouts_reach_into_locks() {
    run(|| {
        let directory = Directory::new();
        let path = directory.file();
        for lock in LOCKS {
            let (one, two) = (open_both(&path), Arc::new(open_both(&path)));
            lock.call(&one, libc::F_WRLCK, true).unwrap();
            let other = Arc::clone(&two);
            let waits = move || lock.call(&other, libc::F_RDLCK, true);
            assert_eq!(cancelled(waits), Err(libc::ECANCELED));
            let waits = || lock.call(&two, libc::F_RDLCK, true);
            assert_eq!(timed_out(waits), Err(libc::ETIMEDOUT));
            lock.call(&one, libc::F_UNLCK, true).unwrap();
            lock.call(&two, libc::F_WRLCK, true).unwrap();
        }
    });
}

#[test]
fn a_processs_locks_do_not_exclude_its_fibers() {
    run(|| {
        let directory = Directory::new();
        let file = open_both(&directory.file());
        // SAFETY: no memory is involved.
        unsafe {
            assert_eq!(libc::lockf(file.as_raw_fd(), libc::F_LOCK, 0), 0);
            assert_eq!(libc::lockf(file.as_raw_fd(), libc::F_LOCK, 0), 0);
            assert_eq!(libc::lockf(file.as_raw_fd(), libc::F_ULOCK, 0), 0);
            assert_eq!(checked(libc::lockf(987_654, libc::F_LOCK, 0)), Err(libc::EBADF));
            assert_eq!(checked(libc::flock(987_654, libc::LOCK_EX)), Err(libc::EBADF));
        }
    });
}

#[test]
fn files_reach_the_disk() {
    run(|| {
        let directory = Directory::new();
        let path = directory.file();
        scope(|s| {
            for _ in 0..50 {
                s.spawn(|| {
                    let file = open_both(&path);
                    (&file).write_all(b"text").unwrap();
                    file.sync_all().unwrap();
                    file.sync_data().unwrap();
                });
            }
        });
        // SAFETY: no memory is involved.
        unsafe {
            assert_eq!(checked(libc::fsync(987_654)), Err(libc::EBADF));
            let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            assert_eq!(checked(libc::fdatasync(one.as_raw_fd())), Err(libc::EINVAL));
        }
    });
}

/// Calls that write data to the disk (`fsync` and its kin) are cut short before they begin, or not at all.
#[test]
fn cancellation_reaches_in_before_the_disk() {
    run(|| {
        let directory = Directory::new();
        let file = open_both(&directory.file());
        (&file).write_all(b"text").unwrap();
        let fd = file.as_raw_fd();
        let fiber = spawn(move || {
            while carefree::check().is_ok() {
                carefree::yield_now();
            }
            // SAFETY: no memory is involved.
            unsafe {
                let part = libc::SYNC_FILE_RANGE_WRITE;
                let begun = [checked(libc::fsync(fd)), checked(libc::fdatasync(fd))];
                let range = libc::sync_file_range(fd, 0, 4, part);
                let never = [libc::syncfs(fd), range];
                let reopened = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
                libc::close(reopened);
                (begun, never, reopened >= 0)
            }
        });
        fiber.cancel();
        let (begun, never, opened) = fiber.join().unwrap();
        assert_eq!(begun, [Err(libc::ECANCELED); 2]);
        assert_eq!(never, [0; 2]);
        assert!(opened, "files other than FIFOs are opened at once");
    });
}
