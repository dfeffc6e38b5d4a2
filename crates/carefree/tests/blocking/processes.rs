//! `waitpid` and its kin, and `std::process`.

use std::io::{Read, Write};
use std::mem;
use std::process::{Command, Stdio};
use std::ptr;

use carefree::{run, scope, spawn};
use libc::{c_int, pid_t};

use crate::common::*;

unsafe extern "C" {
    fn wait3(status: *mut c_int, options: c_int, used: *mut libc::rusage) -> pid_t;
}

/// A child that runs `sh -c script` and that `std` does not wait for.
pub(crate) fn child(script: &str) -> pid_t {
    #[expect(clippy::zombie_processes, reason = "waited for by its number")]
    let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
    child.id() as pid_t
}

fn wait_for(pid: pid_t, options: c_int) -> Result<(pid_t, c_int), c_int> {
    let mut status = 0;
    // SAFETY: there is room for the answer.
    let waited = checked(unsafe { libc::waitpid(pid, &raw mut status, options) })?;
    Ok((waited as pid_t, status))
}

#[test]
fn hundreds_of_fibers_run_commands() {
    run(|| {
        scope(|s| {
            for number in 0..200 {
                s.spawn(move || {
                    let mut child = Command::new("sh")
                        .args(["-c", "read x; echo out $x; echo err $x >&2; exit 3"])
                        .stdin(Stdio::piped())
                        .stdout(Stdio::piped())
                        .stderr(Stdio::piped())
                        .spawn()
                        .unwrap();
                    let mut input = child.stdin.take().unwrap();
                    writeln!(input, "{number}").unwrap();
                    drop(input);
                    let output = child.wait_with_output().unwrap();
                    assert_eq!(output.status.code(), Some(3));
                    assert_eq!(output.stdout, format!("out {number}\n").into_bytes());
                    assert_eq!(output.stderr, format!("err {number}\n").into_bytes());
                });
            }
        });
    });
}

#[test]
fn a_child_is_waited_for_while_others_run() {
    on_one_carrier(|| {
        let pid = child("sleep 0.1; exit 7");
        let (waited, status) = while_another_runs(|| wait_for(pid, 0)).unwrap();
        assert_eq!(waited, pid);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert_eq!(wait_for(pid, 0), Err(libc::ECHILD));

        let pid = child("sleep 0.1; kill -9 $$");
        // SAFETY: there is room for the answers.
        unsafe {
            let (mut status, mut usage) = (0, mem::zeroed::<libc::rusage>());
            let place = &raw mut usage;
            let waited = while_another_runs(|| libc::wait4(pid, &raw mut status, 0, place));
            assert_eq!(waited, pid);
            assert!(libc::WIFSIGNALED(status));
            assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
            assert!(usage.ru_maxrss > 0);
        }
    });
}

