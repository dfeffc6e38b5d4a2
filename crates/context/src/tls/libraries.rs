//! The libraries whose variables lie in every block, and the variables' initial values.
//!
//! A library that is there when the program starts has a fixed place in every thread's block. One
//! that is loaded later by `dlopen` gets, as a rule, storage of its own when a thread first touches
//! a variable; the loader (`__tls_get_addr`) does that on a fiber as on a thread. But if its code
//! uses the *initial-exec* model (or, on aarch64, TLS descriptors while the loader has room) the
//! loader gives it a place in the block next to those taken, and writes the initial values into the
//! blocks of all threads it knows. It does not know fibers.
//!
//! [`Layout::begin`] makes good for it, and is called at the one moment that is right for it: when the
//! loader has given the library its place and its initial values in all threads, and none of its code
//! has run. That is the first thing a library does: its function `_init`, which the linker makes of what
//! libc gives to it (`crti.o`), calls `__gmon_start__` if there is one. The room that stands in for
//! libc's functions defines it, and tells by the return address which library begins. So `dlopen` stays
//! libc's own, whichever way and from wherever it is called: how it looks for files, what `dlerror`
//! says, on which thread constructors run.
//!
//! A library that was linked without `crti.o` (`-nostartfiles`) does not call it, nor one in a namespace of
//! its own. [`Layout::refresh`] notices it later, and blocks built or
//! reset from then on have its initial values.
//!
//! # Blocks that are in use
//!
//! `begin` writes to blocks on which fibers run. It writes where the variables of this library lie and
//! nowhere else, and no fiber uses these: the library's code has not run yet, and nothing else uses that
//! part of the reserve. (What a library of the same place, unloaded since, has left there is written
//! over. Of two libraries that need each other, one begins first: what its constructors have the other
//! write, before that one begins, is written over as well.) So what is to be shown is that each block has
//! the values when `begin` returns, whatever happens to it meanwhile. `begin` publishes the new
//! [`Statics`] first and then goes through the blocks under the lock under which they are noted when they
//! are built:
//!
//! * A block noted before is among them.
//! * One noted after is built of the new `Statics`: `build` looks under the lock which are current.
//! * One that is reset meanwhile may be overwritten with what was current before, if a library that
//!   was unloaded had variables in the same place. `reset` looks afterwards whether it wrote what is
//!   current, and if not, writes again. It may look before its writes are seen by others, for a load
//!   may overtake stores; so `begin` has the kernel interrupt the process's other threads
//!   (`membarrier`) after it has published: a `reset` that has looked before that has its writes done
//!   before those of `begin`, one that looks after it sees what is current. (A kernel without
//!   `membarrier` leaves it to the system calls in between, which take thousands of times as long as
//!   stores do to be seen.) Both may write a word at the same time: they write the same.
//!
//! # Locks
//!
//! The loader holds a lock of its own while libraries begin. So nothing here asks it for what takes
//! that lock (`dlsym` does; starting a thread and going through the objects do not) while `looking` is
//! held: `begin` could wait for a carrier that waits for the loader.
//!
//! # Carriers that build and reset meanwhile
//!
//! What they copy from ([`Statics`]) never changes once it is published, and is never freed: a
//! change makes a new one and exchanges a pointer. Loading that pointer is all that `reset` pays.
//! Since a set that was there before is published again instead of a copy, a program that loads
//! and unloads the same plug-ins for ever does not grow.

use std::ffi::{CStr, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use carefree_ground::membarrier;

use super::block;
use super::layout::Layout;
use super::pristine;
use super::statics::{Misfit, Statics};
use crate::loader;
use carefree_ground::lock::Lock;

/// For how long a change that looks unfinished is looked at again.
///
/// A library between its mapping and its relocation cannot be told from one that was marked as
/// "wants a fixed place" and never got one; nobody's relocation takes that long.
const SETTLING: Duration = Duration::from_secs(10);

/// Has all threads of the process that run just now execute a memory barrier, where the kernel can.
fn interrupt_others() {
    let _ = membarrier::register();
    let _ = membarrier::everywhere();
}

/// The current [`Statics`] and what they were gathered from.
#[derive(Debug)]
pub(super) struct Libraries {
    current: AtomicPtr<Statics>,
    /// The loader's counts of objects loaded and unloaded for which `current` is known to be right.
    loads: AtomicU64,
    unloads: AtomicU64,
    /// Held while a thread looks around, which takes a while; but that is when libraries were loaded.
    looking: Lock<Looking>,
}

/// The state of who looks at the libraries anew; one at a time does.
#[derive(Debug)]
struct Looking {
    /// All that were ever current.
    published: Vec<&'static Statics>,
    /// The counts of an unfinished change, and when it was first seen.
    unsettled: Option<(Changes, Instant)>,
}

impl Libraries {
    pub(super) fn new(statics: Statics, seen: Changes) -> Libraries {
        let statics: &'static Statics = Box::leak(Box::new(statics));
        Libraries {
            current: AtomicPtr::new(ptr::from_ref(statics).cast_mut()),
            loads: AtomicU64::new(seen.loads),
            unloads: AtomicU64::new(seen.unloads),
            looking: Lock::new(Looking { published: vec![statics], unsettled: None }),
        }
    }

    #[inline]
    pub(super) fn current(&self) -> &'static Statics {
        // Acquire: pairs with the exchange below, so that the contents are seen, too.
        // SAFETY: the first was leaked, and so is every one that replaces it: none is ever freed
        // or changed, so a shared reference stays good for ever.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// As [`Statics::write`], of what is current when it returns.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(super) unsafe fn write_current(&self, low: *mut u8) {
        let mut statics = self.current();
        loop {
            // SAFETY: the caller's promise.
            unsafe { statics.write(low) };
            // The other side of `interrupt_others`: see the description of the module.
            compiler_fence(Ordering::SeqCst);
            let latest = self.current();
            if ptr::eq(statics, latest) {
                return;
            }
            statics = latest;
        }
    }

    fn seen(&self) -> Changes {
        Changes {
            loads: self.loads.load(Ordering::Relaxed),
            unloads: self.unloads.load(Ordering::Relaxed),
        }
    }
}

