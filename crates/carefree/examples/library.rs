//! A library with fibers inside, for programs that know nothing of them: Python, Ruby, Node.js or C.
//!
//! ```console
//! $ cargo build -p carefree --example library
//! $ python3 -c 'import ctypes
//! library = ctypes.CDLL("target/debug/examples/liblibrary.so")
//! library.sleepers.restype = ctypes.c_double
//! print(library.sleepers(1000, 50), "seconds")'
//! ```

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use carefree::{JoinHandle, TlsMode};

/// Seconds that so many fibers take that sleep for so many milliseconds each.
#[unsafe(no_mangle)]
pub extern "C" fn sleepers(count: u32, milliseconds: u32) -> f64 {
    let begin = Instant::now();
    let nap = Duration::from_millis(milliseconds.into());
    join((0..count).map(|_| carefree::spawn(move || std::thread::sleep(nap))));
    begin.elapsed().as_secs_f64()
}

/// Has that many fibers wait in a blocking read at once; returns how many threads the process has meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn waiters(count: u32) -> u32 {
    let (reader, mut writer) = UnixStream::pair().unwrap();
    let begun = AtomicU64::new(0);
    carefree::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                begun.fetch_add(1, Ordering::Relaxed);
                (&reader).read_exact(&mut [0]).unwrap();
            });
        }
        // A read that blocked its carrier would need another one for the next fiber to begin.
        while begun.load(Ordering::Relaxed) < u64::from(count) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count() as u32;
        writer.write_all(&vec![0; count as usize]).unwrap();
        threads
    })
}

/// Reads a byte from a file, on the caller's fiber or thread; returns how many bytes were read.
#[unsafe(no_mangle)]
pub extern "C" fn read_byte(file: c_int) -> isize {
    let mut byte = 0u8;
    // SAFETY: there is room for a byte.
    unsafe { libc::read(file, (&raw mut byte).cast(), 1) }
}

/// Has that many fibers meet in locks, channels, barriers and sockets, each wait a blocking one of std's.
/// Returns how many did what they should.
#[unsafe(no_mangle)]
pub extern "C" fn meetings(count: u32) -> u32 {
    thread_local! {
        static MINE: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }
    let count = count as usize;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sums, barrier) = (Mutex::new(0), Barrier::new(count));
    let (send, receive) = mpsc::channel();
    carefree::scope(|scope| {
        scope.spawn(|| {
            let answering: Vec<_> = (0..count)
                .map(|_| {
                    let (mut stream, _) = listener.accept().unwrap();
                    // In a crowd, a fiber gets its stack when it starts.
                    (0..50).for_each(|_| drop(carefree::spawn(|| ())));
                    carefree::spawn(move || {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        stream.write_all(&[byte[0].wrapping_add(1)]).unwrap();
                        carefree::current().id()
                    })
                })
                .collect();
            for fiber in answering {
                let id = fiber.thread().id();
                assert_eq!(fiber.join().unwrap(), id, "a fiber knows who it is");
            }
        });
        for n in 0..count as u32 {
            let (send, barrier, sums) = (send.clone(), &barrier, &sums);
            scope.spawn(move || {
                MINE.with_borrow_mut(|mine| mine.push(n));
                barrier.wait();
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(&[n as u8]).unwrap();
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                assert_eq!(byte[0], (n as u8).wrapping_add(1));
                *sums.lock().unwrap() += 1;
                MINE.with_borrow(|mine| assert_eq!(*mine, [n]));
                send.send(n).unwrap();
            });
        }
        drop(send);
        let mut all: Vec<u32> = receive.iter().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..count as u32));
    });
    sums.into_inner().unwrap()
}

/// Builds and drops that many runtimes, each with fibers that allocate: they run on stacks that those of
/// earlier ones have used, on other carriers. Returns how many fibers did what they should.
#[unsafe(no_mangle)]
pub extern "C" fn runtimes(count: u32) -> u32 {
    const FIBERS: usize = 600;
    (0..count)
        .map(|_| {
            let runtime = carefree::Runtime::builder().carriers(2).build().unwrap();
            let fibers = (0..FIBERS).map(|n| {
                runtime.spawn(move || {
                    let kept = vec![n; 20 + n % 50];
                    carefree::yield_now();
                    let more = vec![1u8; n];
                    kept.iter().all(|&value| value == n) && more.len() == n
                })
            });
            join(fibers).into_iter().filter(|whole| *whole).count() as u32
        })
        .sum::<u32>()
        / FIBERS as u32
}

/// Calls a function of the host's on that many fibers at once; returns the sum of what it returns.
///
/// # Safety
/// `call` may be called by several threads at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn call_back(call: extern "C" fn(c_int) -> c_int, count: u32) -> c_int {
    let fibers = (0..count).map(|n| {
        carefree::spawn(move || {
            carefree::yield_now();
            let result = call(n as c_int);
            carefree::yield_now();
            result
        })
    });
    join(fibers).into_iter().sum()
}

/// Starts a fiber that counts for ever, once a millisecond, and returns where: it goes on when the library is
/// unloaded.
#[unsafe(no_mangle)]
pub extern "C" fn counter() -> *const AtomicU64 {
    let counter: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    carefree::spawn(|| {
        thread_local! {
            static OWN: Cell<u64> = const { Cell::new(0) };
        }
        loop {
            std::thread::sleep(Duration::from_millis(1));
            OWN.set(OWN.get() + 1);
            counter.store(OWN.get(), Ordering::Relaxed);
        }
    });
    counter
}

/// Whether fibers are fibers here, and not threads of the kernel's; if not, says why.
#[unsafe(no_mangle)]
pub extern "C" fn has_fibers() -> c_int {
    let platform = carefree::platform();
    let has = platform.tls == TlsMode::Own || platform.hosted;
    if !has {
        eprintln!("{}", platform.tls_reason);
    }
    c_int::from(has)
}

/// Writes to `text` what Carefree has found, cut to `length` bytes with the NUL that ends it.
///
/// # Safety
/// There is room for so many bytes, at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn describe(text: *mut c_char, length: usize) {
    let found = format!("{:?}", carefree::platform());
    let bytes = found.len().min(length - 1);
    // SAFETY: there is room, as the caller promises.
    unsafe {
        text.cast::<u8>().copy_from_nonoverlapping(found.as_ptr(), bytes);
        text.add(bytes).write(0);
    }
}

fn join<T>(fibers: impl Iterator<Item = JoinHandle<T>>) -> Vec<T> {
    let fibers: Vec<_> = fibers.collect();
    fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect()
}
