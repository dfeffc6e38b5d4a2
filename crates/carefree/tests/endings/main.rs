//! How threads, values and processes end: the same small programs with `std::thread` and with
//! `carefree`, each in a process of its own, over both reactors. What they print and the status they
//! end with must be the same.
//!
//! It has a `main` of its own, since some of the programs are about what happens when that returns.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

mod on_threads {
    use std::thread;
    include!("programs.rs");
}

mod on_fibers {
    use carefree as thread;
    include!("programs.rs");
}

/// Tells a process which program to run, and how.
const PROGRAM: &str = "CAREFREE_ENDING";
/// A hundred times as long as a program takes.
const LIMIT: Duration = Duration::from_secs(120);

const FIBERS: [(&str, &str); 2] =
    [("fibers over io_uring", "uring"), ("fibers over epoll", "epoll")];

/// Messages of std, and ours in their place.
const WORDS: [(&str, &str); 1] = [(
    "fatal runtime error: thread result panicked on drop, aborting",
    "carefree: a fiber's result panicked when it was dropped; aborting",
)];

fn main() -> ExitCode {
    if let Ok(asked) = env::var(PROGRAM) {
        let (how, name) = asked.split_once(' ').expect("how, and which");
        let all = if how == "threads" { on_threads::ALL } else { on_fibers::ALL };
        let (_, program) = all.iter().find(|(other, _)| *other == name).expect("there is such");
        program();
        return ExitCode::SUCCESS;
    }
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let is_wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter));
    let mut failed = 0;
    for (name, _) in on_threads::ALL.iter().filter(|(name, _)| is_wanted(name)) {
        let threads = run("threads", name, "");
        for (how, reactor) in FIBERS {
            let fibers = run("fibers", name, reactor);
            let same = threads == fibers;
            println!("test {name} on {how} ... {}", if same { "ok" } else { "FAILED" });
            if !same {
                failed += 1;
                println!("---- threads\n{threads}\n---- {how}\n{fibers}\n----");
            }
        }
    }
    println!("\ntest result: {}. {failed} failed", if failed == 0 { "ok" } else { "FAILED" });
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a program prints, and how it ends.
fn run(how: &str, name: &str, reactor: &str) -> String {
    let mut child = Command::new(env::current_exe().expect("this program"))
        .env(PROGRAM, format!("{how} {name}"))
        .env("CAREFREE_REACTOR", reactor)
        // The watchdog would report a program that spins.
        .env("CAREFREE_WATCH", "60000")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let process = child.id();
    let begun = Instant::now();
    // The programs print little, which the pipes hold meanwhile.
    while child.try_wait().expect("it is a child").is_none() {
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            return format!("{name} hangs (process {process})");
        }
        thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("it has ended");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = without_numbers(&String::from_utf8_lossy(&output.stderr));
    format!("{}\n{printed}\n{complained}", output.status)
}

/// Leaves out what differs: the numbers of kernel threads and the backtraces in panics' messages. Replaces
/// messages of ours that have other words.
fn without_numbers(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with(' '));
    let text: String = lines.map(|line| without_number(line) + "\n").collect();
    WORDS.iter().fold(text, |text, (std, here)| text.replace(std, here))
}

/// The line without a number in parentheses.
fn without_number(line: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match line.split_once(" (") {
        Some((before, after)) => match after.split_once(')') {
            Some((number, after)) if is_number(number) => format!("{before}{after}"),
            _ => line.to_owned(),
        },
        None => line.to_owned(),
    }
}
