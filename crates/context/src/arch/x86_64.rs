//! The switch on x86-64, System V calling convention.
//!
//! # A suspended computation
//!
//! A coroutine's state is in its [`Context`] alone. A fiber's is partly on its stack, next to the
//! locals that the fiber will need first:
//!
//! ```text
//!           Context                      ThreadContext             the fiber's stack
//!      +------------------+           +------------------+      +---------------------+
//!  + 0 |       rsp        | ---> ...  |       rsp        | ---> |  MXCSR | x87 |      | + 0
//!      +------------------+           +------------------+      +---------------------+
//!  + 8 | where to continue|           |     FS base      |      |  where to continue  | + 8
//!      +------------------+           +------------------+      +---------------------+
//!  +16 |       rbx        |                                     |         rbx         | +16
//!      +------------------+                                     +---------------------+
//!  +24 |       rbp        |                                     |         rbp         | +24
//!      +------------------+                                     +---------------------+
//!                                                               ~   caller's frame    ~
//! ```
//!
//! A computation that has never run continues at a trampoline. The function that it is to call is
//! in the place of rbx, that function's argument in the place of rbp; above that is the top of its
//! stack, rounded down to 16 bytes.
//!
//! # The registers
//!
//! | register | at a switch |
//! |---|---|
//! | rdi, rsi | the message: goes in on one side, comes out on the other |
//! | rdx, rcx | `from` and `to`, or the pair, on the way in |
//! | rsp | exchanged |
//! | rbx, rbp | saved by hand: LLVM reserves them, so they cannot be declared as clobbered |
//! | rax, r8 to r15, vector, mask and x87 registers, flags | clobbered: the compiler keeps what is live |
//! | fs | [`switch_thread`] with own thread-local storage only |
//! | gs | the same, where fibers [keep it](super::keep_gs) |
//! | MXCSR, x87 control word | [`switch_thread`] only, see the module `arch` |
//!
//! # Why it looks like this
//!
//! *Inline, everything clobbered*: an out-of-line switch must save all six callee-saved registers,
//! live or not, and costs a call. Inline, the compiler spills only what it needs, once for several
//! switches in a row.
//!
//! *`jmp`, not `ret`*: the processor predicts a `ret` by the last `call`, which was on the other
//! stack, so each switch by `ret` would be mispredicted, which costs several times the rest of the
//! switch. An indirect jump is predicted by where it went the last time.

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use super::context::{Context, Message, Pair, ThreadContext};
use super::fsgsbase::{self, FSGSBASE};
use super::thread_pointer::{ARCH_SET_FS, SYS_ARCH_PRCTL};
use crate::sanitizer::{arrive, leave, wrap_entry};

/// MXCSR with which a thread starts: all exceptions masked, round to nearest, no flush to zero.
const MXCSR_DEFAULT: u64 = 0x1f80;
/// x87 control word with which a thread starts: all exceptions masked, 64 bits of precision, round
/// to nearest.
const X87_DEFAULT: u64 = 0x037f;
/// Both as they lie on the stack.
const FLOAT_DEFAULT: u64 = MXCSR_DEFAULT | X87_DEFAULT << 32;

/// Asks the processor to bring the cache line at `address` near. A hint: any address is allowed.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing that a program can see.
    unsafe { core::arch::x86_64::_mm_prefetch(address.cast(), core::arch::x86_64::_MM_HINT_T0) };
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
    // frame untouched: nothing else runs on this stack. Without `nostack`, the compiler keeps
    // nothing in the red zone below rsp.
    unsafe {
        asm!(
            "lea rax, [rip + 2f]",
            "mov [rdx], rsp",
            "mov [rdx + 8], rax",
            "mov [rdx + 16], rbx",
            "mov [rdx + 24], rbp",
            "mov rsp, [rcx]",
            "mov rbx, [rcx + 16]",
            "mov rbp, [rcx + 24]",
            "jmp [rcx + 8]",
            "2:",
            inout("rdi") word,
            inout("rsi") kind,
            inout("rdx") from => _,
            inout("rcx") to => _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("sysv64"),
        );
    }
    Message { word, kind }
}

