//! The switch on aarch64, AAPCS64 calling convention.
//!
//! # A suspended computation
//!
//! A coroutine's is in its [`Context`] alone, a fiber's partly on its stack, where it is as near to
//! the locals that the fiber will need next as it can be:
//!
//! ```text
//!           Context                      ThreadContext             the fiber's stack
//!      +------------------+           +------------------+      +---------------------+
//!  + 0 |        sp        | ---> ...  |        sp        | ---> |         x29         | + 0
//!      +------------------+           +------------------+      +---------------------+
//!  + 8 |  where to go on  |           |    TPIDR_EL0     |      |   where to go on    | + 8
//!      +------------------+           +------------------+      +---------------------+
//!  +16 |       x19        |                                     |         x19         | +16
//!      +------------------+                                     +---------------------+
//!  +24 |       x29        |                                     |        FPCR         | +24
//!      +------------------+                                     +---------------------+
//!                                                               ~   caller's frame    ~
//! ```
//!
//! One that has never run goes on at a trampoline, with the function it is to call in the place of x19
//! and that function's argument in the place of x29, and above that is the top of its stack, rounded
//! down to 16 bytes.
//!
//! # The registers
//!
//! | register | at a switch |
//! |---|---|
//! | x0, x1 | the message: goes in on one side, comes out on the other |
//! | x2, x3 | `from` and `to`, or the pair, on the way in |
//! | sp | exchanged |
//! | x19, x29 | saved by hand: LLVM reserves them, so they cannot be declared as clobbered |
//! | x4 to x18, x20 to x28, x30, v0 to v31, predicates, flags | clobbered: the compiler keeps what is alive |
//! | TPIDR_EL0 | [`switch_thread`] with own thread-local storage only |
//! | FPCR | [`switch_thread`] only, see the page above. (FPSR records exceptions and is nobody's across calls.) |
//!
//! # Why it looks like this
//!
//! As on x86-64: in line with everything clobbered, the compiler stores what is alive and no more;
//! and the processor predicts a `ret` by the last `bl`, which was on the other stack, hence `br`.
//!
//! `hint #36` is `bti j`: the one kind of place an indirect `br` may go to where branch targets are
//! enforced, and nothing elsewhere.

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;

use super::{Context, Message, Pair, ThreadContext, marked};
use crate::instrument::{arrive, leave};

/// Whether the thread pointer can be set without a system call: always, here.
#[inline(always)]
pub fn fsgsbase() -> bool {
    true
}

/// Does nothing here: it is x86-64 that knows machines on which only the kernel can set the thread
/// pointer.
pub fn force_no_fsgsbase() {}

/// Asks the processor to bring the cache line at `address` near. A hint: any address is allowed.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch faults nowhere and changes nothing a program can see.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

/// The thread pointer of the caller: the address every thread-local variable is found from.
#[inline(always)]
pub fn thread_pointer() -> *mut u8 {
    let tp: *mut u8;
    // Not `pure`: the compiler must not carry an answer over a switch.
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) tp, options(nostack, preserves_flags, nomem));
    }
    tp
}

/// Makes `tp` the caller's thread pointer.
///
/// # Safety
///
/// `tp` must point to a complete thread control block with thread-local storage above it, and no
/// other thread may be running under it. Nothing that the compiler or a library derived from the old
/// thread pointer (the address of a thread-local variable, `errno`) may be used until it is set back:
/// keep what lies between free of anything but plain code.
#[inline(always)]
pub unsafe fn set_thread_pointer(tp: *mut u8) {
    // SAFETY: programs may write the register, and the caller vouches for `tp`.
    unsafe { asm!("msr tpidr_el0, {}", in(reg) tp, options(nostack, preserves_flags)) };
}

/// Suspends the caller into `from` and goes on with `to`, which receives `message`. Returns when
/// somebody switches to `from`, with the message of that switch.
///
/// # Safety
///
/// * `to` was written by [`prepare`] or by a `switch`, and has not been entered since.
/// * `to`'s stack is mapped and holds what it held when it was suspended, and nobody else runs on it.
/// * `from` is valid for a write, and is not `to`.
/// * Both sides run under the same thread pointer, or no thread-local variable's address is carried
///   over the call.
/// * The two sides agree on what `message` means.
#[inline(always)]
pub unsafe fn switch(from: *mut Context, to: *const Context, message: Message) -> Message {
    let Message { mut word, mut kind } = message;
    // SAFETY: the caller's promises, and the contract on top of this file: what is not declared as
    // clobbered here is restored before this side goes on at label 2.
    unsafe {
        asm!(
            "adr x4, 2f",
            "mov x5, sp",
            "stp x5, x4, [x2]",
            "stp x19, x29, [x2, #16]",
            "ldp x5, x4, [x3]",
            "ldp x19, x29, [x3, #16]",
            "mov sp, x5",
            "br x4",
            "2:",
            "hint #36",
            inout("x0") word,
            inout("x1") kind,
            inout("x2") from => _,
            inout("x3") to => _,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        );
    }
    Message { word, kind }
}

