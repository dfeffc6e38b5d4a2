//! What a runtime with virtual time has: see [`crate::RuntimeBuilder::virtual_time`].

use std::sync::Arc;

use carefree_reactor::clock::Virtual;

/// The clock of a runtime with virtual time, and the seed from which its fibers' order is drawn.
#[derive(Clone, Debug)]
pub(crate) struct VirtualTime {
    pub(crate) seed: u64,
    pub(crate) clock: Arc<Virtual>,
}
