//! `system`, `pclose`: commands of the shell.

use std::ffi::{c_char, c_int, c_void};

use carefree_runtime::offload;

use crate::call::user::User;
use crate::call::{fiber, host, uninterrupted};
use crate::descriptor;
use crate::file::close::number_of;

interpose! {
    /// `system(3)`, on a thread that may block. It is not cut short: the command would go on.
    safe fn system(command: User<c_char>) -> c_int, linked "__libc_system" {
        let mask = host::get().filter(|_| host::is_hosted()).map(|host| (host.mask)());
        offload(|| match mask {
            Some(mask) => uninterrupted::with_mask(mask, || original(command)),
            None => original(command),
        })
    }
}

interpose! { anywhere
    /// `pclose(3)`: fibers that wait on the stream's file end their calls with `EBADF` first. On a fiber, a
    /// thread that may block makes the call.
    safe fn pclose(stream: User<c_void>) -> c_int, linked "__new_pclose" {
        descriptor::prepare_to_close(number_of(stream.cast()));
        if !fiber::on_fiber() {
            return original(stream);
        }
        offload(|| original(stream))
    }
}
