//! The turns of all loads.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::workspace::Workspace;
use crate::memory::Digest;
use crate::world;

type Turn = Result<(), String>;

fn said(what: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

fn check(is_so: bool, problem: impl FnOnce() -> String) -> Turn {
    if is_so { Ok(()) } else { Err(problem()) }
}

/// Random bytes, seldom many.
fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    let length = match random.u8(0..8) {
        0 => random.usize(0..=most),
        _ => random.usize(0..=most.min(4000)),
    };
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

fn digest(bytes: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.add(bytes);
    digest.value()
}

/// A pipe: the end that reads, and the one that writes.
fn pipe() -> (File, File) {
    let ends = world::pipe(0);
    // SAFETY: new numbers, which nothing else has.
    let [reads, writes] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
    (reads, writes)
}

/// Writes `bytes` in random parts.
fn write_parts(mut to: impl Write, bytes: &[u8], random: &mut Rng) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let part = random.usize(1..=rest.len());
        to.write_all(&rest[..part])?;
        rest = &rest[part..];
        if random.u8(0..4) == 0 {
            carefree::yield_now();
        }
    }
    Ok(())
}

/// Reads to the end in random parts: how many bytes, and their digest.
fn read_parts(mut from: impl Read, random: &mut Rng) -> io::Result<(usize, u64)> {
    let mut buffer = vec![0; random.usize(1..100_000)];
    let (mut sum, mut length) = (Digest::new(), 0);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok((length, sum.value()));
        }
        sum.add(&buffer[..read]);
        length += read;
    }
}

/// A file is written in parts and read again.
pub(super) fn files(space: &Workspace, random: &mut Rng) -> Turn {
    let path = space.fresh("file", random);
    let content = bytes(random, 1_000_000);
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path);
    let file = file.as_mut().map_err(|error| format!("open: {error}"))?;
    write_parts(&mut *file, &content, random).map_err(said("write"))?;
    if random.u8(0..16) == 0 {
        file.sync_data().map_err(said("fdatasync"))?;
    }
    let mut middle = vec![0; content.len() / 2];
    file.read_exact_at(&mut middle, (content.len() / 4) as u64).map_err(said("pread"))?;
    check(middle == content[content.len() / 4..][..middle.len()], || "pread: other bytes".into())?;
    file.seek(SeekFrom::Start(0)).map_err(said("seek"))?;
    let read = read_parts(&mut *file, random).map_err(said("read"))?;
    std::fs::remove_file(&path).map_err(said("remove"))?;
    space.carried(content.len());
    check(read == (content.len(), digest(&content)), || {
        format!("{} bytes were written, others read ({})", content.len(), read.0)
    })
}

/// Several append records to one file.
pub(super) fn appended(space: &Workspace, random: &mut Rng) -> Turn {
    let path = space.fresh("log", random);
    // Half of them share one position instead.
    let append = random.bool();
    let file = OpenOptions::new().create_new(true).append(append).write(true).open(&path);
    let file = file.map_err(said("open"))?;
    let (lanes, records, size) = (random.u64(2..6), random.u64(1..60), random.usize(8..200));
    carefree::scope(|scope| {
        for lane in 0..lanes {
            let mut file: &File = &file;
            scope.spawn(move || {
                for record in 0..records {
                    let mut bytes = vec![lane as u8; size];
                    bytes[..8].copy_from_slice(&(lane * records + record).to_le_bytes());
                    file.write_all(&bytes).expect("room for a record");
                }
            });
        }
    });
    let content = std::fs::read(&path).map_err(said("read"))?;
    std::fs::remove_file(&path).map_err(said("remove"))?;
    let record = |chunk: &[u8]| Some(u64::from_le_bytes(chunk.get(..8)?.try_into().ok()?));
    let mut seen: Vec<_> = content.chunks(size).filter_map(record).collect();
    seen.sort_unstable();
    space.carried(content.len());
    check(seen == (0..lanes * records).collect::<Vec<_>>(), || {
        format!("{} of {} records are there once", seen.len(), lanes * records)
    })
}

/// A pipe carries bytes from one fiber to another.
pub(super) fn pipes(space: &Workspace, random: &mut Rng) -> Turn {
    let (reader, writer) = pipe();
    let content = bytes(random, 1_000_000);
    let (length, sum) = (content.len(), digest(&content));
    let mut theirs = random.fork();
    let other = carefree::spawn(move || write_parts(writer, &content, &mut theirs));
    let read = read_parts(reader, random).map_err(said("read"))?;
    other.join().expect("no panic").map_err(said("write"))?;
    space.carried(length);
    check(read == (length, sum), || {
        format!("{length} bytes were written, others read ({})", read.0)
    })
}

