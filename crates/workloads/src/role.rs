//! Which side of the comparison a unit stands on.

use crate::named;

named! {
    /// Which side of the comparison a unit stands on. Runtimes call their units by many names; this
    /// is what makes a goroutine comparable to a fiber.
    pub enum Role as "role" {
        /// Switched by the runtime: fibers, coroutines, goroutines, tasks, processes of Erlang.
        Fiber = "fiber",
        /// Switched by the kernel.
        Thread = "thread",
    }
}

impl Role {
    /// The role a record names, or else the one that the unit's own name tells.
    pub fn of(role: Option<&str>, unit: &str) -> Role {
        let kernels = ["thread", "platform", "worker", "locked"];
        let named = role.and_then(|role| role.parse().ok());
        named.unwrap_or(match kernels.iter().any(|name| unit.contains(name)) {
            true => Role::Thread,
            false => Role::Fiber,
        })
    }
}
