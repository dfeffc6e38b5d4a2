//! `fork`, and programs that tests talk to.

use std::backtrace::Backtrace;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{panic, ptr, thread};

use carefree::{offload, run, scope, spawn};

use crate::common::{LONG, on_one_carrier};

/// `std` forks only if it has something to do before the exec. Otherwise it calls `posix_spawn`.
#[test]
fn hundreds_of_fibers_fork_and_exec() {
    run(|| {
        scope(|scope| {
            for n in 0..300 {
                scope.spawn(move || {
                    let mut echo = Command::new("echo");
                    // SAFETY: the closure calls nothing.
                    unsafe { echo.arg(n.to_string()).pre_exec(|| Ok(())) };
                    let output = echo.output().unwrap();
                    assert!(output.status.success());
                    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{n}\n"));
                });
            }
        });
    });
}

#[test]
fn a_program_is_fed_and_read() {
    run(|| {
        let mut cat = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
        let text = "through another process and back\n".repeat(10_000);
        let sent = text.clone();
        // More than a pipe holds, so both sides wait.
        let writes = spawn(move || to.write_all(sent.as_bytes()));
        let mut back = String::new();
        from.read_to_string(&mut back).unwrap();
        writes.join().unwrap().unwrap();
        assert!(back == text, "{} bytes came back of {}", back.len(), text.len());
        assert!(cat.wait().unwrap().success());
    });
}

/// Fibers that use sockets, locks, channels and sleeps; returns what they count.
fn converse() -> i32 {
    let pairs = 8;
    let total = Arc::new((Mutex::new(0), Condvar::new()));
    let (send, receive) = mpsc::channel();
    scope(|scope| {
        for n in 0..pairs {
            let (mut left, mut right) = UnixStream::pair().unwrap();
            let (total, send) = (Arc::clone(&total), send.clone());
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(n));
                left.write_all(b"ping").unwrap();
                let mut answer = [0; 4];
                left.read_exact(&mut answer).unwrap();
                send.send(answer).unwrap();
                *total.0.lock().unwrap() += 1;
                total.1.notify_all();
            });
            scope.spawn(move || {
                let mut word = [0; 4];
                right.read_exact(&mut word).unwrap();
                right.write_all(b"pong").unwrap();
            });
        }
        let mut count = total.0.lock().unwrap();
        while *count < pairs as i32 {
            count = total.1.wait(count).unwrap();
        }
    });
    drop(send);
    assert!(receive.iter().all(|answer| &answer == b"pong"));
    *total.0.lock().unwrap()
}

/// Calls `f` in the child of a fork and returns its value, or the signal that ended it.
fn forked(f: impl FnOnce() -> i32) -> Result<i32, i32> {
    // SAFETY: that the child may go on so is what is tested.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: a child that hangs is killed; it leaves without running anything of the parent's.
        unsafe {
            libc::alarm(60);
            libc::_exit(f())
        };
    }
    let mut status = 0;
    // SAFETY: our own child, and a variable that lives.
    let waited = offload(|| unsafe { libc::waitpid(child, &raw mut status, 0) });
    assert_eq!(waited, child);
    if libc::WIFEXITED(status) { Ok(libc::WEXITSTATUS(status)) } else { Err(status) }
}

/// The child has a reactor of its own, and the parent's is not disturbed.
#[test]
fn fibers_on_both_sides_of_a_fork() {
    run(|| {
        assert_eq!(converse(), 8);
        for _ in 0..10 {
            assert_eq!(forked(converse), Ok(8));
            assert_eq!(converse(), 8);
        }
    });
    assert_eq!(forked(|| run(converse)), Ok(8));
}

/// In the child the fiber that forked calls libc as a thread does.
#[test]
fn the_childs_first_fiber_blocks_as_a_thread() {
    run(|| {
        let code = forked(|| {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            let answers = spawn(move || {
                let mut word = [0; 4];
                far.read_exact(&mut word).unwrap();
                thread::sleep(Duration::from_millis(2));
                far.write_all(&word).unwrap();
            });
            near.write_all(b"echo").unwrap();
            let mut word = [0; 4];
            near.read_exact(&mut word).unwrap();
            answers.join().unwrap();
            let mutex = Arc::new(Mutex::new(1));
            let held = mutex.lock().unwrap();
            let theirs = Arc::clone(&mutex);
            let waits = spawn(move || *theirs.lock().unwrap() += 1);
            thread::sleep(Duration::from_millis(2));
            drop(held);
            waits.join().unwrap();
            let sum = *mutex.lock().unwrap();
            sum + i32::from(&word == b"echo")
        });
        assert_eq!(code, Ok(3));
    });
}

