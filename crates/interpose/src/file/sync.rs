//! `fsync` and its kin: until what was written is on the disk.

use std::ffi::{c_int, c_uint, c_void};

use carefree_ground::kernel;
use carefree_runtime::Reason;
use libc::off_t;

use crate::call::answer::{Answer, answer};
use crate::call::sys::{self, Number};
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::wait::parking::{self, On, Parked};
use crate::wait::user_op::UserOp;

interpose! {
    /// `fsync(2)`.
    safe fn fsync(fd: c_int) -> c_int, number SYS_fsync {
        answer(synchronize(fd, false)) as c_int
    }
}

interpose! {
    /// `fdatasync(2)`.
    safe fn fdatasync(fd: c_int) -> c_int, number SYS_fdatasync {
        answer(synchronize(fd, true)) as c_int
    }
}

fn synchronize(fd: c_int, data_only: bool) -> Answer {
    let on = On { fd, reason: Reason::Write, limit: None };
    match parking::perform(&UserOp::sync(fd, data_only), on) {
        Parked::Answered(answer) => answer,
        Parked::Unsupported | Parked::Late => {
            let number = if data_only { Number::FDATASYNC } else { Number::FSYNC };
            offload(|| sys::call(number, [fd.into()]))
        }
    }
}

interpose! { steady
    /// `syncfs(2)`, on a thread that may block.
    safe fn syncfs(fd: c_int) -> c_int, number SYS_syncfs {
        offload(|| original(fd))
    }
}

extern "C-unwind" fn raw_sync() {
    // SAFETY: no memory is involved.
    let _ = unsafe { kernel::call(libc::SYS_sync, [0; 6]) };
}

interpose! { steady
    /// `sync(2)`, on a thread that may block.
    safe fn sync() -> (), else raw_sync {
        offload(original)
    }
}

interpose! { steady
    /// `sync_file_range(2)`, on a thread that may block.
    safe fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int,
        number SYS_sync_file_range
    {
        offload(|| original(fd, offset, length, flags))
    }
}

interpose! {
    /// `msync(2)`: on a thread that may block if it waits for the disk (`MS_SYNC`).
    safe fn msync(memory: User<c_void>, length: usize, flags: c_int) -> c_int, number SYS_msync {
        if flags & libc::MS_SYNC == 0 {
            return original(memory, length, flags);
        }
        offload(|| original(memory, length, flags))
    }
}
