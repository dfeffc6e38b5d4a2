//! All blocks of the process, so that variables of a library that is loaded can be initialised in
//! each, and what blocks leave behind.
//!
//! Nothing is allocated under the lock: a thread that forks takes it where the program's allocator may be locked.

use carefree_ground::lock::{Guard, Lock};
use carefree_ground::mapped::Mapped;

use super::ids;
use super::initial_values::{InitialValues, Module};

/// What remains of a block whose memory was given back.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) id: u32,
    /// The words in which libc's part differed from a pristine block.
    pub(super) words: Box<[Word]>,
    /// The one retired before, in the registry.
    next: Option<Box<Retired>>,
}

impl Retired {
    pub(super) fn new(id: u32, words: Vec<Word>) -> Box<Retired> {
        Box::new(Retired { id, words: words.into(), next: None })
    }
}

/// A word of a retired block.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) index: u32,
    /// Whether the value is a position in the block.
    pub(super) inside: bool,
    pub(super) value: u64,
}

#[derive(Debug)]
pub(super) struct Registry {
    /// The latest, first in a list.
    retired: Option<Box<Retired>>,
    /// The lowest addresses of the blocks that are not retired, in use or idle; 0 in vacant entries.
    built: Mapped<usize>,
    /// The indices of vacant entries of `built`.
    vacant: Mapped<u32>,
}

static REGISTRY: Lock<Registry> =
    Lock::new(Registry { retired: None, built: Mapped::new(), vacant: Mapped::new() });

pub(super) fn lock() -> Guard<'static, Registry> {
    REGISTRY.lock()
}

/// Blocks other threads from building and retiring blocks until [`release`].
pub(super) fn hold() {
    REGISTRY.hold();
}

/// Undoes [`hold`].
///
/// # Safety
/// The caller called `hold`, or its parent process did before a fork.
pub(super) unsafe fn release() {
    // SAFETY: `hold` has locked it.
    unsafe { REGISTRY.release() };
}

/// Gives blocks that are built from now on other ids than the parent's: in the child of a fork.
/// Existing blocks keep their ids.
pub(super) fn renew() {
    ids::diverge();
    let mut registry = REGISTRY.lock();
    let mut next = registry.retired.as_mut();
    while let Some(retired) = next {
        retired.id = ids::new_id();
        next = retired.next.as_mut();
    }
    // The parent's fibers do not exist here. The one that called `fork` is now a thread of libc's.
    registry.built.fill(0);
}

/// Initialises the variables of `module` in all blocks, even if fibers are running on them.
///
/// # Safety
/// All blocks are of the layout that `values` were gathered for, and no fiber uses these variables
/// yet.
pub(super) unsafe fn fill(values: &InitialValues, module: &Module) {
    // Holding the lock for this long is an exception. Blocks are added and removed under the lock, so
    // those found here exist.
    let registry = REGISTRY.lock();
    for low in registry.built.iter().filter(|low| **low != 0) {
        // SAFETY: `low` is a block's lowest address, and no fiber uses the part that is written.
        unsafe { values.write_module(*low as *mut u8, module) };
    }
}

impl Registry {
    /// Adds the block whose lowest address is `low`; returns its number.
    pub(super) fn add(&mut self, low: *mut u8) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.built.push_or_abort(0);
            (self.built.len() - 1) as u32
        });
        self.built[number as usize] = low as usize;
        number
    }

    /// What a retired block has left, for a new block to adopt.
    pub(super) fn take_retired(&mut self) -> Option<Box<Retired>> {
        let mut latest = self.retired.take()?;
        self.retired = latest.next.take();
        Some(latest)
    }

    /// Replaces the block of this number by what it leaves behind.
    pub(super) fn retire(&mut self, number: u32, mut remains: Box<Retired>) {
        remains.next = self.retired.take();
        self.retired = Some(remains);
        self.built[number as usize] = 0;
        self.vacant.push_or_abort(number);
    }
}
