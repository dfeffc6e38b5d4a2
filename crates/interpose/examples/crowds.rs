//! The time to end the waits of many fibers at once, over each reactor:
//!
//! ```text
//! cargo run --release -p carefree-interpose --example crowds [FIBERS [WHAT]]
//! ```
//!
//! There are as many files as the process may open (`ulimit -n`), so several fibers wait for each. With twice
//! as many fibers, each row should take about twice as long.

use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use carefree_interpose as _;
use carefree_runtime::{JoinHandle, Runtime, Semaphore, sleep, spawn, timeout};
use libc::c_int;

/// How many fibers have begun to wait.
type Count = Arc<AtomicUsize>;

/// Reads a byte that never comes; the `errno` it ends with.
fn read(fd: c_int) -> c_int {
    let mut byte = 0u8;
    // SAFETY: room for a byte.
    let read = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, 0) };
    assert_eq!(read, -1, "nothing is sent");
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Waits until `count` is `all`, and a little for the last ones to begin to wait.
fn until(count: &Count, all: usize) {
    while count.load(Ordering::SeqCst) < all {
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_millis(50));
}

fn files(most: usize) -> Vec<UnixDatagram> {
    // SAFETY: there is room for the limits.
    let allowed = unsafe {
        let mut limits: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits);
        limits.rlim_cur as usize
    };
    let count = most.min(allowed.saturating_sub(100)).max(1);
    (0..count).map(|_| UnixDatagram::unbound().expect("a socket")).collect()
}

/// Fibers that read from `files` in turn.
fn readers(count: usize, files: &[UnixDatagram]) -> Vec<JoinHandle<c_int>> {
    let here = Count::default();
    let all = (0..count)
        .map(|n| {
            let (here, fd) = (here.clone(), files[n % files.len()].as_raw_fd());
            spawn(move || {
                here.fetch_add(1, Ordering::SeqCst);
                read(fd)
            })
        })
        .collect();
    until(&here, count);
    all
}

fn ended(readers: Vec<JoinHandle<c_int>>, by: c_int) {
    for reader in readers {
        assert_eq!(reader.join().expect("it does not panic"), by);
    }
}

/// Of limits that all end at the same moment.
fn timeouts(fibers: usize) -> f64 {
    // They have to wait by then, all of them: a machine that is slow gets more time.
    let mut span = Duration::from_millis(500 + fibers as u64 / 20);
    loop {
        if let Some(spent) = timeouts_within(span, fibers) {
            return spent;
        }
        span *= 3;
    }
}

fn timeouts_within(span: Duration, fibers: usize) -> Option<f64> {
    let files = files(fibers);
    let here = Count::default();
    let end = Instant::now() + span;
    let all: Vec<_> = (0..fibers)
        .map(|n| {
            let (here, fd) = (here.clone(), files[n % files.len()].as_raw_fd());
            spawn(move || {
                here.fetch_add(1, Ordering::SeqCst);
                let limit = end.saturating_duration_since(Instant::now());
                assert!(timeout(limit, || read(fd)).is_err());
            })
        })
        .collect();
    until(&here, fibers);
    let in_time = Instant::now() < end;
    all.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    in_time.then(|| end.elapsed().as_secs_f64())
}

fn cancels(fibers: usize) -> f64 {
    let files = files(fibers);
    let readers = readers(fibers, &files);
    let begun = Instant::now();
    readers.iter().for_each(JoinHandle::cancel);
    ended(readers, libc::ECANCELED);
    begun.elapsed().as_secs_f64()
}

fn closes(fibers: usize) -> f64 {
    let files = files(fibers);
    let readers = readers(fibers, &files);
    let begun = Instant::now();
    drop(files);
    ended(readers, libc::EBADF);
    begun.elapsed().as_secs_f64()
}

/// As many closes, one after the other, while as many fibers wait for something else.
fn closes_beside(fibers: usize) -> f64 {
    let other = files(1);
    let others = readers(fibers, &other);
    let mut spent = 0.0;
    let mut left = fibers;
    while left > 0 {
        let files = files(left.min(1000));
        left -= files.len();
        let readers = readers(files.len(), &files);
        let begun = Instant::now();
        drop(files);
        ended(readers, libc::EBADF);
        spent += begun.elapsed().as_secs_f64();
    }
    drop(other);
    ended(others, libc::EBADF);
    spent
}

/// Closes while other fibers each poll a hundred files that stay open.
fn closes_beside_polls(fibers: usize) -> f64 {
    const EACH: usize = 100;
    let (polls, polled) = (fibers / EACH, files(1000));
    let wake = UnixDatagram::unbound().expect("a socket").into_raw_fd();
    let here = Count::default();
    let pollers: Vec<_> = (0..polls)
        .map(|n| {
            let (here, polled) = (here.clone(), &polled);
            let some = (0..EACH).map(|m| polled[(n * EACH + m) % polled.len()].as_raw_fd());
            let mut all: Vec<_> = some
                .chain([wake])
                .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
                .collect();
            spawn(move || {
                here.fetch_add(1, Ordering::SeqCst);
                // SAFETY: so many.
                unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) }
            })
        })
        .collect();
    until(&here, polls);
    let closed = files((fibers / 10).min(10_000));
    let readers = readers(closed.len(), &closed);
    let begun = Instant::now();
    drop(closed);
    ended(readers, libc::EBADF);
    let spent = begun.elapsed().as_secs_f64();
    // SAFETY: no memory is involved.
    unsafe { libc::close(wake) };
    pollers.into_iter().for_each(|poller| assert_eq!(poller.join().expect("no panic"), 1));
    spent
}

