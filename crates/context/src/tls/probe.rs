//! Finds where libc keeps a thread's state by changing the state and looking what changed.
//!
//! For what no table of glibc's tells and what a fiber must not inherit from the one that ran on
//! its block before. Runs on the pristine thread, after the snapshot.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;

use super::destructors::KeyTable;
use super::pristine::BLOCK_MAX;
use super::symbols::STATIC;

/// More 32-bit words than the few states below could be made of.
const WORDS: usize = 16;

unsafe extern "C" {
    // Not in the libc crate for this target.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// What was found. Addresses are those of the pristine thread's block.
#[derive(Debug)]
pub(super) struct Probes {
    words: [usize; WORDS],
    count: usize,
    /// The pointer to what `dlerror` will tell.
    pub(super) dlerror: Option<usize>,
    /// The head of the list of robust mutexes held, as the kernel was told.
    pub(super) robust: Option<usize>,
    pub(super) keys: Option<KeyTable>,
    before: Box<[u32]>,
}

impl Probes {
    /// Allocates what [`Probes::run`] needs, if it will be run.
    pub(super) fn new(will_run: bool) -> Probes {
        Probes {
            words: [0; WORDS],
            count: 0,
            dlerror: None,
            robust: None,
            keys: None,
            before: vec![0; if will_run { BLOCK_MAX / 4 } else { 0 }].into(),
        }
    }

    /// 32-bit words that a new thread finds with certain contents, whatever another left in them.
    pub(super) fn words(&self) -> &[usize] {
        &self.words[..self.count]
    }

    /// Runs on the pristine thread; `control` is its `struct pthread`, `libc` where libc's own
    /// variables lie.
    pub(super) fn run(
        &mut self,
        control: Range<usize>,
        libc: Range<usize>,
    ) -> Result<(), &'static str> {
        // Where errors are told.
        // SAFETY: the functions have no preconditions.
        unsafe {
            self.note(libc::__errno_location() as usize);
            self.note(__h_errno_location() as usize);
        }
        // The cancellation state and type: bits of one word in some versions of glibc, bytes of
        // their own in others.
        self.snapshot(&control);
        // SAFETY: valid arguments. Nobody cancels this thread while cancellation is asynchronous.
        unsafe {
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, ptr::null_mut());
            pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, ptr::null_mut());
        }
        self.note_changed(&control);
        // SAFETY: as above.
        unsafe {
            pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, ptr::null_mut());
            pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, ptr::null_mut());
        }
        if !STATIC {
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

    /// `dlerror` keeps a pointer per thread: set by a call that fails, null again when it was told.
    fn find_dlerror(&mut self, libc: &Range<usize>) {
        // SAFETY: looks up a name that does not exist; then libc forgets that.
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

    /// The kernel tells where it was told to find the list.
    fn find_robust(&mut self, control: &Range<usize>) {
        let mut head: *mut *mut c_void = ptr::null_mut();
        let mut length = 0_usize;
        // SAFETY: the kernel writes the two variables; 0 is the calling thread.
        let failed = unsafe {
            libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) != 0
        };
        let address = head as usize;
        let inside = address > control.start && address + length <= control.end;
        // An empty list is a head that points to itself.
        // SAFETY: a word of the thread's own control block, when `inside`.
        if !failed && inside && length >= 24 && unsafe { head.read() } == head.cast() {
            self.robust = Some(address);
        }
    }
}

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
}

/// The 32-bit words of `area`, which is the calling thread's.
fn words(area: &Range<usize>) -> impl Iterator<Item = u32> + use<> {
    // SAFETY: readable memory of this thread's own, aligned to more than a word.
    area.clone().step_by(4).map(|address| unsafe { (address as *const u32).read_volatile() })
}
