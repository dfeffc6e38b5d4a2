//! The libraries whose variables lie in every block, and the variables' initial values.
//!
//! A library that is present when the program starts has a fixed place in every thread's block. One
//! that is loaded later by `dlopen` usually gets separate storage when a thread first touches a
//! variable; the loader (`__tls_get_addr`) does that on a fiber as on a thread. But if the
//! library's code uses the *initial-exec* model (or, on aarch64, TLS descriptors while the loader
//! has room), the loader gives it a place in the block next to those taken, and writes the initial
//! values into the blocks of all threads that it knows. It does not know fibers.
//!
//! [`Libraries::begin`] does the same for fibers' blocks. It is called when the loader has given
//! the library its place and its initial values in all threads, and none of the library's code has
//! run: a library's function `_init`, which the linker makes of what libc provides (`crti.o`),
//! first calls `__gmon_start__` if that exists. The crate that stands in for libc's functions
//! defines it, and finds by the return address which library begins. So `dlopen` stays libc's own,
//! wherever it is called from: how it searches for files, what `dlerror` says, on which thread
//! constructors run.
//!
//! A library that was linked without `crti.o` (`-nostartfiles`) does not make that call, nor does
//! one in a namespace of its own. [`Libraries::refresh`] notices it later, and blocks built or
//! reset from then on have its initial values.
//!
//! # Blocks that are in use
//!
//! `begin` writes to blocks on which fibers run. It only writes where the variables of this library
//! lie, and no fiber uses these: the library's code has not run yet, and nothing else uses that
//! part of the reserve. (It overwrites what a library in the same place, unloaded since, has left
//! there. Of two libraries that need each other, one begins first: what its constructors make the
//! other write before that one begins is overwritten as well.) It remains to show that each block
//! has the values when `begin` returns, whatever happens to the block meanwhile. `begin` publishes
//! the new [`InitialValues`] first and then visits the blocks under the registry's lock:
//!
//! * A block registered before that is visited.
//! * A block registered later is built from the new `InitialValues`: `Block::build` reads under the
//!   lock which are current.
//! * A block that is reset meanwhile may be overwritten with what was current before, if a library
//!   that was unloaded had variables in the same place. `reset` reads afterwards whether what it
//!   wrote is still current, and if not, writes again. Its read may be performed before its writes
//!   are visible, as a load may overtake stores. So `begin` has the kernel interrupt the process's
//!   other threads (`membarrier`) after it has published: if `reset` has read before that, its
//!   writes are visible before those of `begin`; if it reads after that, it sees what is current.
//!   (A kernel without `membarrier` leaves it to the system calls in between, which take thousands
//!   of times as long as stores take to become visible.) Both may write a word at the same time:
//!   they write the same value.
//!
//! # Locks
//!
//! The loader holds a lock of its own while libraries begin. So while `looking` is held, nothing here
//! calls a function of the loader that takes that lock (`dlsym` does; starting a thread and iterating
//! over the objects do not). Otherwise `begin` could wait for a carrier that waits for the loader.
//!
//! Nor does a fork wait for `looking`. Its holder asks the program's allocator for memory, and the thread that forks may
//! have that locked. The child [renews](Libraries::renew) the lock: no thread there examines anything, what was published
//! is whole, and what was not yet is found when the child examines the libraries.
//!
//! # Carriers that build and reset meanwhile
//!
//! What they copy from ([`InitialValues`]) never changes once it is published, and is never freed: a
//! change makes a new set and exchanges a pointer. Loading that pointer is all that `reset` pays.
//! A set equal to an earlier one is published again instead of copied, so a program that loads
//! and unloads the same plug-ins for ever does not grow.

use std::ffi::CStr;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use carefree_ground::lock::Lock;
use carefree_ground::mapped::Mapped;
use carefree_ground::membarrier;

use super::initial_values::{InitialValues, Misfit};
use super::{pristine, registry};
use crate::loader;

/// For how long a change that looks unfinished is examined again.
///
/// A library between its mapping and its relocation looks like one that asks for a fixed place and
/// never gets it; no relocation takes this long.
const SETTLING: Duration = Duration::from_secs(10);

/// The libraries that the loader had loaded when [`note_start`] was called; without it, more than it ever loads.
static AT_START: AtomicU64 = AtomicU64::new(u64::MAX);

