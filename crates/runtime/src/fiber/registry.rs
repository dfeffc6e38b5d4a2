//! Where fibers' headers come from and go to, and a way to look at all of them.
//!
//! Headers lie in slabs that are never unmapped, so an uncounted reference is always to a header,
//! if perhaps of another fiber by now. A header goes back when its last counted reference does:
//! the fiber itself holds one until it is off its stack, each [`Thread`](crate::Thread) and
//! [`JoinHandle`](crate::JoinHandle) one more.

use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree_context::stack;
use carefree_ground::lock::Lock;

use crate::fiber::bed;
use crate::fiber::furnish::Furnished;
use crate::fiber::header::{ALIVE, FREE, FiberRef, Header, Kind};
use crate::fiber::pin;
use crate::protocol::work;

/// Bytes of a slab: 2,047 headers, and a link.
const SLAB: usize = 256 * 1024;
const PER_SLAB: usize = SLAB / size_of::<Header>() - 1;

/// Free headers a carrier keeps for itself; beyond that, half of them go to the others.
const LOCAL: usize = 256;

/// Numbers a carrier takes at once.
const NUMBERS: u64 = 1024;

/// What is in here is linked through the slabs and headers themselves: reports go through them under
/// the lock, and must come though the program's allocator hangs. So nothing is allocated with it held.
struct Registry {
    /// The newest, and through its link all others.
    slabs: Option<&'static Slab>,
    /// Headers of the newest slab that were used at least once.
    begun: usize,
    free: Pile,
    /// Headers of ended threads. A late wake-up may still reach where such a thread slept, so they
    /// only ever become other threads'.
    threads: Pile,
}

impl Registry {
    const EMPTY: Registry =
        Registry { slabs: None, begun: PER_SLAB, free: Pile::EMPTY, threads: Pile::EMPTY };
}

/// Headers that were mapped at once.
struct Slab {
    older: Option<&'static Slab>,
    headers: [Header; PER_SLAB],
}

const _: () = assert!(size_of::<Slab>() <= SLAB);

/// Free headers, linked by their `next`: no list of waiters or of fibers made ready has them.
#[derive(Debug)]
struct Pile {
    top: Option<FiberRef>,
    len: usize,
}

impl Default for Pile {
    fn default() -> Self {
        Pile::EMPTY
    }
}

impl Pile {
    const EMPTY: Pile = Pile { top: None, len: 0 };

    #[inline]
    fn push(&mut self, header: FiberRef) {
        header.next.set(self.top);
        self.top = Some(header);
        self.len += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<FiberRef> {
        let header = self.top?;
        self.top = header.next.take();
        self.len -= 1;
        Some(header)
    }

    /// Moves up to `count` headers to `to`; whether there was one.
    fn give(&mut self, count: usize, to: &mut Pile) -> bool {
        let before = to.len;
        while to.len < before + count {
            let Some(header) = self.pop() else { break };
            to.push(header);
        }
        to.len > before
    }
}

static REGISTRY: Lock<Registry> = Lock::new(Registry::EMPTY);

/// Forgets all headers: in the child of a fork, where only one of them is still in use. They are not used
/// again, as that would mean to write to memory that is shared with the parent until then.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: the caller's promise.
    unsafe { REGISTRY.renew(Registry::EMPTY) };
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// A carrier's own share of headers and numbers.
#[derive(Debug, Default)]
pub(crate) struct Local {
    free: Pile,
    numbers: Range<u64>,
}

impl Local {
    /// A free header. Its fields are as its last user left them.
    #[inline]
    pub(crate) fn header(&mut self) -> io::Result<FiberRef> {
        if self.free.top.is_none() {
            take(LOCAL / 4, &mut self.free)?;
        }
        Ok(self.free.pop().expect("headers were just taken"))
    }

    /// A number no fiber had before.
    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        if self.numbers.is_empty() {
            self.numbers = numbers(NUMBERS);
        }
        self.numbers.start += 1;
        self.numbers.start - 1
    }
}

fn numbers(count: u64) -> Range<u64> {
    let first = NEXT_NUMBER.fetch_add(count, Ordering::Relaxed);
    first..first + count
}

/// A number no fiber had before, for a caller that is not on a carrier.
pub(crate) fn number() -> u64 {
    numbers(1).start
}

