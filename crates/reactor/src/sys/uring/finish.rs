//! How completions are finished: who takes the last step of an operation that had to wait, and when.

use once_cell::race::OnceBox;

const VARIABLE: &str = "CAREFREE_URING";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The owner's thread, on its next way through the kernel, whatever for: a timer interrupt at
    /// the latest. Others see completions then, also when the owner computes.
    Soon,
    /// The owner, inside its own `io_uring_enter` (`DEFER_TASKRUN`, Linux 6.1). Completions come
    /// together, which is cheaper, but nobody can fetch them for an owner who computes.
    Deferred,
}

impl Finish {
    /// What the environment asks for.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn wanted() -> Result<Finish, String> {
        // As in `choice`: nobody waits here for another.
        static WANTED: OnceBox<Result<Finish, String>> = OnceBox::new();
        let wanted = WANTED.get_or_init(|| {
            let value = carefree_settings::setting(VARIABLE).unwrap_or_default();
            Box::new(match value.to_string_lossy().as_ref() {
                "" | "soon" => Ok(Finish::Soon),
                "deferred" => Ok(Finish::Deferred),
                other => Err(format!("{VARIABLE} is '{other}': it must be soon or deferred")),
            })
        });
        wanted.clone()
    }
}
