//! `std::fs`.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree::scope;

use crate::kit::{many, on_a_fiber, until};

#[test]
fn hundreds_of_fibers_write_and_read_files() {
    on_a_fiber(|| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        scope(|s| {
            for number in 0..many(200) {
                s.spawn(move || {
                    let path = root.join(number.to_string());
                    let text = format!("{number}\n").repeat(500);
                    fs::write(&path, &text).unwrap();
                    assert_eq!(fs::read_to_string(&path).unwrap(), text);
                    let copy = path.with_extension("copy");
                    assert_eq!(fs::copy(&path, &copy).unwrap(), text.len() as u64);
                    fs::remove_file(&path).unwrap();
                    assert_eq!(fs::read(&path).unwrap_err().kind(), ErrorKind::NotFound);
                    let lines = BufReader::new(File::open(&copy).unwrap()).lines();
                    assert_eq!(lines.count(), 500);
                    fs::rename(&copy, &path).unwrap();
                    assert_eq!(fs::metadata(&path).unwrap().len(), text.len() as u64);
                });
            }
        });
        assert_eq!(fs::read_dir(root).unwrap().count(), many(200));
    });
}

#[test]
fn positions_are_those_of_the_calls() {
    on_a_fiber(|| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(file.stream_position().unwrap(), 10);
        file.seek(SeekFrom::Start(3)).unwrap();
        let mut text = [0; 4];
        file.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"3456");
        file.seek(SeekFrom::End(-2)).unwrap();
        assert_eq!(file.read(&mut text).unwrap(), 2);
        assert_eq!(file.read(&mut text).unwrap(), 0);
        // Access at an offset does not move the position.
        file.write_all_at(b"ab", 4).unwrap();
        file.read_exact_at(&mut text, 3).unwrap();
        assert_eq!(&text, b"3ab6");
        assert_eq!(file.stream_position().unwrap(), 10);
        file.seek(SeekFrom::Current(-10)).unwrap();
        file.set_len(5).unwrap();
        let mut all = String::new();
        file.read_to_string(&mut all).unwrap();
        assert_eq!(all, "0123a");
        file.sync_all().unwrap();
        file.sync_data().unwrap();
    });
}

#[test]
fn appending_by_many_fibers_goes_to_the_end() {
    on_a_fiber(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let writers = many(40);
        scope(|s| {
            for number in 0..writers {
                let path = &path;
                s.spawn(move || {
                    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                    for _ in 0..25 {
                        // In one call; `writeln!` would make several.
                        file.write_all(format!("{number:05}\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let log = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = log.lines().collect();
        lines.sort();
        let expected: Vec<String> =
            (0..writers * 25).map(|line| format!("{:05}", line / 25)).collect();
        assert!(lines == expected);
    });
}

#[test]
fn options_of_opening_are_respected() {
    on_a_fiber(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        File::create_new(&path).unwrap().write_all(b"old").unwrap();
        assert_eq!(File::create_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let mut file = File::open(&path).unwrap();
        assert!(file.write(b"x").is_err());
        assert!(File::create(&path).unwrap().read(&mut [0; 1]).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"");
        fs::create_dir_all(folder.path().join("a/b/c")).unwrap();
        assert!(fs::read(folder.path().join("a")).is_err());
        fs::remove_dir_all(folder.path().join("a")).unwrap();
        assert!(!folder.path().join("a").exists());
    });
}

#[test]
fn locks_of_files_exclude_fibers() {
    on_a_fiber(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        File::create(&path).unwrap();
        let inside = AtomicUsize::new(0);
        // More fibers than carriers: if the lock blocked carriers, its owner could not continue.
        scope(|s| {
            for _ in 0..16 {
                s.spawn(|| {
                    let file = File::open(&path).unwrap();
                    lock(&file);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    carefree::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    unlock(&file);
                });
            }
        });
        let (one, two) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        lock(&one);
        assert!(try_lock(&two).is_err());
        drop(one);
        until("the lock is free", || try_lock(&two).is_ok());
    });
}

// `File::lock` and the like need Rust 1.89; the call that they make does not.

fn lock(file: &File) {
    flock(file, libc::LOCK_EX).unwrap();
}

fn unlock(file: &File) {
    flock(file, libc::LOCK_UN).unwrap();
}

fn try_lock(file: &File) -> std::io::Result<()> {
    flock(file, libc::LOCK_EX | libc::LOCK_NB)
}

fn flock(file: &File, how: i32) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: accesses no memory.
    match unsafe { libc::flock(file.as_raw_fd(), how) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
