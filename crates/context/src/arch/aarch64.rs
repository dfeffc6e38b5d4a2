//! The switch on aarch64, AAPCS64 calling convention.
//!
//! # A suspended computation
//!
//! A coroutine's state is in its [`Context`] alone. A fiber's is partly on its stack, next to the
//! locals that the fiber will need first:
//!
//! ```text
//!           Context                      ThreadContext             the fiber's stack
//!      +------------------+           +------------------+      +---------------------+
//!  + 0 |        sp        | ---> ...  |        sp        | ---> |         x29         | + 0
//!      +------------------+           +------------------+      +---------------------+
//!  + 8 | where to continue|           |    TPIDR_EL0     |      |  where to continue  | + 8
//!      +------------------+           +------------------+      +---------------------+
//!  +16 |       x19        |                                     |         x19         | +16
//!      +------------------+                                     +---------------------+
//!  +24 |       x29        |                                     |        FPCR         | +24
//!      +------------------+                                     +---------------------+
//!                                                               ~   caller's frame    ~
//! ```
//!
//! A computation that has never run continues at a trampoline. The function that it is to call is
//! in the place of x19, that function's argument in the place of x29; above that is the top of its
//! stack, rounded down to 16 bytes.
//!
//! # The registers
//!
//! | register | at a switch |
//! |---|---|
//! | x0, x1 | the message: goes in on one side, comes out on the other |
//! | x2, x3 | `from` and `to`, or the pair, on the way in |
//! | sp | exchanged |
//! | x19, x29 | saved by hand: LLVM reserves them, so they cannot be declared as clobbered |
//! | x4 to x18, x20 to x28, x30, v0 to v31, predicates, flags | clobbered: the compiler keeps what is live |
//! | TPIDR_EL0 | [`switch_thread`] with own thread-local storage only |
//! | FPCR | [`switch_thread`] only, see the module `arch`. (FPSR records exceptions, and no side relies on it across calls.) |
//!
//! # Why it looks like this
//!
//! As on x86-64: inline, with everything clobbered, the compiler stores only what is live; and the
//! processor predicts a `ret` by the last `bl`, which was on the other stack, hence `br`.
//!
//! `hint #36` is `bti j`: where branch targets are enforced, an indirect `br` may jump to nothing
//! else. Elsewhere it does nothing.

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;

use super::context::{Context, Message, Pair, ThreadContext};
use crate::sanitizer::{arrive, leave, wrap_entry};

/// Asks the processor to bring the cache line at `address` near. A hint: any address is allowed.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing that a program can see.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

