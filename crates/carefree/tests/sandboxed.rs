//! A seccomp filter that a program sets after its first fiber, and that refuses a call which the runtime relies on.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

/// Set for the program that sets the filter: this one, executed again.
const CHILD: &str = "CAREFREE_TEST_SANDBOXED";

/// The kernel refuses `number` from here on, with EPERM, to all threads.
fn refuse(number: libc::c_long) {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let returns = libc::BPF_RET | libc::BPF_K;
    let filter = [
        // The number is the first word of `seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        step(returns, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(returns, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
    // SAFETY: the kernel only reads the filter, during the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        assert_eq!(libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program), 0);
    }
}

/// Fibers behind one that computes, which another carrier takes by force.
fn steal() {
    for _ in 0..20 {
        let fibers = [(); 100].map(|()| {
            carefree::spawn(|| {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(500) {}
            })
        });
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    }
}

/// Whether the kernel has the `membarrier` that the runtime uses.
fn has_membarrier() -> bool {
    const QUERY: libc::c_int = 0;
    const PRIVATE_EXPEDITED: libc::c_long = 1 << 3;
    // SAFETY: asks for the commands that there are.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    commands > 0 && commands & PRIVATE_EXPEDITED != 0
}

/// Runs the test `name` in a process of its own, and returns how it ended and what it said.
fn run(name: &str, carriers: &str) -> (std::process::ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "")
        .env("CAREFREE_CARRIERS", carriers)
        .env_remove("CAREFREE_MEMBARRIER")
        .output()
        .unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_program_that_refuses_membarrier_ends_with_a_line_and_does_not_hang() {
    if std::env::var_os(CHILD).is_some() {
        carefree::run(|| ());
        refuse(libc::SYS_membarrier);
        return steal();
    }
    let (status, said) =
        run("a_program_that_refuses_membarrier_ends_with_a_line_and_does_not_hang", "2");
    if has_membarrier() {
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}: {said}");
        assert!(said.contains("the kernel refused membarrier"), "{said}");
        assert!(said.contains("CAREFREE_MEMBARRIER=off"), "{said}");
    } else {
        assert!(status.success(), "{status}: {said}");
    }
}

/// Whether this process has a ring.
fn has_ring() -> bool {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    targets.into_iter().any(|target| target.as_os_str() == "anon_inode:[io_uring]")
}

/// Fibers that wait for each other through a socket.
fn exchange() {
    use std::io::{Read, Write};
    let (mut one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
    let waits = carefree::spawn(move || other.read_exact(&mut [0]).unwrap());
    carefree::sleep(Duration::from_millis(20));
    one.write_all(&[1]).unwrap();
    waits.join().unwrap();
}

#[test]
fn a_program_that_refuses_its_ring_ends_with_a_line_and_does_not_hang() {
    if std::env::var_os(CHILD).is_some() {
        carefree::run(exchange);
        if has_ring() {
            eprintln!("there is a ring");
        }
        refuse(libc::SYS_io_uring_enter);
        return carefree::run(exchange);
    }
    let (status, said) =
        run("a_program_that_refuses_its_ring_ends_with_a_line_and_does_not_hang", "1");
    if said.contains("there is a ring") {
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}: {said}");
        assert!(said.contains("io_uring_enter is refused"), "{said}");
        assert!(said.contains("CAREFREE_REACTOR=epoll"), "{said}");
    } else {
        assert!(status.success(), "{status}: {said}");
    }
}
