//! Programs that this library is kept from, though the environment asks for it.
//!
//! Programs inherit `LD_PRELOAD` from the one that starts them. Another libc's loader ends a program for whose libc the
//! library was not made, and so does the library of a sanitizer that was not loaded first; glibc's loader for another
//! processor complains of it. So before a program starts another, the other one's file is looked at.
//!
//! This may be in the child of a `vfork`, or of a fork of a process with threads. So nothing is allocated, and libc
//! is not asked.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use carefree_ground::kernel;
use carefree_ground::mapped::Mapped;
use carefree_settings::headers::{self, Kind};

use crate::environment;

pub(crate) type Strings = *const *const c_char;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The path by which this library was loaded.
static OWN: OnceLock<&'static CStr> = OnceLock::new();

/// Finds out how the environment names this library, before the program's code runs.
pub(crate) fn prepare() {
    if let Some(own) = environment::own_path() {
        let _ = OWN.set(own);
    }
}

/// A program's file, as callers name it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum File {
    /// In a folder that is open, or `AT_FDCWD`.
    At(c_int, *const c_char),
    /// To be found as a shell finds commands.
    Command(*const c_char),
    Open(c_int),
}

/// Calls `start` with the environment for the program in `file`: `environment`, perhaps without this library.
///
/// # Safety
/// Strings, and an environment or null.
pub(crate) unsafe fn without_us<T>(
    file: File,
    environment: Strings,
    start: impl FnOnce(Strings) -> T,
) -> T {
    // SAFETY: as this function demands.
    match unsafe { Asked::find(environment) } {
        // SAFETY: as this function demands.
        Some(asked) if unsafe { is_unsuited(file) } => {
            // SAFETY: as this function demands.
            unsafe { change(environment, &asked, start) }
        }
        _ => start(environment),
    }
}

/// Where an environment asks for this library.
struct Asked {
    /// How many strings it has.
    count: usize,
    place: usize,
    /// What is asked for, besides.
    others: Line,
}

/// A line of an environment that is made here.
type Line = [u8; 1024];

impl Asked {
    /// # Safety
    /// An environment, or null.
    unsafe fn find(environment: Strings) -> Option<Asked> {
        let own = OWN.get()?.to_bytes();
        if environment.is_null() {
            return None;
        }
        let mut found = None;
        for count in 0.. {
            // SAFETY: it ends with a null pointer, before which there are strings.
            let line = unsafe {
                let line = *environment.add(count);
                if line.is_null() {
                    let (place, others) = found?;
                    return Some(Asked { count, place, others });
                }
                CStr::from_ptr(line)
            };
            if let Some(listed) = line.to_bytes().strip_prefix(PRELOAD) {
                // (The first one counts.)
                found = found.or_else(|| Some((count, without(own, listed)?)));
            }
        }
        None
    }
}

/// The line of an environment that asks for what is `listed` but for `own`; empty if that is nothing, `None` if
/// `own` is not among it.
fn without(own: &[u8], listed: &[u8]) -> Option<Line> {
    let mut line = [0; size_of::<Line>()];
    let mut length = 0;
    let mut has_own = false;
    for path in listed.split(|byte| matches!(byte, b':' | b' ')).filter(|path| !path.is_empty()) {
        if path == own {
            has_own = true;
            continue;
        }
        let before: &[u8] = if length == 0 { PRELOAD } else { b":" };
        for part in [before, path] {
            // (Of one that is too long, the program is given nothing.)
            let room = line.get_mut(length..length + part.len());
            if let Some(room) = room {
                room.copy_from_slice(part);
            }
            length += part.len();
        }
    }
    if length >= line.len() {
        line = [0; size_of::<Line>()];
    }
    has_own.then_some(line)
}

/// Calls `start` with the environment in which a line is another one, or left out.
///
/// # Safety
/// As for [`without_us`].
#[cold]
#[inline(never)]
unsafe fn change<T>(environment: Strings, asked: &Asked, start: impl FnOnce(Strings) -> T) -> T {
    /// Without a mapping, which the parent of a `vfork` would keep.
    const USUAL: usize = 512;
    let mut usual = [ptr::null::<c_char>(); USUAL];
    let mut large = Mapped::new();
    // SAFETY: it has so many strings, and a null pointer.
    let all = unsafe { std::slice::from_raw_parts(environment, asked.count + 1) };
    let changed = if all.len() <= USUAL {
        usual[..all.len()].copy_from_slice(all);
        &mut usual[..all.len()]
    } else if large.extend(all) {
        &mut large[..]
    } else {
        return start(environment);
    };
    if asked.others[0] == 0 {
        changed.copy_within(asked.place + 1.., asked.place);
    } else {
        changed[asked.place] = asked.others.as_ptr().cast();
    }
    start(changed.as_ptr())
}

