//! Finds where libc keeps a thread's state by changing the state and comparing memory.
//!
//! For state that glibc's tables do not describe and that a fiber must not inherit from the one
//! that ran on its block before. Runs on the pristine thread, after the snapshot.

use std::hint::black_box;
use std::ops::Range;
use std::ptr;

use super::glibc::{self, __h_errno_location, pthread_setcancelstate, pthread_setcanceltype};
use super::keys::KeyTable;
use super::robust_mutexes;
use super::symbols::STATIC;

/// More 32-bit words than the state below can consist of.
const WORDS: usize = 16;
/// More words than those by which malloc finds what it keeps for a thread: its cache, its arena.
const MALLOCS: usize = 4;

/// What was found. Addresses are those of the pristine thread's block.
#[derive(Debug)]
pub(super) struct Probes {
    words: [usize; WORDS],
    count: usize,
    /// The pointer to what `dlerror` will return.
    pub(super) dlerror: Option<usize>,
    /// The head of the list of robust mutexes held, as the kernel was told.
    pub(super) robust: Option<usize>,
    pub(super) keys: Option<KeyTable>,
    mallocs: [usize; MALLOCS],
    mallocs_count: usize,
    before: Box<[u32]>,
}

impl Probes {
    /// Allocates what [`Probes::run`] needs for a block of up to `bytes`; 0 if it will not be run.
    pub(super) fn new(bytes: usize) -> Probes {
        Probes {
            words: [0; WORDS],
            count: 0,
            dlerror: None,
            robust: None,
            keys: None,
            mallocs: [0; MALLOCS],
            mallocs_count: 0,
            before: vec![0; bytes / 4].into(),
        }
    }

    /// 32-bit words that must have their initial contents on each fiber, as on a new thread.
    pub(super) fn words(&self) -> &[usize] {
        &self.words[..self.count]
    }

    /// The 64-bit words by which malloc finds what it keeps for a thread; none if they were not recognised,
    /// or the program's malloc is not libc's.
    pub(super) fn mallocs(&self) -> &[usize] {
        &self.mallocs[..self.mallocs_count]
    }

    /// Runs on the pristine thread; `control` is its `struct pthread`, `libc` the place of libc's own
    /// variables.
    pub(super) fn run(
        &mut self,
        control: Range<usize>,
        libc: Range<usize>,
    ) -> Result<(), &'static str> {
        // errno and h_errno.
        // SAFETY: the functions have no preconditions.
        unsafe {
            self.note(libc::__errno_location() as usize);
            self.note(__h_errno_location() as usize);
        }
        // The cancellation state and type: bits of one word in some versions of glibc, bytes of
        // their own in others.
        self.snapshot(&control);
        // SAFETY: valid arguments. No code has this thread's id to cancel it by.
        unsafe {
            pthread_setcancelstate(glibc::PTHREAD_CANCEL_DISABLE, ptr::null_mut());
            pthread_setcanceltype(glibc::PTHREAD_CANCEL_ASYNCHRONOUS, ptr::null_mut());
        }
        self.note_changed(&control);
        // SAFETY: valid arguments, the defaults.
        unsafe {
            pthread_setcanceltype(glibc::PTHREAD_CANCEL_DEFERRED, ptr::null_mut());
            pthread_setcancelstate(glibc::PTHREAD_CANCEL_ENABLE, ptr::null_mut());
        }
        if !STATIC {
            // First, for what follows allocates.
            self.find_mallocs(&libc);
            self.find_dlerror(&libc);
        }
        self.find_robust(&control);
        // SAFETY: this thread's own control block.
        self.keys = Some(unsafe { KeyTable::find(control.start as *const u8, control.len())? });
        Ok(())
    }

    fn note(&mut self, address: usize) {
        let address = address & !3;
        if self.count < WORDS && !self.words().contains(&address) {
            self.words[self.count] = address;
            self.count += 1;
        }
    }

    fn snapshot(&mut self, area: &Range<usize>) {
        for (before, now) in self.before.iter_mut().zip(words(area)) {
            *before = now;
        }
    }

    fn note_changed(&mut self, area: &Range<usize>) {
        for (index, now) in words(area).enumerate() {
            if self.before[index] != now {
                self.note(area.start + index * 4);
            }
        }
    }

    /// A thread's first call of malloc writes down where it keeps what is that thread's alone, and later
    /// calls go by that.
    fn find_mallocs(&mut self, libc: &Range<usize>) {
        // SAFETY: each block is freed once, and is not used.
        let allocate = |bytes| unsafe { libc::free(black_box(libc::malloc(bytes))) };
        self.snapshot(libc);
        allocate(24);
        let mut found = [0; MALLOCS];
        let mut count = 0;
        for index in (0..words(libc).count()).step_by(2) {
            // (A malloc that is not libc's may leave an error number.)
            let address = libc.start + index * 4;
            let is_errno = self.words().iter().any(|word| (address..address + 8).contains(word));
            if self.has_changed(libc, index) && !is_errno {
                if count == MALLOCS {
                    return;
                }
                found[count] = address;
                count += 1;
            }
        }
        self.snapshot(libc);
        // From the cache, from the arena, from the kernel.
        [24, 100, 1000, 10_000, 1 << 20].into_iter().for_each(allocate);
        let is_steady = !(0..words(libc).count()).any(|index| self.has_changed(libc, index));
        if is_steady && found[..count].iter().all(|address| address % 8 == 0) {
            (self.mallocs, self.mallocs_count) = (found, count);
        }
    }

    /// Whether the 32-bit word of this number in `area`, or the next one, is not as in the snapshot.
    fn has_changed(&self, area: &Range<usize>, index: usize) -> bool {
        words(area).skip(index).take(2).zip(&self.before[index..]).any(|(now, then)| now != *then)
    }

    /// `dlerror` keeps a pointer per thread: set by a call that fails, null again when `dlerror` has
    /// returned the error.
    fn find_dlerror(&mut self, libc: &Range<usize>) {
        // SAFETY: looks up a name that does not exist; the calls of dlerror clear that error.
        unsafe {
            libc::dlsym(libc::RTLD_DEFAULT, c"carefree: there is no such symbol".as_ptr());
            self.snapshot(libc);
            libc::dlerror();
            libc::dlerror();
        }
        let mut cleared = None;
        let mut count = 0;
        for (index, now) in words(libc).enumerate().step_by(2) {
            let next = words(libc).nth(index + 1);
            let before = [self.before[index], self.before.get(index + 1).copied().unwrap_or(0)];
            if before != [0, 0] && now == 0 && next == Some(0) {
                cleared = Some(libc.start + index * 4);
                count += 1;
            }
        }
        self.dlerror = cleared.filter(|_| count == 1);
    }

    /// The kernel knows where the list is.
    fn find_robust(&mut self, control: &Range<usize>) {
        let Some((head, length)) = robust_mutexes::kernel_head() else { return };
        let address = head as usize;
        let inside = address > control.start && address + length <= control.end;
        // An empty list is a head that points to itself.
        // SAFETY: a word of the thread's own control block, when `inside`.
        if inside && length >= 24 && unsafe { head.cast::<*mut u8>().read() } == head {
            self.robust = Some(address);
        }
    }
}

/// The 32-bit words of `area`, which is the calling thread's.
fn words(area: &Range<usize>) -> impl Iterator<Item = u32> + use<> {
    // SAFETY: this thread's own memory, readable, and aligned to more than a word.
    area.clone().step_by(4).map(|address| unsafe { (address as *const u32).read_volatile() })
}
