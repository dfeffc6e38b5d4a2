//! What libc does with a thread's storage when the thread ends, for a fiber.
//!
//! glibc runs the destructors of C++ and Rust thread-locals (`__call_tls_dtors`, exported), then
//! those of pthread keys (`__nptl_deallocate_tsd`, not exported), then the kernel handles robust
//! mutexes. The second is written out here after POSIX: values whose key still exists and has a
//! destructor are cleared, then passed to it, in up to `PTHREAD_DESTRUCTOR_ITERATIONS` rounds.
//!
//! The table of keys and its shape are told to debuggers; a key created for the purpose checks
//! that it is the table.

use std::ffi::c_void;
use std::ptr;

use crate::arch;

use super::layout::{Layout, debugger_field, debugger_size};
use super::symbols::symbol;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// POSIX's `PTHREAD_DESTRUCTOR_ITERATIONS` as glibc defines it.
const ROUNDS: usize = 4;

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
    /// Offset in `struct pthread` of the pointers to blocks of values, and how many there are.
    blocks: usize,
    block_count: usize,
    /// Values in a block.
    per_block: usize,
    /// Offset in `struct pthread` of the flag "some value was ever set", if it was found.
    used: Option<usize>,
}

// SAFETY: `keys` is libc's static table, alive as long as the process.
unsafe impl Send for KeyTable {}
// SAFETY: as above; entries are read with volatile word reads, as libc itself reads them.
unsafe impl Sync for KeyTable {}

unsafe extern "C" fn probe(_: *mut c_void) {}

impl KeyTable {
    /// Finds the table. `pthread` is the calling thread's `struct pthread`, of `size` bytes.
    ///
    /// # Safety
    /// `pthread..pthread + size` is that and can be read.
    pub(super) unsafe fn find(pthread: *const u8, size: usize) -> Result<KeyTable, &'static str> {
        const UNTOLD: &str = "libc does not tell where pthread keys and their values lie";
        let keys = symbol(c"__pthread_keys").cast::<Key>().cast_const();
        let array = debugger_field(c"_thread_db_pthread_specific").ok_or(UNTOLD)?;
        let block = debugger_field(c"_thread_db_pthread_key_data_level2_data").ok_or(UNTOLD)?;
        if keys.is_null() {
            return Err(UNTOLD);
        }
        let words = |bits: u32| bits as usize / 8 / size_of::<usize>();
        let sizes = [
            debugger_size(c"_thread_db_sizeof_pthread_key_struct") == Some(size_of::<Key>()),
            debugger_size(c"_thread_db_sizeof_pthread_key_data") == Some(size_of::<Value>()),
            words(block.bits) * size_of::<usize>() == size_of::<Value>(),
        ];
        let blocks = array.offset as usize;
        let block_count = words(array.bits) * array.elements as usize;
        // The flag follows the array of block pointers.
        let used = blocks + block_count * size_of::<*const Value>();
        if sizes.contains(&false) || used >= size {
            return Err("libc keeps pthread keys in a way that is not known");
        }
        // SAFETY: in bounds of the control block, as just checked.
        let flag = || unsafe { pthread.add(used).read_volatile() };