/// Notes that the program has not run yet: libraries loaded from here on are plug-ins.
///
/// A program that has loaded some before its first fiber will probably load more. Fibers then keep as much room
/// for the variables of such libraries as the loader does.
pub fn note_start() {
    AT_START.store(Changes::now().loads, Ordering::Relaxed);
}

/// Whether fibers are the threads of a program that knows none: see [`note_start`].
pub(super) fn are_threads() -> bool {
    AT_START.load(Ordering::Relaxed) != u64::MAX
}

/// Whether the program has loaded plug-ins: see [`note_start`].
pub(super) fn has_plug_ins() -> bool {
    Changes::now().loads > AT_START.load(Ordering::Relaxed)
}

/// Makes all running threads of the process execute a memory barrier, if the kernel can.
fn interrupt_others() {
    let _ = membarrier::register();
    let _ = membarrier::everywhere();
}

/// What a block offers to libraries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes of a block.
    pub(super) size: usize,
    /// The thread pointer's position.
    pub(super) tp: usize,
    /// Bytes of the reserve.
    pub(super) reserve: usize,
}

/// The current [`InitialValues`] and what they were gathered from.
#[derive(Debug)]
pub(super) struct Libraries {
    current: AtomicPtr<InitialValues>,
    /// The loader's counts of objects loaded and unloaded for which `current` is known to be right.
    loads: AtomicU64,
    unloads: AtomicU64,
    room: Room,
    /// Held while a thread examines the libraries: for long, but only after libraries were loaded.
    looking: Lock<Looking>,
}

/// What the thread that examines the libraries keeps for the next one.
#[derive(Debug)]
struct Looking {
    /// Sets that are or were current. (Mapped, for the child of a fork makes it anew.)
    published: Mapped<&'static InitialValues>,
    /// The counts of an unfinished change, and when it was first seen.
    unsettled: Option<(Changes, Instant)>,
}

impl Libraries {
    pub(super) fn new(values: InitialValues, seen: Changes, room: Room) -> Libraries {
        let values: &'static InitialValues = Box::leak(Box::new(values));
        Libraries {
            current: AtomicPtr::new(ptr::from_ref(values).cast_mut()),
            loads: AtomicU64::new(seen.loads),
            unloads: AtomicU64::new(seen.unloads),
            room,
            looking: Lock::new(Looking { published: Mapped::new(), unsettled: None }),
        }
    }

    #[inline]
    pub(super) fn current(&self) -> &'static InitialValues {
        // Acquire pairs with the store in `publish`, so that the contents are visible, too.
        // SAFETY: the first set was leaked, and so is every one that replaces it. None is ever
        // changed.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// [`InitialValues::write`] of the set that is current when this returns.
    ///
    /// # Safety
    /// As for `InitialValues::write`.
    #[inline]
    pub(super) unsafe fn write_current(&self, low: *mut u8) {
        let mut values = self.current();
        loop {
            // SAFETY: every set was gathered for the one layout of the process, which the block
            // has, and no fiber runs on the block.
            unsafe { values.write(low) };
            // The other side of `interrupt_others`: see the module.
            compiler_fence(Ordering::SeqCst);
            let latest = self.current();
            if ptr::eq(values, latest) {
                return;
            }
            values = latest;
        }
    }

    fn seen(&self) -> Changes {
        Changes {
            loads: self.loads.load(Ordering::Relaxed),
            unloads: self.unloads.load(Ordering::Relaxed),
        }
    }

    /// Forgets an examination that was under way in the parent.
    ///
    /// # Safety
    /// The caller is the only thread of the child of a fork, and was in no call of this when it forked.
    pub(super) unsafe fn renew(&self) {
        // SAFETY: no thread has the lock, or will give it back.
        unsafe { self.looking.renew(Looking { published: Mapped::new(), unsettled: None }) };
    }

    /// See [`Layout::refresh`](super::Layout::refresh).
    pub(super) fn refresh(&self) -> io::Result<()> {
        if Changes::now() == self.seen() {
            return Ok(());
        }
        let mut looking = self.looking.lock();
        // Another caller may have done it meanwhile.
        if Changes::now() == self.seen() {
            return Ok(());
        }
        self.publish(&mut looking)
    }

