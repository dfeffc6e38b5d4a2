//! What a call has answered, and how calls are made.

use std::ffi::c_int;

use crate::call::Buffer;
use crate::memory::Memory;
use crate::system::name;

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was returned, or the error's name.
    pub(crate) result: String,
    pub(crate) more: String,
}

/// Makes a call by its function or by its number. The arguments after the semicolon are what the
/// number takes besides.
macro_rules! make {
    ($via:expr, $function:ident, $number:ident, $($argument:expr),* $(; $($more:expr),*)?) => {{
        let result = match $via {
            // SAFETY: the kernel says so where an address is wrong; nothing it is given is used by others.
            Via::Function => unsafe { libc::$function($($argument),*) as i64 },
            // SAFETY: as above.
            Via::Number => unsafe { libc::syscall(libc::$number, $($argument),* $(, $($more),*)?) as i64 },
        };
        if result < 0 { Err(crate::system::errno()) } else { Ok(result) }
    }};
}
pub(crate) use make;

pub(crate) type Answer = Result<i64, c_int>;

pub(crate) fn outcome(answer: Answer, more: String) -> Outcome {
    let result = match answer {
        Ok(value) => value.to_string(),
        Err(errno) => name(errno),
    };
    Outcome { result, more }
}

pub(crate) fn plain(answer: Answer) -> Outcome {
    outcome(answer, String::new())
}

/// As `plain`, of a call whose value is a number of a file.
pub(crate) fn done(answer: Answer) -> Outcome {
    plain(answer.map(|_| 0))
}

/// What a reading call has returned, and a digest of what it has read.
pub(crate) fn received(memory: &Memory, answer: Answer, buffers: &[Buffer]) -> Outcome {
    let more = match answer {
        Ok(bytes) if bytes > 0 => {
            format!(", {:016x}", memory.digest(buffers, bytes as usize))
        }
        _ => String::new(),
    };
    outcome(answer, more)
}
