//! Waiting for one of several words: `futex_waitv(2)`.
//!
//! A fiber waits in the lot for one word at a time. A waker wakes in the kernel too, so a thread of the pool waits for
//! several words in the fiber's stead.
//!
//! # Signals
//!
//! A hosted thread's wait is ended by signals, and the pool's thread has to leave the kernel's queues then: it would take
//! wake-ups that are for others. So it waits for one word more, the *door*, which the hosted thread opens.
//!
//! *No wake-up is lost.* The door is the first of the words, and the kernel names the last one that was woken: if another
//! was woken as well, the call answers with that one, as the kernel's own does for a thread. The hosted thread waits for
//! the answer, and handles its signals then: a handler may leave the call, of which nothing is left. (A ring can wait for
//! several words too, but a wake-up that comes while its wait is being cancelled may be lost.)
//!
//! The kernel waits for [`MOST`] words at the most. Where the program waits for as many there is no room for a door, and
//! no signal ends the wait.

use std::ffi::{c_int, c_long};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, Ordering};

use carefree_ground::kernel;
use carefree_runtime::wait::{self, Until, park};
use carefree_runtime::{Builder, Outcome, Reason, lot};

use crate::call::answer::{Answer, answer};
use crate::call::fiber::guarded;
use crate::call::host;
use crate::call::uninterrupted;
use crate::call::user::User;

/// `FUTEX_WAITV_MAX`.
const MOST: usize = 128;

/// Numbers of a `struct futex_waitv`: the value, the address, the flags.
type Waiter = [u64; 3];

/// `FUTEX2_SIZE_U32 | FUTEX2_PRIVATE`.
const PRIVATE: u64 = 2 | libc::FUTEX_PRIVATE_FLAG as u64;

/// Has the calling fiber wait until one of the words is woken.
///
/// # Safety
/// As for the system call with these arguments.
pub(crate) unsafe fn wait(arguments: [usize; 6]) -> c_long {
    let [waiters, count, flags, ..] = arguments;
    // What is wrong with other arguments, the kernel reports. It does not wait.
    let has_room = flags == 0 && waiters != 0 && (1..MOST).contains(&count);
    if !host::is_hosted() || wait::holds_loader() || !has_room {
        // SAFETY: as this function demands, and it waits for the pool's thread.
        let call = || unsafe { kernel::call(libc::SYS_futex_waitv, arguments) };
        return answer(guarded(|| uninterrupted::offload(call))) as c_long;
    }
    loop {
        // SAFETY: as this function demands of the arguments.
        let waiters = unsafe { User::<u64>::new(ptr::with_exposed_provenance(waiters)) };
        let (ended, is_cut) = guarded(|| wait_once(waiters, arguments));
        if is_cut && ended == Err(libc::EINTR) && host::waits_on() {
            continue;
        }
        let ended = answer(ended) as c_long;
        if !guarded(|| host::again_steady(&ended)) {
            return ended;
        }
    }
}

/// What the fiber and the pool's thread share.
struct Shared {
    door: AtomicU32,
    /// A negated `errno`, or the index of a word, after the door.
    result: AtomicIsize,
    is_over: AtomicBool,
}

impl Shared {
    /// Ends the wait of the pool's thread.
    fn open(&self) {
        self.door.store(1, Ordering::SeqCst);
        let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
        let arguments = [self.door.as_ptr() as usize, operation, 1, 0, 0, 0];
        // SAFETY: wakes what waits for that word.
        let _ = unsafe { kernel::call(libc::SYS_futex, arguments) };
    }
}

/// Waits until a word is woken, or a signal comes, which the second result tells.
fn wait_once(waiters: User<u64>, arguments: [usize; 6]) -> (Answer, bool) {
    let [_, count, flags, time, clock, _] = arguments;
    let numbers = count * size_of::<Waiter>() / size_of::<u64>();
    if let Err(errno) = waiters.check(numbers) {
        return (Err(errno), false);
    }
    let place = Shared {
        door: AtomicU32::new(0),
        result: AtomicIsize::new(0),
        is_over: AtomicBool::new(false),
    };
    let shared = Arc::new(place);
    let mut words = Vec::with_capacity(count + 1);
    words.push([0, shared.door.as_ptr() as u64, PRIVATE]);
    words.extend((0..count).map(|index| {
        // SAFETY: `check` has found it.
        [0, 1, 2].map(|part| unsafe { waiters.after(index * 3 + part).read_seen() })
    }));
    let key = Arc::as_ptr(&shared) as usize;
    let own = Arc::clone(&shared);
    // Another fiber waits for the pool's thread, which cannot be told of signals there.
    let helper = Builder::new().name("waits for words".into()).spawn(move || {
        let arguments = [words.as_ptr() as usize, words.len(), flags, time, clock, 0];
        // SAFETY: waits for words by addresses that the program has given, and the door. It reads the time that the
        // program has given for this call, which does not end before this.
        let call = || unsafe { kernel::call(libc::SYS_futex_waitv, arguments) };
        let result = match uninterrupted::offload(call) {
            Ok(index) => index as isize,
            Err(errno) => -(errno as isize),
        };
        own.result.store(result, Ordering::Relaxed);
        own.is_over.store(true, Ordering::Release);
        lot::unpark(key, usize::MAX);
    });
    if helper.is_err() {
        // SAFETY: the call that the program makes, and this waits for the pool's thread.
        let without_door = || unsafe { kernel::call(libc::SYS_futex_waitv, arguments) };
        return (uninterrupted::offload(without_door), false);
    }
    drop(helper);
    let waits = || !shared.is_over.load(Ordering::Acquire);
    let mut is_cut = false;
    while waits() {
        let cancellable = !is_cut && host::is_interruptible();
        let until = Until { cancellable, ..Until::WOKEN_ONLY };
        if park(key, waits, Reason::Futex, until) == Outcome::Cancelled {
            is_cut = true;
            shared.open();
        }
    }
    let ended = match shared.result.load(Ordering::Relaxed) {
        0 => Err(libc::EINTR),
        // The door was open before the wait began.
        error if error == -(libc::EAGAIN as isize) && is_cut => Err(libc::EINTR),
        error @ ..0 => Err(-error as c_int),
        index => Ok(index as usize - 1),
    };
    (ended, is_cut)
}
