//! What crates that report on the runtime see of it, and how they are called: glances at runtimes,
//! carriers and fibers, and the hooks that such a crate registers.
//!
//! Everything runs on meanwhile, so what is read is of slightly different moments. Nothing here
//! allocates, so that a report comes even where the program hangs in its allocator.

pub(crate) mod carriers;
pub(crate) mod fibers;
pub(crate) mod hooks;

pub use crate::carrier::lookout;
pub use carriers::{CarrierGlance, CarrierState, RuntimeGlance, Visits, for_each_runtime};
pub use fibers::{FiberGlance, fiber_on, for_each_fiber, running_at};
pub use hooks::{Hooks, register};