        let mut key = 0;
        // SAFETY: creates a key with a valid destructor, gives it a value and takes it away again,
        // so that the destructor never runs; in between looks at the key's entry, which exists.
        let (before, after, entry) = unsafe {
            if libc::pthread_key_create(&mut key, Some(probe)) != 0 {
                return Err("no pthread key could be created");
            }
            let before = flag();
            libc::pthread_setspecific(key, ptr::without_provenance(1));
            let after = flag();
            libc::pthread_setspecific(key, ptr::null());
            let entry = keys.add(key as usize).read();
            libc::pthread_key_delete(key);
            (before, after, entry)
        };
        let destructor = entry.destructor.map_or(ptr::null(), |d| d as *const ());
        if entry.sequence % 2 != 1 || destructor != probe as *const () {
            return Err("libc's table of pthread keys is not as expected");
        }
        let per_block = block.elements as usize;
        let used = (before == 0 && after == 1).then_some(used);
        Ok(KeyTable { keys, blocks, block_count, per_block, used })
    }

    /// Runs the destructors of the calling fiber's values and clears them. Returns whether there
    /// was any value.
    ///
    /// # Safety
    /// `pthread` is the calling fiber's `struct pthread`.
    unsafe fn run_destructors(&self, pthread: *mut u8) -> bool {
        if let Some(used) = self.used {
            // SAFETY: the flag lies in the control block.
            let flag = unsafe { pthread.add(used) };
            // SAFETY: as above; only this fiber writes it.
            if unsafe { flag.read_volatile() } == 0 {
                return false;
            }
            // SAFETY: as above. Cleared, so that a value set from now on shows.
            unsafe { flag.write_volatile(0) };
        }
        let mut any = false;
        for _ in 0..ROUNDS {
            // SAFETY: the caller's promise.
            if !unsafe { self.destroy_once(pthread) } {
                break;
            }
            any = true;
        }
        // What destructors set again and again is dropped, as on a thread's end.
        // SAFETY: the caller's promise.
        unsafe { self.for_each_value(pthread, |_, value| (*value).data = ptr::null_mut()) };
        if let Some(used) = self.used {
            // SAFETY: as above.
            unsafe { pthread.add(used).write_volatile(0) };
        }
        any
    }

    /// One round; whether any destructor was called.
    unsafe fn destroy_once(&self, pthread: *mut u8) -> bool {
        let mut called = false;
        // SAFETY: the caller's promise.
        unsafe {
            self.for_each_value(pthread, |index, value| {
                let data = std::mem::replace(&mut (*value).data, ptr::null_mut());
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
        for block in 0..self.block_count {
            // SAFETY: an array of that many pointers lies at `blocks`.
            let values =
                unsafe { pthread.add(self.blocks).cast::<*mut Value>().add(block).read_volatile() };
            if values.is_null() {
                continue;
            }
            for slot in 0..self.per_block {
                let value = values.wrapping_add(slot);
                // SAFETY: each block has that many values, and only this fiber changes them.
                if !unsafe { (*value).data }.is_null() {
                    visit(block * self.per_block + slot, value);
                }
            }
        }
    }
}

impl Layout {
    /// Brings what [`run_destructors`](Self::run_destructors) looks at into the cache: libc's own
    /// variables and the control block's note of pthread keys.
    #[inline(always)]
    pub fn prefetch_end(&self, tp: *mut u8) {
        let low = tp.wrapping_sub(self.tp);
        for position in self.libc.clone().step_by(64) {
            arch::prefetch(low.wrapping_add(position));
        }
        arch::prefetch(low.wrapping_add(self.pthread.start + self.keys.used.unwrap_or(0)));
    }

    /// Does what is done when a thread ends: runs the destructors of the calling fiber's
    /// thread-local variables and pthread keys, gives up robust mutexes it holds, forgets
    /// `dlerror`.
    ///
    /// # Safety
    /// The caller runs on a [`Block`](super::Block) of this layout whose thread pointer is `tp`,
    /// and is about to end for good.
    pub unsafe fn run_destructors(&self, tp: *mut u8) {
        let low = tp.wrapping_sub(self.tp);
        // SAFETY: runs the calling thread's (here: fiber's) registered destructors, once.
        let destroy_variables = || unsafe {
            if let Some(call) = self.call_tls_dtors {
                call();
            }
        };
        destroy_variables();
        // A destructor of a key may be the first to use some thread-local variable, whose
        // destructor is registered then; and one of those may set a key's value. A thread leaves
        // such behind. A fiber must not: the next one on the block would run their destructors.
        for _ in 0..ROUNDS {
            // SAFETY: the control block of the caller's own block.
            if !unsafe { self.keys.run_destructors(low.add(self.pthread.start)) } {
                break;
            }
            destroy_variables();
        }
        // SAFETY: the caller's own block.
        unsafe { self.release_robust_mutexes(low) };
        if let Some(free) = self.free_libcs {
            // SAFETY: what libc does last when a thread ends. What the caller still calls of libc finds
            // nothing kept; what libc should keep from now on, the next reset forgets.
            return unsafe { free() };
        }
        // SAFETY: as above.
        let told = self.dlerror.map(|position| unsafe { low.add(position).cast::<usize>().read() });
        if told != Some(0) {
            // The first call tells the error, if there is one, the second frees it.
            // SAFETY: no preconditions.
            unsafe {
                libc::dlerror();
                libc::dlerror();
            }
        }
    }
}
