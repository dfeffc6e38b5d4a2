//! The pool that stacks come from and go back to.

use super::batch::{MOST, Slot};
use super::class::{Class, StackStats};
use super::guard::{self, GuardMode};
use super::{StackInfo, StackSize};
use crate::valgrind;
use std::sync::{Arc, LazyLock};
use std::{fmt, io};

/// Memory for stacks, kept for re-use.
///
/// Stacks of a size come from large slabs of address space. Released stacks are handed out again, the
/// latest first. Idle stacks keep their memory up to a watermark ([`PoolOptions::idle_bytes`]); the
/// memory of further ones is given back to the kernel, as is that of all on [`trim`](Self::trim).
/// Their address space is kept until it is needed elsewhere: see [`shed`](Self::shed).
///
/// A pool can be used from any thread and any fiber. Its locks never park a fiber and are not held
/// across system calls.
///
/// ```
/// use carefree_context::stack::{StackPool, StackSize};
///
/// let pool = StackPool::new();
/// let stack = pool.acquire(StackSize::DEFAULT)?;
/// assert!(stack.is_fresh());
/// let base = stack.base();
/// drop(stack);
///
/// let again = pool.acquire(StackSize::DEFAULT)?;
/// assert_eq!(again.base(), base);
/// assert!(!again.is_fresh());
/// assert_eq!(pool.stats().in_use, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StackPool {
    classes: [Arc<Class>; StackSize::CLASSES],
    guards: GuardMode,
}

/// Options of a [`StackPool`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolOptions {
    /// How to guard stacks; by default as [`guards`](super::guards) says. With
    /// [`GuardMode::Madvise`] on a kernel without such guards, [`StackPool::acquire`] falls back to
    /// mprotect.
    pub guards: Option<GuardMode>,
    /// The watermark: how many bytes of memory idle stacks may hold, for each size. By default 1/64
    /// of the machine's memory, but at least 64 MiB: 16,384 stacks of which one page was touched.
    ///
    /// How much idle stacks hold is estimated by measuring one in 64 that are released.
    pub idle_bytes: Option<usize>,
}