/// What is sent over TCP comes back.
pub(super) fn connections(space: &Workspace, random: &mut Rng) -> Turn {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(said("bind"))?;
    let address = listener.local_addr().map_err(said("address"))?;
    let server = carefree::spawn(move || -> io::Result<u64> {
        let (mut stream, _) = listener.accept()?;
        let mut other = stream.try_clone()?;
        let copied = io::copy(&mut stream, &mut other)?;
        other.shutdown(Shutdown::Write)?;
        Ok(copied)
    });
    let content = bytes(random, 500_000);
    let (length, sum) = (content.len(), digest(&content));
    let stream = TcpStream::connect(address).map_err(said("connect"))?;
    let sender = stream.try_clone().map_err(said("dup"))?;
    let mut theirs = random.fork();
    let client = carefree::spawn(move || {
        write_parts(&sender, &content, &mut theirs)?;
        sender.shutdown(Shutdown::Write)
    });
    let read = read_parts(&stream, random).map_err(said("receive"))?;
    client.join().expect("no panic").map_err(said("send"))?;
    server.join().expect("no panic").map_err(said("echo"))?;
    space.carried(length);
    check(read == (length, sum), || {
        format!("{length} bytes were sent, others came back ({})", read.0)
    })
}

/// Sleeps take at least their time.
pub(super) fn timers(_: &Workspace, random: &mut Rng) -> Turn {
    let times: Vec<_> =
        (0..random.usize(1..50)).map(|_| Duration::from_micros(random.u64(0..20_000))).collect();
    let sleepers: Vec<_> = times
        .into_iter()
        .map(|time| {
            carefree::spawn(move || {
                let begun = Instant::now();
                std::thread::sleep(time);
                (time, begun.elapsed())
            })
        })
        .collect();
    sleepers.into_iter().try_for_each(|sleeper| {
        let (time, took) = sleeper.join().expect("no panic");
        check(took >= time, || format!("a sleep of {time:?} took {took:?}"))
    })
}

fn tree(depth: u32) -> u64 {
    match depth {
        0 => 1,
        _ => {
            let branches: Vec<_> =
                (0..3).map(|_| carefree::spawn(move || tree(depth - 1))).collect();
            branches.into_iter().map(|branch| branch.join().expect("no panic")).sum()
        }
    }
}

/// Fibers spawn fibers, and some panic.
pub(super) fn spawns(_: &Workspace, random: &mut Rng) -> Turn {
    let depth = random.u32(1..6);
    let leaves = tree(depth);
    check(leaves == 3u64.pow(depth), || format!("{leaves} leaves of a tree {depth} deep"))?;
    let payload = random.u64(..);
    let thrown = carefree::spawn(move || std::panic::resume_unwind(Box::new(payload))).join();
    let thrown = thrown.map(|()| 0).unwrap_or_else(|thrown| *thrown.downcast().expect("a number"));
    check(thrown == payload, || "another panic came".into())
}

/// Timeouts end reads while bytes come: all of them are there in the end.
pub(super) fn timeouts(space: &Workspace, random: &mut Rng) -> Turn {
    let (mut reader, mut writer) = pipe();
    let content = bytes(random, 3000);
    let (length, sum) = (content.len(), digest(&content));
    let mut theirs = random.fork();
    let other = carefree::spawn(move || -> io::Result<()> {
        for part in content.chunks(64) {
            carefree::sleep(Duration::from_micros(theirs.u64(0..800)));
            writer.write_all(part)?;
        }
        Ok(())
    });
    let mut got = Vec::new();
    loop {
        let mut ended = false;
        // What the call has read is kept whatever the timeout says.
        let limited = carefree::timeout(Duration::from_micros(random.u64(1..800)), || {
            loop {
                let mut buffer = [0; 50];
                match reader.read(&mut buffer) {
                    Ok(0) => {
                        ended = true;
                        return Ok(());
                    }
                    Ok(read) => got.extend_from_slice(&buffer[..read]),
                    Err(error) => return Err(error),
                }
            }
        });
        if let Ok(Err(error)) = limited {
            return Err(format!("read: {error}"));
        }
        if ended {
            break;
        }
    }
    other.join().expect("no panic").map_err(said("write"))?;
    space.carried(length);
    check(got.len() == length && digest(&got) == sum, || {
        format!("{length} bytes were written, {} read within timeouts", got.len())
    })
}

