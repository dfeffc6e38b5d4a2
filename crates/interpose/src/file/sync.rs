//! `fsync` and its kin: until what was written is on the disk.

use std::ffi::{c_int, c_uint, c_void};

use carefree_ground::kernel;
use carefree_reactor::Op;
use carefree_runtime::Reason;
use libc::off_t;

use crate::call::answer::{Answer, answer};
use crate::call::uninterrupted::offload;
use crate::wait::parking::{self, On, Parked};

system_call!(fn raw_fsync(fd: c_int) -> c_int = SYS_fsync);
system_call!(fn raw_fdatasync(fd: c_int) -> c_int = SYS_fdatasync);
system_call!(fn raw_syncfs(fd: c_int) -> c_int = SYS_syncfs);
system_call!(
    fn raw_sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int
        = SYS_sync_file_range
);
system_call!(fn raw_msync(memory: *mut c_void, length: usize, flags: c_int) -> c_int = SYS_msync);

interpose! {
    /// `fsync(2)`.
    fn fsync(fd: c_int) -> c_int, else raw_fsync {
        answer(synchronize(fd, false)) as c_int
    }
}

interpose! {
    /// `fdatasync(2)`.
    fn fdatasync(fd: c_int) -> c_int, else raw_fdatasync {
        answer(synchronize(fd, true)) as c_int
    }
}

fn synchronize(fd: c_int, data_only: bool) -> Answer {
    let on = On { fd, reason: Reason::Write, limit: None };
    // SAFETY: it points to nothing.
    match unsafe { parking::perform(&Op::Sync { fd, data_only }, on) } {
        Parked::Answered(answer) => answer,
        Parked::Unsupported | Parked::Late => {
            let number = if data_only { libc::SYS_fdatasync } else { libc::SYS_fsync };
            // SAFETY: no memory is involved.
            unsafe { offload(|| kernel::call(number, [fd as usize, 0, 0, 0, 0, 0])) }
        }
    }
}

interpose! {
    /// `syncfs(2)`, on a thread that may block.
    fn syncfs(fd: c_int) -> c_int, else raw_syncfs {
        // SAFETY: no memory is involved.
        unsafe { offload(|| original(fd)) }
    }
}

unsafe extern "C-unwind" fn raw_sync() {
    // SAFETY: no memory is involved.
    let _ = unsafe { kernel::call(libc::SYS_sync, [0; 6]) };
}

interpose! {
    /// `sync(2)`, on a thread that may block.
    fn sync() -> (), else raw_sync {
        // SAFETY: no memory is involved.
        unsafe { offload(|| original()) }
    }
}

interpose! {
    /// `sync_file_range(2)`, on a thread that may block.
    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int,
        else raw_sync_file_range
    {
        // SAFETY: no memory is involved.
        unsafe { offload(|| original(fd, offset, length, flags)) }
    }
}

interpose! {
    /// `msync(2)`: on a thread that may block if it waits for the disk (`MS_SYNC`).
    fn msync(memory: *mut c_void, length: usize, flags: c_int) -> c_int, else raw_msync {
        // SAFETY: the caller's promise, and the caller waits.
        unsafe {
            if flags & libc::MS_SYNC == 0 {
                return original(memory, length, flags);
            }
            offload(|| original(memory, length, flags))
        }
    }
}
