//! System calls that the fuzzer itself needs.

use std::ffi::c_int;
use std::io;

/// The name of an error's number.
pub(crate) fn name(errno: c_int) -> String {
    let known = [
        (libc::EPERM, "EPERM"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EFAULT, "EFAULT"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENOENT, "ENOENT"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::ESPIPE, "ESPIPE"),
        (libc::EPIPE, "EPIPE"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ELOOP, "ELOOP"),
        (libc::EOVERFLOW, "EOVERFLOW"),
        (libc::ENOTSOCK, "ENOTSOCK"),
        (libc::EMSGSIZE, "EMSGSIZE"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ECONNRESET, "ECONNRESET"),
        (libc::ENOBUFS, "ENOBUFS"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ECANCELED, "ECANCELED"),
    ];
    let found = known.iter().find(|(number, _)| *number == errno);
    found.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}

pub(crate) fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Whether `events` are there now.
pub(crate) fn is_ready(fd: c_int, events: i16) -> bool {
    let mut file = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: a list of one.
    unsafe { libc::poll(&mut file, 1, 0) == 1 && file.revents & events != 0 }
}

/// Reads what is there, without waiting.
pub(crate) fn read_ready(fd: c_int, into: &mut Vec<u8>) {
    let mut buffer = vec![0u8; 256 * 1024];
    while is_ready(fd, libc::POLLIN) {
        let (place, room) = (buffer.as_mut_ptr().cast(), buffer.len());
        // A socket in which nothing but urgent data is left is ready, and a read of it waits.
        // SAFETY: a buffer of its own.
        let read = match unsafe { libc::recv(fd, place, room, libc::MSG_DONTWAIT) } {
            // SAFETY: as above.
            -1 if errno() == libc::ENOTSOCK => unsafe { libc::read(fd, place, room) },
            read => read,
        };
        if read <= 0 {
            break;
        }
        into.extend_from_slice(&buffer[..read as usize]);
    }
}

/// A line for each kernel thread of this process: what it waits for in the kernel, and in which call.
pub(crate) fn threads() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .map(|task| {
            let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let (call, name) = (read("syscall"), read("comm"));
            let call: Vec<_> = call.split_whitespace().take(4).collect();
            let number = task.file_name();
            format!("thread {number:?} {}: {} {call:?}\n", name.trim(), read("wchan"))
        })
        .collect()
}
