//! What a loaded object exports, by its table for the loader (`DT_GNU_HASH`).
//!
//! It is looked up in memory: `dladdr` and `dlsym` wait for a library that is just being loaded, whose constructor
//! may wait for the calling thread.

use std::ffi::CStr;

use crate::loader;

/// An object's symbols that others can find, in memory.
#[derive(Debug)]
pub struct Exports {
    strings: usize,
    symbols: *mut libc::Elf64_Sym,
    hash: *const u32,
}

/// The parts of the table behind its four numbers.
struct Parts {
    /// How many buckets there are.
    buckets: u32,
    /// The index of the first symbol in the table; those before it are of other objects.
    first: u32,
    /// For each bucket the index of its first symbol, or 0.
    bucket: *const u32,
    /// For each symbol from the first on a hash, whose lowest bit is set in the last one of a bucket.
    chain: *const u32,
}

impl Exports {
    /// The symbols of the object that the loader describes; None if it has no such table.
    ///
    /// # Safety
    /// The loader has just given that description, and the object stays loaded while the result is used.
    pub unsafe fn of(info: &libc::dl_phdr_info) -> Option<Exports> {
        const STRINGS: u64 = 5;
        const SYMBOLS: u64 = 6;
        const HASH: u64 = 0x6fff_fef5;
        // SAFETY: as this function demands.
        let headers = unsafe { loader::headers(info) };
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let dynamic = (info.dlpi_addr + dynamic.p_vaddr) as *const [u64; 2];
        // The loader has made most addresses absolute, but not all objects' (the kernel's own).
        let entry = |kind: u64| {
            // SAFETY: the table ends with an entry of kind 0.
            let entries = (0..).map(|index| unsafe { dynamic.add(index).read() });
            let found = entries.take_while(|entry| entry[0] != 0).find(|entry| entry[0] == kind);
            found.map(|entry| match entry[1] < info.dlpi_addr {
                true => (info.dlpi_addr + entry[1]) as usize,
                false => entry[1] as usize,
            })
        };
        Some(Exports {
            strings: entry(STRINGS)?,
            symbols: entry(SYMBOLS)? as *mut libc::Elf64_Sym,
            hash: entry(HASH)? as *const u32,
        })
    }

    /// None if the table is empty.
    fn parts(&self) -> Option<Parts> {
        // SAFETY: the table begins with four numbers: of buckets, of the first symbol in it, of words of its filter,
        // and one for that. The filter's words have 8 bytes; the buckets lie behind it, and the hashes behind them.
        unsafe {
            let [buckets, first, filter, _] = self.hash.cast::<[u32; 4]>().read();
            let bucket = self.hash.add(4 + 2 * filter as usize);
            (buckets != 0).then_some(Parts {
                buckets,
                first,
                bucket,
                chain: bucket.add(buckets as usize),
            })
        }
    }

    /// Whether there is a symbol of this name.
    pub fn has(&self, name: &CStr) -> bool {
        let Some(parts) = self.parts() else { return false };
        let wanted = name
            .to_bytes()
            .iter()
            .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        // SAFETY: a bucket's symbols are followed to the one that ends it; the names are strings.
        unsafe {
            let mut index = parts.bucket.add((wanted % parts.buckets) as usize).read();
            if index < parts.first {
                return false;
            }
            loop {
                let found = parts.chain.add((index - parts.first) as usize).read();
                if found | 1 == wanted | 1 {
                    let symbol = self.symbols.add(index as usize).read();
                    let own = self.strings + symbol.st_name as usize;
                    // (It may refer to one of another object.)
                    if CStr::from_ptr(own as *const _) == name && symbol.st_shndx != 0 {
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

    /// The table's symbols, which lie one behind the other.
    pub fn symbols(&self) -> *mut [libc::Elf64_Sym] {
        let none = std::ptr::slice_from_raw_parts_mut(self.symbols, 0);
        let Some(parts) = self.parts() else { return none };
        // SAFETY: as in `has`; the last bucket's last symbol is the table's.
        unsafe {
            let starts = (0..parts.buckets as usize).map(|index| parts.bucket.add(index).read());
            let mut last = starts.max().unwrap_or(0);
            if last < parts.first {
                return none;
            }
            while parts.chain.add((last - parts.first) as usize).read() & 1 == 0 {
                last += 1;
            }
            let first = self.symbols.add(parts.first as usize);
            std::ptr::slice_from_raw_parts_mut(first, (last - parts.first + 1) as usize)
        }
    }
}
