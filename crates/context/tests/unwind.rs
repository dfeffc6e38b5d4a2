//! Every kind of walk over a coroutine's or a fiber's stack ends at its entry.

mod owned;

use std::backtrace::Backtrace;
use std::process::Command;

use carefree_context::arch::{
    Context, Message, ThreadContext, prepare, prepare_thread, switch_thread, thread_pointer,
};
use carefree_context::coroutine::Coroutine;
use owned::owned;

const CHILD: &str = "CAREFREE_TEST_CHILD";

/// The names in a backtrace, the innermost first.
fn names(backtrace: &Backtrace) -> Vec<String> {
    backtrace
        .to_string()
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(number, _)| number.parse::<u32>().is_ok())
        .map(|(_, name)| name.to_string())
        .collect()
}

#[inline(never)]
fn recorded_here(depth: u32) -> Backtrace {
    if depth == 0 {
        Backtrace::force_capture()
    } else {
        std::hint::black_box(recorded_here(depth - 1))
    }
}

#[inline(never)]
fn resumes_the_coroutine(coroutine: &mut Coroutine<(), Backtrace, ()>) -> Vec<String> {
    names(&coroutine.next().expect("it yields for ever"))
}

#[test]
fn a_backtrace_in_a_coroutine_ends_at_its_entry() {
    let mut coroutine = owned(|suspender, ()| {
        loop {
            suspender.suspend(recorded_here(3));
        }
    });
    for _ in 0..2 {
        let names = resumes_the_coroutine(&mut coroutine);
        let last = names.last().expect("frames");
        assert_eq!(last, "carefree_context_trampoline", "{names:#?}");
        assert!(names.iter().any(|name| name.contains("recorded_here")), "{names:#?}");
        // The resumer is on another stack.
        assert!(!names.iter().any(|name| name.contains("resumes_the_coroutine")), "{names:#?}");
    }
}

struct Pair {
    main: ThreadContext,
    fiber: ThreadContext,
    names: Vec<String>,
}

unsafe extern "C" fn fiber(data: *mut u8) -> ! {
    let pair = data.cast::<Pair>();
    loop {
        let recorded = names(&recorded_here(1));
        // SAFETY: the test alternates between the two sides.
        unsafe {
            (*pair).names = recorded;
            switch_thread::<false>(&raw mut (*pair).fiber, &raw const (*pair).main);
        }
    }
}

#[test]
fn a_backtrace_in_a_fiber_ends_at_its_entry() {
    // Backtraces need a large stack.
    let mut memory = vec![0_u128; 64 * 1024];
    let mut pair = Pair {
        main: ThreadContext::of_this_thread(),
        fiber: ThreadContext::of_this_thread(),
        names: Vec::new(),
    };
    let pair = &raw mut pair;
    // SAFETY: the memory is large enough and outlives the fiber.
    let names = unsafe {
        let top = memory.as_mut_ptr_range().end.cast();
        (*pair).fiber = prepare_thread(top, thread_pointer(), fiber, pair.cast());
        switch_thread::<false>(&raw mut (*pair).main, &raw const (*pair).fiber);
        std::mem::take(&mut (*pair).names)
    };
    assert_eq!(names.last().map(String::as_str), Some("carefree_context_thread_trampoline"));
    assert!(names.iter().any(|name| name.contains("recorded_here")), "{names:#?}");
}

// An entry that stores its initial frame pointer and stack pointer, then leaves.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl carefree_test_note_frame",
    "carefree_test_note_frame:",
    "mov [rdx], rbp",
    "mov [rdx + 8], rsp",
    "jmp {leave}",
    leave = sym leave,
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl carefree_test_note_frame",
    "carefree_test_note_frame:",
    "mov x3, sp",
    "stp x29, x3, [x2]",
    "b {leave}",
    leave = sym leave,
);

