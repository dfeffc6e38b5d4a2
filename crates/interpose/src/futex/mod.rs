//! The futex: what `std`, parking_lot and crossbeam wait on, through `syscall`.

pub(crate) mod call;
mod outside;
pub(crate) mod perform;
pub(crate) mod requeue;
pub(crate) mod several;
pub(crate) mod wait;
pub(crate) mod wake;
