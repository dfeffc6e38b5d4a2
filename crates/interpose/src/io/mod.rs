//! `read`, `write` and their kin.

pub(crate) mod call;
mod count;
pub mod eventfd;
mod perform;
pub mod read_write;
mod reopen;
mod rest;
pub(crate) mod seekable;
pub(crate) mod stream;
mod stream_read;
mod stream_write;
pub mod terminal;