unsafe extern "C" {
    fn carefree_test_note_frame(
        word: std::mem::MaybeUninit<usize>,
        kind: usize,
        data: *mut u8,
    ) -> !;
}

#[repr(C)]
struct Frames {
    frame_pointer: usize,
    stack_pointer: usize,
    main: Context,
    other: Context,
}

unsafe extern "C" fn leave(_: std::mem::MaybeUninit<usize>, _: usize, data: *mut u8) -> ! {
    let frames = data.cast::<Frames>();
    let message = Message { word: std::mem::MaybeUninit::uninit(), kind: 0 };
    // SAFETY: the test waits in `main`, and this side is not entered again.
    unsafe {
        carefree_context::arch::switch(
            &raw mut (*frames).other,
            &raw const (*frames).main,
            message,
        );
    }
    unreachable!()
}

#[test]
fn frame_pointers_end_at_the_entry() {
    let mut memory = vec![0_u128; 4096];
    let top = memory.as_mut_ptr_range().end.cast::<u8>();
    let mut frames = Frames {
        frame_pointer: 1,
        stack_pointer: 0,
        main: Context::empty(),
        other: Context::empty(),
    };
    let frames = &raw mut frames;
    // SAFETY: the memory is large enough and outlives the computation.
    unsafe {
        (*frames).other = prepare(top, carefree_test_note_frame, frames.cast());
        let message = Message { word: std::mem::MaybeUninit::uninit(), kind: 0 };
        let (from, to) = (&raw mut (*frames).main, &raw const (*frames).other);
        carefree_context::arch::switch(from, to, message);
        assert_eq!((*frames).frame_pointer, 0, "a null frame pointer ends the chain");
        // As after a call: aligned, with the return address pushed on x86-64.
        let pushed = if cfg!(target_arch = "x86_64") { 8 } else { 0 };
        assert_eq!((*frames).stack_pointer + pushed, top as usize);
    }
}

#[inline(never)]
fn stops_for_the_debugger() {
    // SAFETY: no preconditions.
    let result = unsafe { libc::raise(libc::SIGTRAP) };
    // Not the last call, so that this function keeps its frame.
    std::hint::black_box(result);
}

#[test]
fn gdb_stops_at_the_entry() {
    if std::env::var_os(CHILD).is_some() {
        let mut coroutine = owned::<(), (), ()>(|_, ()| stops_for_the_debugger());
        coroutine.resume(());
        return;
    }
    if std::env::var_os("CAREFREE_TEST_RUNNER").is_some() {
        println!("skipped: gdb cannot look into an emulator");
        return;
    }
    let Ok(output) = Command::new("gdb")
        .args(["-q", "-nx", "-batch", "-iex", "set debuginfod enabled off"])
        .args(["-ex", "set startup-with-shell off", "-ex", "run"])
        .args(["-ex", "echo BACKTRACE\\n", "-ex", "bt", "-ex", "kill", "--args"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "gdb_stops_at_the_entry", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
    else {
        println!("skipped: gdb is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !said.contains("SIGTRAP") && errors.contains("ptrace") {
        println!("skipped: gdb may not trace here: {errors}");
        return;
    }
    let frames: Vec<&str> = said
        .split_once("BACKTRACE")
        .unwrap_or_else(|| panic!("no backtrace:\n{said}\n{errors}"))
        .1
        .lines()
        .filter(|line| line.starts_with('#'))
        .collect();
    let has = |name| frames.iter().any(|frame| frame.contains(name));
    assert!(has("stops_for_the_debugger"), "{said}\n{errors}");
    assert!(!has("gdb_stops_at_the_entry ()"), "{said}\n{errors}");
    let last = frames.last().expect("frames");
    assert!(last.contains("carefree_context_trampoline"), "{said}\n{errors}");
    for complaint in ["Backtrace stopped", "corrupt", "Cannot access memory"] {
        assert!(!said.contains(complaint) && !errors.contains(complaint), "{said}\n{errors}");
    }
}