/// # Safety
/// Names, if any.
unsafe fn is_unsuited(file: File) -> bool {
    let kind = match file {
        // SAFETY: as this function demands.
        File::At(folder, path) => unsafe { at(folder, path, DEPTH) },
        // SAFETY: as this function demands.
        File::Command(name) => unsafe { command(name) },
        File::Open(fd) => of(fd, DEPTH),
    };
    matches!(kind, Kind::OtherLibc | Kind::OtherMachine | Kind::Sanitized)
}

/// How many interpreters of interpreters the kernel starts.
const DEPTH: usize = 4;

/// # Safety
/// A path.
unsafe fn at(folder: c_int, path: *const c_char, depth: usize) -> Kind {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let arguments = [folder as usize, path as usize, flags as usize, 0, 0, 0];
    // SAFETY: as this function demands; the descriptor is this function's.
    unsafe {
        let Ok(fd) = kernel::call(libc::SYS_openat, arguments) else { return Kind::Unknown };
        let kind = of(fd as c_int, depth);
        let _ = kernel::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        kind
    }
}

fn of(fd: c_int, depth: usize) -> Kind {
    let read = |offset: u64, buffer: &mut [u8]| {
        let (place, length) = (buffer.as_mut_ptr() as usize, buffer.len());
        let arguments = [fd as usize, place, length, offset as usize, 0, 0];
        // SAFETY: room for as many bytes.
        unsafe { kernel::call(libc::SYS_pread64, arguments) }.unwrap_or(0)
    };
    let kind = headers::kind(read);
    if kind != Kind::Script || depth == 0 {
        return kind;
    }
    let mut line = [0; headers::START + 1];
    let length = read(0, &mut line[..headers::START]);
    let Some(interpreter) = headers::interpreter(&line[..length]) else { return kind };
    let mut path = [0; headers::START + 1];
    path[..interpreter.len()].copy_from_slice(interpreter);
    // SAFETY: a zero ends the path.
    unsafe { at(libc::AT_FDCWD, path.as_ptr().cast(), depth - 1) }
}

/// What the command of this name is.
///
/// # Safety
/// A name.
unsafe fn command(name: *const c_char) -> Kind {
    // SAFETY: as this function demands.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.contains(&b'/') {
        // SAFETY: as this function demands.
        return unsafe { at(libc::AT_FDCWD, name, DEPTH) };
    }
    let mut path = [0u8; libc::PATH_MAX as usize];
    for folder in folders().split(|byte| *byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let length = folder.len() + 1 + bytes.len();
        if length >= path.len() {
            continue;
        }
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = b'/';
        path[folder.len() + 1..length].copy_from_slice(bytes);
        path[length] = 0;
        let arguments =
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, libc::X_OK as usize, 0, 0, 0];
        // SAFETY: a zero ends the path.
        let kind = unsafe {
            match kernel::call(libc::SYS_faccessat, arguments) {
                Ok(_) => at(libc::AT_FDCWD, path.as_ptr().cast(), DEPTH),
                Err(_) => Kind::Unknown,
            }
        };
        if kind != Kind::Unknown {
            return kind;
        }
    }
    Kind::Unknown
}

/// The calling program's environment.
pub(crate) fn own() -> Strings {
    unsafe extern "C" {
        static environ: Strings;
    }
    // SAFETY: programs do not change it while they start others.
    unsafe { environ }
}

/// Where commands are looked for.
fn folders() -> &'static [u8] {
    let mut line = own();
    // SAFETY: the environment ends with a null pointer, before which there are strings.
    unsafe {
        while !line.is_null() && !(*line).is_null() {
            if let Some(folders) = CStr::from_ptr(*line).to_bytes().strip_prefix(b"PATH=") {
                return folders;
            }
            line = line.add(1);
        }
    }
    b"/bin:/usr/bin"
}