/// [`switch`] from a coroutine's resumer to the coroutine. One address leads to both sides.
///
/// # Safety
///
/// As with [`switch`]; `pair` is valid until the coroutine is entered the next time.
#[inline(always)]
pub unsafe fn resume(pair: *mut Pair, message: Message) -> Message {
    let Message { mut word, mut kind } = message;
    // SAFETY: as in `switch`.
    unsafe {
        asm!(
            "adr x4, 2f",
            "mov x5, sp",
            "stp x5, x4, [x3, #32]",
            "stp x19, x29, [x3, #48]",
            "ldp x5, x4, [x3]",
            "ldp x19, x29, [x3, #16]",
            "mov sp, x5",
            "br x4",
            "2:",
            "hint #36",
            inout("x0") word,
            inout("x1") kind,
            inout("x3") pair => _,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        );
    }
    Message { word, kind }
}

/// [`switch`] from a coroutine to its resumer, to which `word` goes, and as the message's `kind` the
/// address of `pair`: it is in a register anyway.
///
/// # Safety
///
/// As with [`switch`].
#[inline(always)]
pub unsafe fn suspend(pair: *mut Pair, word: MaybeUninit<usize>) -> Message {
    let mut word = word;
    let kind: usize;
    // SAFETY: as in `switch`.
    unsafe {
        asm!(
            "adr x4, 2f",
            "mov x5, sp",
            "stp x5, x4, [x1]",
            "stp x19, x29, [x1, #16]",
            "ldp x5, x4, [x1, #32]",
            "ldp x19, x29, [x1, #48]",
            "mov sp, x5",
            "br x4",
            "2:",
            "hint #36",
            inout("x0") word,
            inout("x1") pair => kind,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        );
    }
    Message { word, kind }
}

/// The body of both `switch_thread`s. x5 holds the caller's FPCR; what is hardly ever run (loading
/// the other side's) stands behind the jump away, where nothing falls into it.
///
/// Why it is right: as in [`switch`]; and no compiled code runs between the change of the thread
/// pointer and the other side's label 2, so nobody sees a thread-local variable of the wrong side.
macro_rules! switch_thread {
    ($from:ident, $to:ident, $float:literal, [$($tls:literal,)*]) => {
        asm!(
            "adr x4, 2f",
            "stp x29, x4, [sp, #-32]!",
            $float,
            "stp x19, x5, [sp, #16]",
            "mov x4, sp",
            "str x4, [x2]",
            "ldr x4, [x3]",
            $($tls,)*
            "ldr x6, [x4, #24]",
            "ldr x7, [x4, #8]",
            "mov sp, x4",
            "cmp x5, x6",
            "b.ne 4f",
            "br x7",
            "4:",
            "msr fpcr, x6",
            "br x7",
            "2:",
            "hint #36",
            "ldr x19, [sp, #16]",
            "ldr x29, [sp], #32",
            inout("x2") $from => _,
            inout("x3") $to => _,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        )
    };
    ($own_tls:ident, $from:ident, $to:ident, $float:literal) => {
        if $own_tls {
            switch_thread!($from, $to, $float, ["ldr x6, [x3, #8]", "msr tpidr_el0, x6",])
        } else {
            switch_thread!($from, $to, $float, [])
        }
    };
}

/// Suspends the caller into `from` and goes on with `to`: the switch between fibers, for a caller
/// that may be C code. Returns when somebody switches to `from`.
///
/// The floating-point control word belongs to each side: the caller's is saved, `to`'s is loaded
/// where it differs. With `OWN_TLS` the thread pointer belongs to each side too: the other side runs
/// under `to`'s. (`from`'s is not written: a fiber keeps its own for life.)
///
/// # Safety
///
/// * `to` was written by [`prepare_thread`] or by a `switch_thread` of either kind, and has not been
///   entered since.
/// * `to`'s stack is mapped and holds what it held when it was suspended, and nobody else runs on it.
/// * `from` is valid for a write, and is not `to`.
/// * With `OWN_TLS`, `to`'s thread pointer is that of a complete thread control block under which
///   nobody else runs. Without, both sides run under the same thread pointer.
#[inline(always)]
pub unsafe fn switch_thread<const OWN_TLS: bool>(
    from: *mut ThreadContext,
    to: *const ThreadContext,
) {
    // SAFETY: the caller's promises; see the macro.
    unsafe {
        leave(&raw mut (*from).mark, &raw const (*to).mark);
        switch_thread!(OWN_TLS, from, to, "mrs x5, fpcr");
        arrive(&raw const (*from).mark);
    }
}

