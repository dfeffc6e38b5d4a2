//! The environment that the program's children inherit.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;

/// Takes this library, and what asks for this, out of the environment: the programs that this one starts run
/// as they are. To be called before the program's code runs.
pub(crate) fn leave_children_alone() {
    let own = own_path();
    let listed = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let is_own = |path: &[u8]| own.is_some_and(|own| own.to_bytes() == path);
    let mut others = Vec::new();
    for path in listed.as_bytes().split(|byte| matches!(byte, b':' | b' ')) {
        if !path.is_empty() && !is_own(path) {
            others.extend_from_slice(path);
            others.push(b':');
        }
    }
    others.pop();
    // SAFETY: the program has one thread, in the loader, and no code of its own has run.
    unsafe {
        libc::unsetenv(c"CAREFREE_RUN".as_ptr());
        libc::unsetenv(c"CAREFREE_RUN_STRICT".as_ptr());
        match CString::new(others) {
            Ok(others) if !others.is_empty() => {
                libc::setenv(c"LD_PRELOAD".as_ptr(), others.as_ptr(), 1);
            }
            _ => {
                libc::unsetenv(c"LD_PRELOAD".as_ptr());
            }
        }
    }
}

/// The path by which the loader has loaded this library.
pub(crate) fn own_path() -> Option<&'static CStr> {
    let own = own_path as *const c_void;
    // SAFETY: an address of this library; the loader's strings stay as long as the library.
    unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        if libc::dladdr(own, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname.cast::<c_char>()))
    }
}
