//! Runs a scenario on threads and on fibers; and parts of scenarios.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io};

use carefree::Runtime;
use libc::{c_int, c_void, iovec, off_t};

const ALONE: &str = "CAREFREE_TEST_ALONE";

/// Runs the test `name` again in a process of its own, which must succeed; false in that process.
pub(crate) fn alone(name: &str) -> bool {
    if env::var_os(ALONE).is_some() {
        return false;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let [text, complaints] = [output.stdout, output.stderr].map(String::from_utf8);
    assert!(output.status.success(), "{}{}", text.unwrap(), complaints.unwrap());
    true
}

/// A part of a scenario that runs beside others.
pub(crate) type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

/// What runs the tasks of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Threads,
    Fibers,
}

impl On {
    /// Runs all of them at once.
    pub(crate) fn run(self, tasks: Vec<Task<'_>>) {
        match self {
            On::Threads => std::thread::scope(|scope| {
                for task in tasks {
                    scope.spawn(task);
                }
            }),
            On::Fibers => carefree::scope(|scope| {
                for task in tasks {
                    scope.spawn(task);
                }
            }),
        }
    }
}

/// Runs `scenario` on threads and on fibers. Both must have the same result, which this returns.
pub(crate) fn alike<T: PartialEq + Debug + Send>(scenario: impl Fn(On) -> T + Send + Sync) -> T {
    let on_threads = std::thread::scope(|scope| {
        scope.spawn(|| scenario(On::Threads)).join().expect("the scenario runs on threads")
    });
    let runtime = Runtime::builder().build().unwrap();
    let on_fibers = runtime.run(|| scenario(On::Fibers));
    assert_eq!(on_fibers, on_threads, "on fibers (left) it is not as on threads (right)");
    on_fibers
}

/// The number that a call has returned, or its `errno`.
pub(crate) type Result = std::result::Result<i64, c_int>;

/// -1 with an `errno` as `Err`.
pub(crate) fn checked(result: impl TryInto<i64, Error: Debug>) -> Result {
    match result.try_into().unwrap() {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap()),
        result => Ok(result),
    }
}

/// A folder of a test's own.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let process = std::process::id();
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = env::temp_dir().join(format!("carefree-alike-{process}-{number}"));
            match fs::create_dir(&path) {
                // Left by a process that was killed and had the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made.unwrap();
                    return Folder(path);
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A new file that can be read and written.
    pub(crate) fn file(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).open(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file without a name in memory. (Not one of `memfd_create`: the kernel takes no lock over the
/// position of those.)
pub(crate) fn in_memory() -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).open("/dev/shm").unwrap()
}

pub(crate) fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: there is room for the answer, and the files are ours.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

/// A new file by its number, which must be one.
pub(crate) fn owned(fd: c_int) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: it was just made, and is ours.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The position of an open file.
pub(crate) fn position(file: &impl AsRawFd) -> Result {
    // SAFETY: no memory is involved.
    checked(unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR) })
}

pub(crate) fn seek(file: &impl AsRawFd, place: off_t) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::lseek(file.as_raw_fd(), place, libc::SEEK_SET) }, place);
}

/// The bytes of a file from its beginning to its end, whatever its position.
pub(crate) fn content(file: &File) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Bytes that differ from their neighbours.
pub(crate) fn text(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(crate) fn write(file: &impl AsRawFd, from: *const c_void, length: usize) -> Result {
    // SAFETY: the kernel says what cannot be read.
    checked(unsafe { libc::write(file.as_raw_fd(), from, length) } as i64)
}

pub(crate) fn read(file: &impl AsRawFd, to: *mut c_void, length: usize) -> Result {
    // SAFETY: the kernel says what cannot be written.
    checked(unsafe { libc::read(file.as_raw_fd(), to, length) } as i64)
}

pub(crate) fn writev(file: &impl AsRawFd, buffers: &[iovec]) -> Result {
    // SAFETY: the kernel says what cannot be read.
    checked(
        unsafe { libc::writev(file.as_raw_fd(), buffers.as_ptr(), buffers.len() as c_int) } as i64
    )
}

pub(crate) fn readv(file: &impl AsRawFd, buffers: &[iovec]) -> Result {
    // SAFETY: the kernel says what cannot be written.
    checked(
        unsafe { libc::readv(file.as_raw_fd(), buffers.as_ptr(), buffers.len() as c_int) } as i64
    )
}

pub(crate) fn pwrite(file: &impl AsRawFd, from: *const c_void, length: usize, at: off_t) -> Result {
    // SAFETY: the kernel says what cannot be read.
    checked(unsafe { libc::pwrite(file.as_raw_fd(), from, length, at) } as i64)
}

pub(crate) fn pread(file: &impl AsRawFd, to: *mut c_void, length: usize, at: off_t) -> Result {
    // SAFETY: the kernel says what cannot be written.
    checked(unsafe { libc::pread(file.as_raw_fd(), to, length, at) } as i64)
}

/// The description of a buffer.
pub(crate) fn buffer(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
