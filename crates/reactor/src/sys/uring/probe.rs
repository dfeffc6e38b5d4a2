//! Whether io_uring is available, and if not, why.

use io_uring::opcode;

use super::finish::Finish;
use super::ring::Ring;
use crate::choice::Refusal;

/// The operations that a ring must support. Others are checked when they are submitted.
const NEEDED: [(u8, &str); 10] = [
    (opcode::Read::CODE, "read"),
    (opcode::Write::CODE, "write"),
    (opcode::Readv::CODE, "readv"),
    (opcode::Writev::CODE, "writev"),
    (opcode::Recv::CODE, "recv"),
    (opcode::Send::CODE, "send"),
    (opcode::Accept::CODE, "accept"),
    (opcode::Connect::CODE, "connect"),
    (opcode::PollAdd::CODE, "poll"),
    (opcode::AsyncCancel::CODE, "cancel"),
];

/// Checks the settings of rings in the environment.
///
/// # Errors
/// A line that says what is wrong.
pub(crate) fn check_environment() -> Result<(), String> {
    Finish::wanted().map(drop)
}

/// Makes a ring and drops it. Returns a description.
///
/// # Errors
/// Why it cannot be used, as the rest of a sentence that begins with "io_uring".
pub(crate) fn probe() -> Result<String, Refusal> {
    let mut ring = Ring::new().map_err(|error| explain(&error))?;
    // A seccomp filter may permit one of the calls and refuse others.
    ring.try_out().map_err(|error| explain(&error))?;
    for (code, name) in NEEDED {
        if !ring.knows(code) {
            return Err(Refusal::Lasting(format!("of this kernel does not know '{name}'")));
        }
    }
    Ok(format!("io_uring is available ({})", ring.describe()))
}

fn explain(error: &std::io::Error) -> Refusal {
    Refusal::Lasting(match error.raw_os_error() {
        // The kernel checks this last, so it would otherwise permit a ring.
        Some(errno @ (libc::EMFILE | libc::ENFILE)) => {
            let knob = if errno == libc::EMFILE { "ulimit -n" } else { "sysctl fs.file-max" };
            return Refusal::Passing(format!("found no free descriptor: raise the limit ({knob})"));
        }
        Some(libc::ENOSYS) => "is missing: the kernel was built without it, or a seccomp filter \
                               says so"
            .into(),
        Some(libc::EPERM) => match switched_off() {
            Some(value) => format!("is refused: sysctl kernel.io_uring_disabled is {value}"),
            None => "is refused, as container engines' seccomp profiles do (EPERM)".into(),
        },
        Some(libc::EACCES) => "is refused by a security module (EACCES)".into(),
        // Before Linux 5.12 rings counted as locked memory.
        Some(libc::ENOMEM) => {
            "found no memory: raise the limit of locked memory (ulimit -l)".into()
        }
        _ => format!("cannot be used: {error}"),
    })
}

/// The value of the sysctl that disables io_uring, if it is set: 1 for most processes, 2 for all.
fn switched_off() -> Option<String> {
    let value = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    let value = value.trim();
    (value != "0").then(|| value.to_owned())
}
