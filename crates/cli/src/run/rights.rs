//! Rights that a program has and the user that starts it has not: its loader ignores what that user preloads.

use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Why the loader ignores what the user preloads, if it does.
pub(super) fn raised(path: &Path, about: &Metadata) -> Option<&'static str> {
    const SETUID: u32 = 0o4000;
    /// (Without leave for the group to execute it, the second is no right.)
    const SETGID: u32 = 0o2010;
    // SAFETY: both take nothing.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if about.mode() & SETUID != 0 && about.uid() != user
        || about.mode() & SETGID == SETGID && about.gid() != group
    {
        return Some("it runs with rights of another user (setuid or setgid)");
    }
    // What root starts has all of them.
    (user != 0 && has_capabilities(path)).then_some("it has capabilities that its user has not")
}

/// Whether the file says that the program has capabilities.
fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: strings; of what is there, none is asked for but its length.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn rights_are_seen() {
        let place = std::env::temp_dir().join(format!("carefree-rights-{}", std::process::id()));
        fs::copy("/bin/sh", &place).unwrap();
        let raised = || raised(&place, &fs::metadata(&place).unwrap());
        let mode = |mode| fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        assert_eq!(raised(), None);
        // Those of the user itself are none.
        mode(0o4755);
        assert_eq!(raised(), None);
        assert!(!has_capabilities(&place));
        if chown(&place, Some(1), Some(1)).is_ok() {
            mode(0o4755);
            assert!(raised().unwrap().contains("setuid"));
            mode(0o2755);
            assert!(raised().unwrap().contains("setgid"));
            mode(0o2745);
            assert_eq!(raised(), None);
            // The second version's layout: which one, and two words of each of two sets.
            let [which, net_bind, none] = [0x0200_0001u32, 1 << 10, 0].map(u32::to_le_bytes);
            let value = [which, net_bind, none, none, none].concat();
            let path = CString::new(place.as_os_str().as_bytes()).unwrap();
            let name = c"security.capability".as_ptr();
            let (bytes, length) = (value.as_ptr().cast(), value.len());
            // SAFETY: strings, and so many bytes.
            let set = unsafe { libc::setxattr(path.as_ptr(), name, bytes, length, 0) };
            match set {
                0 => assert!(has_capabilities(&place)),
                _ => eprintln!("skipped: no capabilities can be given here"),
            }
        } else {
            eprintln!("skipped: only root gives files away");
        }
        fs::remove_file(&place).unwrap();
    }
}