    /// See [`Layout::begin`](super::Layout::begin).
    pub(super) fn begin(&self, code: usize) -> io::Result<()> {
        let Some(id) = number(code) else { return Ok(()) };
        // Held until the blocks are filled, so that the current set keeps this library's variables.
        let mut looking = self.looking.lock();
        // Regardless of the counts: a library that is loaded again may have the same numbers as
        // before.
        self.publish(&mut looking)?;
        let current = self.current();
        if let Some(module) = current.modules.iter().find(|module| module.id == id) {
            interrupt_others();
            // SAFETY: the process has one layout. The variables are not in use yet: see the module.
            unsafe { registry::fill(current, module) };
        }
        Ok(())
    }

    /// Finds out which libraries there are, and publishes their initial values.
    fn publish(&self, looking: &mut Looking) -> io::Result<()> {
        // Before the examination, so that a change during it is noticed the next time.
        let now = Changes::now();
        let found = pristine::look(false).map_err(io::Error::other)?;
        let values = match InitialValues::gather(&found, self.room.size, self.room.tp) {
            Ok(values) => values,
            Err(module) => self.does_not_fit(&module),
        };
        if values != *self.current() {
            if looking.published.is_empty() {
                looking.published.push_or_abort(self.current());
            }
            let known = looking.published.iter().copied().find(|s| **s == values);
            let values = known.unwrap_or_else(|| {
                let values: &'static InitialValues = Box::leak(Box::new(values));
                looking.published.push_or_abort(values);
                values
            });
            // Release: a thread that loads the pointer sees the contents.
            self.current.store(ptr::from_ref(values).cast_mut(), Ordering::Release);
        }
        let settled = !found.unsettled
            || match looking.unsettled {
                Some((changes, since)) if changes == now => since.elapsed() > SETTLING,
                _ => {
                    looking.unsettled = Some((now, Instant::now()));
                    false
                }
            };
        if settled {
            looking.unsettled = None;
            self.loads.store(now.loads, Ordering::Relaxed);
            self.unloads.store(now.unloads, Ordering::Relaxed);
        }
        Ok(())
    }

    fn does_not_fit(&self, misfit: &Misfit) -> ! {
        eprintln!(
            "carefree: {} was loaded by dlopen and has {} bytes of thread-local variables with a \
             fixed place, {} more than fibers keep free for such; start the program with \
             CAREFREE_TLS_RESERVE={} (it is {} now), or load the library before the first fiber",
            name(misfit.id),
            misfit.size,
            misfit.short,
            (self.room.reserve + misfit.short).next_multiple_of(64),
            self.room.reserve,
        );
        std::process::abort()
    }
}

/// The loader's counts of objects that it has loaded and unloaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Changes {
    loads: u64,
    unloads: u64,
}

impl Changes {
    /// Counts that the loader never gives, since it has loaded the program.
    pub(super) const NONE: Changes = Changes { loads: 0, unloads: 0 };

    pub(super) fn now() -> Changes {
        let mut changes = Changes { loads: 0, unloads: 0 };
        loader::any_object(|info| {
            changes = Changes { loads: info.dlpi_adds, unloads: info.dlpi_subs };
            true // All objects have the same counts.
        });
        changes
    }
}

/// libc's number for the object that contains `address`; `None` if it has no thread-local variables.
fn number(address: usize) -> Option<usize> {
    let mut number = 0;
    loader::any_object(|info| {
        if info.dlpi_phdr.is_null() {
            return false;
        }
        // SAFETY: the loader's description of the program headers, which stay during the visit.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let holds = headers.iter().any(|header| {
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            header.p_type == libc::PT_LOAD && address.wrapping_sub(start) < header.p_memsz as usize
        });
        if holds {
            number = info.dlpi_tls_modid;
        }
        holds
    });
    (number != 0).then_some(number)
}

/// Calls `visit` with libc's number and the file name of each loaded object, until it returns true.
fn any_object(mut visit: impl FnMut(usize, &str) -> bool) -> bool {
    loader::any_object(|info| {
        let mut name = c"";
        if !info.dlpi_name.is_null() {
            // SAFETY: not null, so it is a C string of the loader's, which stays during the visit.
            name = unsafe { CStr::from_ptr(info.dlpi_name) };
        }
        visit(info.dlpi_tls_modid, &name.to_string_lossy())
    })
}

/// The file name of the object that has the number `id`.
fn name(id: usize) -> String {
    let mut found = String::new();
    any_object(|other, name| {
        let is_it = other == id;
        if is_it {
            found = name.to_owned();
        }
        is_it
    });
    if found.is_empty() { "a library".into() } else { found }
}
