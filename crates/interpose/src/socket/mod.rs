//! `recv`, `send`, `accept`, `connect` and their kin.

pub mod accept;
pub mod connect;
mod flags;
pub(crate) mod message;
pub mod messages;
mod named;
mod peek;
mod plain;
pub mod receive;
pub mod receive_message;
mod resume;
pub mod send;
pub(crate) mod send_rest;
mod waitall;
mod waitall_message;
