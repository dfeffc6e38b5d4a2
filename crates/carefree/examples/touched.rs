//! What a fiber touches: memory that it holds while it waits, and lines of the cache in its life.
//!
//!     cargo run --release -p carefree --example touched [-- --check | --check-without-lto]
//!
//! The first table has a row for each way of waiting: how far down a fiber's stack has been written,
//! counted from the thread pointer, so with thread-local variables and the runtime's bookkeeping; how much
//! of the page that they share was left; and the pages that it holds (the median of 100 fibers, each row
//! in a process of its own). `--check` ends with 1 if a fiber takes a second page where it should not.
//! `--check-without-lto` is that for a build without link-time optimization, which has larger frames.
//!
//! The second table, if valgrind is installed, has instructions, lines and pages for each fiber of a
//! crowd that starts, yields twice and ends; and for one that sleeps. Stacks and headers have been used
//! before. It is counted, not timed; the least of three runs, for a busy machine may add a carrier in one.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use carefree::{JoinHandle, sleep, spawn, yield_now};

const PAGE: usize = 4096;
/// Fibers that wait, in the first table.
const WAITERS: usize = 100;
/// Fibers of a crowd, in the second.
const CROWD: usize = 200;
/// Pages below the top one that are looked at.
const DEPTH: usize = 16;

/// In which builds a fiber that waits in some way should have one page.
#[derive(Clone, Copy, PartialEq)]
enum OnePage {
    Always,
    WithLto,
    Never,
}

/// A way of waiting: its name, where it should leave a fiber on one page, and what makes one fiber's wait.
type Way = (&'static str, OnePage, fn() -> Wait);
type Wait = Box<dyn FnOnce() + Send>;

const WAYS: &[Way] = &[
    ("std::thread::park", OnePage::Always, || Box::new(std::thread::park)),
    ("carefree::sleep", OnePage::Always, || Box::new(|| sleep(Duration::from_secs(1000)))),
    ("std's Mutex", OnePage::Always, || {
        let lock = Arc::new(Mutex::new(()));
        std::mem::forget(Box::leak(Box::new(lock.clone())).lock());
        Box::new(move || drop(lock.lock()))
    }),
    ("std's Condvar", OnePage::WithLto, || {
        Box::new(|| {
            let lock = Mutex::new(());
            drop(Condvar::new().wait(lock.lock().expect("no panic")));
        })
    }),
    ("std's mpsc", OnePage::Never, || {
        let (send, receive) = channel::<u8>();
        std::mem::forget(send);
        Box::new(move || {
            let _ = receive.recv();
        })
    }),
    ("join", OnePage::Always, || {
        let other = spawn(std::thread::park);
        Box::new(move || drop(other.join()))
    }),
    ("a read from a socket", OnePage::Always, || {
        let (mut reader, other) = UnixStream::pair().expect("a pair of sockets");
        std::mem::forget(other);
        Box::new(move || drop(reader.read(&mut [0])))
    }),
    ("a read from a pipe", OnePage::Never, || {
        let (mut reader, writer) = pipe();
        std::mem::forget(writer);
        Box::new(move || drop(reader.read(&mut [0])))
    }),
    ("a write to a full pipe", OnePage::Never, || {
        let (reader, mut writer) = pipe();
        std::mem::forget(reader);
        writer.write_all(&[0; 1 << 16]).expect("there is room for 64 KiB");
        Box::new(move || drop(writer.write(&[0])))
    }),
    ("accept", OnePage::Never, || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Box::new(move || drop(listener.accept()))
    }),
    ("poll", OnePage::Never, || {
        let (reader, other) = UnixStream::pair().expect("a pair of sockets");
        Box::new(move || {
            let mut poll =
                libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one element, alive during the call.
            unsafe { libc::poll(&raw mut poll, 1, -1) };
            drop(other);
        })
    }),
];

/// A pipe's end to read and its end to write.
fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors, which are nothing else's.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0, "no pipe");
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => report(&[]),
        ["--check"] => report(&[OnePage::Always, OnePage::WithLto]),
        ["--check-without-lto"] => report(&[OnePage::Always]),
        ["way", name] => wait(name),
        ["crowd", name] => crowd(name),
        _ => {
            eprintln!("usage: touched [--check | --check-without-lto]");
            ExitCode::from(2)
        }
    }
}

