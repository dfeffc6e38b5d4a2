//! Reports of stack overflows, and that other faults are unaffected. Each case ends its process,
//! and so runs in one of its own.

mod reexec;

use carefree_context::arch::{Context, Message, prepare, switch};
use carefree_context::overflow;
use carefree_context::stack::{StackInfo, StackPool, StackSize};
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::ptr;

/// Runs one of the tests below again, as a child with this variable set.
const CHILD: &str = "CAREFREE_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn in_child(test: &str, variables: &[(&str, &str)]) -> Output {
    reexec::this_program()
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[track_caller]
fn assert_dies(output: &Output, signal: i32, says: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(signal), "{}\n{errors}", output.status);
    assert!(errors.contains(says), "not {says:?} but {errors:?}");
}

#[track_caller]
fn assert_silent(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("carefree"), "{errors}");
}

#[track_caller]
fn assert_exits(output: &Output, code: i32) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}\n{errors}", output.status);
}

/// Code that does not return, and ignores its message.
type Code = unsafe extern "C" fn(MaybeUninit<usize>, usize, *mut u8) -> !;

/// Runs code that does not return on a stack from the pool.
fn on_stack(size: usize, code: Code) -> ! {
    let stack = StackPool::global().acquire(StackSize::new(size).unwrap()).unwrap();
    let mut here = Context::empty();
    // SAFETY: the stack outlives the code on it, which is never left.
    unsafe {
        let there = prepare(stack.top(), code, stack.limit());
        switch(&raw mut here, &raw const there, Message { word: MaybeUninit::uninit(), kind: 0 });
    }
    unreachable!("the code on the stack does not return");
}

#[inline(never)]
fn recurse(depth: usize) -> usize {
    let frame = std::hint::black_box([depth; 100]);
    if depth == usize::MAX { 0 } else { recurse(depth + 1) + frame[depth % 100] }
}

unsafe extern "C" fn endless(_: MaybeUninit<usize>, _: usize, _: *mut u8) -> ! {
    std::process::exit(recurse(0) as i32 & 1)
}

unsafe extern "C" fn one_large_frame(_: MaybeUninit<usize>, _: usize, _: *mut u8) -> ! {
    // Rust touches each page of the frame, so it cannot step over the guard.
    let frame = std::hint::black_box([0u8; 1 << 20]);
    std::process::exit(i32::from(frame[5]))
}

/// Writes just below the usable part.
unsafe extern "C" fn one_byte_too_many(_: MaybeUninit<usize>, _: usize, limit: *mut u8) -> ! {
    // SAFETY: not sound: the test is that this faults.
    unsafe { limit.sub(1).write_volatile(1) };
    std::process::exit(0)
}

const NULL: *mut u8 = ptr::null_mut();

fn fault() {
    // SAFETY: not sound: the test is that this faults.
    unsafe { std::hint::black_box(NULL).write_volatile(1) };
}

const SAYS: &str = "carefree: a coroutine has overflowed its stack of 192 KiB: give fibers larger \
                    ones with Builder::stack_size(bytes), or all of them with \
                    CAREFREE_STACK=bytes or RUST_MIN_STACK=bytes, a coroutine with \
                    coroutine_with_stack_size, a deep call with on_large_stack(bytes, f)\n";

#[test]
fn endless_recursion() {
    if is_child() {
        overflow::install().unwrap();
        overflow::install().unwrap();
        on_stack(192 << 10, endless);
    }
    for guards in ["madvise", "mprotect"] {
        let output = in_child("endless_recursion", &[("CAREFREE_GUARDS", guards)]);
        assert_dies(&output, libc::SIGABRT, SAYS);
    }
}

#[test]
fn a_frame_larger_than_the_stack() {
    if is_child() {
        overflow::install().unwrap();
        on_stack(192 << 10, one_large_frame);
    }
    assert_dies(&in_child("a_frame_larger_than_the_stack", &[]), libc::SIGABRT, SAYS);
}

#[test]
fn one_byte_below_the_stack() {
    if is_child() {
        overflow::install().unwrap();
        on_stack(64 << 10, one_byte_too_many);
    }
    let output = in_child("one_byte_below_the_stack", &[]);
    assert_dies(&output, libc::SIGABRT, "overflowed its stack of 96 KiB: ");
}

