//! Messages: their headers, and what goes with them.

use std::ffi::c_int;
use std::{mem, ptr};

use crate::call::{Buffer, List};
use crate::memory::{Fill, Memory};

/// Several messages of a buffer each.
pub(crate) struct Many {
    pub(crate) headers: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
}

impl Many {
    pub(crate) fn new(memory: &Memory, buffers: &[Buffer], fill: Fill) -> Many {
        let part = |(arena, buffer): (usize, &Buffer)| libc::iovec {
            iov_base: memory.filled(arena, *buffer, fill),
            iov_len: buffer.length as usize,
        };
        let parts = buffers.iter().enumerate().map(part).collect();
        // SAFETY: all zeros is a message without anything.
        let header = || unsafe { mem::zeroed() };
        Many { headers: buffers.iter().map(|_| header()).collect(), parts }
    }

    pub(crate) fn list(&mut self) -> (*mut libc::mmsghdr, libc::c_uint) {
        for (header, part) in self.headers.iter_mut().zip(&mut self.parts) {
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
        }
        (self.headers.as_mut_ptr(), self.headers.len() as libc::c_uint)
    }
}

/// Room for what goes with a message, with the numbers of files.
pub(crate) struct Control {
    room: [u64; 8],
    length: usize,
}

impl Control {
    pub(crate) fn new(files: &[c_int]) -> Control {
        let mut control = Control { room: [0; 8], length: 0 };
        let bytes = size_of_val(files) as libc::c_uint;
        if bytes == 0 {
            return control;
        }
        // SAFETY: it computes with numbers.
        control.length = unsafe { libc::CMSG_SPACE(bytes) } as usize;
        let header = control.room.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: there is as much room, which is aligned.
        unsafe {
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            let data = libc::CMSG_DATA(header).cast::<c_int>();
            ptr::copy_nonoverlapping(files.as_ptr(), data, files.len());
        }
        control
    }

    pub(crate) fn message(&mut self, part: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: all zeros is a message without anything.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = part;
        message.msg_iovlen = 1;
        message.msg_control = self.room.as_mut_ptr().cast();
        message.msg_controllen = self.length as _;
        message
    }
}

/// Closes the files that came with a message; how many.
pub(crate) fn close_received(message: &libc::msghdr) -> usize {
    let mut came = 0;
    // SAFETY: a message that the kernel has filled; the files are ours.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        if let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = found.cmsg_len - libc::CMSG_LEN(0) as usize;
                let files = libc::CMSG_DATA(header).cast::<c_int>();
                came = bytes / size_of::<c_int>();
                (0..came).for_each(|at| _ = libc::close(files.add(at).read_unaligned()));
            }
        }
    }
    came
}

pub(crate) fn message(memory: &Memory, list: &List, fill: Fill) -> libc::msghdr {
    let (first, count) = memory.list(list, fill);
    // SAFETY: all zeros is a message without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = first;
    message.msg_iovlen = count as usize;
    message
}
