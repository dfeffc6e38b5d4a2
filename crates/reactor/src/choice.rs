//! Which backend this machine lets us have.

use std::io;
use std::sync::OnceLock;

use crate::driver::Kind;
use crate::sys::uring;

/// The variable that forces a backend.
const VARIABLE: &str = "CAREFREE_REACTOR";

/// The backend to use, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What to make drivers of.
    pub kind: Kind,
    /// Why, in a few words: for `carefree doctor` and for messages.
    pub reason: String,
}

/// The backend to use in this process: io_uring where the kernel has it and lets us, else epoll.
/// Found out once. `CAREFREE_REACTOR=uring` or `epoll` in the environment forces one.
///
/// `CAREFREE_URING=deferred` has io_uring finish completions only when their owner asks for them:
/// somewhat cheaper, but fibers whose carrier is kept busy by another wait until it is not. The
/// usual, `soon`, lets other threads fetch them.
///
/// A seccomp filter that *kills* for a forbidden call (instead of answering it with an error, as
/// those of container engines do) kills here; set `CAREFREE_REACTOR=epoll` there.
///
/// # Errors
/// When a variable has another value, or forces io_uring where it is refused.
///
/// ```
/// let choice = carefree_reactor::choice()?;
/// println!("{}: {}", choice.kind, choice.reason);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn choice() -> io::Result<&'static Choice> {
    static CHOICE: OnceLock<Result<Choice, String>> = OnceLock::new();
    let choice = CHOICE.get_or_init(|| {
        let forced = std::env::var_os(VARIABLE);
        let forced = forced.as_ref().map(|value| value.to_string_lossy());
        uring::check_environment()?;
        choose(forced.as_deref(), uring::probe)
    });
    choice.as_ref().map_err(|message| io::Error::other(message.as_str()))
}

/// Decides, given the variable's value and a way to find out about io_uring: what it has to say for
/// itself, or why it cannot be used.
fn choose(
    forced: Option<&str>,
    probe: impl FnOnce() -> Result<String, String>,
) -> Result<Choice, String> {
    match forced {
        None | Some("") => Ok(match probe() {
            Ok(reason) => Choice { kind: Kind::Uring, reason },
            Err(refusal) => Choice { kind: Kind::Epoll, reason: format!("io_uring {refusal}") },
        }),
        Some("uring") => match probe() {
            Ok(reason) => {
                let reason = format!("{VARIABLE}=uring; {reason}");
                Ok(Choice { kind: Kind::Uring, reason })
            }
            Err(refusal) => Err(format!(
                "{VARIABLE}=uring, but io_uring {refusal}; unset it, or set it to epoll"
            )),
        },
        Some("epoll") => Ok(Choice { kind: Kind::Epoll, reason: format!("{VARIABLE}=epoll") }),
        Some(other) => Err(format!("{VARIABLE} is '{other}': it must be uring or epoll")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there() -> Result<String, String> {
        Ok("is there".into())
    }

    fn refused() -> Result<String, String> {
        Err("is refused".into())
    }

    #[test]
    fn a_ring_is_taken_where_there_is_one() {
        for nothing in [None, Some("")] {
            assert_eq!(choose(nothing, there).unwrap().kind, Kind::Uring);
            let fallback = choose(nothing, refused).unwrap();
            assert_eq!(fallback.kind, Kind::Epoll);
            assert_eq!(fallback.reason, "io_uring is refused");
        }
    }

    #[test]
    fn who_forces_gets_it_or_an_error() {
        assert_eq!(choose(Some("uring"), there).unwrap().kind, Kind::Uring);
        let never = || panic!("asked for nothing");
        assert_eq!(choose(Some("epoll"), never).unwrap().kind, Kind::Epoll);
        let error = choose(Some("uring"), refused).unwrap_err();
        assert_eq!(
            error,
            "CAREFREE_REACTOR=uring, but io_uring is refused; unset it, or set it to epoll"
        );
        let error = choose(Some("kqueue"), never).unwrap_err();
        assert_eq!(error, "CAREFREE_REACTOR is 'kqueue': it must be uring or epoll");
    }
}