unsafe fn describe(overflown: &StackInfo, say: &mut dyn FnMut(&[u8])) {
    say(b"fiber '");
    // Longer than any buffer of the report.
    (0..100).for_each(|_| say(b"long name "));
    say(b"'");
    assert_eq!(overflown.top - overflown.base, overflown.size);
}

#[test]
fn a_describer_describes_the_stack() {
    if is_child() {
        overflow::install().unwrap();
        // SAFETY: it is async-signal-safe.
        unsafe { overflow::set_describer(describe) };
        on_stack(16 << 10, endless);
    }
    let output = in_child("a_describer_describes_the_stack", &[]);
    let says = format!(
        "\ncarefree: fiber '{}' has overflowed its stack of 24 KiB: ",
        "long name ".repeat(100)
    );
    assert_dies(&output, libc::SIGABRT, &says);
}

#[test]
fn another_fault_is_still_a_segmentation_fault() {
    if is_child() {
        overflow::install().unwrap();
        fault();
    }
    let output = in_child("another_fault_is_still_a_segmentation_fault", &[]);
    assert_dies(&output, libc::SIGSEGV, "");
    assert_silent(&output);
}

#[inline(never)]
fn overflow_this_thread() {
    std::hint::black_box(recurse(0));
}

#[test]
fn std_still_reports_a_thread_that_overflows() {
    if is_child() {
        overflow::install().unwrap();
        let thread = std::thread::Builder::new().name("deep".into()).spawn(overflow_this_thread);
        thread.unwrap().join().unwrap();
    }
    let output = in_child("std_still_reports_a_thread_that_overflows", &[]);
    assert_dies(&output, libc::SIGABRT, "thread 'deep'");
    assert_silent(&output);
}

/// Sets an action for SIGSEGV, as a program that handles it does.
fn set_action(handler: usize, flags: i32, mask: &[i32]) {
    // SAFETY: the structure is complete, and the handlers below take the arguments that their flags
    // say.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        mask.iter().for_each(|signal| {
            libc::sigaddset(&raw mut action.sa_mask, *signal);
        });
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()), 0);
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(code) }
}

fn is_blocked(signal: i32) -> bool {
    // SAFETY: the set is written before it is read.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut blocked);
        libc::sigismember(&raw const blocked, signal) == 1
    }
}

extern "C" fn with_information(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel's siginfo_t.
    let address = unsafe { (*info).si_addr() };
    let right = signal == libc::SIGSEGV && address.is_null() && !context.is_null();
    let masked = is_blocked(libc::SIGUSR1) && is_blocked(libc::SIGSEGV);
    exit(if right && masked { 42 } else { 1 });
}

#[test]
fn an_earlier_handler_gets_its_faults_with_information_and_mask() {
    if is_child() {
        let handler = with_information as extern "C" fn(_, _, _) as usize;
        set_action(handler, libc::SA_SIGINFO | libc::SA_ONSTACK, &[libc::SIGUSR1]);
        overflow::install().unwrap();
        fault();
    }
    let test = "an_earlier_handler_gets_its_faults_with_information_and_mask";
    assert_exits(&in_child(test, &[]), 42);
}

#[test]
fn an_earlier_handler_does_not_get_reported_overflows() {
    if is_child() {
        let handler = with_information as extern "C" fn(_, _, _) as usize;
        set_action(handler, libc::SA_SIGINFO | libc::SA_ONSTACK, &[]);
        overflow::install().unwrap();
        on_stack(192 << 10, endless);
    }
    let output = in_child("an_earlier_handler_does_not_get_reported_overflows", &[]);
    assert_dies(&output, libc::SIGABRT, SAYS);
}

extern "C" fn plain(signal: i32) {
    exit(if signal == libc::SIGSEGV && !is_blocked(libc::SIGSEGV) { 43 } else { 1 });
}

#[test]
fn an_earlier_plain_handler_gets_its_faults() {
    if is_child() {
        set_action(plain as extern "C" fn(_) as usize, libc::SA_NODEFER, &[]);
        overflow::install().unwrap();
        fault();
    }
    assert_exits(&in_child("an_earlier_plain_handler_gets_its_faults", &[]), 43);
}

