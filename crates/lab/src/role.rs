//! Which side of the comparison a unit stands on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workload::unknown;

/// Which side of the comparison a unit stands on. Runtimes call their units by many names; this is
/// what makes a goroutine comparable to a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Switched by the runtime: fibers, coroutines, goroutines, tasks, processes of Erlang.
    Fiber,
    /// Switched by the kernel.
    Thread,
}

impl Role {
    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Role::Fiber => "fiber",
            Role::Thread => "thread",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    /// Finds a role by its name.
    ///
    /// # Errors
    /// One line that names the right ones.
    fn from_str(name: &str) -> Result<Role, String> {
        [Role::Fiber, Role::Thread]
            .into_iter()
            .find(|role| role.name() == name)
            .ok_or_else(|| unknown("role", name, [Role::Fiber, Role::Thread].map(Role::name)))
    }
}
