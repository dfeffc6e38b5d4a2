//! pthread keys: where libc keeps a thread's values for them, and their destructors.
//!
//! glibc's function that runs the destructors of a thread (`__nptl_deallocate_tsd`) is not
//! exported, so it is written out here as POSIX has it: values whose key still exists and has a
//! destructor are cleared and then passed to it, in up to `PTHREAD_DESTRUCTOR_ITERATIONS` rounds.
//!
//! The table of keys and its shape are described for debuggers; a key created for the purpose verifies
//! the description.

use std::ffi::c_void;
use std::ptr;

use super::glibc::{debugger_field, debugger_size};
use super::symbols::symbol;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// POSIX's `PTHREAD_DESTRUCTOR_ITERATIONS` as glibc defines it.
pub(super) const ROUNDS: usize = 4;

/// A key as libc keeps it. An odd sequence number means that the key exists.
#[repr(C)]
struct Key {
    sequence: usize,
    destructor: Option<Destructor>,
}

/// A thread's value for a key; valid only while its sequence number is the key's.
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
    /// Offset in `struct pthread` of the flag "a value was set", if it was found.
    used: Option<usize>,
}

// SAFETY: `keys` is libc's static table, which lives as long as the process.
unsafe impl Send for KeyTable {}
// SAFETY: entries are read by volatile loads of words, as libc itself reads them.
unsafe impl Sync for KeyTable {}

unsafe extern "C" fn probe(_: *mut c_void) {}

impl KeyTable {
    /// Finds the table. `pthread` is the calling thread's `struct pthread`, of `size` bytes.
    ///
    /// # Safety
    /// `pthread..pthread + size` is the calling thread's control block and can be read.
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
        // SAFETY: within the control block, as was just checked.
        let flag = || unsafe { pthread.add(used).read_volatile() };

        let mut key = 0;
        // SAFETY: the key's value is cleared before the thread ends, so its destructor never runs. The
        // entry is within the table as long as the key exists.
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

    /// The offset in `struct pthread` of what [`run_destructors`](Self::run_destructors) reads first.
    pub(super) fn first_read(&self) -> usize {
        self.used.unwrap_or(0)
    }

    /// Runs the destructors of the calling fiber's values and clears them. Returns whether there
    /// was any value.
    ///
    /// # Safety
    /// `pthread` is the calling fiber's `struct pthread`.
    pub(super) unsafe fn run_destructors(&self, pthread: *mut u8) -> bool {
        if let Some(used) = self.used {
            // SAFETY: the flag lies in the calling fiber's control block, which no other fiber writes.
            unsafe {
                let flag = pthread.add(used);
                if flag.read_volatile() == 0 {
                    return false;
                }
                // Cleared, so that it shows whether a destructor sets a value.
                flag.write_volatile(0);
            }
        }
        let mut any = false;
        for _ in 0..ROUNDS {
            // SAFETY: `pthread` is the calling fiber's.
            if !unsafe { self.destroy_once(pthread) } {
                break;
            }
            any = true;
        }
        // Values that destructors still set in the last round are dropped, as when a thread ends.
        // SAFETY: `pthread` is the calling fiber's.
        unsafe { self.forget_values(pthread) };
        any
    }

    /// Clears the calling fiber's values without a call of their destructors.
    ///
    /// # Safety
    /// As for [`run_destructors`](Self::run_destructors).
    pub(super) unsafe fn forget_values(&self, pthread: *mut u8) {
        // SAFETY: `pthread` is the calling fiber's; visited values exist.
        unsafe { self.for_each_value(pthread, |_, value| (*value).data = ptr::null_mut()) };
        if let Some(used) = self.used {
            // SAFETY: the flag lies in the calling fiber's control block.
            unsafe { pthread.add(used).write_volatile(0) };
        }
    }

    /// Runs one round; returns whether any destructor was called.
    ///
    /// # Safety
    /// As for [`run_destructors`](Self::run_destructors).
    unsafe fn destroy_once(&self, pthread: *mut u8) -> bool {
        let mut called = false;
        // SAFETY: visited values exist and are this fiber's, and each has a key in the table. A
        // destructor is called with a value, by the fiber that set it, as POSIX says.
        unsafe {
            self.for_each_value(pthread, |index, value| {
                let data = std::mem::replace(&mut (*value).data, ptr::null_mut());
                let sequence = (*value).sequence;
                let key = self.keys.add(index);
                let live = (&raw const (*key).sequence).read_volatile() == sequence;
                let destructor = (&raw const (*key).destructor).read_volatile();
                if let (true, Some(destructor)) = (live, destructor) {
                    called = true;
                    destructor(data);
                }
            });
        }
        called
    }

    /// Visits the values that are not null.
    ///
    /// # Safety
    /// As for [`run_destructors`](Self::run_destructors).
    unsafe fn for_each_value(&self, pthread: *mut u8, mut visit: impl FnMut(usize, *mut Value)) {
        for block in 0..self.block_count {
            // SAFETY: an array of `block_count` pointers lies at `blocks`.
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