/// A `pthread_once` that a fiber of the parent was running is run anew in the child, as with libc's own.
#[test]
fn a_once_that_was_under_way_is_done_by_the_child() {
    static ONCE: AtomicI32 = AtomicI32::new(libc::PTHREAD_ONCE_INIT);
    static BEGUN: AtomicI32 = AtomicI32::new(0);
    static GO: AtomicBool = AtomicBool::new(false);
    extern "C" fn routine() {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        while !GO.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    unsafe extern "C" {
        fn pthread_once(once: *mut libc::pthread_once_t, routine: extern "C" fn()) -> i32;
    }
    // SAFETY: a control that stays.
    let once = || unsafe { pthread_once(ONCE.as_ptr(), routine) };
    run(|| {
        let first = spawn(once);
        while BEGUN.load(Ordering::SeqCst) == 0 {
            carefree::yield_now();
        }
        let code = forked(|| {
            // SAFETY: no memory is involved. It must not take a minute to fail.
            unsafe { libc::alarm(10) };
            GO.store(true, Ordering::SeqCst);
            // Of two fibers, one runs the function and the other waits for it.
            let both = [(); 2].map(|()| spawn(once));
            both.into_iter().for_each(|fiber| assert_eq!(fiber.join().unwrap(), 0));
            BEGUN.load(Ordering::SeqCst)
        });
        assert_eq!(code, Ok(2));
        GO.store(true, Ordering::SeqCst);
        first.join().unwrap();
        assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
    });
}

/// Sets a flag when it is dropped, also by a panic.
struct SetAtLast<'a>(&'a AtomicBool);

impl Drop for SetAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Other fibers take backtraces, which ask the loader for its libraries. (The child takes none: `std` holds a
/// lock meanwhile, and the fiber that holds it may not be in the child.)
#[test]
fn forks_while_other_fibers_take_backtraces() {
    run(|| {
        let over = AtomicBool::new(false);
        scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let text = Backtrace::force_capture().to_string();
                        assert!(text.contains("forks_while_other_fibers"), "{text}");
                        let caught = panic::catch_unwind(|| panic::resume_unwind(Box::new(7)));
                        assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 7);
                        carefree::yield_now();
                    }
                });
            }
            // The scope waits for the fibers, also when an assertion fails.
            let _over = SetAtLast(&over);
            for _ in 0..10 {
                let sum = forked(|| {
                    let fibers: Vec<_> = (0..10).map(|n| spawn(move || n)).collect();
                    fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum()
                });
                assert_eq!(sum, Ok(45));
            }
        });
    });
}

/// Children of a fork that accept from `listener`, until they are dropped.
struct Acceptors(Vec<libc::pid_t>);

impl Acceptors {
    fn fork(listener: &UnixListener, count: usize) -> Acceptors {
        let fd = listener.as_raw_fd();
        let fork = || {
            // SAFETY: the child makes system calls only.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "{}", std::io::Error::last_os_error());
            if child == 0 {
                // SAFETY: the child makes system calls only; if it is not killed, it does not live
                // on.
                unsafe {
                    libc::alarm(120);
                    loop {
                        libc::close(libc::accept(fd, ptr::null_mut(), ptr::null_mut()));
                    }
                }
            }
            child
        };
        Acceptors((0..count).map(|_| fork()).collect())
    }
}

impl Drop for Acceptors {
    fn drop(&mut self) {
        for child in &self.0 {
            let mut status = 0;
            // SAFETY: our own children.
            unsafe {
                libc::kill(*child, libc::SIGKILL);
                libc::waitpid(*child, &raw mut status, 0);
            }
        }
    }
}

/// A fiber is woken for a connection that another process then takes. It must not block its carrier until the
/// next one comes.
#[test]
fn accepting_beside_other_processes_blocks_no_other_fiber() {
    static STEPS: AtomicU64 = AtomicU64::new(0);
    static OVER: AtomicBool = AtomicBool::new(false);
    // An abstract name: connecting to it costs least.
    let name = format!("carefree-forking-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let others = Acceptors::fork(&listener, 3);
    let fibers = thread::spawn(move || {
        on_one_carrier(move || {
            let accepts = spawn(move || {
                let mut accepted = 0;
                while !OVER.load(Ordering::SeqCst) {
                    drop(listener.accept().unwrap());
                    accepted += 1;
                }
                accepted
            });
            while !OVER.load(Ordering::SeqCst) {
                carefree::sleep(Duration::from_micros(200));
                STEPS.fetch_add(1, Ordering::SeqCst);
            }
            accepts.join().unwrap()
        })
    });
    for burst in 0..1000 {
        let connections: Vec<_> =
            (0..1 + burst % 16).map(|_| UnixStream::connect_addr(&address).unwrap()).collect();
        // No other connection comes until a fiber has run.
        let (before, begun) = (STEPS.load(Ordering::SeqCst), Instant::now());
        while STEPS.load(Ordering::SeqCst) < before + 2 {
            assert!(begun.elapsed() < LONG / 2, "accepting blocks the carrier");
            thread::sleep(Duration::from_micros(100));
        }
        drop(connections);
    }
    drop(others);
    OVER.store(true, Ordering::SeqCst);
    // Ends the last wait.
    let accepted = loop {
        drop(UnixStream::connect_addr(&address));
        if fibers.is_finished() {
            break fibers.join().unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(accepted > 0);
}
