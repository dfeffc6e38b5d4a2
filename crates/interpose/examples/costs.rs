//! What the stand-ins add to libc's calls, and what it costs fibers to wait for each other:
//!
//! ```text
//! cargo run --release -p carefree-interpose --example costs [WHAT]
//! ```

use std::fs::File;
use std::hint::black_box;
use std::io::{Read as _, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use carefree_interpose as _;
use carefree_runtime::Runtime;

/// Nanoseconds per call of `f`: the best of several rounds, because noise only adds.
fn time(turns: u32, mut f: impl FnMut()) -> f64 {
    (0..25)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..turns {
                f();
            }
            begun.elapsed().as_nanos() as f64 / f64::from(turns)
        })
        .fold(f64::INFINITY, f64::min)
}

/// The same, for `f` that does `turns` turns by itself.
fn time_all(turns: u32, f: impl Fn()) -> f64 {
    time(1, f) / f64::from(turns)
}

/// Prints what `cost` says, if `what` contains what was asked for on the command line.
fn row(what: &str, cost: impl FnOnce() -> f64) {
    if std::env::args().nth(1).is_none_or(|asked| what.contains(&asked)) {
        println!("| {what:<62} | {:>8.1} |", cost());
    }
}

fn lock_and_unlock() -> f64 {
    let mutex = black_box(Mutex::new(0));
    time(100_000, || *mutex.lock().unwrap() += 1)
}

/// A kernel's call that reads, and what is on the other end.
type Read = unsafe extern "C" fn(libc::c_int, *mut libc::c_void, usize) -> isize;

/// What it takes to read a byte that is there, `turns` of which have been sent before.
fn read_what_is_there(read: Read, from: &impl AsRawFd, mut to: impl Write) -> f64 {
    const TURNS: u32 = 1_000;
    let mut byte = 0u8;
    (0..200)
        .map(|_| {
            to.write_all(&[0; TURNS as usize]).unwrap();
            let begun = Instant::now();
            for _ in 0..TURNS {
                // SAFETY: one byte, of a variable that is there.
                let length = unsafe { read(from.as_raw_fd(), (&raw mut byte).cast(), 1) };
                assert_eq!(length, 1);
            }
            begun.elapsed().as_nanos() as f64 / f64::from(TURNS)
        })
        .fold(f64::INFINITY, f64::min)
}

/// What it takes to send a byte to a fiber that waits for it in `read`.
fn read_what_comes_later() -> f64 {
    const TURNS: u32 = 1_000;
    let ((from, there), (here, mut to)) = (pipe(), pipe());
    let echo = |mut from: File, mut to: File| {
        let mut byte = [0];
        while from.read(&mut byte).expect("a pipe") == 1 {
            to.write_all(&byte).expect("a pipe");
        }
    };
    let other = carefree_runtime::spawn(move || echo(here, there));
    let cost = time(TURNS, || {
        to.write_all(&[1]).expect("a pipe");
        let mut byte = [0];
        assert_eq!((&from).read(&mut byte).expect("a pipe"), 1);
    });
    drop(to);
    other.join().expect("it does not panic");
    cost / 2.0
}

/// libc's own function, not the one that stands in for it.
fn plain_read() -> Read {
    // SAFETY: as in `original`; the type is the manual's.
    unsafe { std::mem::transmute(original::<isize>(c"read")) }
}

unsafe extern "C" fn plain_recv(fd: libc::c_int, to: *mut libc::c_void, length: usize) -> isize {
    type Recv = unsafe extern "C" fn(i32, *mut libc::c_void, usize, i32) -> isize;
    static RECV: LazyLock<Recv> = LazyLock::new(|| {
        // SAFETY: as in `original`; the type is the manual's.
        unsafe { std::mem::transmute(original::<isize>(c"recv")) }
    });
    // SAFETY: passes the caller's arguments on to libc's function.
    unsafe { RECV(fd, to, length, 0) }
}

unsafe extern "C" fn our_recv(fd: libc::c_int, to: *mut libc::c_void, length: usize) -> isize {
    // SAFETY: passes the caller's arguments on to the same function.
    unsafe { libc::recv(fd, to, length, 0) }
}

