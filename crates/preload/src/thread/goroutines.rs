//! Threads that run goroutines, which a library in Go creates: they stay the kernel's.
//!
//! Go's runtime sets the mask, the alternate stack and the number of each of its threads by system calls of its
//! own, for the kernel thread that it finds itself on, and sends that one signals. So where such a library is
//! loaded later, the threads that start in it are no fibers. (Programs that begin with one: `start::has_go`.)
//!
//! A library tells by what it exports. It is looked up in memory: `dladdr` and `dlsym` wait for a library that is
//! just being loaded, whose constructor may wait for this thread.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_context::loader;
use carefree_ground::lock::Lock;
use carefree_runtime::hosted;
use carefree_runtime::wait::without_parking;

/// Where threads have started from when there are hosted ones, and whether that is Go's.
static KNOWN: Lock<Vec<(Range<usize>, bool)>> = Lock::new(Vec::new());
/// Whether libraries have been loaded since: they may lie where others did.
static STALE: AtomicBool = AtomicBool::new(false);

/// In the child of a fork.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: as this function demands.
    unsafe { KNOWN.renew(Vec::new()) };
}

/// A library was loaded.
pub(crate) fn look_again() {
    STALE.store(true, Ordering::Release);
}

/// Whether a thread that starts with `function` is one of Go's, or a handler there.
pub(crate) fn are_run_by(function: usize) -> bool {
    if !hosted::is_hosting() {
        return look_up(function).is_some_and(|(_, is_go)| is_go);
    }
    let known = without_parking(|| {
        let mut known = KNOWN.lock();
        if STALE.swap(false, Ordering::Acquire) {
            known.clear();
        }
        known.iter().find(|(range, _)| range.contains(&function)).map(|(_, is_go)| *is_go)
    });
    known.unwrap_or_else(|| {
        // (None has code that was made at run time.)
        let Some((range, is_go)) = look_up(function) else { return false };
        without_parking(|| KNOWN.lock().push((range, is_go)));
        is_go
    })
}

#[cold]
fn look_up(function: usize) -> Option<(Range<usize>, bool)> {
    without_parking(|| {
        let mut found = None;
        loader::any_object(|info| {
            let range = extent(info);
            let is_this = range.contains(&function);
            if is_this {
                // SAFETY: the loader describes an object that is there.
                found = Some((range, unsafe { exports(info, c"_cgo_topofstack") }));
            }
            is_this
        });
        found
    })
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the loader describes the object's headers.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

/// From where to where an object lies.
fn extent(info: &libc::dl_phdr_info) -> Range<usize> {
    let loads = headers(info).iter().filter(|header| header.p_type == libc::PT_LOAD);
    let parts = loads.map(|header| {
        let from = (info.dlpi_addr + header.p_vaddr) as usize;
        from..from + header.p_memsz as usize
    });
    parts.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// Whether an object exports a symbol, by its table for the loader (`DT_GNU_HASH`).
///
/// # Safety
/// The object stays loaded meanwhile.
unsafe fn exports(info: &libc::dl_phdr_info, name: &CStr) -> bool {
    const STRINGS: u64 = 5;
    const SYMBOLS: u64 = 6;
    const HASH: u64 = 0x6fff_fef5;
    let Some(dynamic) = headers(info).iter().find(|header| header.p_type == libc::PT_DYNAMIC)
    else {
        return false;
    };
    let dynamic = (info.dlpi_addr + dynamic.p_vaddr) as *const [u64; 2];
    // The loader has made most addresses absolute, but not all objects' (the kernel's own).
    let entry = |kind: u64| {
        // SAFETY: the table ends with an entry of kind 0.
        let entries = (0..).map(|index| unsafe { dynamic.add(index).read() });
        let found = entries.take_while(|entry| entry[0] != 0).find(|entry| entry[0] == kind);
        found.map(|entry| match entry[1] < info.dlpi_addr {
            true => info.dlpi_addr + entry[1],
            false => entry[1],
        })
    };
    let (Some(strings), Some(symbols), Some(hash)) = (entry(STRINGS), entry(SYMBOLS), entry(HASH))
    else {
        return false;
    };
    let wanted = name
        .to_bytes()
        .iter()
        .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    let hash = hash as *const u32;
    // SAFETY: the table begins with four numbers: of buckets, of the first symbol in it, of words of its filter,
    // and one for that. The filter's words have 8 bytes; behind them lie the buckets, each a symbol's index or 0,
    // and a hash for each symbol, whose lowest bit is set in the last one of a bucket.
    unsafe {
        let [buckets, first, filter, _] = hash.cast::<[u32; 4]>().read();
        if buckets == 0 {
            return false;
        }
        let bucket = hash.add(4 + 2 * filter as usize);
        let chain = bucket.add(buckets as usize);
        let mut index = bucket.add((wanted % buckets) as usize).read();
        if index < first {
            return false;
        }
        loop {
            let found = chain.add((index - first) as usize).read();
            if found | 1 == wanted | 1 {
                let symbol = (symbols as *const libc::Elf64_Sym).add(index as usize).read();
                let own = CStr::from_ptr((strings as usize + symbol.st_name as usize) as *const _);
                // (It may refer to one of another object.)
                if own == name && symbol.st_shndx != 0 {
                    return true;
                }
            }
            if found & 1 != 0 {
                return false;
            }
            index += 1;
        }
    }
}
