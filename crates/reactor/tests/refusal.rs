//! Processes in which io_uring is refused, as by container engines' seccomp profiles or by kernels
//! without it.
//!
//! A filter cannot be removed, so each case executes this binary again.

use carefree_reactor::{Completions, Driver, Op, choice, clock, op::CURRENT};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

const REFUSE: &str = "REACTOR_TEST_REFUSE";

/// Makes the system call `number` fail with `errno` in this process from now on.
fn refuse(number: libc::c_long, errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = [
        // The number of the system call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: number as u32,
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // The first call is required for the second.
    // SAFETY: the kernel copies the program, which lives until the calls return.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    assert_eq!(results, [0, 0], "no seccomp here: {}", std::io::Error::last_os_error());
}

/// Calls `f` while the process has no free descriptor.
fn without_descriptors(f: impl FnOnce()) {
    let get_and_set = |now: libc::rlim_t| {
        // SAFETY: reads and writes a structure that lives until the calls return.
        unsafe {
            let mut limit = std::mem::zeroed::<libc::rlimit>();
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
            let before = std::mem::replace(&mut limit.rlim_cur, now);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
            before
        }
    };
    let before = get_and_set(0);
    f();
    get_and_set(before);
}

/// The children print what was chosen, and use it.
#[test]
fn child() {
    let Ok(refused) = std::env::var(REFUSE) else {
        return;
    };
    match refused.as_str() {
        "EPERM" => refuse(libc::SYS_io_uring_setup, libc::EPERM),
        "ENOSYS" => refuse(libc::SYS_io_uring_setup, libc::ENOSYS),
        "enter" => refuse(libc::SYS_io_uring_enter, libc::EPERM),
        "register" => refuse(libc::SYS_io_uring_register, libc::EPERM),
        "epoll_pwait2" => refuse(libc::SYS_epoll_pwait2, libc::EPERM),
        "newer waits" => {
            for call in [libc::SYS_epoll_pwait2, libc::SYS_epoll_pwait, libc::SYS_ppoll] {
                refuse(call, libc::EPERM);
            }
        }
        "descriptors" => without_descriptors(|| {
            let error = choice().unwrap_err().to_string();
            assert!(error.contains("raise the limit (ulimit -n)"), "{error}");
        }),
        "nothing" => {}
        other => panic!("{other}"),
    }
    let choice = match choice() {
        Ok(choice) => choice,
        Err(error) => return println!("error: {error}"),
    };
    println!("choice: {}: {}", choice.kind, choice.reason);
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut driver = Driver::new(choice.kind).unwrap();
    let mut buffer = [0u8; 8];
    let (start, length) = (buffer.as_mut_ptr(), buffer.len());
    let read = Op::Read { fd: here.as_raw_fd(), buffer: start, length, offset: CURRENT };
    // SAFETY: the buffer is not used until the completion has come.
    unsafe { driver.submit(1, &read) }.unwrap();
    there.write_all(b"works").unwrap();
    let mut done = Completions::new();
    while done.is_empty() {
        driver.wait(None, &mut done);
    }
    println!("{}", String::from_utf8_lossy(&buffer[..done[0].result as usize]));
    // No more data comes. The wait must not return early, however coarse its system call, nor poll
    // in a loop until the deadline.
    let span = std::time::Duration::from_millis(20);
    let until = clock::after(span);
    let mut waits = 0;
    while clock::now() < until {
        driver.wait(Some(until), &mut done);
        waits += 1;
    }
    assert!(waits < 100, "it has waited {waits} times for {span:?}");
}

/// The line that a child prints first, and whether its backend works.
fn choice_with(refuse: &str, forced: Option<&str>) -> (String, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]).env(REFUSE, refuse);
    match forced {
        Some(value) => command.env("CAREFREE_REACTOR", value),
        None => command.env_remove("CAREFREE_REACTOR"),
    };
    let output: Output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let says = |line: &&str| line.starts_with("choice: ") || line.starts_with("error: ");
    let line = text.lines().find(says).unwrap_or_else(|| panic!("{text}"));
    (line.to_owned(), text.contains("works"))
}

#[test]
fn a_refused_ring_falls_back_with_a_reason() {
    let (line, works) = choice_with("EPERM", None);
    assert!(line.starts_with("choice: epoll: io_uring is refused"), "{line}");
    assert!(line.contains("seccomp") || line.contains("kernel.io_uring_disabled"), "{line}");
    assert!(works);
    for part in ["enter", "register"] {
        let (line, works) = choice_with(part, None);
        assert!(line.starts_with("choice: epoll: io_uring is refused"), "{line}");
        assert!(works);
    }
    let (line, works) = choice_with("ENOSYS", None);
    assert!(line.starts_with("choice: epoll: io_uring is missing"), "{line}");
    assert!(works);
}

#[test]
fn forcing_a_refused_ring_is_an_error() {
    let (line, _) = choice_with("EPERM", Some("uring"));
    assert!(line.starts_with("error: CAREFREE_REACTOR=uring, but io_uring is refused"), "{line}");
    assert!(line.ends_with("unset it, or set it to epoll"), "{line}");
}

/// A process that starts without a free descriptor can use a ring later.
#[test]
fn a_lack_of_descriptors_decides_nothing() {
    let (usual, _) = choice_with("nothing", None);
    let (line, works) = choice_with("descriptors", None);
    assert_eq!(line, usual);
    assert!(works);
}

#[test]
fn epoll_can_be_forced() {
    for refuse in ["nothing", "EPERM", "epoll_pwait2"] {
        let (line, works) = choice_with(refuse, Some("epoll"));
        assert_eq!(line, "choice: epoll: CAREFREE_REACTOR=epoll");
        assert!(works);
    }
}

/// In a sandbox that permits only older calls for waiting, these are used.
#[cfg(target_arch = "x86_64")]
#[test]
fn newer_ways_to_wait_can_be_refused() {
    for reactor in [None, Some("epoll")] {
        let (line, works) = choice_with("newer waits", reactor);
        assert!(works, "{line}");
    }
}

#[test]
fn a_wrong_value_is_an_error() {
    let (line, _) = choice_with("nothing", Some("kqueue"));
    assert_eq!(line, "error: CAREFREE_REACTOR is 'kqueue': it must be uring or epoll");
}

#[test]
fn a_wrong_completion_mode_is_an_error() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]).env(REFUSE, "nothing");
    let output = command.env("CAREFREE_URING", "later").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("error: CAREFREE_URING is 'later': it must be soon or deferred"),
        "{text}"
    );
}

#[test]
fn without_settings_it_takes_what_is_available() {
    let (line, works) = choice_with("nothing", None);
    assert!(
        line.starts_with("choice: io_uring: ") || line.starts_with("choice: epoll: "),
        "{line}"
    );
    assert!(works);
}