/// A header for a caller that is not on a carrier.
pub(crate) fn header() -> io::Result<FiberRef> {
    let mut one = Pile::EMPTY;
    take(1, &mut one)?;
    Ok(one.pop().expect("a header was just taken"))
}

/// [`Registry::take`], with an error that names the limit.
fn take(count: usize, to: &mut Pile) -> io::Result<()> {
    let taken = REGISTRY.lock().take(count, to);
    if taken {
        return Ok(());
    }
    let why = stack::why_refused(SLAB);
    let text = format!("no memory for one more fiber can be had: {why}");
    Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
}

/// A header with a [bed], for a thread.
pub(crate) fn thread() -> io::Result<FiberRef> {
    let ended = REGISTRY.lock().threads.pop();
    match ended {
        Some(header) => Ok(header),
        None => {
            let header = header()?;
            bed::make(header);
            Ok(header)
        }
    }
}

impl Registry {
    /// Moves up to `count` free headers, at least one, to `to`; false if there is no memory for one.
    fn take(&mut self, count: usize, to: &mut Pile) -> bool {
        if self.free.give(count, to) {
            return true;
        }
        if self.begun == PER_SLAB {
            let Some(slab) = map_slab(self.slabs) else { return false };
            self.slabs = Some(slab);
            self.begun = 0;
        }
        let slab = self.slabs.expect("a slab was just mapped");
        let end = (self.begun + count).min(PER_SLAB);
        // The first one is taken first.
        slab.headers[self.begun..end].iter().rev().for_each(|h| to.push(FiberRef::new(h)));
        self.begun = end;
        true
    }
}

/// Maps a slab of headers. Not malloc: the caller may run on a fiber, whose malloc should stay as
/// untouched as its program leaves it.
fn map_slab(older: Option<&'static Slab>) -> Option<&'static Slab> {
    // SAFETY: a new private mapping.
    let map = unsafe {
        libc::mmap(
            ptr::null_mut(),
            SLAB,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return None;
    }
    let slab = map.cast::<Slab>();
    // SAFETY: the mapping has room for a slab, is page-aligned and is never unmapped.
    unsafe { (&raw mut (*slab).older).write(older) };
    for index in 0..PER_SLAB {
        // SAFETY: as above.
        unsafe { (&raw mut (*slab).headers[index]).write(Header::new()) };
    }
    // SAFETY: as above, and all of it was just written.
    Some(unsafe { &*slab })
}

/// Empties a header of which no counted reference is left; returns the stack that was pinned in it.
pub(crate) fn clear(fiber: FiberRef) -> Option<Furnished> {
    fiber.run.store(FREE, Ordering::Relaxed);
    fiber.drop_names();
    // SAFETY: its fiber has ended and left it here, and no reference to the header is left.
    pin::take(fiber).map(|pinned| unsafe { Furnished::from_raw(pinned) })
}

/// Takes a header back that was [cleared](clear), from a caller that is not on a carrier.
pub(crate) fn put(fiber: FiberRef) {
    let mut registry = REGISTRY.lock();
    match fiber.kind.get() {
        Kind::Fiber => registry.free.push(fiber),
        Kind::Thread => registry.threads.push(fiber),
    }
}

impl Local {
    /// [`put`] for a fiber's header, on its carrier.
    pub(crate) fn put(&mut self, fiber: FiberRef) {
        self.free.push(fiber);
        if self.free.len > LOCAL {
            let mut half = Pile::EMPTY;
            self.free.give(LOCAL / 2, &mut half);
            half.give(LOCAL, &mut REGISTRY.lock().free);
        }
    }

    /// Gives everything back, as the carrier ends.
    pub(crate) fn clear(&mut self) {
        let count = self.free.len;
        self.free.give(count, &mut REGISTRY.lock().free);
    }
}

/// Visits the fibers and threads that have a header in use, of all runtimes, in no order. They
/// may end meanwhile: what is read of them is a glimpse. `visit` must not allocate.
pub(crate) fn for_each_alive(mut visit: impl FnMut(FiberRef)) {
    let registry = REGISTRY.lock();
    let (mut slab, mut begun) = (registry.slabs, registry.begun);
    while let Some(Slab { older, headers }) = slab {
        for header in headers[..begun].iter().filter(|h| h.run.load(Ordering::Acquire) == ALIVE) {
            work::step();
            visit(FiberRef::new(header));
        }
        (slab, begun) = (*older, PER_SLAB);
    }
}