/// Numbers below `count` in an order without order.
fn shuffled(count: usize) -> impl Iterator<Item = usize> {
    // A prime that is larger than any count here, and so divides none.
    (0..count).map(move |n| n * 1_000_000_007 % count)
}

fn joins(fibers: usize) -> f64 {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let here = Count::default();
    let mut all: Vec<_> = (0..fibers)
        .map(|_| {
            let (gate, here) = (gate.clone(), here.clone());
            Some(spawn(move || {
                here.fetch_add(1, Ordering::SeqCst);
                let (open, opened) = &*gate;
                drop(opened.wait_while(open.lock().expect("no panic"), |open| !*open));
            }))
        })
        .collect();
    until(&here, fibers);
    let mut joiners = Vec::new();
    for n in shuffled(fibers) {
        let (fiber, here) = (all[n].take().expect("each once"), here.clone());
        joiners.push(spawn(move || {
            here.fetch_add(1, Ordering::SeqCst);
            fiber.join().expect("it does not panic");
        }));
    }
    until(&here, 2 * fibers);
    let begun = Instant::now();
    *gate.0.lock().expect("no panic") = true;
    gate.1.notify_all();
    joiners.into_iter().for_each(|joiner| joiner.join().expect("it does not panic"));
    begun.elapsed().as_secs_f64()
}

fn wakes(fibers: usize) -> f64 {
    let here = Count::default();
    let seats: Arc<Vec<_>> =
        Arc::new((0..fibers).map(|_| (Mutex::new(false), Condvar::new())).collect());
    let all: Vec<_> = (0..fibers)
        .map(|n| {
            let (seats, here) = (seats.clone(), here.clone());
            spawn(move || {
                here.fetch_add(1, Ordering::SeqCst);
                let (open, opened) = &seats[n];
                drop(opened.wait_while(open.lock().expect("no panic"), |open| !*open));
            })
        })
        .collect();
    until(&here, fibers);
    let begun = Instant::now();
    for n in shuffled(fibers) {
        *seats[n].0.lock().expect("no panic") = true;
        seats[n].1.notify_one();
    }
    all.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    begun.elapsed().as_secs_f64()
}

fn permits(fibers: usize) -> f64 {
    let (door, here) = (Arc::new(Semaphore::new(0)), Count::default());
    let all: Vec<_> = (0..fibers)
        .map(|_| {
            let (door, here) = (door.clone(), here.clone());
            spawn(move || {
                here.fetch_add(1, Ordering::SeqCst);
                door.acquire().expect("nothing is cancelled").forget();
            })
        })
        .collect();
    until(&here, fibers);
    let begun = Instant::now();
    (0..fibers).for_each(|_| door.release(1));
    all.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    begun.elapsed().as_secs_f64()
}

/// What is measured, and how: seconds for so many fibers.
type Row = (&'static str, fn(usize) -> f64);

const ROWS: [Row; 8] = [
    ("timeouts", timeouts),
    ("cancels", cancels),
    ("closes", closes),
    ("closes beside", closes_beside),
    ("closes beside polls", closes_beside_polls),
    ("joins", joins),
    ("wakes", wakes),
    ("permits", permits),
];

const ROW: &str = "CROWDS_ROW";

fn main() {
    // SAFETY: there is room for the limits.
    unsafe {
        let mut limits: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits);
        limits.rlim_cur = limits.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits);
    }
    let mut arguments = std::env::args().skip(1);
    let fibers = arguments.next().map_or(100_000, |text| text.parse().expect("a number of fibers"));
    let asked = arguments.next();
    if let Ok(row) = std::env::var(ROW) {
        let (_, f) = ROWS.into_iter().find(|(name, _)| *name == row).expect("a row");
        let runtime = Runtime::builder().build().expect("a runtime");
        print!("{:.2}", runtime.run(move || f(fibers)));
        return;
    }
    println!("| {:<20} | {:>10} | {:>10} |", "what, s", "io_uring", "epoll");
    println!("|:{:-<20}-|-{:->10}:|-{:->10}:|", "", "", "");
    for (name, _) in ROWS {
        if asked.as_deref().is_some_and(|asked| asked != name) {
            continue;
        }
        // In a process of its own, so that rows do not affect each other.
        let spent = ["uring", "epoll"].map(|reactor| {
            let program = std::env::current_exe().expect("this program");
            let output = Command::new(program)
                .arg(fibers.to_string())
                .env(ROW, name)
                .env("CAREFREE_REACTOR", reactor)
                .output()
                .expect("it can be started again");
            match output.status.success() {
                true => String::from_utf8_lossy(&output.stdout).into_owned(),
                false => {
                    eprintln!("{name}: {}", String::from_utf8_lossy(&output.stderr));
                    "-".to_owned()
                }
            }
        });
        println!("| {name:<20} | {:>10} | {:>10} |", spent[0], spent[1]);
    }
}
