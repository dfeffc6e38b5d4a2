//! The line that reports an overflow. Everything here is async-signal-safe.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::stack::{StackInfo, sys};

/// Describes the user of a stack that has overflowed, such as `fiber 'name'`, by calling `say`
/// with one or more pieces of text.
///
/// It is called in a signal handler, on the alternate signal stack, while the thread is stopped
/// anywhere, so it must be async-signal-safe. In particular it must not allocate
/// or lock, and must not rely on data that the stopped thread may have been changing.
pub type Describer = unsafe fn(overflown: &StackInfo, say: &mut dyn FnMut(&[u8]));

static DESCRIBER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets the function that describes the users of stacks. Without one, reports say "a coroutine".
///
/// ```
/// use carefree_context::{overflow, stack::StackInfo};
///
/// unsafe fn describe(_: &StackInfo, say: &mut dyn FnMut(&[u8])) {
///     say(b"worker ");
///     say(b"seven");
/// }
///
/// // SAFETY: `describe` allocates nothing, locks nothing, and reads nothing that changes.
/// unsafe { overflow::set_describer(describe) };
/// ```
///
/// # Safety
/// `describer` must be sound to call in a signal handler, for any stack that
/// [`stack::find`](crate::stack::find) finds.
pub unsafe fn set_describer(describer: Describer) {
    DESCRIBER.store(describer as *mut (), Ordering::Release);
}

/// Prints which stack has overflowed.
pub(super) fn print(slot: &StackInfo) {
    let mut line = Line::new();
    line.say(b"\ncarefree: ");
    let describer = DESCRIBER.load(Ordering::Acquire);
    if describer.is_null() {
        line.say(b"a coroutine");
    } else {
        // SAFETY: only `set_describer` stores there. It stores a `Describer`, and requires that it
        // is sound to call in a signal handler.
        unsafe {
            let describer: Describer = std::mem::transmute::<*mut (), Describer>(describer);
            describer(slot, &mut |piece| line.say(piece));
        }
    }
    line.say(b" has overflowed its stack of ");
    line.number((slot.size - slot.guard) / 1024);
    line.say(
        b" KiB: give fibers larger ones with Builder::stack_size(bytes), or all of them with ",
    );
    line.say(b"CAREFREE_STACK=bytes or RUST_MIN_STACK=bytes, a coroutine with ");
    line.say(b"coroutine_with_stack_size, a deep call with on_large_stack(bytes, f)\n");
    line.flush();
}

/// A line of text for standard error, collected so that it is written by one call.
struct Line {
    text: [u8; 512],
    length: usize,
}

impl Line {
    fn new() -> Self {
        Line { text: [0; 512], length: 0 }
    }

    fn say(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.length == self.text.len() {
                self.flush();
            }
            self.text[self.length] = *byte;
            self.length += 1;
        }
    }

    fn number(&mut self, value: usize) {
        if value >= 10 {
            self.number(value / 10);
        }
        self.say(&[b'0' + (value % 10) as u8]);
    }

    fn flush(&mut self) {
        let mut rest = &self.text[..self.length];
        while !rest.is_empty() {
            // By a system call: libc's write may be interposed by one that parks fibers.
            match sys::write(libc::STDERR_FILENO, rest) {
                Ok(written @ 1..) => rest = &rest[written..],
                // There is nowhere else to report.
                _ => break,
            }
        }
        self.length = 0;
    }
}
