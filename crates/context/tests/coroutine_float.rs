//! Floating-point control words: coroutines do not switch them, fibers do. `arch` explains why.

mod owned;

use carefree_context::arch::{
    ThreadContext, prepare_thread, switch_thread, switch_thread_from_rust, thread_pointer,
};
use carefree_context::coroutine::CoroutineState;
use owned::owned;

/// The control words of this processor, as one number.
#[cfg(target_arch = "x86_64")]
mod control {
    use std::arch::asm;

    /// MXCSR's control bits, and the x87 control word above them. (MXCSR's lowest six bits are not
    /// control: they record exceptions.)
    pub(crate) fn get() -> u64 {
        let mut mxcsr = 0_u32;
        let mut x87 = 0_u16;
        // SAFETY: stores the words to these variables.
        unsafe {
            asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut x87);
        }
        u64::from(mxcsr & !0x3f) | u64::from(x87) << 32
    }

    pub(crate) fn set(words: u64) {
        let (mxcsr, x87) = (words as u32, (words >> 32) as u16);
        // SAFETY: the tests set what the processor knows.
        unsafe {
            asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const mxcsr, in(reg) &raw const x87);
        }
    }

    /// All exceptions masked, round to nearest.
    pub(crate) const DEFAULT: u64 = 0x1f80 | 0x037f << 32;
    /// Round towards zero, flush to zero, denormals are zero; x87 rounds down at double precision.
    pub(crate) const OTHER: u64 = 0xffc0 | 0x067f << 32;
    /// Like the default, but for flushing to zero, which libm's functions never change.
    pub(crate) const FLUSH: u64 = DEFAULT | 0x8040;
    /// Only the x87 word differs.
    pub(crate) const X87: u64 = 0x1f80 | 0x027f << 32;
}

#[cfg(target_arch = "aarch64")]
mod control {
    use std::arch::asm;

    pub(crate) fn get() -> u64 {
        let fpcr: u64;
        // SAFETY: reads it.
        unsafe { asm!("mrs {}, fpcr", out(reg) fpcr) };
        fpcr
    }

    pub(crate) fn set(words: u64) {
        // SAFETY: the tests set what the processor knows.
        unsafe { asm!("msr fpcr, {}", in(reg) words) };
    }

    pub(crate) const DEFAULT: u64 = 0;
    /// Round towards zero, flush to zero.
    pub(crate) const OTHER: u64 = 0b11 << 22 | 1 << 24;
    /// Flush to zero.
    pub(crate) const FLUSH: u64 = 1 << 24;
    /// Round up.
    pub(crate) const X87: u64 = 0b01 << 22;
}

#[test]
fn coroutines_run_under_the_default_environment() {
    let mut coroutine = owned::<(), u64, u64>(|suspender, ()| {
        suspender.suspend(control::get());
        control::get()
    });
    assert_eq!(control::get(), control::DEFAULT);
    assert_eq!(coroutine.resume(()), CoroutineState::Yielded(control::DEFAULT));
    assert_eq!(coroutine.resume(()), CoroutineState::Complete(control::DEFAULT));
}

#[test]
fn code_that_restores_its_words_is_unaffected() {
    // Each side changes the control words for a computation, and restores them before other Rust code
    // runs.
    fn computes() -> u64 {
        control::set(control::OTHER);
        let seen = control::get();
        control::set(control::DEFAULT);
        seen
    }
    let mut coroutine = owned::<(), u64, ()>(|suspender, ()| {
        loop {
            suspender.suspend(computes());
        }
    });
    for _ in 0..3 {
        assert_eq!(coroutine.next(), Some(control::OTHER));
        assert_eq!(control::get(), control::DEFAULT);
        assert_eq!(computes(), control::OTHER);
    }
}

#[test]
fn code_that_does_not_restore_its_words_leaves_them_to_the_other_side() {
    let mut coroutine = owned::<(), u64, ()>(|suspender, ()| {
        control::set(control::OTHER);
        suspender.suspend(0);
        suspender.suspend(control::get());
    });
    coroutine.resume(());
    let left_behind = control::get();
    control::set(control::DEFAULT);
    assert_eq!(left_behind, control::OTHER);
    assert_eq!(coroutine.resume(()), CoroutineState::Yielded(control::DEFAULT));
}

