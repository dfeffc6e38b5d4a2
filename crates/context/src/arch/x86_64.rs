//! The switch on x86-64, System V calling convention.
//!
//! # A suspended computation
//!
//! A coroutine's is in its [`Context`] alone, a fiber's partly on its stack, where it is as near to
//! the locals that the fiber will need next as it can be:
//!
//! ```text
//!           Context                      ThreadContext             the fiber's stack
//!      +------------------+           +------------------+      +---------------------+
//!  + 0 |       rsp        | ---> ...  |       rsp        | ---> |  MXCSR | x87 |      | + 0
//!      +------------------+           +------------------+      +---------------------+
//!  + 8 |  where to go on  |           |     FS base      |      |   where to go on    | + 8
//!      +------------------+           +------------------+      +---------------------+
//!  +16 |       rbx        |                                     |         rbx         | +16
//!      +------------------+                                     +---------------------+
//!  +24 |       rbp        |                                     |         rbp         | +24
//!      +------------------+                                     +---------------------+
//!                                                               ~   caller's frame    ~
//! ```
//!
//! One that has never run goes on at a trampoline, with the function it is to call in the place of rbx
//! and that function's argument in the place of rbp, and above that is the top of its stack, rounded
//! down to 16 bytes.
//!
//! # The registers
//!
//! | register | at a switch |
//! |---|---|
//! | rdi, rsi | the message: goes in on one side, comes out on the other |
//! | rdx, rcx | `from` and `to`, or the pair, on the way in |
//! | rsp | exchanged |
//! | rbx, rbp | saved by hand: LLVM reserves them, so they cannot be declared as clobbered |
//! | rax, r8 to r15, vector, mask and x87 registers, flags | clobbered: the compiler keeps what is alive |
//! | fs | [`switch_thread`] with own thread-local storage only |
//! | MXCSR, x87 control word | [`switch_thread`] only, see the page above |
//!
//! # Why it looks like this
//!
//! *Inline, everything clobbered*: an out-of-line switch must save all six callee-saved registers
//! whether they are alive or not, and pays a call; in line the compiler spills what it needs, once
//! for several switches in a row.
//!
//! *`jmp`, not `ret`*: the processor predicts a `ret` by the last `call`, which was on the other
//! stack; each switch by `ret` is a misprediction, several times the rest of the switch. An indirect jump
//! is predicted by where it went the last time.

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

use super::{Context, Message, Pair, ThreadContext, marked};
use crate::instrument::{arrive, leave};

/// MXCSR with which a thread starts: all exceptions masked, round to nearest, no flush to zero.
const MXCSR_DEFAULT: u64 = 0x1f80;
/// x87 control word with which a thread starts: all exceptions masked, 64 bits of precision, round
/// to nearest.
const X87_DEFAULT: u64 = 0x037f;
/// Both as they lie on the stack.
const FLOAT_DEFAULT: u64 = MXCSR_DEFAULT | X87_DEFAULT << 32;

/// `arch_prctl`'s number and its sub-function that sets the FS base.
const SYS_ARCH_PRCTL: u32 = 158;
const ARCH_SET_FS: u32 = 0x1002;

/// The kernel's promise in `AT_HWCAP2` that programs may use `wrfsbase`.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// Whether `wrfsbase` may be used: one of the three constants below.
///
/// [`switch_thread`] compares with `FSGSBASE_YES` and does not look further: as long as nobody
/// asked it takes the system call, which is slow but always right. [`prepare_thread`] asks, so
/// there is no fiber to switch to before the answer is known.
static FSGSBASE: AtomicU8 = AtomicU8::new(FSGSBASE_UNKNOWN);
const FSGSBASE_UNKNOWN: u8 = 0;
const FSGSBASE_YES: u8 = 1;
const FSGSBASE_NO: u8 = 2;

/// Whether the thread pointer can be set without a system call here (`wrfsbase`: Linux 5.9 and a
/// processor that has it).
///
/// What a switch costs with it and without: `cargo run --release -p carefree-context --example
/// switch_costs`.
#[inline]
pub fn fsgsbase() -> bool {
    match FSGSBASE.load(Ordering::Relaxed) {
        FSGSBASE_UNKNOWN => ask_fsgsbase(),
        known => known == FSGSBASE_YES,
    }
}

#[cold]
fn ask_fsgsbase() -> bool {
    // SAFETY: getauxval only reads what the kernel handed to the process at its start.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    let answer = if hwcap2 & HWCAP2_FSGSBASE != 0 { FSGSBASE_YES } else { FSGSBASE_NO };
    // A refusal forced meanwhile stands.
    match FSGSBASE.compare_exchange(FSGSBASE_UNKNOWN, answer, Ordering::Relaxed, Ordering::Relaxed)
    {
        Ok(_) => answer == FSGSBASE_YES,
        Err(known) => known == FSGSBASE_YES,
    }
}

/// Makes every later switch set the thread pointer by the system call, as on a machine without
/// `wrfsbase`. There is no way back; it is right at any time, from any thread.
pub fn force_no_fsgsbase() {
    FSGSBASE.store(FSGSBASE_NO, Ordering::Relaxed);
}

/// Asks the processor to bring the cache line at `address` near. A hint: any address is allowed.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch faults nowhere and changes nothing a program can see.
    unsafe { core::arch::x86_64::_mm_prefetch(address.cast(), core::arch::x86_64::_MM_HINT_T0) };
}

