//! Events between two system calls of one call, which a thread makes as a single system call: the file is
//! closed and its number given to another file, or the other end is closed.
//!
//! A seccomp filter makes the kernel report each system call and hold it until the test lets it go on.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use carefree::Runtime;
use libc::{c_int, c_long, c_ulong};

use crate::common::*;

/// The kernel's notice of a system call (linux/seccomp.h).
#[repr(C)]
#[derive(Default)]
struct Notice {
    id: u64,
    pid: u32,
    flags: u32,
    number: c_int,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// The reply to a notice.
#[repr(C)]
struct Reply {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const RECEIVE: c_ulong = 0xc050_2100;
const SEND: c_ulong = 0xc018_2101;
/// The reply that lets the call go on.
const CONTINUE: u32 = 1;

/// Has the kernel report these system calls of the calling thread and of threads that it starts.
fn watched(calls: &[c_long]) -> std::io::Result<OwnedFd> {
    let step =
        |code: u32, yes, no, k: u32| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        filter.push(step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    }
    filter.push(step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a filter that lives as long as the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        match libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) as c_int {
            -1 => Err(std::io::Error::last_os_error()),
            listener => Ok(owned(listener)),
        }
    }
}

/// As [`alone`]. Also true where another filter has the kernel report calls already: there can be only one.
fn is_elsewhere(name: &str) -> bool {
    if alone(name) {
        return true;
    }
    let error = thread::spawn(|| watched(&[]).err()).join().unwrap();
    if let Some(error) = &error {
        println!("skipped: calls cannot be watched here: {error}");
    }
    error.is_some()
}

/// Makes a call on a fiber, and calls `between` before its second step; the steps are these system calls.
/// Returns the call's answer, and how many steps it had.
fn with_steps<T: Send + 'static>(
    steps: &'static [c_long],
    call: impl FnOnce() -> T + Send + 'static,
    between: impl FnOnce() + Send + 'static,
) -> (T, usize) {
    let is_over = AtomicBool::new(false);
    let (sender, listener) = mpsc::channel();
    thread::scope(|scope| {
        let is_over = &is_over;
        let steps_made = scope.spawn(move || watch(&listener, is_over, between));
        let made = scope.spawn(move || {
            let runtime = Runtime::builder().carriers(1).build().unwrap();
            runtime.run(move || {
                sender.send(watched(steps).unwrap()).unwrap();
                call()
            })
        });
        let answer = made.join();
        is_over.store(true, Ordering::SeqCst);
        (answer.unwrap(), steps_made.join().unwrap())
    })
}

/// Lets each step go on, the second one after `between`. Returns how many there were.
fn watch(
    listener: &Receiver<OwnedFd>,
    is_over: &AtomicBool,
    between: impl FnOnce() + Send + 'static,
) -> usize {
    let listener = listener.recv().unwrap();
    let mut between = Some(between);
    let mut steps = 0;
    while !is_over.load(Ordering::SeqCst) {
        let mut file = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut notice = Notice::default();
        // SAFETY: an array of one, and room for a notice.
        let came = unsafe {
            libc::poll(&raw mut file, 1, 20) == 1
                && libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notice) == 0
        };
        if !came {
            continue;
        }
        steps += 1;
        if let Some(between) = between.take_if(|_| steps == 2) {
            // `between` may have to wait for the call to end. All else is over after this time.
            let doing = thread::spawn(between);
            for _ in 0..100 {
                if !doing.is_finished() {
                    thread::sleep(Duration::from_millis(2));
                }
            }
        }
        let reply = Reply { id: notice.id, value: 0, error: 0, flags: CONTINUE };
        // SAFETY: a reply.
        assert_eq!(unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const reply) }, 0);
    }
    steps
}

/// Makes `number` another file's.
fn give(number: c_int, other: c_int) -> impl FnOnce() + Send {
    // SAFETY: both are the test's own.
    move || assert_eq!(unsafe { libc::dup2(other, number) }, number)
}

/// Puts `file` into non-blocking mode.
fn set_non_blocking(file: &impl AsRawFd) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

/// The number of bytes that can be read.
fn there(file: &impl AsRawFd) -> c_int {
    let mut bytes = 0;
    // SAFETY: room for the answer.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
    bytes
}

/// More than any pipe or socket here takes at once.
const MUCH: usize = 4 << 20;