/// Fibers are cancelled while they read: what they have not read, the next one does.
pub(super) fn cancels(space: &Workspace, random: &mut Rng) -> Turn {
    let (reader, mut writer) = pipe();
    let reader = Arc::new(reader);
    let taken = Arc::new(AtomicU64::new(0));
    let records = random.u64(1..100);
    let mut theirs = random.fork();
    let other = carefree::spawn(move || -> io::Result<()> {
        for _ in 0..records {
            if theirs.u8(0..4) == 0 {
                carefree::sleep(Duration::from_micros(theirs.u64(0..500)));
            }
            writer.write_all(&[1; 16])?;
        }
        Ok(())
    });
    loop {
        let (reader, counter) = (Arc::clone(&reader), Arc::clone(&taken));
        let fiber = carefree::spawn(move || -> io::Result<bool> {
            let mut buffer = [0; 16];
            loop {
                match (&*reader).read(&mut buffer) {
                    Ok(0) => return Ok(true),
                    Ok(read) => _ = counter.fetch_add(read as u64, Ordering::Relaxed),
                    Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
            }
        });
        carefree::sleep(Duration::from_micros(random.u64(0..1000)));
        fiber.cancel();
        if fiber.join().expect("no panic").map_err(said("read"))? {
            break;
        }
    }
    other.join().expect("no panic").map_err(said("write"))?;
    let taken = taken.load(Ordering::Relaxed);
    space.carried(taken as usize);
    check(taken == 16 * records, || format!("{} bytes were written, {taken} read", 16 * records))
}

/// Channels and conditions hand over numbers.
pub(super) fn channels(_: &Workspace, random: &mut Rng) -> Turn {
    let (send, receive) = sync_channel(random.usize(0..8));
    let (senders, each) = (random.u64(1..5), random.u64(1..200));
    let fibers: Vec<_> = (0..senders)
        .map(|sender| {
            let send = send.clone();
            carefree::spawn(move || {
                (0..each).try_for_each(|number| send.send(sender * each + number))
            })
        })
        .collect();
    drop(send);
    let mut seen: Vec<u64> = receive.iter().collect();
    for fiber in fibers {
        fiber.join().expect("no panic").map_err(|error| format!("send: {error}"))?;
    }
    seen.sort_unstable();
    check(seen == (0..senders * each).collect::<Vec<_>>(), || {
        format!("{} of {} numbers came", seen.len(), senders * each)
    })?;
    let place = Arc::new((Mutex::new(0u64), Condvar::new()));
    let theirs = Arc::clone(&place);
    let other = carefree::spawn(move || {
        for _ in 0..each {
            *theirs.0.lock().expect("no panic") += 1;
            theirs.1.notify_one();
        }
    });
    let guard = place.0.lock().expect("no panic");
    drop(place.1.wait_while(guard, |count| *count < each).expect("no panic"));
    other.join().expect("no panic");
    Ok(())
}

/// Threads of the pool compute and wait.
pub(super) fn offloads(space: &Workspace, random: &mut Rng) -> Turn {
    let content = bytes(random, 200_000);
    let here = digest(&content);
    let wait = Duration::from_micros(random.u64(0..3000));
    let there = carefree::offload(|| {
        std::thread::sleep(wait);
        digest(&content)
    });
    space.carried(content.len());
    check(here == there, || "another digest came".into())
}

/// Processes are forked, fed, and waited for.
pub(super) fn processes(space: &Workspace, random: &mut Rng) -> Turn {
    carefree::sleep(Duration::from_millis(random.u64(0..50)));
    // SAFETY: the child does nothing but end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(7) };
    }
    check(child > 0, || format!("fork: {}", io::Error::last_os_error()))?;
    let mut status = 0;
    // SAFETY: a number that lives until then.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    check(waited == child && libc::WEXITSTATUS(status) == 7, || {
        format!("a child ended with {status:#x} (waitpid: {waited})")
    })?;
    let mut cat = Command::new("cat");
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(said("cat"))?;
    let content = bytes(random, 300_000);
    let (length, sum) = (content.len(), digest(&content));
    let input = cat.stdin.take().expect("it is piped");
    let mut theirs = random.fork();
    let writer = carefree::spawn(move || write_parts(input, &content, &mut theirs));
    let read = read_parts(cat.stdout.take().expect("it is piped"), random).map_err(said("read"))?;
    writer.join().expect("no panic").map_err(said("write"))?;
    let status = cat.wait().map_err(said("wait"))?;
    space.carried(length);
    check(status.success() && read == (length, sum), || {
        format!("cat ended with {status}, and gave {} bytes of {length}", read.0)
    })
}