/// [`switch`] from a coroutine's resumer to the coroutine. One address leads to both sides, which
/// saves two instructions.
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
            "lea rax, [rip + 2f]",
            "mov [rcx + 32], rsp",
            "mov [rcx + 40], rax",
            "mov [rcx + 48], rbx",
            "mov [rcx + 56], rbp",
            "mov rsp, [rcx]",
            "mov rbx, [rcx + 16]",
            "mov rbp, [rcx + 24]",
            "jmp [rcx + 8]",
            "2:",
            inout("rdi") word,
            inout("rsi") kind,
            inout("rcx") pair => _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("sysv64"),
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
            "lea rax, [rip + 2f]",
            "mov [rsi], rsp",
            "mov [rsi + 8], rax",
            "mov [rsi + 16], rbx",
            "mov [rsi + 24], rbp",
            "mov rsp, [rsi + 32]",
            "mov rbx, [rsi + 48]",
            "mov rbp, [rsi + 56]",
            "jmp [rsi + 40]",
            "2:",
            inout("rdi") word,
            inout("rsi") pair => kind,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("sysv64"),
        );
    }
    Message { word, kind }
}

/// The body of both `switch_thread`s, which differ in how they get the caller's control words.
///
/// `save` pushes them and keeps them in r9 and r10, `compare` jumps to label 4 if those on top of the
/// other side's stack differ. The cold parts (loading the words, the system call) stand behind the
/// jump to the other side, so the common path jumps over nothing.
///
/// Sound for the same reasons as [`switch`]. In addition, no compiled code runs between the change
/// of the thread pointer and the other side's label 2, so no code accesses thread-local variables
/// of the wrong side.
macro_rules! switch_thread {
    (
        $own_tls:ident, $from:ident, $to:ident,
        save: [$($save:literal,)*],
        compare: [$($compare:literal,)*],
        $($name:ident = const $value:expr,)*
    ) => {
        if $own_tls {
            switch_thread!(
                @ $from, $to,
                [$($save,)*],
                ["cmp r8b, {yes}", "mov r8, [rcx + 8]", "jne 6f", "wrfsbase r8", "5:",],
                [$($compare,)*],
                [
                    "6:",
                    "jb 7f",
                    // Each side has a word with its GS base, at the same offset from its thread pointer.
                    "rdgsbase rax",
                    "mov rsi, [rip + {gs_offset}]",
                    "mov fs:[rsi], rax",
                    "wrfsbase r8",
                    "mov rsi, fs:[rsi]",
                    "cmp rsi, rax",
                    "je 5b",
                    "wrgsbase rsi",
                    "jmp 5b",
                    // The system call clobbers rax, rcx and r11.
                    "7:",
                    "mov eax, {sys_arch_prctl}",
                    "mov edi, {arch_set_fs}",
                    "mov rsi, r8",
                    "syscall",
                    "jmp 5b",
                ],
                inout("r8b") FSGSBASE.load(Ordering::Relaxed) => _,
                yes = const fsgsbase::YES,
                gs_offset = sym fsgsbase::GS_OFFSET,
                sys_arch_prctl = const SYS_ARCH_PRCTL,
                arch_set_fs = const ARCH_SET_FS,
                $($name = const $value,)*
            )
        } else {
            switch_thread!(
                @ $from, $to, [$($save,)*], [], [$($compare,)*], [], $($name = const $value,)*
            )
        }
    };
    (
        @ $from:ident, $to:ident,
        [$($save:literal,)*], [$($tls:literal,)*], [$($compare:literal,)*], [$($tls_cold:literal,)*],
        $($operand:tt)*
    ) => {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            $($save,)*
            "mov [rdx], rsp",
            "mov rsp, [rcx]",
            $($tls,)*
            $($compare,)*
            "3:",
            "mov rax, [rsp + 8]",
            "add rsp, 16",
            "jmp rax",
            "4:",
            "ldmxcsr [rsp]",
            "fldcw [rsp + 4]",
            "jmp 3b",
            $($tls_cold,)*
            "2:",
            "pop rbx",
            "pop rbp",
            inout("rdx") $from => _,
            inout("rcx") $to => _,
            $($operand)*
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("sysv64"),
        )
    };
}