/// The thread pointer of the caller: the address every thread-local variable is found from.
#[inline(always)]
pub fn thread_pointer() -> *mut u8 {
    let tp: *mut u8;
    // The ABI for thread-local storage on x86-64 says that the word at the thread pointer is the
    // thread pointer, which is why there is no need for `rdfsbase` or a system call. Not `pure`: the
    // compiler must not carry an answer over a switch.
    // SAFETY: reads that word; every thread and every fiber has it.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) tp, options(nostack, preserves_flags, readonly));
    }
    tp
}

/// Makes `tp` the caller's thread pointer.
///
/// # Safety
///
/// `tp` must point to a complete thread control block with thread-local storage below it, and no
/// other thread may be running under it. Nothing that the compiler or a library derived from the old
/// thread pointer (the address of a thread-local variable, `errno`) may be used until it is set back:
/// keep what lies between free of anything but plain code.
#[inline(always)]
pub unsafe fn set_thread_pointer(tp: *mut u8) {
    if fsgsbase() {
        // SAFETY: the kernel allows the instruction, and the caller vouches for `tp`.
        unsafe { asm!("wrfsbase {}", in(reg) tp, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above; the system call reads and writes no memory, and it cannot fail for an
        // address that user memory can have. It is made by hand because libc's wrapper would write
        // errno, a thread-local variable.
        unsafe {
            asm!(
                "syscall",
                inout("rax") u64::from(SYS_ARCH_PRCTL) => _,
                in("rdi") u64::from(ARCH_SET_FS),
                in("rsi") tp,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
    }
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
    // clobbered here is restored before this side goes on at label 2. Without `nostack`, the compiler
    // keeps nothing in the red zone below rsp.
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

/// [`switch`] from a coroutine's resumer to the coroutine. One address leads to both sides, which is
/// two instructions less.
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

/// The body of both `switch_thread`s, which differ in how they learn the caller's control words.
///
/// `save` pushes them and keeps them in r9 and r10, `compare` jumps to label 4 if those on top of the
/// other side's stack differ. What is hardly ever run (loading the words, the system call) stands
/// behind the jump away, where nothing falls into it.
///
/// Why it is right: as in [`switch`]; and no compiled code runs between the change of the thread
/// pointer and the other side's label 2, so nobody sees a thread-local variable of the wrong side.
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
                    // The call takes rax, rcx and r11 away.
                    "6:",
                    "mov eax, {sys_arch_prctl}",
                    "mov edi, {arch_set_fs}",
                    "mov rsi, r8",
                    "syscall",
                    "jmp 5b",
                ],
                inout("r8b") FSGSBASE.load(Ordering::Relaxed) => _,
                yes = const FSGSBASE_YES,
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

/// Suspends the caller into `from` and goes on with `to`: the switch between fibers, for a caller
/// that may be C code. Returns when somebody switches to `from`.
///
/// The floating-point control words belong to each side: the caller's are saved, `to`'s are loaded
/// where they differ. (MXCSR also records exceptions, for `fetestexcept`. They are a thread's own, so
/// they are compared too.) With `OWN_TLS` the thread pointer belongs to each side too: the other side runs
/// under `to`'s. (`from`'s is not written: a fiber keeps its own for life.)
///
/// Reading MXCSR is slow (`stmxcsr` is microcode on a Zen 3; `cargo run --release -p carefree-context
/// --example switch_costs` prints both kinds). A caller that is Rust code need
/// not pay it: [`switch_thread_from_rust`]. The two can be mixed at will.
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
    // The words are compared one by one, each with the width it was stored with: a wider load would
    // have to wait until the two stores have left the store buffer.
    // SAFETY: the caller's promises; see the macro.
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
/// code does: the caller's control words need not be read, they are known.
///
/// # Safety
///
/// What [`switch_thread`] asks for, and MXCSR and the x87 control word are the default ones, 0x1f80
/// and 0x37f, but for the six bits of MXCSR that record exceptions: the caller does not mind if they
/// are lost.
#[inline(always)]
pub unsafe fn switch_thread_from_rust<const OWN_TLS: bool>(
    from: *mut ThreadContext,
    to: *const ThreadContext,
) {
    // SAFETY: the caller's promises; see the macro.
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
/// It starts under the default floating-point environment (MXCSR 0x1f80, x87 control word 0x37f)
/// whatever that of its creator is. A POSIX thread would inherit its creator's; a fiber is entered by
/// a carrier, not by its creator, and Rust code may count on the default.
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
    // Asked here so that `switch_thread` need not ask.
    fsgsbase();
    let top = align_down(top);
    // SAFETY: the caller vouches for the bytes.
    let (top, entry, data, mark) = unsafe { marked(top, entry, data) };
    // SAFETY: the four words are within the bytes the caller vouches for.
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
    /// Where a computation starts: calls `entry(word, kind, data)`. Never called, only jumped to.
    #[link_name = "carefree_context_trampoline"]
    fn trampoline();
    /// Where a fiber starts: calls `entry(data)`. Never called, only jumped to.
    #[link_name = "carefree_context_thread_trampoline"]
    fn thread_trampoline();
}

// The unwind information of the trampolines ends every walk over the stack: the return address is
// undefined, which is DWARF for "there is no caller", and rbp, the frame-pointer chain, is null. The
// canonical frame address is the stack's top.
//
// `ud2` is never reached. It is there so that the return address still belongs to the function: an
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

// rdi and rsi hold the message already.
trampoline!("carefree_context_trampoline", "rdx", "0", []);
// As behind label 2 of `switch_thread`.
trampoline!("carefree_context_thread_trampoline", "rdi", "16", ["pop rbx", "pop rbp"]);