struct Pair {
    main: ThreadContext,
    fiber: ThreadContext,
    /// What the fiber will set next, and what it has found.
    next: u64,
    found: u64,
}

unsafe extern "C" fn fiber<const FROM_RUST: bool>(data: *mut u8) -> ! {
    let pair = data.cast::<Pair>();
    loop {
        // SAFETY: the test alternates between the two sides, and chooses FROM_RUST as the words allow.
        unsafe {
            (*pair).found = control::get();
            control::set((*pair).next);
            let (from, to) = (&raw mut (*pair).fiber, &raw const (*pair).main);
            if FROM_RUST {
                switch_thread_from_rust::<false>(from, to);
            } else {
                switch_thread::<false>(from, to);
            }
        }
    }
}

/// Switches to a new fiber with each of `steps`: the words that main sets before, those that the
/// fiber must find, and those that it sets before it leaves. Main must always find its own again.
fn alternate<const MAIN_FROM_RUST: bool, const FIBER_FROM_RUST: bool>(steps: &[(u64, u64, u64)]) {
    let mut memory = vec![0_u128; 4096];
    let mut pair = Pair {
        main: ThreadContext::of_this_thread(),
        fiber: ThreadContext::of_this_thread(),
        next: 0,
        found: 0,
    };
    let pair = &raw mut pair;
    let mut seen = Vec::new();
    // SAFETY: the memory is large enough and outlives the fiber.
    unsafe {
        let top = memory.as_mut_ptr_range().end.cast();
        let entry = fiber::<FIBER_FROM_RUST>;
        (*pair).fiber = prepare_thread(top, thread_pointer(), entry, pair.cast());
        for &(mine, _, theirs) in steps {
            (*pair).next = theirs;
            control::set(mine);
            let (from, to) = (&raw mut (*pair).main, &raw const (*pair).fiber);
            if MAIN_FROM_RUST {
                switch_thread_from_rust::<false>(from, to);
            } else {
                switch_thread::<false>(from, to);
            }
            let found = control::get();
            control::set(control::DEFAULT);
            seen.push((found, (*pair).found));
        }
    }
    let expected: Vec<_> = steps.iter().map(|&(mine, found, _)| (mine, found)).collect();
    assert_eq!(seen, expected);
}

use control::{DEFAULT, FLUSH, OTHER, X87};

#[test]
fn fibers_have_control_words_of_their_own() {
    alternate::<false, false>(&[
        (DEFAULT, DEFAULT, DEFAULT),
        (DEFAULT, DEFAULT, OTHER),
        (DEFAULT, OTHER, FLUSH),
        (OTHER, FLUSH, X87),
        (FLUSH, X87, DEFAULT),
        (X87, DEFAULT, X87),
        (X87, X87, OTHER),
        (DEFAULT, OTHER, DEFAULT),
        (OTHER, DEFAULT, DEFAULT),
    ]);
}

#[test]
fn a_fiber_starts_with_the_default_whatever_its_creator_has() {
    alternate::<false, false>(&[(OTHER, DEFAULT, DEFAULT)]);
    alternate::<false, false>(&[(FLUSH, DEFAULT, DEFAULT)]);
}

#[test]
fn rust_callers_need_not_save_theirs() {
    // Main (a carrier) is Rust code, the fiber is C code.
    alternate::<true, false>(&[
        (DEFAULT, DEFAULT, OTHER),
        (DEFAULT, OTHER, X87),
        (DEFAULT, X87, FLUSH),
        (DEFAULT, FLUSH, DEFAULT),
        (DEFAULT, DEFAULT, DEFAULT),
    ]);
    // The fiber is Rust code, main is not.
    alternate::<false, true>(&[
        (DEFAULT, DEFAULT, DEFAULT),
        (OTHER, DEFAULT, DEFAULT),
        (FLUSH, DEFAULT, DEFAULT),
        (X87, DEFAULT, DEFAULT),
    ]);
    alternate::<true, true>(&[(DEFAULT, DEFAULT, DEFAULT); 3]);
}
