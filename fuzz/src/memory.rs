//! Memory for the buffers of calls: mapped, unmapped, mapped in part, and read-only.

use std::ffi::c_void;
use std::ptr;

use libc::iovec;

use crate::call::{Buffer, Lies, List};

/// The longest buffer that is there.
const ROOM: usize = 256 * 1024;
/// Bytes that are not to be written, and of each gap.
pub(crate) const PAGE: usize = 64 * 1024;
/// Buffers that one call may have.
const ARENAS: usize = 5;

/// Some arenas, each followed by memory without access, and one that is read-only.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
}

// SAFETY: an address. The lane that makes calls with it is one.
unsafe impl Send for Memory {}

const EACH: usize = ROOM + PAGE;
const ALL: usize = ARENAS * EACH + 2 * PAGE;

/// What buffers are filled with before a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    /// With what belongs to a step.
    Step(usize),
    /// With a number for an eventfd.
    Count(u64),
}

impl Memory {
    pub(crate) fn new() -> Memory {
        let (reads, none) = (libc::PROT_READ, libc::PROT_NONE);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(ptr::null_mut(), ALL, none, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "no memory for buffers");
        let base = base.cast::<u8>();
        for arena in 0..ARENAS {
            // SAFETY: within the mapping.
            let done = unsafe {
                libc::mprotect(base.add(arena * EACH).cast(), ROOM, reads | libc::PROT_WRITE)
            };
            assert_eq!(done, 0);
        }
        // SAFETY: as above.
        let done = unsafe { libc::mprotect(base.add(ARENAS * EACH).cast(), PAGE, reads) };
        assert_eq!(done, 0);
        Memory { base }
    }

    /// Where a buffer of `length` bytes begins.
    pub(crate) fn place(&self, arena: usize, length: u64, lies: Lies) -> *mut u8 {
        assert!(arena < ARENAS);
        let end = arena * EACH + ROOM;
        match lies {
            // SAFETY: at most as long as the arena.
            Lies::Well => unsafe { self.base.add(end - (length as usize).min(ROOM)) },
            Lies::Null => ptr::null_mut(),
            // SAFETY: within the mapping.
            Lies::Nowhere => unsafe { self.base.add(end) },
            // SAFETY: as above.
            Lies::AtEdge(there) => unsafe { self.base.add(end - (there as usize).min(ROOM)) },
            // SAFETY: as above.
            Lies::ReadOnly => unsafe { self.base.add(ARENAS * EACH) },
        }
    }

    fn there(&self, buffer: Buffer) -> usize {
        match buffer.lies {
            Lies::Well => (buffer.length as usize).min(ROOM),
            Lies::AtEdge(there) => (there as usize).min(ROOM).min(buffer.length as usize),
            _ => 0,
        }
    }

    /// The buffer's address, after it was filled.
    pub(crate) fn filled(&self, arena: usize, buffer: Buffer, fill: Fill) -> *mut c_void {
        let place = self.place(arena, buffer.length, buffer.lies);
        let there = self.there(buffer);
        match fill {
            Fill::Step(step) => {
                for at in 0..there {
                    let byte = (at * 7 + at / 251 + step * 31 + arena * 101) as u8;
                    // SAFETY: it is there, and to be written.
                    unsafe { place.add(at).write(byte) };
                }
            }
            Fill::Count(count) if there >= size_of::<u64>() => {
                // SAFETY: as above.
                unsafe { place.cast::<u64>().write_unaligned(count) };
            }
            Fill::Count(_) => {}
        }
        place.cast()
    }

    /// A number of the bytes that a call has put into the buffers.
    pub(crate) fn digest(&self, buffers: &[Buffer], mut got: usize) -> u64 {
        let mut sum = Digest::new();
        for (arena, buffer) in buffers.iter().enumerate() {
            let bytes = got.min(buffer.length as usize);
            let place = self.place(arena, buffer.length, buffer.lies);
            // SAFETY: it is there.
            sum.add(unsafe {
                std::slice::from_raw_parts(
                    place.max(ptr::dangling_mut()),
                    bytes.min(self.there(*buffer)),
                )
            });
            got -= bytes;
        }
        sum.value()
    }

    /// A number of the first `got` bytes of the buffer in `arena`.
    pub(crate) fn digest_of(&self, arena: usize, buffer: Buffer, got: usize) -> u64 {
        let place = self.place(arena, buffer.length, buffer.lies);
        let mut sum = Digest::new();
        // SAFETY: it is there.
        sum.add(unsafe {
            std::slice::from_raw_parts(place.max(ptr::dangling_mut()), got.min(self.there(buffer)))
        });
        sum.value()
    }

    /// A vectored call's list: its address, and how many it is said to have.
    pub(crate) fn list(&self, list: &List, fill: Fill) -> (*mut iovec, i32) {
        let buffers = (list.buffers.iter().enumerate())
            .map(|(arena, buffer)| iovec {
                iov_base: self.filled(arena, *buffer, fill),
                iov_len: buffer.length as usize,
            })
            .collect::<Vec<_>>();
        let bytes = size_of_val(buffers.as_slice());
        let place = self.place(ARENAS - 1, bytes as u64, list.lies);
        let there = match list.lies {
            Lies::Well => bytes,
            Lies::AtEdge(there) => bytes.min(there as usize),
            _ => 0,
        };
        // SAFETY: as many bytes are there.
        unsafe { ptr::copy_nonoverlapping(buffers.as_ptr().cast::<u8>(), place, there) };
        // Said to be more than there are, the rest would be what lay there before: no list at all then.
        let count = list.count.unwrap_or(buffers.len() as i32);
        (place.cast(), count)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: its own mapping.
        unsafe { libc::munmap(self.base.cast(), ALL) };
    }
}

/// FNV-1a.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