/// Prints both tables, and checks the ways of waiting that are to take one page in one of the `builds`.
fn report(builds: &[OnePage]) -> ExitCode {
    println!("| a fiber that waits in    | bytes down to | left of the page | pages |");
    println!("|--------------------------|--------------:|-----------------:|------:|");
    let mut spilled = Vec::new();
    for (name, fits, _) in WAYS {
        let output = me().args(["way", name]).output().expect("this program starts");
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<isize> = line.split_whitespace().flat_map(str::parse).collect();
        let [down, left, pages] = numbers[..] else {
            eprintln!("touched: {name}: {}{line}", String::from_utf8_lossy(&output.stderr));
            return ExitCode::FAILURE;
        };
        println!("| {name:<24} | {down:>13} | {left:>16} | {pages:>5} |");
        if builds.contains(fits) && pages > 1 {
            spilled.push(*name);
        }
    }
    println!();
    count();
    if !spilled.is_empty() {
        println!("\nA fiber should not need a second page in: {}.", spilled.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn me() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a name"));
    command.env("CAREFREE_CARRIERS", "1");
    command
}

/// The `pthread_t` of each fiber that waits, which lies where its thread pointer is.
static WAITING: [AtomicUsize; WAITERS] = [const { AtomicUsize::new(0) }; WAITERS];

/// Starts fibers that wait in one way, and prints what they hold.
fn wait(name: &str) -> ExitCode {
    let Some((.., make)) = WAYS.iter().find(|way| way.0 == name) else { return ExitCode::from(2) };
    let looked = spawn(|| {
        for place in &WAITING {
            let wait = make();
            drop(spawn(move || {
                // SAFETY: no preconditions.
                place.store(unsafe { libc::pthread_self() } as usize, Ordering::Relaxed);
                wait();
            }));
        }
        while WAITING.iter().any(|place| place.load(Ordering::Relaxed) == 0) {
            yield_now();
        }
        // The last ones are on their way into the kernel.
        sleep(Duration::from_millis(50));
        let pagemap = File::open("/proc/self/pagemap")?;
        let mut all = Vec::new();
        for place in &WAITING {
            let tp = place.load(Ordering::Relaxed);
            let top = tp & !(PAGE - 1);
            let bottom = top - DEPTH * PAGE;
            let mut entries = [0; (DEPTH + 1) * 8];
            pagemap.read_exact_at(&mut entries, (bottom / PAGE * 8) as u64)?;
            let present = entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count();
            // Only pages that are there are read: reading another would map one.
            let there = (0..=DEPTH).filter(|page| entries[page * 8 + 7] & 0x80 != 0);
            let words = there.flat_map(|page| (0..PAGE).step_by(8).map(move |at| page * PAGE + at));
            // SAFETY: memory of a fiber's stack, which is mapped while the fiber waits and writes nothing.
            let read = |at: &usize| unsafe { ((bottom + at) as *const usize).read_volatile() };
            let mut words = words;
            let lowest = words.find(|at| read(at) != 0).unwrap_or(DEPTH * PAGE);
            let down = tp - (bottom + lowest);
            all.push((present, down as isize, (tp - top) as isize - down as isize));
        }
        all.sort_unstable();
        Ok::<_, std::io::Error>(all[WAITERS / 2])
    });
    match looked.join() {
        Ok(Ok((pages, down, left))) => println!("{down} {left} {pages}"),
        Ok(Err(error)) => {
            eprintln!("touched: {error}");
            return ExitCode::FAILURE;
        }
        Err(_) => return ExitCode::FAILURE,
    }
    // The fibers wait for ever.
    std::process::exit(0)
}

const CROWDS: &[(&str, fn())] = &[
    ("start, two yields, end", || {
        yield_now();
        yield_now();
    }),
    ("start, sleep 10 ms, end", || sleep(Duration::from_millis(10))),
];

/// Runs one crowd several times, and says where to count.
fn crowd(name: &str) -> ExitCode {
    let Some(&(_, body)) = CROWDS.iter().find(|crowd| crowd.0 == name) else {
        return ExitCode::from(2);
    };
    println!("{:x}", mark as *const () as usize);
    let crowds = spawn(move || {
        for round in 0..4 {
            if round == 3 {
                mark();
            }
            let fibers: Vec<JoinHandle<()>> = (0..CROWD).map(|_| spawn(body)).collect();
            fibers.into_iter().for_each(|fiber| fiber.join().expect("no panic"));
        }
        mark();
    });
    crowds.join().expect("no panic");
    ExitCode::SUCCESS
}

/// Begins and ends what is counted.
#[inline(never)]
extern "C" fn mark() {
    std::hint::black_box(());
}

/// Has valgrind tell each access to memory of the crowds, and counts them.
fn count() {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    println!("| life of a fiber         | instructions | lines | pages |");
    println!("|-------------------------|-------------:|------:|------:|");
    for (name, _) in CROWDS {
        let counts = (0..3).flat_map(|_| count_one(name)).min();
        let each = |count: usize| count as f64 / CROWD as f64;
        match counts {
            Some([instructions, lines, pages]) => println!(
                "| {name:<23} | {:>12.0} | {:>5.1} | {:>5.2} |",
                each(instructions),
                each(lines),
                each(pages)
            ),
            None => println!("| {name:<23} | not counted: valgrind failed |"),
        }
    }
}

/// Instructions, lines and pages of one crowd.
fn count_one(name: &str) -> Option<[usize; 3]> {
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=1"])
        .arg(std::env::current_exe().expect("this program has a name"))
        .args(["crowd", name])
        .env("CAREFREE_CARRIERS", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("valgrind starts");
    let (mut mark, mut marks, mut instructions) = (None, 0, 0);
    let (mut lines, mut pages) = (HashSet::new(), HashSet::new());
    for line in BufReader::new(child.stdout.take().expect("piped")).split(b'\n') {
        let line = String::from_utf8_lossy(&line.expect("valgrind writes")).into_owned();
        // "I  04001000,3", " L 1ffefff7d8,8", " S …", " M …"
        let access = line.get(3..).and_then(|rest| rest.split_once(','));
        let access = access.and_then(|(address, size)| {
            Some((usize::from_str_radix(address, 16).ok()?, size.trim().parse::<usize>().ok()?))
        });
        let Some((address, size)) = access else {
            mark = mark.or(usize::from_str_radix(line.trim(), 16).ok());
            continue;
        };
        let fetch = line.starts_with('I');
        if fetch && Some(address) == mark {
            marks += 1;
        }
        if marks != 1 {
            continue;
        }
        if fetch {
            instructions += 1;
            continue;
        }
        for line in address / 64..=(address + size - 1) / 64 {
            lines.insert(line);
            pages.insert(line * 64 / PAGE);
        }
    }
    let done = child.wait().is_ok_and(|status| status.success()) && marks == 2;
    done.then_some([instructions, lines.len(), pages.len()])
}
