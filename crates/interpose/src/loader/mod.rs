//! Loading libraries, and the dynamic loader's lock.

#[cfg(not(carefree_sanitized))]
pub mod dlopen;
pub mod library;
pub mod lock;
#[cfg(not(target_feature = "crt-static"))]
mod references;
