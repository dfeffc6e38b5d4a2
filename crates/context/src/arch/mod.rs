//! The context switch: suspend one computation, continue another.
//!
//! There are two kinds of suspended computation, and they differ in what code may run on them.
//!
//! * A [`Context`] is a coroutine's. Only Rust functions (`resume` and `suspend`) enter and leave it,
//!   so a switch saves what the calling convention lets a Rust caller rely on: the stack pointer and
//!   the frame and base pointers. Every other register is declared as clobbered, and the compiler
//!   saves just what is live at each switch.
//!   The **floating-point control words** (MXCSR and the x87 control word; FPCR on aarch64) are
//!   *not* saved. The reference of the Rust language says that Rust code may only run under the
//!   default floating-point environment: code that changes it must change it back before it
//!   returns to Rust. `resume` and `suspend` are Rust functions, so both sides run under the default
//!   environment when they call them. (`tests/coroutine_float.rs` shows this, and what happens to a
//!   program that breaks the rule.)
//! * A [`ThreadContext`] is a fiber's, on which C code may run as on a thread. C code may call
//!   `fesetround` and then block, and a thread's floating-point environment is its own. So
//!   [`switch_thread`] saves the control words, and loads those of the other side where they differ.
//!   Reading MXCSR takes longer than the rest of the switch. Rust callers, such as a scheduler, run
//!   under the default words; they use [`switch_thread_from_rust`], which does not read them and still
//!   gives the other side its own. Both functions can also exchange the thread pointer, and with it
//!   every thread-local variable.
//!
//! A coroutine's registers are saved in its context, not on its stack. The whole switch then touches
//! one cache line, which holds both sides ([`Pair`]), and all registers can be loaded at once, where a
//! frame on the stack can be read only after the stack pointer. (With frames on the stack, a round of
//! a thousand coroutines took more than twice as long.) A fiber's registers are saved on its stack:
//! a scheduler should keep little for each fiber, and other costs dominate the switch of fibers.
//!
//! `x86_64.rs` and `aarch64.rs` define the same functions; each starts with a diagram and the contract
//! of the registers.
//!
//! The trampolines that start a computation tell every kind of unwinder that there is no caller.
//! DWARF unwinders (panics, backtraces, gdb) read it in the unwind table, frame-pointer profilers
//! find a null frame pointer.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod context;
mod float;
mod fsgsbase;
mod thread_pointer;
mod thread_word;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as native;
#[cfg(target_arch = "x86_64")]
use x86_64 as native;

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("carefree-context supports Linux on x86-64 and on aarch64 only");

pub use context::{Context, Message, Pair, ThreadContext};
pub use float::{FloatControl, FloatState};
pub use fsgsbase::{force_no_fsgsbase, fsgsbase, gs_base, keep_gs, set_gs_base};
pub use native::{
    prefetch, prepare, prepare_thread, resume, suspend, switch, switch_thread,
    switch_thread_from_rust,
};
pub use thread_pointer::{set_thread_pointer, thread_pointer};