/// Suspends the caller into `from` and continues `to`: the switch between fibers, for a caller
/// that may be C code. Returns when another switch enters `from`.
///
/// The floating-point control words belong to each side: the caller's are saved, `to`'s are loaded
/// where they differ. (MXCSR also records exceptions, for `fetestexcept`. Those belong to a thread,
/// so they are compared too.) With `OWN_TLS` each side also has its own thread pointer, and the
/// other side runs under `to`'s. (`from`'s is not written: a fiber keeps its own for life.)
///
/// Reading MXCSR is slow (`stmxcsr` is microcode on a Zen 3; `cargo run --release -p carefree-context
/// --example switch_costs` prints both kinds). Rust code avoids it by calling
/// [`switch_thread_from_rust`]. A context saved by either function can be entered by the other.
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
    // The words are compared one by one, each with the width it was stored with: a wider load would
    // have to wait until the two stores have left the store buffer.
    // SAFETY: `to` was saved by one of these functions or by `prepare_thread`, in the form that the
    // macro reads (see there); both marks lie in the contexts.
    unsafe {
        leave(&raw mut (*from).mark, &raw const (*to).mark);
        switch_thread!(
            OWN_TLS, from, to,
            save: [
                "push 0",
                "stmxcsr [rsp]",
                "fnstcw [rsp + 4]",
                "mov r9d, [rsp]",
                "movzx r10d, word ptr [rsp + 4]",
            ],
            compare: [
                "cmp r9d, [rsp]",
                "jne 4f",
                "cmp r10w, [rsp + 4]",
                "jne 4f",
            ],
        );
        arrive(&raw const (*from).mark);
    }
}

/// [`switch_thread`] for a caller that runs under the default floating-point environment, as Rust
/// code does: its control words are known and need not be read.
///
/// # Safety
///
/// As for [`switch_thread`]. MXCSR and the x87 control word have their default values, 0x1f80 and
/// 0x37f; the six bits of MXCSR that record exceptions may differ, and are lost.
#[inline(always)]
pub unsafe fn switch_thread_from_rust<const OWN_TLS: bool>(
    from: *mut ThreadContext,
    to: *const ThreadContext,
) {
    // SAFETY: `to` was saved by one of these functions or by `prepare_thread`, in the form that the
    // macro reads (see there); both marks lie in the contexts.
    unsafe {
        leave(&raw mut (*from).mark, &raw const (*to).mark);
        switch_thread!(
            OWN_TLS, from, to,
            save: [
                "mov r9, {float_default}",
                "push r9",
            ],
            compare: [
                "cmp r9, [rsp]",
                "jne 4f",
            ],
            float_default = const FLOAT_DEFAULT,
        );
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
/// The fiber starts under the default floating-point environment (MXCSR 0x1f80, x87 control word
/// 0x37f), whatever its creator's is. A POSIX thread would inherit its creator's, but Rust code may
/// rely on the default.
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
    // `switch_thread` relies on the answer being known by now.
    fsgsbase::fsgsbase();
    let top = align_down(top);
    // SAFETY: at most 15 bytes were lost to the alignment, so 49 of the 64 writable bytes are left:
    // `wrap_entry` may take the upper 16, the four words below need 32.
    let (top, entry, data, mark) = unsafe { wrap_entry(top, entry, data) };
    // SAFETY: see above.
    unsafe {
        let frame = top.cast::<u64>().sub(4);
        frame.write(FLOAT_DEFAULT);
        frame.add(1).write(thread_trampoline as *const () as u64);
        frame.add(2).write(entry as *const () as u64);
        frame.add(3).write(data.expose_provenance() as u64);
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
// undefined, which is DWARF for "there is no caller", and rbp, the frame-pointer chain, is null. The
// canonical frame address is the stack's top.
//
// `ud2` is never reached. It keeps the return address inside the function: an unwinder looks up the
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
            ".cfi_undefined rip",
            $($pop,)*
            ".cfi_def_cfa_offset 0",
            concat!("mov ", $data, ", rbp"),
            "xor ebp, ebp",
            "call rbx",
            "ud2",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
        );
    };
}

// rdi and rsi already hold the message.
trampoline!("carefree_context_trampoline", "rdx", "0", []);
// Pops what the code behind label 2 of `switch_thread` would.
trampoline!("carefree_context_thread_trampoline", "rdi", "16", ["pop rbx", "pop rbp"]);
