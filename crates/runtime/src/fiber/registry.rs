//! The supply of headers, and a way to look at all that are in use.
//!
//! Headers lie in slabs that are never unmapped, so an uncounted reference is always to a header,
//! if perhaps of another fiber by now. A header is given back with its last counted reference:
//! the fiber itself has one until it is off its stack, each [`Thread`](crate::Thread) and
//! [`JoinHandle`](crate::JoinHandle) another.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree_context::stack;
use carefree_ground::lock::Lock;
use carefree_ground::memory;

use crate::fiber::bed;
use crate::fiber::furnish::{self, Furnished};
use crate::fiber::header::{ALIVE, FREE, FiberRef, Header, Kind};
use crate::fiber::names::Names;
use crate::fiber::pin;
use crate::protocol::work;

/// Bytes of a slab: 2,047 headers, and a link.
const SLAB: usize = 256 * 1024;
const PER_SLAB: usize = SLAB / size_of::<Header>() - 1;

/// Free headers that a carrier keeps; of more, half are given back.
const LOCAL: usize = 256;

/// Numbers that a carrier takes at once.
const NUMBERS: u64 = 1024;

/// All slabs and free headers, linked by fields of their own. Nothing is allocated under the registry's
/// lock, for reports take it, and must come even where the program's allocator hangs.
struct Registry {
    /// The newest slab; each has a link to the one before.
    slabs: Option<&'static Slab>,
    /// Headers of the newest slab that were used at least once.
    begun: usize,
    free: Pile,
    /// Headers of ended threads. A late wake-up may still be for such a thread's bed, so they are used for
    /// threads only.
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

/// Free headers, linked by `next`, which nothing else uses of a free header.
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

    /// Moves up to `count` headers to `to`; false if there was none.
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

/// Forgets all headers: in the child of a fork, where the caller's is the only one in use. They are not used
/// again, for the child would have to copy their pages, which it shares with its parent.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: there is one thread, and it does not have the lock.
    unsafe { REGISTRY.renew(Registry::EMPTY) };
    FIRST_NUMBER.store(NEXT_NUMBER.load(Ordering::Relaxed), Ordering::Relaxed);
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// The first number of this process's: lower ones are the parent's, before its fork.
static FIRST_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Whether `fiber` is one of the process that this one was forked from.
pub(crate) fn is_of_parent(fiber: FiberRef) -> bool {
    fiber.id.load(Ordering::Relaxed) < FIRST_NUMBER.load(Ordering::Relaxed)
}

/// The headers and numbers that a carrier keeps for its next fibers.
#[derive(Debug, Default)]
pub(crate) struct Local {
    free: Pile,
    numbers: Range<u64>,
}

impl Local {
    /// Takes a free header. Its fields are as its last user left them.
    #[inline]
    pub(crate) fn header(&mut self) -> io::Result<FiberRef> {
        if self.free.top.is_none() {
            take(LOCAL / 4, &mut self.free)?;
        }
        Ok(self.free.pop().expect("headers were just taken"))
    }

    /// A number that no fiber has had.
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

/// A number that no fiber has had, for a caller that is not on a carrier.
pub(crate) fn number() -> u64 {
    numbers(1).start
}

/// Takes a free header, for a caller that is not on a carrier.
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

/// Takes a free header with a [bed], for a thread.
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
        // Reversed: the first of them is on top.
        slab.headers[self.begun..end].iter().rev().for_each(|h| to.push(FiberRef::new(h)));
        self.begun = end;
        true
    }
}

/// Maps a slab of headers. Not by malloc, for the caller may be a fiber within the program's allocator.
fn map_slab(older: Option<&'static Slab>) -> Option<&'static Slab> {
    let slab = memory::map(SLAB).ok()?.cast::<Slab>().as_ptr();
    // SAFETY: the mapping has room for a slab, is page-aligned and is never unmapped.
    unsafe { (&raw mut (*slab).older).write(older) };
    for index in 0..PER_SLAB {
        // SAFETY: the mapping has room for `PER_SLAB` headers.
        unsafe { (&raw mut (*slab).headers[index]).write(Header::new()) };
    }
    // SAFETY: the mapping is never unmapped, and all fields were just written.
    Some(unsafe { &*slab })
}

/// What is left of a fiber when its header is cleared.
pub(crate) struct Remains {
    pub(crate) names: Option<Box<Names>>,
    /// The stack, if it was pinned.
    pub(crate) pinned: Option<Furnished>,
}

/// Clears a header to which no counted reference is left. Calls no allocator.
pub(crate) fn clear(fiber: FiberRef) -> Remains {
    fiber.run.store(FREE, Ordering::Relaxed);
    let names = fiber.take_names();
    // SAFETY: the fiber has ended and left its stack in the header, from which it was taken just now.
    let pinned = pin::take(fiber).map(|pinned| unsafe {
        furnish::unhost(pinned);
        Furnished::from_raw(pinned)
    });
    Remains { names, pinned }
}

/// Takes back a header that was [cleared](clear), for a caller that is not on a carrier.
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

    /// Gives back all headers, when the carrier ends.
    pub(crate) fn clear(&mut self) {
        let count = self.free.len;
        self.free.give(count, &mut REGISTRY.lock().free);
    }
}

/// Calls `visit` for each header in use, of fibers of all runtimes and of threads, in no order. A fiber may
/// end meanwhile, so what is read of it is of some moment. `visit` must not allocate.
pub(crate) fn for_each_alive(mut visit: impl FnMut(FiberRef)) {
    find(|fiber| {
        visit(fiber);
        false
    });
}

/// The first header in use that passes `test`, which is called under the registry's lock.
fn find(mut test: impl FnMut(FiberRef) -> bool) -> Option<FiberRef> {
    let registry = REGISTRY.lock();
    let (mut slab, mut begun) = (registry.slabs, registry.begun);
    while let Some(Slab { older, headers }) = slab {
        for header in headers[..begun].iter().filter(|h| h.run.load(Ordering::Acquire) == ALIVE) {
            work::step();
            if test(FiberRef::new(header)) {
                return Some(FiberRef::new(header));
            }
        }
        (slab, begun) = (*older, PER_SLAB);
    }
    None
}

/// The first pinned fiber that has not finished and passes `test`, with a counted reference; `test` may access
/// what lies on its stack, but must not allocate. `recycle` takes headers to which the last reference was given
/// back here.
pub(crate) fn find_pinned(
    mut test: impl FnMut(FiberRef) -> bool,
    recycle: impl Fn(FiberRef),
) -> Option<FiberRef> {
    let mut ended = Pile::EMPTY;
    let found = find(|fiber| {
        if !pin::hold(fiber, |freed| ended.push(freed)) {
            return false;
        }
        if test(fiber) {
            return true;
        }
        if fiber.give_back() {
            ended.push(fiber);
        }
        false
    });
    // Not before: recycling takes the registry's lock.
    while let Some(fiber) = ended.pop() {
        recycle(fiber);
    }
    found
}