impl StackPool {
    /// The pool of the process.
    pub fn global() -> &'static StackPool {
        static GLOBAL: LazyLock<StackPool> = LazyLock::new(StackPool::new);
        &GLOBAL
    }

    /// A new pool. Its address space is released when the pool and all stacks from it are dropped.
    pub fn new() -> StackPool {
        Self::with_options(PoolOptions::default())
    }

    /// A new pool with the given options.
    pub fn with_options(options: PoolOptions) -> StackPool {
        let guards = options.guards.unwrap_or_else(|| guard::guards().mode);
        let idle_bytes = options.idle_bytes.unwrap_or_else(default_idle_bytes);
        let classes = std::array::from_fn(|class| {
            Arc::new(Class::new(StackSize::of_class(class), guards, idle_bytes))
        });
        StackPool { classes, guards }
    }

    /// How this pool guards its stacks.
    pub fn guard_mode(&self) -> GuardMode {
        self.guards
    }

    /// Hands out a stack.
    ///
    /// # Errors
    /// When a limit of the machine or the process is reached; the error names it and how to raise
    /// it. Its kind is [`io::ErrorKind::OutOfMemory`].
    pub fn acquire(&self, size: StackSize) -> io::Result<Stack> {
        let class = self.class(size);
        let mut handed = None;
        let mut acquire = || class.acquire(1, |slot, fresh| handed = Some((slot, fresh)));
        acquire().or_else(|error| if self.shed() > 0 { acquire() } else { Err(error) })?;
        let Some((slot, fresh)) = handed else { unreachable!("acquire hands out one or fails") };
        Ok(Stack::new(slot, fresh, class))
    }

    /// Hands out many stacks at once and appends them to `stacks`: `wanted` ones, or as many as
    /// possible.
    ///
    /// # Errors
    /// When not even one is available; as for [`acquire`](Self::acquire).
    pub fn acquire_many(
        &self,
        size: StackSize,
        wanted: usize,
        stacks: &mut Vec<Stack>,
    ) -> io::Result<()> {
        let class = self.class(size);
        // So that `push` does not allocate while the class is locked.
        stacks.reserve(wanted);
        let mut acquire =
            || class.acquire(wanted, |slot, fresh| stacks.push(Stack::new(slot, fresh, class)));
        acquire().or_else(|error| if self.shed() > 0 { acquire() } else { Err(error) })
    }

    /// Promises `count` stacks to the caller: it can [acquire](Self::acquire_promised) them later, and other
    /// callers cannot. This takes address space, and no memory.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); then none is promised. And where guards are made by `mprotect`, with kind
    /// [`io::ErrorKind::Unsupported`]: `vm.max_map_count` counts them, so a promised stack might be refused later.
    ///
    /// ```
    /// use carefree_context::stack::{StackPool, StackSize};
    ///
    /// let (pool, size, mut stacks) = (StackPool::new(), StackSize::DEFAULT, Vec::new());
    /// if pool.promise(size, 3).is_ok() {
    ///     pool.acquire_promised(size, 2, &mut stacks)?;
    ///     assert_eq!((stacks.len(), pool.stats().promised), (2, 1));
    ///     pool.unpromise(size, 1);
    ///     assert_eq!(pool.stats().promised, 0);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn promise(&self, size: StackSize, count: usize) -> io::Result<()> {
        let class = self.class(size);
        if guard::are_mappings(self.guards, class.size().guard()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let promise = || class.promise(count);
        promise().or_else(|error| if self.shed() > 0 { promise() } else { Err(error) })
    }

    /// Gives promises of stacks back.
    ///
    /// # Panics
    /// May panic or break others' promises if the caller has fewer.
    pub fn unpromise(&self, size: StackSize, count: usize) {
        self.class(size).unpromise(count);
    }

    /// Hands out up to `wanted` stacks, of which as many are promised to the caller, and appends them to `stacks`.
    /// For each, one of these promises is used up.
    ///
    /// # Errors
    /// When not even one is available: the kernel has no memory for a guard.
    pub fn acquire_promised(
        &self,
        size: StackSize,
        wanted: usize,
        stacks: &mut Vec<Stack>,
    ) -> io::Result<()> {
        let class = self.class(size);
        // So that `push` does not allocate while the class is locked.
        stacks.reserve(wanted);
        class.acquire_promised(wanted, |slot, fresh| stacks.push(Stack::new(slot, fresh, class)))
    }

    /// Forgets all promises: in the child of a fork, where nothing has them.
    pub fn forget_promises(&self) {
        self.classes.iter().for_each(|class| class.forget_promises());
    }

    /// Takes back all of `stacks`, which is cheaper than dropping them one by one. They may be of
    /// different sizes and pools.
    pub fn release_many(&self, stacks: &mut Vec<Stack>) {
        take_back(stacks, Class::release);
    }

    /// [`release_many`](Self::release_many), and gives the memory of these stacks back to the kernel.
    pub fn discard_many(&self, stacks: &mut Vec<Stack>) {
        take_back(stacks, Class::discard);
    }

    /// Blocks other threads from changing the pool until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        self.classes.iter().for_each(|class| class.hold());
    }

    /// Undoes [`hold`](Self::hold).
    ///
    /// # Safety
    /// The caller called `hold`, or its parent process did before a fork.
    pub(crate) unsafe fn release(&self) {
        for class in &self.classes {
            // SAFETY: `hold` has locked each class.
            unsafe { class.release_hold() };
        }
    }

    /// Gives the memory of all idle stacks back to the kernel. Their address space stays for
    /// re-use.
    pub fn trim(&self) {
        for class in &self.classes {
            class.trim();
        }
    }

    /// Unmaps slabs of which all stacks are idle; returns how many bytes of address space that frees.
    ///
    /// [`acquire`](Self::acquire) does this when there is no address space for a stack, to take it
    /// from idle ones of other sizes.
    pub fn shed(&self) -> usize {
        self.classes.iter().map(|class| class.shed()).sum()
    }

    /// Counts the stacks of all sizes. While other threads acquire and release stacks, each count
    /// is right for some moment, and a stack between two states may be in neither count.
    pub fn stats(&self) -> StackStats {
        let mut stats = StackStats::default();
        for class in &self.classes {
            class.count(&mut stats);
        }
        stats
    }

    fn class(&self, size: StackSize) -> &Arc<Class> {
        &self.classes[size.made().class()]
    }
}

