//! What valgrind is told of stacks.
//!
//! It is told of each stack once, when its memory is first used, which costs a few instructions.
//! Without that, valgrind would take the step from one stack to its neighbour for one large frame, and
//! all memory between for dead.

use carefree_ground::lock::Lock;
use carefree_ground::valgrind::request;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers from valgrind.h, which are the same in all versions.
const STACK_REGISTER: usize = 0x1501;
const STACK_DEREGISTER: usize = 0x1502;
/// Request to memcheck: the memory may not be touched.
const MAKE_NOACCESS: usize = 0x4d43_0000;
/// Request to memcheck: the memory may be written, and read only after that.
const MAKE_UNDEFINED: usize = 0x4d43_0001;

/// Whether valgrind has answered a request.
static PRESENT: AtomicBool = AtomicBool::new(false);

/// The lowest addresses of the stacks that valgrind was told of, and its numbers for them. Empty
/// without valgrind.
static KNOWN: Lock<Vec<(usize, usize)>> = Lock::new(Vec::new());

/// To be called before a stack is used for the first time.
pub(crate) fn register(limit: usize, top: usize) {
    // 0 without valgrind. (valgrind's own number 0 is the main thread's stack.)
    let number = request(STACK_REGISTER, limit, top - 1);
    if number != 0 {
        PRESENT.store(true, Ordering::Relaxed);
        KNOWN.lock().push((limit, number));
    }
}

/// Marks the memory from `base` to `limit`, below a stack that was [registered](register), as its
/// guard.
///
/// valgrind does not see guards that are not mappings of their own and takes them for readable. Its
/// search for leaks at the end of the process would then fault on every word of them, for minutes in a
/// process that had many fibers.
pub(crate) fn guard(base: usize, limit: usize) {
    if PRESENT.load(Ordering::Relaxed) {
        request(MAKE_NOACCESS, base, limit - base);
    }
}

/// To be called when the stack from `limit` to `top` gets a new user: it may write below the last
/// frame of the one before. `limit` is asked for only under valgrind: finding it costs a spawn more than
/// the look whether valgrind is there.
#[inline(always)]
pub(crate) fn renew(limit: impl FnOnce() -> usize, top: usize) {
    if PRESENT.load(Ordering::Relaxed) {
        let limit = limit();
        request(MAKE_UNDEFINED, limit, top - limit);
    }
}

/// To be called before the stacks within `memory` are unmapped.
pub(crate) fn deregister(memory: &Range<usize>) {
    KNOWN.lock().retain(|(limit, number)| {
        let gone = memory.contains(limit);
        if gone {
            request(STACK_DEREGISTER, *number, 0);
        }
        !gone
    });
}
