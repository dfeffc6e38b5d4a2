//! Mapped files that may be truncated while they are read.
//!
//! Reading a page of a mapped file that was truncated, or that the disk cannot deliver, raises
//! SIGBUS. If the handler of [`overflow`](crate::overflow) is installed, it then replaces a file
//! that is mapped here by zeros, and the reader continues. So a value read from a file may differ
//! when it is read again, and must be checked at each use.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_ground::kernel;

/// The most files that can be mapped at once.
const PLACES: usize = 256;

/// A mapping's entry in the table that the handler searches.
#[derive(Debug)]
struct Place {
    /// The mapping's address; [`FREE`] without one, [`TAKEN`] until it is known.
    begin: AtomicUsize,
    len: AtomicUsize,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

static MAPPED: [Place; PLACES] =
    [const { Place { begin: AtomicUsize::new(FREE), len: AtomicUsize::new(0) } }; PLACES];

/// A regular file, mapped to be read by one thread at a time. Uses neither libc nor an allocator.
#[derive(Clone, Copy, Debug)]
pub struct MappedFile {
    begin: *const u8,
    len: usize,
    place: &'static Place,
}

// SAFETY: the mapping is read-only, is tied to no thread, and stays until it is closed.
unsafe impl Send for MappedFile {}

impl MappedFile {
    /// Maps the file at `path`; `None` if it is not a regular file that can be read, if it is
    /// empty, or if too many are mapped.
    ///
    /// ```
    /// use carefree_context::mapped_file::MappedFile;
    ///
    /// let file = MappedFile::open(c"/proc/self/exe").expect("this program");
    /// // SAFETY: the bytes are read before the file is closed, once.
    /// unsafe {
    ///     assert!(file.bytes().starts_with(b"\x7fELF"));
    ///     file.close();
    /// }
    /// ```
    #[must_use]
    pub fn open(path: &CStr) -> Option<MappedFile> {
        let taken = |place: &&Place| {
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            place.begin.compare_exchange(FREE, TAKEN, success, failure).is_ok()
        };
        let place = MAPPED.iter().find(taken)?;
        let Some((begin, len)) = map(path) else {
            place.begin.store(FREE, Ordering::Release);
            return None;
        };
        place.len.store(len, Ordering::Relaxed);
        place.begin.store(begin, Ordering::Release);
        Some(MappedFile { begin: begin as *const u8, len, place })
    }

    /// The file's contents.
    ///
    /// # Safety
    /// They are used by one thread at a time, and not after any copy of this value was closed.
    #[must_use]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: a mapping of this length, which stays until it is closed.
        unsafe { std::slice::from_raw_parts(self.begin, self.len) }
    }

    /// Unmaps the file.
    ///
    /// # Safety
    /// Called once for all copies of this value, and [`bytes`](Self::bytes) are not used afterwards.
    pub unsafe fn close(self) {
        // First, so that the handler never takes another mapping at this address for the file.
        self.place.begin.store(FREE, Ordering::Release);
        let mapping = [self.begin as usize, self.len, 0, 0, 0, 0];
        // SAFETY: `open` has made the mapping, and nothing uses it any more.
        let _ = unsafe { kernel::call(libc::SYS_munmap, mapping) };
    }
}

fn map(path: &CStr) -> Option<(usize, usize)> {
    // If it is a FIFO or a terminal, the call must neither block nor make it the controlling terminal.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let (here, path) = (libc::AT_FDCWD as usize, path.as_ptr() as usize);
    // SAFETY: the kernel only reads the path.
    let file = unsafe { kernel::call(libc::SYS_openat, [here, path, flags as usize, 0, 0, 0]) };
    let file = file.ok()?;
    let mapped = length(file).and_then(|len| {
        let (private, read) = (libc::MAP_PRIVATE as usize, libc::PROT_READ as usize);
        // SAFETY: a new mapping that replaces none.
        let begin = unsafe { kernel::call(libc::SYS_mmap, [0, len, read, private, file, 0]) };
        Some((begin.ok()?, len))
    });
    // SAFETY: only this function knows the descriptor.
    let _ = unsafe { kernel::call(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    mapped
}

/// The length of a regular file that is not empty.
fn length(file: usize) -> Option<usize> {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    let arguments = [file, about.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel fills in `about`, whose layout is libc's on these architectures.
    let about = unsafe {
        kernel::call(libc::SYS_fstat, arguments).ok()?;
        about.assume_init()
    };
    let regular = about.st_mode & libc::S_IFMT == libc::S_IFREG;
    usize::try_from(about.st_size).ok().filter(|len| regular && *len > 0)
}

/// Replaces the file that is mapped at `address`, if there is one, by zeros; returns whether it can
/// be read again.
///
/// Async-signal-safe. The caller is the thread that was reading at `address`, so the file is not
/// closed meanwhile.
pub(crate) fn give_up(address: usize) -> bool {
    for Place { begin, len } in &MAPPED {
        let (first, len) = (begin.load(Ordering::Acquire), len.load(Ordering::Acquire));
        let has = first > TAKEN && address.wrapping_sub(first) < len;
        if has && begin.load(Ordering::Acquire) == first {
            let read = libc::PROT_READ as usize;
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
            // SAFETY: replaces the mapping of a file that is being read by another that can be
            // read; its contents may change at any time.
            let zeros =
                unsafe { kernel::call(libc::SYS_mmap, [first, len, read, flags, usize::MAX, 0]) };
            return zeros.is_ok();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::io::Write as _;

    #[test]
    fn a_truncated_file_reads_as_zeros() {
        crate::overflow::install().unwrap();
        let path = std::env::temp_dir().join(format!("carefree-cut-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(&[7; 300_000]).unwrap();
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let mapped = MappedFile::open(&name).unwrap();
        // SAFETY: closed below, after the last use.
        let bytes = unsafe { mapped.bytes() };
        assert!(bytes.len() == 300_000 && bytes.iter().all(|byte| *byte == 7));
        file.set_len(100_000).unwrap();
        assert_eq!(std::hint::black_box(bytes)[50_000], 7);
        assert_eq!(std::hint::black_box(bytes)[299_999], 0);
        assert!(std::hint::black_box(bytes).iter().all(|byte| *byte == 0), "all of it");
        std::fs::remove_file(path).unwrap();
        // SAFETY: called once, and `bytes` is not used afterwards.
        unsafe { mapped.close() };
    }

    #[test]
    fn only_regular_files_are_mapped() {
        for path in [c"/nowhere", c"/", c"/dev/null", c"/dev/zero", c"/proc/self/status"] {
            assert!(MappedFile::open(path).is_none(), "{path:?}");
        }
    }
}
