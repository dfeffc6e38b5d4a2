//! Loading libraries, and the dynamic loader's lock.

#[cfg(not(carefree_sanitized))]
mod dlopen;
mod library;
pub mod lock;