#[test]
fn a_child_that_runs_is_not_waited_for_if_the_caller_says_so() {
    run(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(wait_for(child.id() as pid_t, libc::WNOHANG), Ok((0, 0)));
        assert!(child.try_wait().unwrap().is_none());
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn a_stopped_child_is_seen_to_stop_and_to_go_on() {
    on_one_carrier(|| {
        let pid = child("kill -STOP $$; exit 4");
        let (waited, status) = wait_for(pid, libc::WUNTRACED).unwrap();
        assert_eq!(waited, pid);
        assert!(libc::WIFSTOPPED(status));
        let waiting = spawn(move || wait_for(pid, libc::WCONTINUED).unwrap().1);
        carefree::sleep(MOMENT);
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
        let status = waiting.join().unwrap();
        // The child may have ended before this looks.
        if libc::WIFCONTINUED(status) {
            assert_eq!(libc::WEXITSTATUS(wait_for(pid, 0).unwrap().1), 4);
        } else {
            assert_eq!(libc::WEXITSTATUS(status), 4);
        }
    });
}

#[test]
fn waitid_says_what_became_of_a_child() {
    on_one_carrier(|| {
        let pid = child("sleep 0.1; exit 9");
        // SAFETY: there is room for the answers; the parts that are read are those of a child.
        unsafe {
            let mut info = mem::zeroed::<libc::siginfo_t>();
            let (kind, id) = (libc::P_PID, pid as libc::id_t);
            let place = &raw mut info;
            assert_eq!(libc::waitid(kind, id, place, libc::WEXITED | libc::WNOHANG), 0);
            assert_eq!(info.si_pid(), 0);
            let leave = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(while_another_runs(|| libc::waitid(kind, id, place, leave)), 0);
            assert_eq!((info.si_pid(), info.si_status()), (pid, 9));
            assert_eq!(info.si_code, libc::CLD_EXITED);
            // The child is still to be reaped; now it is.
            assert_eq!(libc::waitid(kind, id, ptr::null_mut(), libc::WEXITED), 0);
            let gone = libc::waitid(kind, id, place, libc::WEXITED);
            assert_eq!(checked(gone), Err(libc::ECHILD));
            assert_eq!(checked(libc::waitid(kind, id, place, 0)), Err(libc::EINVAL));
        }
    });
}

#[test]
fn cancellation_and_timeouts_reach_in() {
    run(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as pid_t;
        assert_eq!(cancelled(move || wait_for(pid, 0)), Err(libc::ECANCELED));
        assert_eq!(timed_out(|| wait_for(pid, 0)), Err(libc::ETIMEDOUT));
        let stopped = libc::WUNTRACED;
        assert_eq!(timed_out(|| wait_for(pid, stopped)), Err(libc::ETIMEDOUT));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn commands_of_the_shell_and_their_output() {
    on_one_carrier(|| {
        // SAFETY: strings and a stream of libc's.
        unsafe {
            let command = c"sleep 0.1; exit 5".as_ptr();
            let status = while_another_runs(|| libc::system(command));
            assert_eq!(libc::WEXITSTATUS(status), 5);
            let stream =
                libc::popen(c"echo from a child; sleep 0.1; exit 6".as_ptr(), c"r".as_ptr());
            assert!(!stream.is_null());
            let mut line = [0; 32];
            assert!(!libc::fgets(line.as_mut_ptr(), 32, stream).is_null());
            assert_eq!(&line[..5], b"from ".map(|byte| byte as libc::c_char));
            let status = while_another_runs(|| libc::pclose(stream));
            assert_eq!(libc::WEXITSTATUS(status), 6);
        }
    });
}

/// Needs a process of its own, because it waits for any child.
#[test]
fn any_child_and_those_of_a_group() {
    if std::env::var_os("CAREFREE_TEST_ANY_CHILD").is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::any_child_and_those_of_a_group", "--nocapture"])
            .env("CAREFREE_TEST_ANY_CHILD", "1")
            .output()
            .unwrap();
        let mut text = String::new();
        output.stderr.as_slice().read_to_string(&mut text).unwrap();
        return assert!(output.status.success(), "{text}");
    }
    on_one_carrier(|| {
        const CHILDREN: usize = 20;
        let mut all: Vec<_> = (0..CHILDREN).map(|_| child("sleep 0.05")).collect();
        // Several fibers wait for whichever ends; each child goes to one of them.
        let waiting: Vec<_> = (0..CHILDREN)
            .map(|number| {
                spawn(move || match number % 4 {
                    // SAFETY: no place is given for the status.
                    0 => unsafe { libc::wait(ptr::null_mut()) },
                    1 => wait_for(-1, 0).unwrap().0,
                    // SAFETY: no place is given for the status, and none for what the child has used.
                    2 => unsafe { wait3(ptr::null_mut(), 0, ptr::null_mut()) },
                    _ => wait_for(0, 0).unwrap().0,
                })
            })
            .collect();
        let mut seen: Vec<_> = waiting.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        all.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, all);
        assert_eq!(wait_for(-1, 0), Err(libc::ECHILD));
        assert_eq!(wait_for(0, 0), Err(libc::ECHILD));
        let other = child("sleep 0.05");
        assert_eq!(cancelled(|| wait_for(-1, libc::WUNTRACED)), Err(libc::ECANCELED));
        assert_eq!(wait_for(-1, libc::WUNTRACED).unwrap().0, other);
    });
}

#[test]
fn one_of_several_waiters_for_a_child_gets_it() {
    on_one_carrier(|| {
        let pid = child("sleep 0.05");
        let waits: Vec<_> = (0..8).map(|_| spawn(move || wait_for(pid, 0))).collect();
        let results: Vec<_> = waits.into_iter().map(|waits| waits.join().unwrap()).collect();
        let got = results.iter().filter(|result| **result == Ok((pid, 0))).count();
        let late = results.iter().filter(|result| **result == Err(libc::ECHILD)).count();
        assert_eq!((got, late), (1, 7), "{results:?}");
    });
}
