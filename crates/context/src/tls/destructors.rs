//! What libc does with a thread's storage when the thread ends, for a fiber.
//!
//! glibc runs the destructors of C++ and Rust thread-locals (`__call_tls_dtors`, exported), then
//! those of pthread keys (`__nptl_deallocate_tsd`, not exported). The latter is written out here
//! after POSIX: values whose key still exists and has a destructor are cleared, then passed to it,
//! in up to `PTHREAD_DESTRUCTOR_ITERATIONS` rounds.
//!
//! The table of keys is not exported either. It is found by creating a key with a destructor whose
//! address is nowhere else and looking for that address in libc's writable segment; a second key
//! must then lie where the first one says.

use std::ffi::c_void;
use std::ops::Range;

use super::layout::{Layout, debugger_offset};

type Destructor = unsafe extern "C" fn(*mut c_void);

/// Values per block and blocks per thread: glibc keeps 1,024 keys in two levels of 32.
const PER_BLOCK: usize = 32;
const BLOCKS: usize = libc_keys_max() / PER_BLOCK;
/// POSIX's `PTHREAD_DESTRUCTOR_ITERATIONS` as glibc defines it.
const ROUNDS: usize = 4;

const fn libc_keys_max() -> usize {
    1024
}

/// A key as libc keeps it. An odd sequence number means that the key exists.
#[repr(C)]
struct Key {
    sequence: usize,
    destructor: Option<Destructor>,
}

/// A thread's value for a key; it counts only while the sequence number is the key's.
#[repr(C)]
struct Value {
    sequence: usize,
    data: *mut c_void,
}

/// Where libc keeps pthread keys and a thread's values for them.
#[derive(Debug)]
pub(super) struct KeyTable {
    keys: *const Key,
    /// Offset in `struct pthread` of the pointers to blocks of values.
    blocks: usize,
    /// Offset in `struct pthread` of the flag "some value was ever set", if it was found.
    used: Option<usize>,
}

// SAFETY: `keys` is libc's static table, alive as long as the process.
unsafe impl Send for KeyTable {}
// SAFETY: as above; entries are read with volatile word reads, as libc itself reads them.
unsafe impl Sync for KeyTable {}

unsafe extern "C" fn first_probe(_: *mut c_void) {
    std::hint::black_box(1);
}
unsafe extern "C" fn second_probe(_: *mut c_void) {
    std::hint::black_box(2);
}

impl KeyTable {
    /// Finds the table. `writable` are libc's writable segments, `pthread` the calling thread's
    /// `struct pthread`, which must not have set any value yet, `size` its length.
    ///
    /// Called on the pristine thread; does not allocate.
    pub(super) fn find(
        writable: &[Range<usize>],
        pthread: *const u8,
        size: usize,
    ) -> Result<KeyTable, &'static str> {
        let blocks = debugger_offset(c"_thread_db_pthread_specific")
            .ok_or("libc does not tell where pthread keys' values lie")?;
        // The flag follows the array of block pointers.
        let used = blocks + BLOCKS * size_of::<*const Value>();
        if used >= size {
            return Err("libc tells an impossible place for pthread keys' values");
        }
        // SAFETY: in bounds of the calling thread's own control block, checked just above.
        let flag = || unsafe { pthread.add(used).read_volatile() };

        let (mut first, mut second) = (0, 0);
        // SAFETY: creates keys with valid destructors.
        let failed = unsafe {
            libc::pthread_key_create(&mut first, Some(first_probe)) != 0
                || libc::pthread_key_create(&mut second, Some(second_probe)) != 0
        };
        if failed {
            return Err("no pthread key could be created");
        }
        let before = flag();
        // SAFETY: `first` is a live key; the value is reset before its destructor could run.
        unsafe { libc::pthread_setspecific(first, 1 as *const c_void) };
        let after = flag();
        // SAFETY: as above.
        unsafe { libc::pthread_setspecific(first, std::ptr::null()) };