/// [`switch_thread`] for a caller that runs under the default floating-point environment, as Rust
/// code does: the caller's control word need not be read, it is known.
///
/// # Safety
///
/// What [`switch_thread`] asks for, and FPCR is the default one, 0.
#[inline(always)]
pub unsafe fn switch_thread_from_rust<const OWN_TLS: bool>(
    from: *mut ThreadContext,
    to: *const ThreadContext,
) {
    // SAFETY: the caller's promises; see the macro.
    unsafe {
        leave(&raw mut (*from).mark, &raw const (*to).mark);
        switch_thread!(OWN_TLS, from, to, "mov x5, #0");
        arrive(&raw const (*from).mark);
    }
}

/// A computation that has yet to start, on the stack that ends at `top`: the first [`switch`] to it
/// calls `entry(word, kind, data)` with that switch's message.
///
/// `entry` finds an aligned stack and no caller: it must leave by a switch. Entering the context is
/// what needs care, making it does not: nothing is written to the stack.
#[inline]
pub fn prepare(
    top: *mut u8,
    entry: unsafe extern "C" fn(word: MaybeUninit<usize>, kind: usize, data: *mut u8) -> !,
    data: *mut u8,
) -> Context {
    Context {
        sp: align_down(top),
        pc: trampoline as *const () as usize,
        registers: [entry as *const () as usize, data.expose_provenance()],
    }
}

/// Writes the first frame of a fiber on the stack that ends at `top`, so that the first
/// [`switch_thread`] to it calls `entry` with `data`, under the thread pointer `tp` if that switch is
/// one with own thread-local storage.
///
/// It starts under the default floating-point environment (FPCR 0) whatever that of its creator is. A
/// POSIX thread would inherit its creator's; a fiber is entered by a carrier, not by its creator, and
/// Rust code may count on the default.
///
/// `entry` finds an aligned stack and no caller: it must leave by a switch.
///
/// # Safety
///
/// The 64 bytes below `top` must be valid for writes, and the stack must be large enough for `entry`.
#[inline]
pub unsafe fn prepare_thread(
    top: *mut u8,
    tp: *mut u8,
    entry: unsafe extern "C" fn(data: *mut u8) -> !,
    data: *mut u8,
) -> ThreadContext {
    let top = align_down(top);
    // SAFETY: the caller vouches for the bytes.
    let (top, entry, data, mark) = unsafe { marked(top, entry, data) };
    // SAFETY: the four words are within the bytes the caller vouches for.
    unsafe {
        let frame = top.cast::<usize>().sub(4);
        frame.write(data.expose_provenance());
        frame.add(1).write(thread_trampoline as *const () as usize);
        frame.add(2).write(entry as *const () as usize);
        frame.add(3).write(0);
        ThreadContext { sp: frame.cast(), tp, mark }
    }
}

#[inline(always)]
fn align_down(top: *mut u8) -> *mut u8 {
    top.wrapping_sub(top as usize % 16)
}

unsafe extern "C" {
    /// Where a computation starts: calls `entry(word, kind, data)`. Never called, only jumped to.
    #[link_name = "carefree_context_trampoline"]
    fn trampoline();
    /// Where a fiber starts: calls `entry(data)`. Never called, only jumped to.
    #[link_name = "carefree_context_thread_trampoline"]
    fn thread_trampoline();
}

// The unwind information of the trampolines ends every walk over the stack: the return address is
// undefined, which is DWARF for "there is no caller", and x29, the frame-pointer chain, is null. The
// canonical frame address is the stack's top.
//
// `brk` is never reached. It is there so that the return address still belongs to the function: an
// unwinder looks up the byte before it, a symboliser often the address itself.
macro_rules! trampoline {
    ($name:literal, $data:literal, $frame:literal, [$($pop:literal),*]) => {
        global_asm!(
            ".pushsection .text.carefree_context_trampoline, \"ax\", @progbits",
            ".balign 16",
            concat!(".type ", $name, ", @function"),
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!($name, ":"),
            ".cfi_startproc",
            concat!(".cfi_def_cfa_offset ", $frame),
            ".cfi_undefined x30",
            "hint #36",
            $($pop,)*
            ".cfi_def_cfa_offset 0",
            concat!("mov ", $data, ", x29"),
            "mov x29, xzr",
            "mov x30, xzr",
            "blr x19",
            "brk #1",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
        );
    };
}

// x0 and x1 hold the message already.
trampoline!("carefree_context_trampoline", "x2", "0", []);
// As behind label 2 of `switch_thread`.
trampoline!(
    "carefree_context_thread_trampoline",
    "x0",
    "32",
    ["ldr x19, [sp, #16]", "ldr x29, [sp], #32"]
);
