//! `system`, `pclose`: commands of the shell.

use std::ffi::{c_char, c_int, c_void};

use carefree_runtime::offload_unchecked as offload;

use crate::call::fiber;
use crate::descriptor;
use crate::file::close::number_of;

interpose! {
    /// `system(3)`, on a thread that may block. Not cut short: the command would go on.
    fn system(command: *const c_char) -> c_int, linked "__libc_system" {
        // SAFETY: the caller's promise, and the caller waits.
        unsafe { offload(|| original(command)) }
    }
}

interpose! { anywhere
    /// `pclose(3)`: fibers that wait on the stream's file end their calls with `EBADF` first. On a fiber, by a
    /// thread that may block.
    fn pclose(stream: *mut c_void) -> c_int, linked "__new_pclose" {
        // SAFETY: the caller's promise.
        descriptor::prepare_to_close(unsafe { number_of(stream.cast()) });
        if !fiber::on_fiber() {
            // SAFETY: the caller's promise.
            return unsafe { original(stream) };
        }
        // SAFETY: the caller's promise, and the caller waits.
        unsafe { offload(|| original(stream)) }
    }
}