        let found = Self::search(writable, first as usize, second as usize);
        // SAFETY: both keys were created above and are not used any more.
        unsafe {
            libc::pthread_key_delete(first);
            libc::pthread_key_delete(second);
        }
        Ok(KeyTable { keys: found?, blocks, used: (before == 0 && after == 1).then_some(used) })
    }

    fn search(
        writable: &[Range<usize>],
        first: usize,
        second: usize,
    ) -> Result<*const Key, &'static str> {
        let wanted = first_probe as *const () as usize;
        let mut found = None;
        for segment in writable {
            let words = segment.start.next_multiple_of(8)..segment.end & !7;
            for address in words.step_by(8) {
                // SAFETY: a mapped, readable word of libc's data segment.
                if unsafe { (address as *const usize).read_volatile() } == wanted
                    && found.replace(address).is_some()
                {
                    return Err("libc's table of pthread keys is ambiguous");
                }
            }
        }
        let entry = found.ok_or("libc's table of pthread keys was not found")?;
        let keys = (entry - 8).wrapping_sub(first * size_of::<Key>()) as *const Key;
        let expected = keys.wrapping_add(second);
        let inside = writable.iter().any(|s| {
            s.start <= keys as usize && keys.wrapping_add(libc_keys_max()) as usize <= s.end
        });
        // SAFETY: when `inside`, the whole table lies in libc's data segment.
        let matches = inside
            && unsafe { (*expected).destructor }.map(|d| d as usize)
                == Some(second_probe as *const () as usize);
        if matches { Ok(keys) } else { Err("libc's table of pthread keys is not as expected") }
    }

    /// Runs the destructors of the calling fiber's values and clears them.
    ///
    /// # Safety
    /// `pthread` is the calling fiber's `struct pthread`.
    pub(super) unsafe fn run_destructors(&self, pthread: *mut u8) {
        if let Some(used) = self.used {
            // SAFETY: the flag lies in the control block.
            let flag = unsafe { pthread.add(used) };
            // SAFETY: as above; only this fiber writes it.
            if unsafe { flag.read_volatile() } == 0 {
                return;
            }
            // SAFETY: as above. Cleared, so that a value set from now on shows.
            unsafe { flag.write_volatile(0) };
        }
        for _ in 0..ROUNDS {
            // SAFETY: the caller's promise.
            if !unsafe { self.destroy_once(pthread) } {
                break;
            }
        }
        // What destructors set again and again is dropped, as on a thread's end.
        // SAFETY: the caller's promise.
        unsafe { self.for_each_value(pthread, |_, value| (*value).data = std::ptr::null_mut()) };
        if let Some(used) = self.used {
            // SAFETY: as above.
            unsafe { pthread.add(used).write_volatile(0) };
        }
    }

    /// One round; whether any destructor was called.
    unsafe fn destroy_once(&self, pthread: *mut u8) -> bool {
        let mut called = false;
        // SAFETY: the caller's promise.
        unsafe {
            self.for_each_value(pthread, |index, value| {
                let data = std::mem::replace(&mut (*value).data, std::ptr::null_mut());
                let sequence = (*value).sequence;
                let key = self.keys.add(index);
                let live = (&raw const (*key).sequence).read_volatile() == sequence;
                let destructor = (&raw const (*key).destructor).read_volatile();
                if let (true, Some(destructor)) = (live, destructor) {
                    called = true;
                    // SAFETY: POSIX: called with the value, on the thread (fiber) that set it.
                    destructor(data);
                }
            });
        }
        called
    }

    /// Visits the values that are not null.
    unsafe fn for_each_value(&self, pthread: *mut u8, mut visit: impl FnMut(usize, *mut Value)) {
        for block in 0..BLOCKS {
            // SAFETY: an array of BLOCKS pointers lies at `blocks`.
            let values =
                unsafe { pthread.add(self.blocks).cast::<*mut Value>().add(block).read_volatile() };
            if values.is_null() {
                continue;
            }
            for slot in 0..PER_BLOCK {
                let value = values.wrapping_add(slot);
                // SAFETY: each block has PER_BLOCK values, and only this fiber changes them.
                if !unsafe { (*value).data }.is_null() {
                    visit(block * PER_BLOCK + slot, value);
                }
            }
        }
    }
}

impl Layout {
    /// Runs the destructors of the calling fiber's thread-local variables and pthread keys, as
    /// libc does when a thread ends.
    ///
    /// # Safety
    /// The caller runs on a [`Block`](super::Block) of this layout whose thread pointer is `tp`,
    /// and is about to end for good.
    pub unsafe fn run_destructors(&self, tp: *mut u8) {
        // SAFETY: runs the calling thread's (here: fiber's) registered destructors, once.
        unsafe { (self.call_tls_dtors)() };
        // SAFETY: the control block of the caller's own block.
        unsafe { self.keys.run_destructors(tp.sub(self.tp).add(self.pthread)) };
    }
}