/// The loader's counts of objects it has loaded and unloaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Changes {
    loads: u64,
    unloads: u64,
}

impl Changes {
    /// What the loader never says: it has loaded the program.
    pub(super) const NONE: Changes = Changes { loads: 0, unloads: 0 };

    pub(super) fn now() -> Changes {
        let mut changes = Changes { loads: 0, unloads: 0 };
        loader::any_object(|info| {
            changes = Changes { loads: info.dlpi_adds, unloads: info.dlpi_subs };
            true // All say the same.
        });
        changes
    }
}

impl Layout {
    /// Keeps others from looking at the libraries until [`release`](Self::release).
    pub(super) fn hold(&self) {
        self.libraries.looking.hold();
    }

    /// # Safety
    /// As for [`Lock::release`].
    pub(super) unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.libraries.looking.release() };
    }

    /// Notices libraries that were loaded or unloaded since the last call and that have a fixed
    /// place in every block: blocks built or reset from now on get their initial values.
    ///
    /// Costs little when nothing was loaded or unloaded (`cargo run --release -p carefree-context
    /// --example switch_costs` prints it), and starts a short-lived thread when
    /// something was, so call it once for each batch of blocks built, and every so often where
    /// blocks are only reset. Any thread may call it at any time, but not a fiber: it may wait for
    /// another caller.
    ///
    /// # Errors
    /// The thread to look at could not be started. What was loaded is noticed at the next call.
    ///
    /// # Aborts
    /// When a library was given a place outside of the reserve, the program is ended with a line
    /// that names the library and a sufficient `CAREFREE_TLS_RESERVE`: its variables would lie in
    /// fibers' frames.
    pub fn refresh(&self) -> io::Result<()> {
        if Changes::now() == self.libraries.seen() {
            return Ok(());
        }
        let mut looking = self.libraries.looking.lock();
        // Another caller may have looked meanwhile.
        if Changes::now() == self.libraries.seen() {
            return Ok(());
        }
        self.publish(&mut looking)
    }

    /// Gives the variables of the library that `code` lies in their initial values in all blocks,
    /// fibers running on them or not. To be called when the loader calls the library's `_init`, and
    /// before its constructors; on any thread or fiber, as long as what it calls of libc does not lead
    /// to other fibers.
    ///
    /// # Errors
    /// The thread to look at could not be started.
    ///
    /// # Aborts
    /// As [`refresh`](Self::refresh).
    pub fn begin(&self, code: *const c_void) -> io::Result<()> {
        let Some(id) = number(code as usize) else { return Ok(()) };
        // Held until the blocks are filled, so that what is current has this library's variables.
        let mut looking = self.libraries.looking.lock();
        // Whatever was seen before: a library that is there again may have the numbers it had.
        self.publish(&mut looking)?;
        let current = self.libraries.current();
        if let Some(module) = current.modules.iter().find(|module| module.id == id) {
            interrupt_others();
            // SAFETY: there is one layout; that these variables are not in use yet is argued above.
            unsafe { block::fill(current, module) };
        }
        Ok(())
    }

    /// Looks which libraries there are, and has blocks made of them from now on.
    fn publish(&self, looking: &mut Looking) -> io::Result<()> {
        // Before the look, so that what happens meanwhile is noticed the next time.
        let now = Changes::now();
        let found = pristine::look(false).map_err(io::Error::other)?;
        let statics = match Statics::gather(&found, self.size, self.tp) {
            Ok(statics) => statics,
            Err(module) => self.does_not_fit(&module),
        };
        if statics != *self.libraries.current() {
            let known = looking.published.iter().copied().find(|s| **s == statics);
            let statics = known.unwrap_or_else(|| {
                let statics: &'static Statics = Box::leak(Box::new(statics));
                looking.published.push(statics);
                statics
            });
            // Release: whoever loads the pointer sees the contents.
            self.libraries.current.store(ptr::from_ref(statics).cast_mut(), Ordering::Release);
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
            self.libraries.loads.store(now.loads, Ordering::Relaxed);
            self.libraries.unloads.store(now.unloads, Ordering::Relaxed);
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
            (self.reserve.len() + misfit.short).next_multiple_of(64),
            self.reserve.len(),
        );
        std::process::abort()
    }
}

/// libc's number for the object that `address` lies in; `None` where it has no thread-local variables.
fn number(address: usize) -> Option<usize> {
    let mut number = 0;
    loader::any_object(|info| {
        if info.dlpi_phdr.is_null() {
            return false;
        }
        // SAFETY: as the loader describes it.
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

/// Calls `visit` with libc's number and the file name of each loaded object, until it says true.
fn any_object(mut visit: impl FnMut(usize, &str) -> bool) -> bool {
    loader::any_object(|info| {
        let mut name = c"";
        if !info.dlpi_name.is_null() {
            // SAFETY: not null, so a C string of the loader's, which stays during the visit.
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