impl Default for StackPool {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StackPool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StackPool")
            .field("guards", &self.guards)
            .field("stats", &self.stats())
            .finish()
    }
}

/// Takes stacks from the end of the list on, and has `take` take those of one class at a time, a piece after the other.
fn take_back(stacks: &mut Vec<Stack>, take: impl Fn(&Class, &[Slot])) {
    while let Some(last) = stacks.last() {
        let class = last.class.clone();
        let same = stacks
            .iter()
            .rev()
            .take(MOST)
            .take_while(|stack| Arc::ptr_eq(&stack.class, &class))
            .count();
        let mut slots = [last.slot(); MOST];
        for slot in &mut slots[..same] {
            let Some(stack) = stacks.pop() else { unreachable!("there are that many") };
            *slot = stack.into_slot();
        }
        take(&class, &slots[..same]);
    }
}

/// The default watermark of a pool in bytes: see [`PoolOptions::idle_bytes`].
pub fn default_idle_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let pages = usize::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).unwrap_or(0);
    (pages.saturating_mul(super::sys::page_size()) / 64).max(64 << 20)
}

/// A stack, which goes back to its pool when dropped.
///
/// The memory between [`limit`](Self::limit) and [`top`](Self::top) can be read and written. Below
/// that is the guard.
pub struct Stack {
    // The fields of a `Slot` one by one, so that a stack takes three words.
    base: *mut u8,
    id: u32,
    fresh: bool,
    class: Arc<Class>,
}

// SAFETY: a stack owns its memory, which is tied to no thread.
unsafe impl Send for Stack {}
// SAFETY: a shared reference gives only addresses and sizes.
unsafe impl Sync for Stack {}

impl Stack {
    fn new(slot: Slot, fresh: bool, class: &Arc<Class>) -> Stack {
        Stack { base: slot.base, id: slot.id, fresh, class: class.clone() }
    }

    fn slot(&self) -> Slot {
        Slot { base: self.base, id: self.id }
    }

    /// The lowest address, where the guard begins; a multiple of the size of a page.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// The lowest address above the guard.
    pub fn limit(&self) -> *mut u8 {
        self.base.wrapping_add(self.size().guard())
    }

    /// The first address above the stack, where code begins to push; a multiple of the size of a page.
    pub fn top(&self) -> *mut u8 {
        self.base.wrapping_add(self.size().bytes())
    }

    /// The stack's size.
    pub fn size(&self) -> StackSize {
        self.class.size()
    }

    /// How many bytes of memory the stack holds, from its top down to the first gap. This asks the kernel.
    pub fn resident(&self) -> usize {
        self.class.resident(&self.slot())
    }

    /// Tells valgrind that the stack below `address` may be used again: it takes memory below the last
    /// user's last frame for out of bounds.
    #[inline(always)]
    pub fn renew_below(&self, address: *mut u8) {
        valgrind::renew(|| self.limit() as usize, address as usize);
    }

    /// How many bytes from [`base`](Self::base) on are guard: any access there is a fault.
    pub fn guard(&self) -> usize {
        self.size().guard()
    }

    /// Whether the stack was never used since its memory came from the kernel, so that all of it
    /// reads as zero.
    ///
    /// This describes the stack when it was handed out; its owner's writes do not change the answer.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The stack's addresses and sizes.
    pub fn info(&self) -> StackInfo {
        StackInfo {
            base: self.base() as usize,
            top: self.top() as usize,
            size: self.size().bytes(),
            guard: self.guard(),
        }
    }

    /// Gives up ownership without releasing the slot.
    fn into_slot(self) -> Slot {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the class is moved out of a value that is not dropped, and whose class is not
        // used again.
        drop(unsafe { std::ptr::read(&raw const this.class) });
        this.slot()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.class.release(&[self.slot()]);
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Stack({:p}..{:p}, {})", self.base(), self.top(), self.size())
    }
}