/// A file on a disk (if the folder for such files is there), read and written by 100 bytes in a row.
struct FileOf100Bytes(File);

impl FileOf100Bytes {
    const TURNS: usize = 600;

    fn new() -> FileOf100Bytes {
        let path = std::env::temp_dir().join(format!("carefree-costs-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path);
        let mut file = file.expect("a file can be made in the folder for temporary files");
        std::fs::remove_file(path).expect("it was just made");
        file.write_all(&[1; 100 * FileOf100Bytes::TURNS]).expect("there is room for it");
        FileOf100Bytes(file)
    }

    fn time(&self, mut call: impl FnMut(libc::c_int) -> isize) -> f64 {
        let begin = || {
            (&self.0).rewind().expect("files have a beginning");
        };
        let one = || {
            begin();
            let begun = Instant::now();
            for _ in 0..FileOf100Bytes::TURNS {
                assert_eq!(call(self.0.as_raw_fd()), 100);
            }
            begun.elapsed().as_nanos() as f64 / FileOf100Bytes::TURNS as f64
        };
        std::iter::repeat_with(one).take(200).fold(f64::INFINITY, f64::min)
    }

    fn read(&self, read: Read) -> f64 {
        let mut bytes = [0u8; 100];
        // SAFETY: as much room as is said.
        self.time(|fd| unsafe { read(fd, bytes.as_mut_ptr().cast(), 100) })
    }

    fn write(
        &self,
        write: unsafe extern "C" fn(libc::c_int, *const libc::c_void, usize) -> isize,
    ) -> f64 {
        // SAFETY: as many bytes as is said.
        self.time(|fd| unsafe { write(fd, [0u8; 100].as_ptr().cast(), 100) })
    }
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: there is room for both; they are new, and owned here.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

const MESSAGES: u32 = 10_000;

/// Two fibers send each other a message in turn: one hand-over each way.
macro_rules! ping_pong {
    ($spawn:path, $channel:expr) => {
        time_all(2 * MESSAGES, || {
            let (to, from_main) = $channel;
            let (back, from_other) = $channel;
            let other = $spawn(move || {
                for message in from_main {
                    back.send(message).unwrap();
                }
            });
            for message in 0..MESSAGES {
                to.send(message).unwrap();
                assert_eq!(from_other.recv(), Ok(message));
            }
            drop(to);
            other.join().unwrap();
        })
    };
}

type Original<R> = unsafe extern "C" fn() -> R;

fn original<R>(name: &std::ffi::CStr) -> Original<R> {
    // SAFETY: the loader answers with the address of that function of libc, which takes nothing.
    unsafe { std::mem::transmute(libc::dlsym(libc::RTLD_NEXT, name.as_ptr())) }
}

fn main() {
    let one = Runtime::builder().carriers(1).build().expect("a carrier");
    println!("| {:<62} | {:>8} |", "what", "ns");
    println!("|:{:-<62}-|-{:->8}:|", "", "");

    // A call that fails at once in libc itself: what is added to it shows.
    let lock: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32 =
        // SAFETY: as in `original`; the type is the manual's.
        unsafe { std::mem::transmute(original::<i32>(c"pthread_mutex_lock")) };
    // SAFETY: as in `original`; the type is the manual's.
    let unlock: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32 =
        unsafe { std::mem::transmute(original::<i32>(c"pthread_mutex_unlock")) };
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let mutex = black_box(&raw mut mutex);
    // SAFETY: an initialized mutex, locked and unlocked in turn.
    let pair = |lock: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32,
                unlock: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32| {
        // SAFETY: `mutex` is initialized, and no other thread has it.
        time(100_000, || unsafe {
            lock(mutex);
            unlock(mutex);
        })
    };
    row("pthread_mutex lock + unlock on a thread: libc's", || pair(lock, unlock));
    row("pthread_mutex lock + unlock on a thread: ours", || {
        pair(black_box(libc::pthread_mutex_lock), black_box(libc::pthread_mutex_unlock))
    });

    row("std Mutex lock + unlock on a thread", lock_and_unlock);
    row("std Mutex lock + unlock on a fiber", || one.run(lock_and_unlock));

    let (from, to) = pipe();
    let (here, there) = UnixStream::pair().expect("two sockets");
    row("read of a byte that is there, pipe, thread: libc's", || {
        read_what_is_there(black_box(plain_read()), &from, &to)
    });
    row("read of a byte that is there, pipe, thread: ours", || {
        read_what_is_there(black_box(libc::read), &from, &to)
    });
    row("read of a byte that is there, pipe, fiber: libc's", || {
        one.run(|| read_what_is_there(black_box(plain_read()), &from, &to))
    });
    row("read of a byte that is there, pipe, fiber: ours", || {
        one.run(|| read_what_is_there(black_box(libc::read), &from, &to))
    });
    row("recv of a byte that is there, socket, fiber: libc's", || {
        one.run(|| read_what_is_there(black_box(plain_recv), &here, &there))
    });
    row("recv of a byte that is there, socket, fiber: ours", || {
        one.run(|| read_what_is_there(black_box(our_recv), &here, &there))
    });

    row("read of a byte that is waited for, pipes, fibers", || one.run(read_what_comes_later));

    // SAFETY: as in `original`; the type is the manual's.
    let plain_write: unsafe extern "C" fn(libc::c_int, *const libc::c_void, usize) -> isize =
        unsafe { std::mem::transmute(original::<isize>(c"write")) };
    let file = FileOf100Bytes::new();
    row("read of 100 bytes of a file in memory, thread: libc's", || file.read(plain_read()));
    row("read of 100 bytes of a file in memory, fiber: ours", || {
        one.run(|| file.read(black_box(libc::read)))
    });
    row("write of 100 bytes to a file, thread: libc's", || file.write(plain_write));
    row("write of 100 bytes to a file, fiber: ours", || {
        one.run(|| file.write(black_box(libc::write)))
    });

    row("yield to another fiber", || {
        one.run(|| {
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let theirs = std::sync::Arc::clone(&stop);
            let other = carefree_runtime::spawn(move || {
                while !theirs.load(std::sync::atomic::Ordering::Relaxed) {
                    carefree_runtime::yield_now();
                }
            });
            let cost = time(100_000, carefree_runtime::yield_now) / 2.0;
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            other.join().unwrap();
            cost
        })
    });
    row("spin_loop hint", || time(100_000, std::hint::spin_loop));
    row("hand-over, carefree park and unpark, fibers of one carrier", || {
        one.run(|| {
            time_all(2 * MESSAGES, || {
                let main = carefree_runtime::current();
                let other = carefree_runtime::spawn(move || {
                    for _ in 0..MESSAGES {
                        carefree_runtime::park();
                        main.unpark();
                    }
                });
                for _ in 0..MESSAGES {
                    other.thread().unpark();
                    carefree_runtime::park();
                }
                other.join().unwrap();
            })
        })
    });
    row("hand-over, std::thread::park and unpark, fibers of one carrier", || {
        one.run(|| {
            time_all(2 * MESSAGES, || {
                let main = std::thread::current();
                let (send, receive) = std::sync::mpsc::channel();
                let other = carefree_runtime::spawn(move || {
                    send.send(std::thread::current()).unwrap();
                    for _ in 0..MESSAGES {
                        std::thread::park();
                        main.unpark();
                    }
                });
                let them = receive.recv().unwrap();
                for _ in 0..MESSAGES {
                    them.unpark();
                    std::thread::park();
                }
                other.join().unwrap();
            })
        })
    });
    row("hand-over, std::sync::mpsc, fibers of one carrier", || {
        one.run(|| ping_pong!(carefree_runtime::spawn, std::sync::mpsc::channel()))
    });
    row("hand-over, crossbeam-channel, fibers of one carrier", || {
        one.run(|| ping_pong!(carefree_runtime::spawn, crossbeam_channel::unbounded()))
    });
    row("hand-over, std::sync::mpsc, threads", || {
        ping_pong!(std::thread::spawn, std::sync::mpsc::channel())
    });
}
