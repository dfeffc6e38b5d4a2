//! Writing to standard output.

use std::env;
use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};

/// Whether standard output takes colours: on a terminal, unless <https://no-color.org> says no.
pub(crate) fn wants_colour() -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !refused && !dumb
}

/// Writes to standard output.
///
/// # Errors
/// One line that says what went wrong. A reader that closes the pipe early, as in `carefree
/// bench | head`, is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
