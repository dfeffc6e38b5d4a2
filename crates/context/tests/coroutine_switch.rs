//! The bare switch, as the crates above use it.

use std::mem::MaybeUninit;

use carefree_context::arch::{
    Context, Message, ThreadContext, force_no_fsgsbase, prepare, prepare_thread,
    set_thread_pointer, switch, switch_thread, switch_thread_from_rust, thread_pointer,
};

/// A stack without a guard, for a few frames.
struct Memory(Vec<u128>);

impl Memory {
    fn new() -> Self {
        Memory(vec![0; 16 * 1024])
    }

    fn top(&mut self) -> *mut u8 {
        self.0.as_mut_ptr_range().end.cast()
    }
}

struct Pair {
    main: Context,
    other: Context,
}

unsafe extern "C" fn count(word: MaybeUninit<usize>, kind: usize, data: *mut u8) -> ! {
    let pair = data.cast::<Pair>();
    // An aligned local: the compiler assumes the stack's alignment.
    #[repr(align(64))]
    struct Aligned(usize);
    let mut sum = Aligned(0);
    let mut message = Message { word, kind };
    loop {
        // SAFETY: the other side sends an initialised word.
        sum.0 += unsafe { message.word.assume_init() };
        assert_eq!(std::ptr::from_mut(&mut sum) as usize % 64, 0);
        // SAFETY: the test alternates between the two sides.
        message = unsafe {
            switch(
                &raw mut (*pair).other,
                &raw const (*pair).main,
                Message { word: MaybeUninit::new(sum.0), kind: message.kind + 1 },
            )
        };
    }
}

#[test]
fn a_message_goes_each_way() {
    for misaligned in [0, 1, 8, 15] {
        let mut memory = Memory::new();
        let mut pair = Pair { main: Context::empty(), other: Context::empty() };
        let pair = &raw mut pair;
        // SAFETY: the memory is large enough, and outlives the computation on it.
        unsafe {
            (*pair).other = prepare(memory.top().sub(misaligned), count, pair.cast());
            for (message, sum) in [(1, 1), (10, 11), (100, 111)] {
                let (from, to) = (&raw mut (*pair).main, &raw const (*pair).other);
                let word = MaybeUninit::new(message);
                let answer = switch(from, to, Message { word, kind: sum });
                assert_eq!(answer.word.assume_init(), sum);
                assert_eq!(answer.kind, sum + 1);
            }
        }
    }
}

struct ThreadPair {
    main: ThreadContext,
    other: ThreadContext,
    seen: Vec<*mut u8>,
    from_rust: bool,
}

unsafe extern "C" fn note_thread_pointer<const OWN_TLS: bool>(data: *mut u8) -> ! {
    let pair = data.cast::<ThreadPair>();
    loop {
        let tp = thread_pointer();
        // SAFETY: the test alternates between the two sides. Nothing here uses a thread-local
        // variable: the vector has room.
        unsafe {
            let seen = &raw mut (*pair).seen;
            (*seen).push(tp);
            let (from, to) = (&raw mut (*pair).other, &raw const (*pair).main);
            if (*pair).from_rust {
                switch_thread_from_rust::<OWN_TLS>(from, to);
            } else {
                switch_thread::<OWN_TLS>(from, to);
            }
        }
    }
}

fn visit<const OWN_TLS: bool>(tp: *mut u8) -> Vec<*mut u8> {
    let mut memory = Memory::new();
    let mut pair = ThreadPair {
        main: ThreadContext::of_this_thread(),
        other: ThreadContext::of_this_thread(),
        seen: Vec::with_capacity(8),
        from_rust: false,
    };
    let pair = &raw mut pair;
    // SAFETY: the test alternates between the two sides, and nothing on the other side uses a
    // thread-local variable.
    unsafe {
        (*pair).other =
            prepare_thread(memory.top(), tp, note_thread_pointer::<OWN_TLS>, pair.cast());
        for from_rust in [false, true, true, false] {
            let (from, to) = (&raw mut (*pair).main, &raw const (*pair).other);
            switch_thread::<OWN_TLS>(from, to);
            (*pair).from_rust = from_rust;
            switch_thread_from_rust::<OWN_TLS>(from, to);
        }
        std::mem::take(&mut (*pair).seen)
    }
}

#[test]
fn the_thread_pointer_is_exchanged_with_own_tls_only() {
    let mine = thread_pointer();
    // A thread control block that only `thread_pointer` reads: its first word points to itself.
    let mut block = [0_usize; 64];
    let tp = block.as_mut_ptr();
    // SAFETY: the block's first word.
    unsafe { tp.write(tp as usize) };

    assert_eq!(visit::<true>(tp.cast()), vec![tp.cast::<u8>(); 8]);
    assert_eq!(thread_pointer(), mine);
    assert_eq!(visit::<false>(tp.cast()), vec![mine; 8]);

    // The same by the system call, which the whole process uses from here on.
    force_no_fsgsbase();
    assert_eq!(visit::<true>(tp.cast()), vec![tp.cast::<u8>(); 8]);
    assert_eq!(thread_pointer(), mine);

    // SAFETY: only plain code runs under the other thread pointer.
    let seen = unsafe {
        set_thread_pointer(tp.cast());
        let seen = thread_pointer();
        set_thread_pointer(mine);
        seen
    };
    assert_eq!(seen, tp.cast());
    assert_eq!(thread_pointer(), mine);
}
