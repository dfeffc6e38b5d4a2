//! Time of a runtime's own.

use std::sync::Arc;

use carefree_reactor::clock::Virtual;

/// Time of a runtime's own, and the seed that its fibers' order is drawn from.
#[derive(Clone, Debug)]
pub(crate) struct VirtualTime {
    pub(crate) seed: u64,
    pub(crate) clock: Arc<Virtual>,
}
