//! Opening, closing, locking and flushing files, and changing their modes.

pub mod close;
pub mod control;
pub mod lock;
pub mod open;
pub mod sync;