extern "C" fn returns(_: i32) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), b"handled once\n");
}

#[test]
fn a_handler_with_resethand_is_called_once() {
    if is_child() {
        set_action(returns as extern "C" fn(_) as usize, libc::SA_RESETHAND, &[]);
        overflow::install().unwrap();
        // It returns without fixing the cause, so the fault happens again.
        fault();
    }
    let output = in_child("a_handler_with_resethand_is_called_once", &[]);
    assert_dies(&output, libc::SIGSEGV, "handled once\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("handled once").count(), 1);
}

fn send() {
    // SAFETY: no preconditions.
    unsafe { libc::raise(libc::SIGSEGV) };
}

#[test]
fn a_signal_that_was_sent_has_its_default_effect() {
    if is_child() {
        set_action(libc::SIG_DFL, 0, &[]);
        overflow::install().unwrap();
        send();
        exit(0);
    }
    let output = in_child("a_signal_that_was_sent_has_its_default_effect", &[]);
    assert_dies(&output, libc::SIGSEGV, "");
}

#[test]
fn ignoring_applies_to_sent_signals_and_not_to_faults() {
    if is_child() {
        set_action(libc::SIG_IGN, 0, &[]);
        overflow::install().unwrap();
        send();
        send();
        eprintln!("still here");
        fault();
    }
    let output = in_child("ignoring_applies_to_sent_signals_and_not_to_faults", &[]);
    assert_dies(&output, libc::SIGSEGV, "still here\n");
}

/// Runs a function on a thread that std did not start.
fn on_c_thread(code: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) -> *mut libc::c_void {
    let mut result = ptr::null_mut();
    // SAFETY: plain creation and joining of a thread.
    unsafe {
        let mut thread: libc::pthread_t = std::mem::zeroed();
        assert_eq!(libc::pthread_create(&raw mut thread, ptr::null(), code, ptr::null_mut()), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
    }
    result
}

extern "C" fn overflow_on_c_thread(_: *mut libc::c_void) -> *mut libc::c_void {
    overflow::ensure_alternate_stack().unwrap();
    on_stack(192 << 10, endless)
}

#[test]
fn overflows_on_threads_of_c_code_are_reported() {
    if is_child() {
        overflow::install().unwrap();
        on_c_thread(overflow_on_c_thread);
    }
    let output = in_child("overflows_on_threads_of_c_code_are_reported", &[]);
    assert_dies(&output, libc::SIGABRT, SAYS);
}

fn alternate() -> libc::stack_t {
    // SAFETY: the structure is written before it is read.
    unsafe {
        let mut current: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(ptr::null(), &raw mut current), 0);
        current
    }
}

extern "C" fn make_alternate(_: *mut libc::c_void) -> *mut libc::c_void {
    let none = alternate().ss_flags & libc::SS_DISABLE != 0;
    overflow::ensure_alternate_stack().unwrap();
    let first = alternate();
    overflow::ensure_alternate_stack().unwrap();
    let second = alternate();
    if none && first.ss_flags & libc::SS_DISABLE == 0 && first.ss_sp == second.ss_sp {
        first.ss_sp
    } else {
        ptr::null_mut()
    }
}

#[test]
fn an_alternate_stack_is_made_once_and_freed_with_its_thread() {
    if !is_child() {
        // In a process of its own, so that no other thread maps memory at the same place meanwhile.
        let test = "an_alternate_stack_is_made_once_and_freed_with_its_thread";
        let output = in_child(test, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let made = on_c_thread(make_alternate);
    assert!(!made.is_null(), "no alternate stack was made, or two");
    let mut resident = 0;
    // SAFETY: mincore writes one byte for the one page asked for.
    let mapped = unsafe { libc::mincore(made, 1, &raw mut resident) } == 0;
    assert!(!mapped, "the alternate stack has outlived its thread");

    let own = alternate();
    overflow::ensure_alternate_stack().unwrap();
    assert_eq!(alternate().ss_sp, own.ss_sp, "std's alternate stack was replaced");
}
