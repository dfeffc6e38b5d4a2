//! `fork` in a program that runs fibers: only the forking fiber goes on in the child, which may spawn others.

use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree_runtime::{
    Builder, Runtime, Semaphore, current, metrics, offload, park, park_timeout, run, scope, sleep,
    spawn, timeout, yield_now,
};

use crate::common::{
    FOREVER, Random, in_a_process, in_forced_mode, is_child, own_tls, text, within_reason,
};

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Code(i32),
    Signal(i32),
}

/// Forks. The child runs `f` and exits at once with what that returns.
fn forked(f: impl FnOnce() -> i32) -> End {
    forked_for_good(|| {
        let code = f();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(code) }
    })
}

/// Forks. The child runs `f`, and then its fiber's function ends by a panic.
fn forked_for_good(f: impl FnOnce()) -> End {
    // SAFETY: what the child does is what is tested here.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // A child that hangs is killed, and the test fails; after the test's own limit, which says
        // where the child's threads are.
        // SAFETY: takes a number.
        unsafe { libc::alarm(120) };
        f();
        // The fiber's function ends here, in the child.
        std::panic::panic_any(TheChildGoesOn);
    }
    offload(|| {
        let mut status = 0;
        // SAFETY: waits for our own child, into a variable that lives.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        if libc::WIFEXITED(status) {
            End::Code(libc::WEXITSTATUS(status))
        } else {
            End::Signal(libc::WTERMSIG(status))
        }
    })
}

/// The payload of the panic that keeps the child from running the rest of the test.
struct TheChildGoesOn;

