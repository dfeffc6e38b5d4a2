//! carefree-context
pub mod arch;
pub mod tls;