/// Suspends the caller into `from` and continues `to`, which receives `message`. Returns when another
/// switch enters `from`, with the message of that switch.
///
/// # Safety
///
/// * `to` was written by [`prepare`] or by a `switch`, and has not been entered since.
/// * `to`'s stack is mapped and holds what it held when it was suspended, and nothing else runs on it.
/// * `from` is valid for a write, and is not `to`.
/// * Both sides run under the same thread pointer, or no thread-local variable's address is carried
///   over the call.
/// * The two sides agree on what `message` means.
#[inline(always)]
pub unsafe fn switch(from: *mut Context, to: *const Context, message: Message) -> Message {
    let Message { mut word, mut kind } = message;
    // SAFETY: `to` was saved by this function or by `prepare`, so its words are a stack pointer, a
    // label or trampoline, and the two reserved registers. Every register is either declared as
    // clobbered or restored before this side continues at label 2, and the switch back finds this
    // frame untouched: nothing else runs on this stack.
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
/// As for [`switch`], from `resumer` to `own`. `pair` stays valid until the switch back.
#[inline(always)]
pub unsafe fn resume(pair: *mut Pair, message: Message) -> Message {
    let Message { mut word, mut kind } = message;
    // SAFETY: as in `switch`; both contexts lie in `pair`, at offsets 0 and 32.
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

/// [`switch`] from a coroutine to its resumer. The message's `kind` is the address of `pair`, which is
/// in a register anyway.
///
/// # Safety
///
/// As for [`switch`], from `own` to `resumer`. `pair` stays valid until the switch back.
#[inline(always)]
pub unsafe fn suspend(pair: *mut Pair, word: MaybeUninit<usize>) -> Message {
    let mut word = word;
    let kind: usize;
    // SAFETY: as in `switch`; both contexts lie in `pair`, at offsets 0 and 32.
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

/// The body of both `switch_thread`s. x5 holds the caller's FPCR. The cold part (loading the other
/// side's) stands behind the jump to the other side, so the common path jumps over nothing.
///
/// Sound for the same reasons as [`switch`]. In addition, no compiled code runs between the change
/// of the thread pointer and the other side's label 2, so no code accesses thread-local variables
/// of the wrong side.
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

/// Suspends the caller into `from` and continues `to`: the switch between fibers, for a caller
/// that may be C code. Returns when another switch enters `from`.
///
/// The floating-point control word belongs to each side: the caller's is saved, `to`'s is loaded
/// where it differs. With `OWN_TLS` each side also has its own thread pointer, and the other side runs
/// under `to`'s. (`from`'s is not written: a fiber keeps its own for life.)
///
/// # Safety
///
/// * `to` was written by [`prepare_thread`] or by a `switch_thread` of either kind, and has not been
///   entered since.
/// * `to`'s stack is mapped and holds what it held when it was suspended, and nothing else runs on it.
/// * `from` is valid for a write, and is not `to`.
/// * With `OWN_TLS`, `to`'s thread pointer is that of a complete thread control block under which
///   nothing else runs. Without, both sides run under the same thread pointer.
#[inline(always)]
pub unsafe fn switch_thread<const OWN_TLS: bool>(
    from: *mut ThreadContext,
    to: *const ThreadContext,
) {
    // SAFETY: `to` was saved by one of these functions or by `prepare_thread`, in the form that the
    // macro reads (see there); both marks lie in the contexts.
    unsafe {
        leave(&raw mut (*from).mark, &raw const (*to).mark);
        switch_thread!(OWN_TLS, from, to, "mrs x5, fpcr");
        arrive(&raw const (*from).mark);
    }
}

/// [`switch_thread`] for a caller that runs under the default floating-point environment, as Rust
/// code does: its control word is known and need not be read.
///
/// # Safety
///
/// As for [`switch_thread`]. FPCR has its default value, 0.
#[inline(always)]
pub unsafe fn switch_thread_from_rust<const OWN_TLS: bool>(
    from: *mut ThreadContext,
    to: *const ThreadContext,
) {
    // SAFETY: `to` was saved by one of these functions or by `prepare_thread`, in the form that the
    // macro reads (see there); both marks lie in the contexts.
    unsafe {
        leave(&raw mut (*from).mark, &raw const (*to).mark);
        switch_thread!(OWN_TLS, from, to, "mov x5, #0");
        arrive(&raw const (*from).mark);
    }
}

/// A computation that has yet to start, on the stack that ends at `top`: the first [`switch`] to it
/// calls `entry(word, kind, data)` with that switch's message.
///
/// `entry` starts on an aligned stack without a caller, so it must leave by a switch. This function is
/// safe because it writes nothing to the stack; entering the context is unsafe.
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
/// The fiber starts under the default floating-point environment (FPCR 0), whatever its creator's
/// is. A POSIX thread would inherit its creator's, but Rust code may rely on the default.
///
/// `entry` starts on an aligned stack without a caller, so it must leave by a switch.
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
    // SAFETY: at most 15 bytes were lost to the alignment, so 49 of the 64 writable bytes are left:
    // `wrap_entry` may take the upper 16, the four words below need 32.
    let (top, entry, data, mark) = unsafe { wrap_entry(top, entry, data) };
    // SAFETY: see above.
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
    /// Starts a coroutine: calls `entry(word, kind, data)`. Reached by a jump, never called.
    #[link_name = "carefree_context_trampoline"]
    fn trampoline();
    /// Starts a fiber: calls `entry(data)`. Reached by a jump, never called.
    #[link_name = "carefree_context_thread_trampoline"]
    fn thread_trampoline();
}

// The unwind information of the trampolines ends every walk over the stack: the return address is
// undefined, which is DWARF for "there is no caller", and x29, the frame-pointer chain, is null. The
// canonical frame address is the stack's top.
//
// `brk` is never reached. It keeps the return address inside the function: an unwinder looks up the
// byte before that address, a symboliser often the address itself.
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

// x0 and x1 already hold the message.
trampoline!("carefree_context_trampoline", "x2", "0", []);
// Pops what the code behind label 2 of `switch_thread` would.
trampoline!(
    "carefree_context_thread_trampoline",
    "x0",
    "32",
    ["ldr x19, [sp, #16]", "ldr x29, [sp], #32"]
);
