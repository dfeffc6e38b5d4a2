//! When io_uring finishes completions: which thread takes the last step of an operation that had to
//! wait, and when.

use once_cell::race::OnceBox;

const VARIABLE: &str = "CAREFREE_URING";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The owner's thread, when it next enters the kernel for any reason, at the latest by a timer
    /// interrupt. So other threads see completions even while the owner computes.
    Soon,
    /// The owner, inside its own `io_uring_enter` (`DEFER_TASKRUN`, Linux 6.1). Completions come
    /// together, which is cheaper, but other threads cannot fetch them while the owner computes.
    Deferred,
}

impl Finish {
    /// The setting in the environment.
    ///
    /// # Errors
    /// A line that says what is wrong with it.
    pub(super) fn wanted() -> Result<Finish, String> {
        // Not a lock, as in `choice`.
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
