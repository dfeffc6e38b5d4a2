//! The libraries whose variables lie in every block, and the variables' initial values.
//!
//! A library that is there when the program starts has a fixed place in every thread's block. One
//! that is loaded later by `dlopen` gets, as a rule, storage of its own when a thread first touches
//! a variable; the loader (`__tls_get_addr`) does that on a fiber as on a thread. But if its code
//! uses the *initial-exec* model (or, on aarch64, TLS descriptors while the loader has room) the
//! loader gives it a place in the block next to those taken, and writes the initial values into the
//! blocks of all threads it knows. It does not know fibers. [`Layout::refresh`] makes good for it:
//! it notices such a library, and blocks built or reset from then on have its initial values.
//!
//! # Carriers that build and reset meanwhile
//!
//! What they copy from ([`Statics`]) never changes once it is published, and is never freed: a
//! change makes a new one and exchanges a pointer. Loading that pointer is all that `reset` pays.
//! Since a set that was there before is published again instead of a copy, a program that loads
//! and unloads the same plug-ins for ever does not grow.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::layout::Layout;
use super::pristine::{self, Findings};
use crate::loader;
use crate::lock::Lock;

/// For how long a change that looks unfinished is looked at again.
///
/// A library between its mapping and its relocation cannot be told from one that was marked as
/// "wants a fixed place" and never got one; nobody's relocation takes that long.
const SETTLING: Duration = Duration::from_secs(10);

/// One object's variables at their place in a block: the executable's, or those of a library.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Module {
    /// libc's number for it, an index into the dynamic thread vector.
    pub(super) id: usize,
    pub(super) place: Range<usize>,
}

/// An object whose variables do not fit into a block.
#[derive(Debug)]
pub(super) struct Misfit {
    id: usize,
    size: usize,
    /// Bytes by which a block would have to be longer.
    short: usize,
}

/// What is copied into a block as it is built and whenever it is reset. Immutable.
#[derive(Debug, PartialEq)]
pub(super) struct Statics {
    /// All objects with a fixed place but libc.
    pub(super) modules: Box<[Module]>,
    /// Where they lie, neighbours put together.
    pub(super) areas: Box<[Range<usize>]>,
    /// Initial values; of the size of a block, zero outside of `areas`.
    image: Box<[u64]>,
    /// Indices of the words of `image` that hold a position in the block. None, as a rule: no
    /// linker can write an address of a thread-local variable into another's initial value. But a
    /// library that was told of the pristine thread's start may have.
    rebase: Box<[u32]>,
}

impl Statics {
    /// Gathers what the pristine thread saw, for blocks of `size` bytes whose thread pointer is at
    /// `tp`.
    pub(super) fn gather(found: &Findings, size: usize, tp: usize) -> Result<Statics, Misfit> {
        let mut modules = Vec::new();
        let mut image = vec![0; size / 8].into_boxed_slice();
        for module in found.modules().iter().filter(|m| m.id != found.libc) {
            let start = tp as isize + module.from_tp;
            let end = start + module.size as isize;
            // Which of the two can happen depends on the side that the reserve lies on.
            let short = (-start).max(end - size as isize);
            if short > 0 {
                return Err(Misfit { id: module.id, size: module.size, short: short as usize });
            }
            let place = start as usize..end as usize;
            found.copy_to(&mut image, &place, tp);
            modules.push(Module { id: module.id, place });
        }
        modules.sort_by_key(|m| m.place.start);
        let mut areas: Vec<Range<usize>> = Vec::new();
        let libc = found.libc_place(tp);
        for Module { place, .. } in &modules {
            match areas.last_mut() {
                // Nothing but padding lies between two neighbours that are this near.
                Some(last)
                    if place.start < last.end + 64
                        && !(last.end..place.start).contains(&libc.start) =>
                {
                    last.end = last.end.max(place.end);
                }
                _ => areas.push(place.clone()),
            }
        }
        let mut rebase = Vec::new();
        for (index, word) in image.iter_mut().enumerate() {
            if let Some(position) = found.position(*word as usize, tp) {
                *word = position as u64;
                rebase.push(index as u32);
            }
        }
        Ok(Statics { modules: modules.into(), areas: areas.into(), image, rebase: rebase.into() })
    }

    /// Gives the variables of all objects but libc their initial values.
    ///
    /// # Safety
    /// `low` is the lowest address of a block of the layout these were gathered for, and no fiber
    /// runs on it.
    #[inline]
    pub(super) unsafe fn write(&self, low: *mut u8) {
        let image = self.image.as_ptr().cast::<u8>();
        for area in &self.areas {
            // SAFETY: an area is a piece of the image, whose beginning corresponds to `low`, and a
            // block of this layout is as long as the image. Nobody runs on the block, so nobody
            // else uses its variables; the image is memory of our own, elsewhere.
            unsafe {
                low.add(area.start).copy_from_nonoverlapping(image.add(area.start), area.len());
            }
        }
        for index in &self.rebase {
            // SAFETY: as above: the index is one of the image's words, blocks are aligned to more
            // than a word, and this word was just copied: it holds a position within the block.
            unsafe { *low.cast::<u64>().add(*index as usize) += low as u64 };
        }
    }
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
        let now = Changes::now();
        if now == self.libraries.seen() {
            return Ok(());
        }
        let mut looking = self.libraries.looking.lock();
        // Before the look, so that what happens meanwhile is noticed the next time.
        let now = Changes::now();
        if now == self.libraries.seen() {
            return Ok(());
        }
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
