//! The report on a test that hangs.

use std::fs;
use std::process::{self, Command};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long the dump and each process's stacks may take: what hangs may hold a lock that they need.
const PATIENCE: Duration = Duration::from_secs(60);
/// Processes whose stacks are shown at most: the test's own, and those it has started.
const SHOWN: usize = 3;

/// Seconds after which the process ends whatever becomes of its report; and if there is no memory for one.
const LAST_RESORT: u32 = PATIENCE.as_secs() as u32 * (2 + SHOWN as u32);
const WITHOUT_MEMORY: u32 = 5;

/// Prints which test it is and what is wrong with it, what its fibers wait for and where the threads are; then
/// aborts.
pub fn print_and_abort(test: &str, wrong: &str) -> ! {
    // What hangs may be the allocator, or hold a lock that this needs. So the kernel ends the process if the rest
    // does not, and the first line takes no memory and no lock.
    end_in(WITHOUT_MEMORY);
    ["\ncarefree-testing: ", test, wrong, "\n"].iter().for_each(|part| say(part));
    let program: Vec<_> = std::env::args().collect();
    end_in(LAST_RESORT);
    say(&format!("process {}: {program:?}\n", process::id()));
    say(&patiently(dump).unwrap_or_else(|| "its fibers cannot be listed: that hangs too\n".into()));
    let processes = family(process::id());
    for process in &processes {
        say(&threads(*process));
    }
    for process in processes.iter().take(SHOWN) {
        let process = *process;
        say(&patiently(move || stacks(process)).unwrap_or_default());
    }
    // Processes that the test has started would stay, and keep open pipes that others read to the end.
    for process in processes.iter().skip(1) {
        // SAFETY: a call with numbers.
        unsafe { libc::kill(*process as libc::pid_t, libc::SIGKILL) };
    }
    process::abort()
}

/// What `f` returns, unless that takes too long.
fn patiently(f: impl FnOnce() -> String + Send + 'static) -> Option<String> {
    let (send, receive) = mpsc::channel();
    thread::Builder::new().spawn(move || send.send(f())).ok()?;
    receive.recv_timeout(PATIENCE).ok()
}

/// Has the kernel end the process in so many seconds.
fn end_in(seconds: u32) {
    // SAFETY: the set is written before it is read. The signal ends the process, by its default action, and this
    // thread at least does not block it.
    unsafe {
        let mut alarm = std::mem::zeroed();
        libc::sigemptyset(&raw mut alarm);
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const alarm, std::ptr::null_mut());
        libc::alarm(seconds);
    }
}

/// Not `eprint`, which tests have caught, nor std's `stderr`, which has a lock.
fn say(text: &str) {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        // SAFETY: reads the bytes of `left`.
        match unsafe { libc::write(libc::STDERR_FILENO, left.as_ptr().cast(), left.len()) } {
            written @ 1.. => left = &left[written as usize..],
            _ => return,
        }
    }
}

fn dump() -> String {
    #[cfg(not(loom))]
    return carefree_insight::dump();
    #[cfg(loom)]
    return String::new();
}

fn read(path: String) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The numbers below `/proc/PROCESS/task`.
fn tasks(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut tasks: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tasks.sort_unstable();
    tasks
}

/// `process`, and those it has started, directly or not.
fn family(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    for task in tasks(process) {
        let children = read(format!("/proc/{process}/task/{task}/children"));
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            all.extend(family(child));
        }
    }
    all
}

/// A line for each thread: its name, whether it runs, and what the kernel does for it.
fn threads(process: u32) -> String {
    let command = read(format!("/proc/{process}/cmdline")).replace('\0', " ");
    let mut text = format!("process {process}: {command}\n");
    for task in tasks(process) {
        let of = |file: &str| read(format!("/proc/{process}/task/{task}/{file}"));
        let status = of("stat");
        // The letter after the name, which stands in parentheses and may be anything.
        let state = status.rsplit(')').next().unwrap_or_default().trim_start();
        let state = state.chars().next().unwrap_or('?');
        let call = of("syscall");
        let call = call.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
        text += &format!(
            "  thread {task} {} {state}, in {}, system call {call}\n",
            of("comm"),
            of("wchan")
        );
    }
    text
}

/// The stacks of a process's threads, where gdb is installed and may look. (Fibers that wait are on
/// stacks of their own, which it does not know.)
fn stacks(process: u32) -> String {
    // SAFETY: a call with numbers: it lets any process trace this one, and its children.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    let output = Command::new("timeout")
        .args(["--signal=KILL", "50", "gdb", "--batch", "--nx", "--quiet"])
        .args(["-ex", "set print frame-arguments none", "-ex", "thread apply all backtrace 16"])
        .args(["--pid", &process.to_string()])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            let wanted = |line: &&str| line.starts_with("Thread ") || line.starts_with('#');
            let lines: Vec<_> = text.lines().filter(wanted).collect();
            format!("stacks of process {process}:\n{}\n", lines.join("\n"))
        }
        _ => {
            format!("stacks of process {process}: none, as gdb is not installed or may not look\n")
        }
    }
}