/// Spawns, joins, sleeps and offloads; returns a count of it.
fn work(fibers: usize) -> usize {
    let count = AtomicUsize::new(0);
    let permits = Semaphore::new(2);
    scope(|scope| {
        for n in 0..fibers {
            let (count, permits) = (&count, &permits);
            scope.spawn(move || {
                let _permit = permits.acquire();
                match n % 4 {
                    0 => yield_now(),
                    1 => sleep(Duration::from_micros(n as u64)),
                    2 => drop(vec![n; 100 + n]),
                    _ => drop(offload(|| vec![n; 100])),
                }
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    count.into_inner()
}

#[test]
fn a_childs_fiber_has_fibers_of_its_own() {
    run(|| {
        let text = String::from("of the parent");
        let end = forked(|| {
            let before = metrics();
            assert_eq!(
                (before.carriers, before.alive),
                (0, 0),
                "the child counts what is the parent's"
            );
            let handles: Vec<_> = (0..100).map(|n| spawn(move || n)).collect();
            let sum: i32 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
            assert_eq!((sum, work(100)), (4950, 100));
            assert_eq!(text, "of the parent");
            run(|| i32::from(work(20) == 20) * 7)
        });
        assert_eq!(end, End::Code(7));
        // In the parent nothing has changed.
        assert_eq!(work(100), 100);
    });
}

#[test]
fn a_childs_plain_thread_has_fibers_too() {
    run(|| ());
    let end = forked(|| {
        assert_eq!(work(100), 100);
        let own = Runtime::builder().carriers(2).build().unwrap();
        own.run(|| i32::from(work(20) == 20) * 7)
    });
    assert_eq!(end, End::Code(7));
    assert_eq!(work(100), 100);
}

/// In the child the forking fiber is a plain thread: it waits by blocking.
#[test]
fn the_fiber_that_forked_waits_as_a_thread() {
    run(|| {
        let end = forked(|| {
            sleep(Duration::from_millis(1));
            park_timeout(Duration::from_millis(1));
            assert!(timeout(Duration::from_millis(1), || sleep(FOREVER)).is_err());
            yield_now();
            let me = current();
            let wakes = spawn(move || {
                sleep(Duration::from_millis(1));
                me.unpark();
            });
            park();
            wakes.join().unwrap();
            // An offloaded call is made in place.
            let here = std::thread::current().id();
            i32::from(offload(|| std::thread::current().id()) == here) * 3
        });
        assert_eq!(end, End::Code(3));
    });
}

#[test]
fn a_child_of_a_child() {
    run(|| {
        let end = forked(|| {
            let inner = run(|| {
                forked(|| {
                    let innermost = run(|| forked(|| work(10) as i32));
                    i32::from(innermost == End::Code(10))
                })
            });
            i32::from(inner == End::Code(1)) + 4
        });
        assert_eq!(end, End::Code(5));
    });
}

/// The child exits when the function of the forking fiber ends.
#[test]
fn the_end_of_the_fiber_ends_the_child() {
    static PIPE: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn at_exit() {
        let end = PIPE.load(Ordering::SeqCst) as i32;
        // SAFETY: one byte of a constant.
        unsafe { libc::write(end, b"x".as_ptr().cast(), 1) };
    }
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: just opened, and owned by nothing else.
    let (mut reader, writer) =
        unsafe { (std::fs::File::from_raw_fd(ends[0]), std::fs::File::from_raw_fd(ends[1])) };
    let after = Arc::new(AtomicBool::new(false));
    let theirs = after.clone();
    crate::common::quiet();
    let end = spawn(move || {
        let end = forked_for_good(|| {
            PIPE.store(ends[1] as usize, Ordering::SeqCst);
            // SAFETY: the handler lives.
            assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
        });
        theirs.store(true, Ordering::SeqCst);
        end
    });
    assert_eq!(end.join().unwrap(), End::Code(0));
    assert!(after.load(Ordering::SeqCst));
    drop(writer);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(said, "x", "exit handlers run once, in the child");
}

#[test]
fn a_call_that_was_offloaded_may_fork() {
    run(|| {
        assert_eq!(offload(|| forked(|| work(10) as i32)), End::Code(10));
        // In the child, too, the offloaded call ends.
        crate::common::quiet();
        assert_eq!(offload(|| forked_for_good(|| ())), End::Code(0));
    });
}

#[test]
fn what_is_the_parents_is_left_alone() {
    within_reason(|| {
        let parents = Runtime::builder().carriers(1).build().unwrap();
        let waits = parents.spawn(park);
        let fiber = waits.thread().clone();
        let theirs = fiber.clone();
        // The fiber is woken only after the fork, so the child has it as it was.
        let (mut hears, mut says) = UnixStream::pair().unwrap();
        let wakes = std::thread::spawn(move || {
            hears.read_exact(&mut [0]).unwrap();
            fiber.unpark();
        });
        let end = run(move || {
            forked(move || {
                says.write_all(b"x").unwrap();
                let refused = Builder::new().spawn_on(&parents, || ()).unwrap_err();
                assert!(refused.to_string().contains("left behind"), "{refused}");
                // These reach no fiber, and do no harm.
                theirs.unpark();
                theirs.cancel();
                assert!(!waits.is_finished());
                drop((waits, theirs, parents));
                work(20) as i32
            })
            // In the parent, the runtime is dropped here, and waits for its fiber.
        });
        assert_eq!(end, End::Code(20));
        wakes.join().unwrap();
    });
}

/// The child is consistent, whatever other threads do during the fork. This test has a process of its own,
/// because a fork takes many times as long with the memory of other tests.
#[test]
fn many_forks_while_others_are_busy() {
    if !is_child() {
        let output = in_a_process("forking::many_forks_while_others_are_busy", &[]);
        return assert!(output.status.success(), "{}", text(&output));
    }
    // A thread for each fiber takes a mapping, and a fork copies all mappings.
    let (forks, busy) = match (in_forced_mode(), own_tls()) {
        (true, false) => (5, 2),
        (true, true) => (25, 3),
        (false, _) => (200, 6),
    };
    within_reason(move || {
        let runtime = Runtime::builder().carriers(4).build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let others: Vec<_> = (0..busy)
            .map(|n| {
                let stop = stop.clone();
                runtime.spawn(move || {
                    let mut random = Random(n);
                    while !stop.load(Ordering::Relaxed) {
                        match random.below(5) {
                            0 => drop(vec![0u8; random.below(100_000) as usize]),
                            1 => drop(spawn(yield_now)),
                            2 => drop(work(8)),
                            3 => sleep(Duration::from_micros(random.below(100))),
                            _ => offload(|| drop(vec![0u8; 1000])),
                        }
                    }
                })
            })
            .collect();
        runtime.run(move || {
            for n in 0..forks {
                assert_eq!(forked(|| work(12) as i32), End::Code(12), "fork {n}");
                if n % 8 == 0 {
                    yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        for other in others {
            other.join().unwrap();
        }
    });
}

/// std's threads take a lock of std's when they begin and end; if one has it during a fork, it stays locked
/// in the child. There are so many at once that they allocate under that lock, and an allocation waits until
/// a fork is over. This test has a process of its own, because a fork takes many times as long with the
/// memory of other tests.
#[test]
fn forks_while_threads_of_std_begin_and_end() {
    if !is_child() {
        let output = in_a_process("forking::forks_while_threads_of_std_begin_and_end", &[]);
        return assert!(output.status.success(), "{}", text(&output));
    }
    let forks = match (in_forced_mode(), own_tls()) {
        // When threads in place of fibers ended through std's own function, one child in sixty hung with musl.
        (true, false) => 50,
        (true, true) => 20,
        (false, _) => 100,
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let few: Vec<_> = (0..8).map(|_| std::thread::spawn(|| ())).collect();
                    few.into_iter().for_each(|thread| thread.join().unwrap());
                }
            });
        }
        for n in 0..forks {
            // Forked by a named fiber, whose function ends in the child, and by this thread, in turn.
            let end = match n % 2 {
                0 => Builder::new()
                    .name("forks".into())
                    .spawn(|| forked_for_good(|| assert_eq!(work(12), 12)))
                    .unwrap()
                    .join()
                    .unwrap(),
                _ => forked(|| i32::from(work(12) != 12)),
            };
            assert_eq!(end, End::Code(0), "fork {n}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Recursive mutexes in memory that is shared with children and never unmapped.
fn shared_mutexes(count: usize) -> &'static [Mutex] {
    let bytes = count * size_of::<Mutex>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    for n in 0..count {
        // SAFETY: room for that many; used as the manual says.
        unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_settype(&raw mut attributes, libc::PTHREAD_MUTEX_RECURSIVE);
            libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutex_init(memory.cast::<Mutex>().add(n).cast(), &raw const attributes);
        }
    }
    // SAFETY: just set up, and never unmapped.
    unsafe { std::slice::from_raw_parts(memory.cast(), count) }
}

#[repr(transparent)]
struct Mutex(std::cell::UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be used by several threads.
unsafe impl Sync for Mutex {}

impl Mutex {
    fn try_lock(&self) -> bool {
        // SAFETY: it was set up.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) == 0 }
    }
}

/// A mutex knows its owner by libc's thread number. In memory that both processes share, no fiber of the parent
/// may have the number of one of the child's.
#[test]
fn fibers_of_the_child_are_told_from_the_parents() {
    if !own_tls() {
        // Fibers have the numbers of their carriers here.
        return;
    }
    /// So many fibers are idle at the fork, and as many are made afterwards.
    const FIBERS: usize = 64;
    within_reason(|| {
        let all_at_once = |fibers: usize, each: &(dyn Fn(usize) + Sync)| {
            let runtime = Runtime::builder().carriers(1).build().unwrap();
            runtime.run(|| {
                let begun = AtomicUsize::new(0);
                scope(|scope| {
                    for n in 0..fibers {
                        let begun = &begun;
                        scope.spawn(move || {
                            each(n);
                            begun.fetch_add(1, Ordering::Relaxed);
                            while begun.load(Ordering::Relaxed) < fibers {
                                yield_now();
                            }
                        });
                    }
                });
            });
        };
        all_at_once(FIBERS, &|_| ());
        let mutexes = shared_mutexes(2 * FIBERS);
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let holds = std::thread::spawn(move || {
            here.read_exact(&mut [0]).unwrap();
            all_at_once(2 * FIBERS, &|n| assert!(mutexes[n].try_lock()));
            here.write_all(b"x").unwrap();
        });
        let end = forked(move || {
            there.write_all(b"x").unwrap();
            there.read_exact(&mut [0]).unwrap();
            let passed = AtomicUsize::new(0);
            all_at_once(2 * FIBERS, &|_| {
                let own = mutexes.iter().filter(|mutex| mutex.try_lock()).count();
                passed.fetch_add(own, Ordering::Relaxed);
            });
            passed.into_inner().min(100) as i32
        });
        holds.join().unwrap();
        assert_eq!(end, End::Code(0), "the status is the number of mutexes that were locked twice");
    });
}

/// Threads of the child may get memory that carriers of the parent had. Nothing else writes to it.
#[test]
fn threads_of_the_child_have_memory_of_their_own() {
    run(|| {
        let end = forked(|| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(100) {
                let threads: Vec<_> = (0..4)
                    .map(|n| {
                        std::thread::spawn(move || {
                            let kept = [n; 512];
                            std::thread::yield_now();
                            assert!(kept.iter().all(|word| *word == n));
                            // SAFETY: takes nothing. It reads libc's restartable-sequence area of this thread.
                            assert!(unsafe { libc::sched_getcpu() } >= 0);
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            }
            6
        });
        assert_eq!(end, End::Code(6));
    });
}

/// `std` forks, instead of using posix_spawn, when it has to run something before the exec.
#[test]
fn programs_are_started_with_and_without_fork() {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    run(|| {
        scope(|scope| {
            for n in 0..if in_forced_mode() { 10 } else { 40 } {
                scope.spawn(move || {
                    let mut command = Command::new("cat");
                    command.stdin(Stdio::piped()).stdout(Stdio::piped());
                    if n % 2 == 0 {
                        // SAFETY: the closure calls nothing.
                        unsafe { command.pre_exec(|| Ok(())) };
                    }
                    let mut cat = command.spawn().unwrap();
                    write!(cat.stdin.take().unwrap(), "{n}").unwrap();
                    let output = offload(|| cat.wait_with_output()).unwrap();
                    assert_eq!(output.stdout, n.to_string().as_bytes());
                });
            }
        });
    });
}
