//! Signals of a process whose threads are fibers.
//!
//! To the kernel, a signal is for the process or for a kernel thread, and each kernel thread has a mask. A
//! fiber is neither, so masks and handlers are kept here:
//!
//! * All carriers block all signals but faults, and so does the *dispatcher*, the process's first kernel
//!   thread. It takes those of the process by `sigwaitinfo`, and decides which thread each is for, as the
//!   kernel does: the first one if that does not block it, else any other that does not. If all block it, it
//!   goes back to the process, where `sigwait`, `sigpending` and `signalfd` find it.
//! * What handlers the program has set stays in the kernel's table. They are called by the thread that the
//!   signal is for, on its stack or its alternate one, at the end of the call that it makes: a wait is interrupted for that, and
//!   then fails with `EINTR` or is begun again, as the handler's flags say. A thread that computes is
//!   interrupted by a signal to its carrier.
//! * A default action is the kernel's: the signal is let through.
//!
//! Faults (`SIGSEGV` and its kin) come to the carrier in the middle of the fiber that has caused them: see `fault`.
//! What a call raises (`SIGPIPE`) comes at its end: see `raised`.

mod action;
mod alarm;
mod alternate;
mod beside;
mod carrier;
mod crash;
mod deliver;
mod dispatcher;
mod expiry;
mod fault;
mod handler;
mod jump;
mod kill;
mod mask;
mod post;
pub(crate) mod queue;
mod raised;
mod sent;
mod set;
mod terminal;
mod timer;
mod wait;

pub(crate) use action::prepare as prepare_for_crashes;
pub(crate) use alternate::{alternate_stack, give_back as give_alternate_back};
pub(crate) use beside::is_child;
pub(crate) use carrier::is_ours;
pub(crate) use deliver::{after_call, amid_call, end, handle, has_come, interrupt, settle_one};
pub(crate) use dispatcher::{begin, give_up, is_any_pending, renew, run};
pub(crate) use jump::find as find_sigsetjmp;
pub(crate) use kill::{by_number as kill_by_number, is_own, send};
pub(crate) use mask::{
    change_by_number, for_child, for_program, for_program_in_place, mask, note_fork,
    set as set_mask, set_kernels,
};
pub(crate) use post::{look_again, settle};
pub(crate) use raised::stand_in_for_handlers;
pub(crate) use set::{FAULTS, OURS, UNBLOCKABLE, bit, open_faults, spared};
pub(crate) use timer::by_number as timer_by_number;
pub(crate) use wait::{suspend, take, wait_with_mask};
