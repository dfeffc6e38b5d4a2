//! Which backend this machine supports.

use std::io;

use carefree_ground::valgrind;
use carefree_settings::setting;
use once_cell::race::OnceBox;

use crate::driver::Kind;
use crate::sys::uring;

/// The variable that forces a backend.
const VARIABLE: &str = "CAREFREE_REACTOR";

/// The backend to use, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The kind of drivers to make.
    pub kind: Kind,
    /// Why, in a few words: for `carefree doctor` and for messages.
    pub reason: String,
}

/// The backend to use in this process: io_uring if the kernel has and permits it, else epoll.
/// Determined once. `CAREFREE_REACTOR=uring` or `epoll` in the environment forces one.
///
/// `CAREFREE_URING=deferred` makes io_uring finish completions only when their owner asks for them.
/// This is somewhat cheaper, but fibers whose carrier is kept busy by another fiber wait as long as
/// it is. With the default, `soon`, other threads can fetch completions.
///
/// If the process has no free file descriptor the backend cannot be determined: the call fails, and
/// the next one asks the kernel again.
///
/// A seccomp filter that *kills* the process for a forbidden call (instead of returning an error, as
/// those of container engines do) kills it here; set `CAREFREE_REACTOR=epoll` with such a filter.
///
/// Under valgrind the backend is epoll. valgrind runs one thread at a time, and takes the wait for a ring's
/// completions for a call that does not wait: no other thread would run until it is over. Neither does
/// it see what the kernel writes to memory for a ring.
///
/// # Errors
/// [`Unsupported`](io::ErrorKind::Unsupported) when a variable has an unknown value, or forces
/// io_uring although that is refused; [`Other`](io::ErrorKind::Other) when the backend cannot be
/// determined now.
///
/// ```
/// let choice = carefree_reactor::choice()?;
/// println!("{}: {}", choice.kind, choice.reason);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn choice() -> io::Result<&'static Choice> {
    // Not a lock: in the child of a fork, the thread that holds it may not exist.
    static CHOICE: OnceBox<Result<Choice, String>> = OnceBox::new();
    let decided = match CHOICE.get() {
        Some(decided) => decided,
        None => {
            let forced = setting(VARIABLE);
            let forced = forced.as_ref().map(|value| value.to_string_lossy());
            let found = match uring::check_environment() {
                Ok(()) => choose(forced.as_deref(), probe),
                Err(message) => Err(Refusal::Lasting(message)),
            };
            let decided = match found {
                Ok(choice) => Ok(choice),
                Err(Refusal::Lasting(message)) => Err(message),
                Err(Refusal::Passing(message)) => return Err(io::Error::other(message)),
            };
            // If several threads get here at once, the first one's result counts.
            CHOICE.get_or_init(|| Box::new(decided))
        }
    };
    decided.as_ref().map_err(|message| io::Error::new(io::ErrorKind::Unsupported, message.as_str()))
}

/// Checks whether the backend that the environment forces is available. Makes no system call if the
/// environment forces none.
///
/// # Errors
/// As for [`choice`], but not when the backend cannot be determined now.
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

/// Describes io_uring.
///
/// # Errors
/// Why it cannot be used.
fn probe() -> Result<String, Refusal> {
    if valgrind::is_running() {
        return Err(Refusal::Lasting("would stop all threads under valgrind".into()));
    }
    uring::probe()
}

/// Why something is not available, in a few words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It will not be available later either.
    Lasting(String),
    /// The process lacks a resource at the moment.
    Passing(String),
}

impl Refusal {
    /// The same refusal with another text.
    fn map(self, words: impl FnOnce(String) -> String) -> Refusal {
        match self {
            Refusal::Lasting(why) => Refusal::Lasting(words(why)),
            Refusal::Passing(why) => Refusal::Passing(words(why)),
        }
    }
}

/// Decides, given the variable's value and a function that describes io_uring or says why it cannot be
/// used.
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
            // A lack at the start should not decide for the whole life of the process.
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
    fn io_uring_is_chosen_if_available() {
        for nothing in [None, Some("")] {
            assert_eq!(choose(nothing, there).unwrap().kind, Kind::Uring);
            let fallback = choose(nothing, refused).unwrap();
            assert_eq!(fallback.kind, Kind::Epoll);
            assert_eq!(fallback.reason, "io_uring is refused");
        }
    }

    #[test]
    fn a_forced_backend_is_chosen_or_an_error() {
        assert_eq!(choose(Some("uring"), there).unwrap().kind, Kind::Uring);
        let never = || panic!("probed unnecessarily");
        assert_eq!(choose(Some("epoll"), never).unwrap().kind, Kind::Epoll);
        let error = choose(Some("uring"), refused).unwrap_err();
        let text = "CAREFREE_REACTOR=uring, but io_uring is refused; unset it, or set it to epoll";
        assert_eq!(error, Refusal::Lasting(text.into()));
        let error = choose(Some("kqueue"), never).unwrap_err();
        let text = "CAREFREE_REACTOR is 'kqueue': it must be uring or epoll";
        assert_eq!(error, Refusal::Lasting(text.into()));
    }

    #[test]
    fn a_passing_refusal_decides_nothing() {
        let undecided = choose(None, in_need).unwrap_err();
        assert_eq!(undecided, Refusal::Passing("io_uring is in need".into()));
        assert!(matches!(choose(Some("uring"), in_need), Err(Refusal::Passing(_))));
        assert_eq!(choose(Some("epoll"), in_need).unwrap().kind, Kind::Epoll);
    }
}
