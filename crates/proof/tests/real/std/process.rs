//! `std::process`, and pipes.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carefree::{scope, spawn};

use crate::kit::{many, on_a_fiber};

#[test]
fn hundreds_of_processes_at_once() {
    on_a_fiber(|| {
        scope(|s| {
            for number in 0..many(300) {
                s.spawn(move || {
                    let output = Command::new("echo").arg(number.to_string()).output().unwrap();
                    assert!(output.status.success());
                    assert_eq!(output.stdout, format!("{number}\n").into_bytes());
                });
            }
        });
    });
}

#[test]
fn output_and_errors_are_told_apart() {
    on_a_fiber(|| {
        let output =
            Command::new("sh").args(["-c", "echo out; echo err >&2; exit 7"]).output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    });
}

#[test]
fn both_streams_are_read_when_full() {
    on_a_fiber(|| {
        // `output` polls both pipes: the data of each does not fit into a pipe.
        let script = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789;
                      echo 0123456789012345678901234567890123456789 >&2; i=$((i+1)); done";
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (123_000, 123_000));
    });
}

#[test]
fn a_process_is_written_to_and_read_from() {
    on_a_fiber(|| {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let text: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let sent = text.clone();
        let writing = spawn(move || stdin.write_all(&sent).unwrap());
        let mut got = Vec::new();
        stdout.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got == text);
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn waiting_parks() {
    // On one carrier: the killing fiber can only run while the other is parked.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        let id = child.id() as i32;
        let killing = spawn(move || {
            carefree::sleep(Duration::from_millis(20));
            // SAFETY: accesses no memory. The child was not waited for yet, so the id is its own.
            assert_eq!(unsafe { libc::kill(id, libc::SIGTERM) }, 0);
        });
        let begun = Instant::now();
        let status = child.wait().unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(15));
        assert_eq!(status.signal(), Some(libc::SIGTERM));
        // Waiting again gives the same status.
        assert_eq!(child.wait().unwrap(), status);
        killing.join().unwrap();
    });
}

#[test]
fn killing_ends_a_process() {
    on_a_fiber(|| {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn a_missing_program_cannot_be_run() {
    on_a_fiber(|| {
        let error = Command::new("/no/such/program").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        // By fork and exec, which reports through a pipe.
        let mut command = Command::new("/no/such/program");
        {
            use std::os::unix::process::CommandExt;
            // SAFETY: the closure does nothing.
            unsafe { command.pre_exec(|| Ok(())) };
        }
        assert_eq!(command.spawn().unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn environment_and_folder_are_passed_on() {
    on_a_fiber(|| {
        let output = Command::new("sh")
            .args(["-c", "echo $FRUIT; pwd"])
            .env("FRUIT", "pear")
            .current_dir("/")
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"pear\n/\n");
    });
}

#[test]
fn a_pipe_between_processes() {
    on_a_fiber(|| {
        let mut first = Command::new("echo").arg("abc").stdout(Stdio::piped()).spawn().unwrap();
        let second = Command::new("tr")
            .args(["a-z", "A-Z"])
            .stdin(first.stdout.take().unwrap())
            .output()
            .unwrap();
        assert_eq!(second.stdout, b"ABC\n");
        assert!(first.wait().unwrap().success());
    });
}

#[test]
fn exit_statuses_are_reported() {
    on_a_fiber(|| {
        let killed = Command::new("sh").args(["-c", "kill -9 $$"]).status().unwrap();
        assert_eq!((killed.code(), killed.signal()), (None, Some(9)));
        let left = Command::new("sh").args(["-c", "exit 41"]).status().unwrap();
        assert_eq!((left.code(), left.signal()), (Some(41), None));
    });
}

#[test]
fn waiting_closes_what_the_child_reads() {
    // Otherwise `cat` would wait for input, and its parent for `cat`.
    on_a_fiber(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let child = child.as_mut().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        assert!(child.wait().unwrap().success());
        // Waiting again gives the same status.
        assert!(child.wait().unwrap().success());
        assert!(child.try_wait().unwrap().unwrap().success());
    });
}