#[test]
fn the_rest_is_not_written_to_another_file() {
    if is_elsewhere("between::the_rest_is_not_written_to_another_file") {
        return;
    }
    // A pipe, by a write.
    let (from, to) = pipe();
    let (other, to_other) = pipe();
    set_non_blocking(&to_other);
    let fd = to.as_raw_fd();
    let write = move || {
        let bytes = vec![1u8; MUCH];
        // SAFETY: so many bytes.
        checked(unsafe { libc::write(fd, bytes.as_ptr().cast(), MUCH) } as i64)
    };
    let (written, _) =
        with_steps(&[libc::SYS_pwritev2], write, give(to.as_raw_fd(), to_other.as_raw_fd()));
    assert_eq!(written, Ok(there(&from).into()));
    assert_eq!(there(&other), 0, "a part was written to another file");

    // A socket, by a send and by a write of several buffers.
    for by_writev in [false, true] {
        let (from, to) = UnixStream::pair().unwrap();
        let (other, to_other) = UnixStream::pair().unwrap();
        set_non_blocking(&to_other);
        let fd = to.as_raw_fd();
        let send = move || {
            let bytes = vec![1u8; MUCH];
            // SAFETY: so many bytes.
            checked(unsafe {
                match by_writev {
                    true => libc::writev(fd, &buffer(&bytes), 1),
                    false => libc::send(fd, bytes.as_ptr().cast(), MUCH, 0),
                }
            } as i64)
        };
        let steps = &[libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_pwritev2];
        let (sent, _) = with_steps(steps, send, give(to.as_raw_fd(), to_other.as_raw_fd()));
        drop(to);
        let mut got = Vec::new();
        (&from).read_to_end(&mut got).unwrap();
        assert_eq!(sent, Ok(got.len() as i64), "{by_writev}");
        assert_eq!(there(&other), 0, "a part was sent to another socket");
    }
}

#[test]
fn further_messages_are_not_sent_to_another_socket() {
    if is_elsewhere("between::further_messages_are_not_sent_to_another_socket") {
        return;
    }
    const MESSAGES: usize = 1000;
    let (from, to) = UnixDatagram::pair().unwrap();
    let (other, to_other) = UnixDatagram::pair().unwrap();
    set_non_blocking(&to_other);
    let fd = to.as_raw_fd();
    let send = move || {
        let byte = buffer(b"x");
        // SAFETY: zeros are headers without anything, which then describe one byte each.
        checked(unsafe {
            let mut messages: Vec<libc::mmsghdr> = vec![std::mem::zeroed(); MESSAGES];
            for message in &mut messages {
                message.msg_hdr.msg_iov = (&raw const byte).cast_mut();
                message.msg_hdr.msg_iovlen = 1;
            }
            libc::sendmmsg(fd, messages.as_mut_ptr(), MESSAGES as u32, 0)
        })
    };
    let (sent, _) =
        with_steps(&[libc::SYS_sendmmsg], send, give(to.as_raw_fd(), to_other.as_raw_fd()));
    set_non_blocking(&from);
    let got = std::iter::from_fn(|| from.recv(&mut [0]).ok()).count();
    assert_eq!(sent, Ok(got as i64));
    assert_eq!(there(&other), 0, "a message was sent to another socket");
}

#[test]
fn the_rest_is_not_received_from_another_socket() {
    if is_elsewhere("between::the_rest_is_not_received_from_another_socket") {
        return;
    }
    let (from, mut to) = UnixStream::pair().unwrap();
    let (other, mut to_other) = UnixStream::pair().unwrap();
    to.write_all(b"part").unwrap();
    to_other.write_all(b"rest").unwrap();
    let fd = from.as_raw_fd();
    let receive = move || {
        let mut bytes = [0u8; 8];
        let room = bytes.as_mut_ptr().cast();
        // SAFETY: there is room for so many bytes.
        let got = checked(unsafe { libc::recv(fd, room, 8, libc::MSG_WAITALL) } as i64);
        (got, bytes)
    };
    // After a part, the call asks whether urgent data comes.
    let steps = &[libc::SYS_recvmsg, libc::SYS_ppoll];
    let give = give(from.as_raw_fd(), other.as_raw_fd());
    let ((got, bytes), _) = with_steps(steps, receive, give);
    assert_eq!((got, &bytes), (Ok(4), b"part\0\0\0\0"));
    assert_eq!(there(&other), 4, "what was another socket's was received");
}

