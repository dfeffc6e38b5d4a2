//! Files that are read as memory, and may be cut short meanwhile.
//!
//! A read of a page of a mapped file that the file has lost, or that its disk cannot give, raises
//! SIGBUS. A file that is mapped here is then given up by the handler of [`overflow`](crate::overflow),
//! where that is installed: it reads as zeros from then on, and its reader goes on. So what was read of
//! a file may be another value when it is read again, and is to be checked each time that it is used.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_ground::kernel;

/// Files that are mapped at once, at most.
const PLACES: usize = 256;

/// Where the handler finds a mapping.
#[derive(Debug)]
struct Place {
    /// Its address; [`FREE`], or [`TAKEN`] until it is known.
    begin: AtomicUsize,
    len: AtomicUsize,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

static MAPPED: [Place; PLACES] =
    [const { Place { begin: AtomicUsize::new(FREE), len: AtomicUsize::new(0) } }; PLACES];

/// A regular file, mapped to be read by one thread at a time. Neither libc nor an allocator is asked
/// for anything.
#[derive(Clone, Copy, Debug)]
pub struct MappedFile {
    begin: *const u8,
    len: usize,
    place: &'static Place,
}

// SAFETY: what it points to is never written, and stays until it is closed, by any thread.
unsafe impl Send for MappedFile {}

impl MappedFile {
    /// The file at `path`; `None` if it is none that can be read, if it is empty, or if too many are
    /// mapped.
    ///
    /// ```
    /// use carefree_context::file::MappedFile;
    ///
    /// let file = MappedFile::open(c"/proc/self/exe").expect("this program");
    /// // SAFETY: it is read before it is closed.
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

    /// What is in the file.
    ///
    /// # Safety
    /// It is not used when any copy of this value has been closed, and by one thread at a time.
    #[must_use]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: a mapping of this length, which stays until it is closed: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.begin, self.len) }
    }

    /// Unmaps it.
    ///
    /// # Safety
    /// It is done once for all copies of this value.
    pub unsafe fn close(self) {
        // The handler must not find it when the address may be another mapping's.
        self.place.begin.store(FREE, Ordering::Release);
        let mapping = [self.begin as usize, self.len, 0, 0, 0, 0];
        // SAFETY: the mapping was made by `open`, and is not used any more.
        let _ = unsafe { kernel::call(libc::SYS_munmap, mapping) };
    }
}

fn map(path: &CStr) -> Option<(usize, usize)> {
    // Should it be a FIFO or a terminal, nothing waits for it or takes it for its own.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let (here, path) = (libc::AT_FDCWD as usize, path.as_ptr() as usize);
    // SAFETY: the kernel reads the path.
    let file = unsafe { kernel::call(libc::SYS_openat, [here, path, flags as usize, 0, 0, 0]) };
    let file = file.ok()?;
    let mapped = length(file).and_then(|len| {
        let (private, read) = (libc::MAP_PRIVATE as usize, libc::PROT_READ as usize);
        // SAFETY: a new mapping where nothing is.
        let begin = unsafe { kernel::call(libc::SYS_mmap, [0, len, read, private, file, 0]) };
        Some((begin.ok()?, len))
    });
    // SAFETY: the descriptor is this function's own.
    let _ = unsafe { kernel::call(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    mapped
}

/// The length of a regular file that is not empty.
fn length(file: usize) -> Option<usize> {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    let arguments = [file, about.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes to `about`, which is laid out as libc has it on these architectures.
    let about = unsafe {
        kernel::call(libc::SYS_fstat, arguments).ok()?;
        about.assume_init()
    };
    let regular = about.st_mode & libc::S_IFMT == libc::S_IFREG;
    usize::try_from(about.st_size).ok().filter(|len| regular && *len > 0)
}

/// Gives up the file that is mapped at `address`, if one is; whether it can be read again.
///
/// Async-signal-safe. The caller is the thread that reads at `address`, stopped there: so the file is
/// not closed meanwhile.
pub(crate) fn give_up(address: usize) -> bool {
    for Place { begin, len } in &MAPPED {
        let (first, len) = (begin.load(Ordering::Acquire), len.load(Ordering::Acquire));
        let has = first > TAKEN && address.wrapping_sub(first) < len;
        if has && begin.load(Ordering::Acquire) == first {
            let read = libc::PROT_READ as usize;
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
            // SAFETY: the mapping is that of a file, and stays one that can be read.
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
    fn a_file_that_is_cut_short_reads_as_zeros() {
        crate::overflow::install().unwrap();
        let path = std::env::temp_dir().join(format!("carefree-cut-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(&[7; 300_000]).unwrap();
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let mapped = MappedFile::open(&name).unwrap();
        // SAFETY: closed below, when it is not used any more.
        let bytes = unsafe { mapped.bytes() };
        assert!(bytes.len() == 300_000 && bytes.iter().all(|byte| *byte == 7));
        file.set_len(100_000).unwrap();
        assert_eq!(std::hint::black_box(bytes)[50_000], 7);
        assert_eq!(std::hint::black_box(bytes)[299_999], 0);
        assert!(std::hint::black_box(bytes).iter().all(|byte| *byte == 0), "all of it");
        std::fs::remove_file(path).unwrap();
        // SAFETY: once.
        unsafe { mapped.close() };
    }

    #[test]
    fn what_is_no_file_is_not_mapped() {
        for path in [c"/nowhere", c"/", c"/dev/null", c"/dev/zero", c"/proc/self/status"] {
            assert!(MappedFile::open(path).is_none(), "{path:?}");
        }
    }
}
