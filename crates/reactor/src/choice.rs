//! Which backend this machine lets us have.

use std::io;

use carefree_settings::setting;
use once_cell::race::OnceBox;

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
/// Where the process has no file descriptor free, nobody can tell: nothing is decided then, and the
/// next call asks the kernel again.
///
/// A seccomp filter that *kills* for a forbidden call (instead of answering it with an error, as
/// those of container engines do) kills here; set `CAREFREE_REACTOR=epoll` there.
///
/// # Errors
/// [`Unsupported`](io::ErrorKind::Unsupported) when a variable has another value or forces io_uring
/// where it is refused; [`Other`](io::ErrorKind::Other) when nothing can be decided just now.
///
/// ```
/// let choice = carefree_reactor::choice()?;
/// println!("{}: {}", choice.kind, choice.reason);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn choice() -> io::Result<&'static Choice> {
    // Nobody waits for another to find out: in the child of a fork that one may be missing.
    static CHOICE: OnceBox<Result<Choice, String>> = OnceBox::new();
    let decided = match CHOICE.get() {
        Some(decided) => decided,
        None => {
            let forced = setting(VARIABLE);
            let forced = forced.as_ref().map(|value| value.to_string_lossy());
            let found = match uring::check_environment() {
                Ok(()) => choose(forced.as_deref(), uring::probe),
                Err(message) => Err(Refusal::Lasting(message)),
            };
            let decided = match found {
                Ok(choice) => Ok(choice),
                Err(Refusal::Lasting(message)) => Err(message),
                Err(Refusal::Passing(message)) => return Err(io::Error::other(message)),
            };
            // Of several threads that found out at once, the first decides.
            CHOICE.get_or_init(|| Box::new(decided))
        }
    };
    decided.as_ref().map_err(|message| io::Error::new(io::ErrorKind::Unsupported, message.as_str()))
}

/// Looks whether the backend that the environment forces, if it forces one, can be had. Asks the
/// kernel nothing if it does not.
///
/// # Errors
/// As for [`choice`]; but where nothing can be decided just now, that is no error.
///
/// ```
/// carefree_reactor::check_forced()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn check_forced() -> io::Result<()> {
    if setting(VARIABLE).is_none() {
        return uring::check_environment().map_err(io::Error::other);
    }
    match choice() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(error),
        _ => Ok(()),
    }
}

/// Why something cannot be had, in a few words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It will not be had later either.
    Lasting(String),
    /// The process is out of something just now.
    Passing(String),
}

impl Refusal {
    /// The same, in other words.
    fn map(self, words: impl FnOnce(String) -> String) -> Refusal {
        match self {
            Refusal::Lasting(why) => Refusal::Lasting(words(why)),
            Refusal::Passing(why) => Refusal::Passing(words(why)),
        }
    }
}

/// Decides, given the variable's value and a way to find out about io_uring: what it has to say for
/// itself, or why it cannot be used.
fn choose(
    forced: Option<&str>,
    probe: impl FnOnce() -> Result<String, Refusal>,
) -> Result<Choice, Refusal> {
    match forced {
        None | Some("") => match probe() {
            Ok(reason) => Ok(Choice { kind: Kind::Uring, reason }),
            Err(Refusal::Lasting(refusal)) => {
                Ok(Choice { kind: Kind::Epoll, reason: format!("io_uring {refusal}") })
            }
            // A process that is to live for long should not be marked by how it began.
            Err(passing) => Err(passing.map(|why| format!("io_uring {why}"))),
        },
        Some("uring") => match probe() {
            Ok(reason) => {
                let reason = format!("{VARIABLE}=uring; {reason}");
                Ok(Choice { kind: Kind::Uring, reason })
            }
            Err(refusal) => Err(refusal.map(|why| {
                format!("{VARIABLE}=uring, but io_uring {why}; unset it, or set it to epoll")
            })),
        },
        Some("epoll") => Ok(Choice { kind: Kind::Epoll, reason: format!("{VARIABLE}=epoll") }),
        Some(other) => {
            let message = format!("{VARIABLE} is '{other}': it must be uring or epoll");
            Err(Refusal::Lasting(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there() -> Result<String, Refusal> {
        Ok("is there".into())
    }

    fn refused() -> Result<String, Refusal> {
        Err(Refusal::Lasting("is refused".into()))
    }

    fn in_need() -> Result<String, Refusal> {
        Err(Refusal::Passing("is in need".into()))
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
        let text = "CAREFREE_REACTOR=uring, but io_uring is refused; unset it, or set it to epoll";
        assert_eq!(error, Refusal::Lasting(text.into()));
        let error = choose(Some("kqueue"), never).unwrap_err();
        let text = "CAREFREE_REACTOR is 'kqueue': it must be uring or epoll";
        assert_eq!(error, Refusal::Lasting(text.into()));
    }

    #[test]
    fn a_need_that_passes_decides_nothing() {
        let undecided = choose(None, in_need).unwrap_err();
        assert_eq!(undecided, Refusal::Passing("io_uring is in need".into()));
        assert!(matches!(choose(Some("uring"), in_need), Err(Refusal::Passing(_))));
        assert_eq!(choose(Some("epoll"), in_need).unwrap().kind, Kind::Epoll);
    }
}