#[test]
fn no_other_file_is_sent() {
    if is_elsewhere("between::no_other_file_is_sent") {
        return;
    }
    const LENGTH: usize = 1 << 20;
    let file = |byte: u8| {
        let mut file = in_memory();
        file.write_all(&[byte; LENGTH]).unwrap();
        seek(&file, 0);
        file
    };
    let (sent, other) = (file(1), file(2));
    let (mut from, to) = UnixStream::pair().unwrap();
    let [fd, socket] = [sent.as_raw_fd(), to.as_raw_fd()];
    let reading = thread::spawn(move || {
        let mut got = Vec::new();
        from.read_to_end(&mut got).unwrap();
        got
    });
    // SAFETY: no memory is involved.
    let send =
        move || checked(unsafe { libc::sendfile(socket, fd, std::ptr::null_mut(), LENGTH) } as i64);
    let (answer, _) = with_steps(
        &[libc::SYS_pread64, libc::SYS_preadv2],
        send,
        give(sent.as_raw_fd(), other.as_raw_fd()),
    );
    drop(to);
    let got = reading.join().unwrap();
    assert_eq!(answer, Ok(got.len() as i64));
    assert!(got.iter().all(|byte| *byte == 1), "a part of another file was sent");
    assert_eq!(position(&other), Ok(0), "another file's position was moved");
}

#[test]
fn nothing_is_taken_out_of_another_pipe() {
    if is_elsewhere("between::nothing_is_taken_out_of_another_pipe") {
        return;
    }
    let (from, mut to) = pipe();
    let (other, mut to_other) = pipe();
    to.write_all(b"part").unwrap();
    to_other.write_all(b"others").unwrap();
    let (mut got, socket) = UnixStream::pair().unwrap();
    let [fd, into] = [from.as_raw_fd(), socket.as_raw_fd()];
    let splice = move || {
        let null = std::ptr::null_mut();
        // SAFETY: no memory is involved.
        checked(unsafe { libc::splice(fd, null, into, null, 100, 0) } as i64)
    };
    // The call copies from the pipe, sends the copy, and then takes it from the pipe.
    let steps = &[libc::SYS_tee, libc::SYS_sendto];
    let (moved, _) = with_steps(steps, splice, give(from.as_raw_fd(), other.as_raw_fd()));
    drop(socket);
    let mut bytes = Vec::new();
    got.read_to_end(&mut bytes).unwrap();
    assert_eq!((moved, &bytes[..]), (Ok(4), &b"part"[..]));
    assert_eq!(there(&other), 6, "what was another pipe's was taken");
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// Counts the SIGPIPEs.
fn count_signals() {
    extern "C" fn count(_: c_int) {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    }
    let count: extern "C" fn(c_int) = count;
    // SAFETY: the handler touches an atomic alone.
    unsafe { libc::signal(libc::SIGPIPE, count as libc::sighandler_t) };
}

/// A call that has written a part returns it, and the next call reports that the reader is gone.
#[test]
fn a_part_is_written_without_a_signal() {
    if is_elsewhere("between::a_part_is_written_without_a_signal") {
        return;
    }
    count_signals();
    let sockets = || {
        let (from, to) = UnixStream::pair().unwrap();
        (File::from(OwnedFd::from(from)), File::from(OwnedFd::from(to)))
    };
    let cases = [(false, sockets()), (true, sockets()), (true, pipe())];
    for (case, (in_non_blocking_mode, (from, to))) in cases.into_iter().enumerate() {
        let fd = to.as_raw_fd();
        if in_non_blocking_mode {
            set_non_blocking(&to);
        }
        let write = move || {
            let bytes = vec![1u8; MUCH];
            let part = writev(&fd, &[buffer(&bytes)]);
            (part, SIGNALS.load(Ordering::SeqCst))
        };
        let steps = &[libc::SYS_pwritev2, libc::SYS_sendmsg];
        let ((part, signals), _) = with_steps(steps, write, move || drop(from));
        assert!(part.is_ok_and(|part| part > 0 && part < MUCH as i64), "{case}: {part:?}");
        assert_eq!(signals, 0, "case {case}: a signal came with a part");
    }
}
