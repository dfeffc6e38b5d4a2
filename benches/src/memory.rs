//! All memory of this process: its own pages, and what the kernel keeps for it.

use std::io;

use carefree_lab::memory::field;

/// Memory in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident pages of this process.
    pub resident: u64,
    /// Page tables of this process.
    pub page_tables: u64,
    /// Kernel stacks and the kernel's small objects, of the whole machine: there is no count by
    /// process. Mappings, threads and timers show here. Other activity of the machine
    /// shows, too, which is why the median of several samples is taken.
    pub kernel: u64,
}

impl Memory {
    /// What there is now.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or lacks a line wanted.
    pub fn now() -> io::Result<Memory> {
        Ok(Memory {
            // The counters in `status` and `statm` are kept per processor and may lag by 256 KiB;
            // this walks the page tables.
            resident: sum("/proc/self/smaps_rollup", &["Rss"])?,
            page_tables: sum("/proc/self/status", &["VmPTE"])?,
            kernel: sum("/proc/meminfo", &["Slab", "KernelStack"])?,
        })
    }

    /// All of it.
    pub fn whole(&self) -> u64 {
        self.resident + self.page_tables + self.kernel
    }

    /// All of it, resident pages, page tables, and the kernel's.
    pub fn parts(&self) -> [u64; 4] {
        [self.whole(), self.resident, self.page_tables, self.kernel]
    }
}

/// The sum of the lines of `file` that these names begin, in bytes.
fn sum(file: &str, names: &[&str]) -> io::Result<u64> {
    let text = std::fs::read_to_string(file)?;
    let line = |name: &&str| {
        field(&text, name).ok_or_else(|| io::Error::other(format!("{file} has no line {name}")))
    };
    names.iter().map(line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_show() {
        let size = 32 << 20;
        let _turn = crate::MEMORY.lock();
        let before = Memory::now().unwrap();
        let block = std::hint::black_box(vec![1u8; size]);
        let after = Memory::now().unwrap();
        drop(block);
        let grown = after.resident - before.resident;
        assert!(grown.abs_diff(size as u64) < 1 << 20, "{grown}");
        assert!(after.page_tables > before.page_tables);
        assert!(after.whole() > after.resident + after.page_tables);
    }
}
