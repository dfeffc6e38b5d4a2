//! After a process was killed, its neighbour (the next process) must be able to do the same as if the killed
//! one had waited on plain threads.
//!
//! A ring is torn down some time after its process has ended, and until then holds the files of the
//! operations that wait in it. So a process is started that waits in a certain way, is killed with
//! `SIGKILL`, and reaped; from then on each case asks the kernel for what the next process needs.
//!
//! `cargo test -p carefree --test killed -- --ignored --nocapture` prints how long that takes.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod case;
mod delay;
mod free;
mod process;

use std::time::Duration;

use case::Case;
use process::{On, Process};

/// Runs as the process that is killed; does nothing in a usual run.
#[test(seconds = 60)]
fn victim() {
    process::live(&CASES);
}

/// What waits, and what the next process does.
const CASES: [Case; 16] = [
    free::TCP_LISTENER,
    free::TCP_LISTENER_POLLED,
    free::UDP_SOCKET,
    free::UDP_SOCKET_POLLED,
    free::ABSTRACT_LISTENER,
    free::ABSTRACT_DATAGRAMS,
    free::ABSTRACT_PACKETS,
    free::FLOCK_OF_A_FIFO,
    free::OPEN_FILE_LOCK_OF_A_FIFO,
    free::RECORD_LOCK,
    free::FLOCK_OF_A_TERMINAL,
    free::CONNECTION_BEING_MADE,
    delay::LAST_WRITER_OF_A_PIPE,
    delay::LAST_READER_OF_A_PIPE,
    delay::CONNECTION,
    delay::TERMINAL_MASTER,
];

/// How often each case is tried, because what is torn down late is sometimes torn down in time.
const TIMES: usize = 12;

#[test]
fn the_next_process_is_refused_nothing() {
    for (on, times) in [(On::Uring, TIMES), (On::Epoll, 2), (On::Threads, 1)] {
        for case in CASES.iter().filter(|case| case.must_be_free) {
            for time in 0..times {
                let process = Process::start(case, on);
                let next = process.kill();
                let answer = next.look();
                assert_eq!(answer, Ok(()), "{} {on:?}, time {time}", case.name);
            }
        }
    }
}

/// Prints how long the next process waits for each.
#[test(seconds = 600)]
#[ignore = "measures"]
fn delays() {
    println!(
        "{:32} {:>18} {:>18} {:>18}",
        "median (longest) in us", "io_uring", "epoll", "threads"
    );
    for case in &CASES {
        let cells = [On::Uring, On::Epoll, On::Threads].map(|on| {
            let mut delays: Vec<Duration> =
                (0..TIMES).map(|_| Process::start(case, on).kill().wait()).collect();
            delays.sort();
            let micros = |delay: Duration| delay.as_micros();
            format!("{} ({})", micros(delays[TIMES / 2]), micros(delays[TIMES - 1]))
        });
        println!("{:32} {:>18} {:>18} {:>18}", case.name, cells[0], cells[1], cells[2]);
    }
}
