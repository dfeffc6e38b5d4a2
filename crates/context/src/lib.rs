//! carefree-context
pub mod arch;
