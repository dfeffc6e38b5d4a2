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

use carefree_context::lock::Lock;
use carefree_context::stack;

use crate::bed;
use crate::carrier::{self, Carrier};
use crate::fiber::{ALIVE, FREE, FiberRef, Header, Kind};
use crate::furnish::{self, Furnished};
use crate::join;
use crate::wait;
use crate::work;

/// Bytes of a slab: 2,048 headers.
const SLAB: usize = 256 * 1024;
const PER_SLAB: usize = SLAB / size_of::<Header>();

/// Free headers a carrier keeps for itself; beyond that, half of them go to the others.
const LOCAL: usize = 256;

/// Numbers a carrier takes at once.
const NUMBERS: u64 = 1024;

struct Registry {
    slabs: Vec<&'static [Header]>,
    /// Headers of the last slab that were used at least once.
    begun: usize,
    free: Vec<FiberRef>,
    /// Headers of ended threads. A late wake-up may still reach where such a thread slept, so they
    /// only ever become other threads'.
    threads: Vec<FiberRef>,
}

impl Registry {
    const EMPTY: Registry =
        Registry { slabs: Vec::new(), begun: PER_SLAB, free: Vec::new(), threads: Vec::new() };
}

static REGISTRY: Lock<Registry> = Lock::new(Registry::EMPTY);

/// Forgets all headers: in the child of a fork, where but one of them is nobody's. They are not used
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
    free: Vec<FiberRef>,
    numbers: Range<u64>,
}

impl Local {
    /// A free header. Its fields are as its last user left them.
    #[inline]
    pub(crate) fn header(&mut self) -> io::Result<FiberRef> {
        if self.free.is_empty() {
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
    let mut one = Vec::with_capacity(1);
    take(1, &mut one)?;
    Ok(one[0])
}

/// [`Registry::take`], with an error that names the limit.
fn take(count: usize, to: &mut Vec<FiberRef>) -> io::Result<()> {
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
    fn take(&mut self, count: usize, to: &mut Vec<FiberRef>) -> bool {
        let rest = self.free.len().saturating_sub(count);
        to.extend(self.free.drain(rest..));
        if !to.is_empty() {
            return true;
        }
        if self.begun == PER_SLAB {
            let Some(slab) = map_slab() else { return false };
            self.slabs.push(slab);
            self.begun = 0;
        }
        let slab = self.slabs.last().expect("a slab was just mapped");
        let end = (self.begun + count).min(PER_SLAB);
        to.extend(slab[self.begun..end].iter().rev().map(FiberRef::new));
        self.begun = end;
        true
    }
}

/// Maps a slab of headers. Not malloc: the caller may run on a fiber, whose malloc should stay as
/// untouched as its program leaves it.
fn map_slab() -> Option<&'static [Header]> {
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
    let first = map.cast::<Header>();
    for index in 0..PER_SLAB {
        // SAFETY: the mapping has room for PER_SLAB headers, is page-aligned and is never unmapped.
        unsafe { first.add(index).write(Header::new()) };
    }
    // SAFETY: as above, and all of them were just written.
    Some(unsafe { std::slice::from_raw_parts(first, PER_SLAB) })
}

/// Gives one counted reference back, and with the last one the header.
#[inline]
pub(crate) fn release(fiber: FiberRef) {
    if fiber.give_back() {
        recycle(fiber);
    }
}

fn recycle(fiber: FiberRef) {
    fiber.run.store(FREE, Ordering::Relaxed);
    fiber.drop_names();
    if let Some(pinned) = join::take_pinned(fiber) {
        // SAFETY: its fiber has ended and left it here, and no reference to the header is left.
        let stack = unsafe { Furnished::from_raw(pinned) };
        wait::without_parking(|| furnish::put(stack));
    }
    if fiber.kind.get() == Kind::Thread {
        REGISTRY.lock().threads.push(fiber);
        return;
    }
    match carrier::here() {
        Some(carrier) => carrier.with_local(|local| local.headers.put(fiber)),
        None => REGISTRY.lock().free.push(fiber),
    }
}

impl Local {
    fn put(&mut self, fiber: FiberRef) {
        self.free.push(fiber);
        if self.free.len() > LOCAL {
            let tail = self.free.drain(LOCAL / 2..);
            REGISTRY.lock().free.extend(tail);
        }
    }

    /// Gives everything back, as the carrier ends.
    pub(crate) fn clear(&mut self) {
        REGISTRY.lock().free.append(&mut self.free);
    }
}

/// Visits the fibers and threads that have a header in use, of all runtimes, in no order. They
/// may end meanwhile: what is read of them is a glimpse.
pub(crate) fn for_each_alive(mut visit: impl FnMut(FiberRef)) {
    let registry = REGISTRY.lock();
    for (index, slab) in registry.slabs.iter().enumerate() {
        let last = index + 1 == registry.slabs.len();
        let begun = if last { registry.begun } else { PER_SLAB };
        for header in slab[..begun].iter().filter(|h| h.run.load(Ordering::Acquire) == ALIVE) {
            work::step();
            visit(FiberRef::new(header));
        }
    }
}

/// Whether `fiber` belongs to `carrier`'s runtime.
#[inline]
pub(crate) fn belongs(fiber: FiberRef, carrier: &Carrier) -> bool {
    let of = fiber.carrier.get();
    // SAFETY: a fiber that is alive keeps its runtime, and so its carriers, alive.
    ptr::eq(of, carrier) || !of.is_null() && ptr::eq(unsafe { (*of).runtime() }, carrier.runtime())
}
