//! Loading libraries: `dlopen`, `dlmopen`, `dlclose`.
//!
//! libc gives the thread-local variables of a library their initial values for all threads that it
//! knows, and does not know fibers: see [`tls::loading`], in which libc's function is called here.
//!
//! # On a fiber
//!
//! A thread of the pool makes the call. It is a thread that libc knows, so a library's constructors find
//! initial values, before fibers do; and it may wait: for the disk, and in constructors, which libc
//! runs under a lock. A fiber that parked in a constructor would leave that lock locked, and its carrier
//! would wait for it in the next fiber that calls `dlsym`. What constructors leave in thread-local
//! variables, and `pthread_self()` if they remember it, is that thread's, as where a program has a
//! thread load its plug-ins.
//!
//! A call that fails there is made again by the fiber, so that `dlerror` has something to tell.
//!
//! # Who calls
//!
//! libc looks for a library that is named without a path where the *calling* library's `RUNPATH` says,
//! and replaces `$ORIGIN` by the directory of the caller. It tells the caller by the return address. It
//! would take the caller to be this crate, so the address is passed on by an entry in assembly, and
//! what depends on it is done here, by what libc tells of the caller (`dlinfo`).

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use carefree_context::tls;
use carefree_runtime::offload_unchecked as offload;
use carefree_runtime::wait::without_parking;

use crate::fiber;
use crate::original::Original;

type Dlopen = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;
type Dlmopen = unsafe extern "C-unwind" fn(c_long, *const c_char, c_int) -> *mut c_void;

// SAFETY: the type that the manual page has.
static DLOPEN: Original<Dlopen> = unsafe { Original::new(c"dlopen", None, None) };
// SAFETY: as above.
static DLMOPEN: Original<Dlmopen> = unsafe { Original::new(c"dlmopen", None, None) };

/// Looks the originals up when the program starts.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    unsafe extern "C" {
        /// Our `dlopen`: naming it has the linker take it.
        fn carefree_dlopen();
    }
    extern "C" fn at_start() {
        std::hint::black_box(carefree_dlopen as unsafe extern "C" fn());
        DLOPEN.resolve();
        DLMOPEN.resolve();
    }
    at_start
};

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.carefree_dlopen,\"ax\",@progbits",
    ".globl dlopen, carefree_dlopen, dlmopen",
    ".hidden carefree_dlopen",
    ".type dlopen,@function",
    ".type dlmopen,@function",
    "dlopen:",
    "carefree_dlopen:",
    "mov rdx, [rsp]",
    "jmp {open}",
    ".size dlopen, .-dlopen",
    "dlmopen:",
    "mov rcx, [rsp]",
    "jmp {open_in}",
    ".size dlmopen, .-dlmopen",
    ".popsection",
    open = sym open_from,
    open_in = sym open_in_from,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.carefree_dlopen,\"ax\",@progbits",
    ".globl dlopen, carefree_dlopen, dlmopen",
    ".hidden carefree_dlopen",
    ".type dlopen,@function",
    ".type dlmopen,@function",
    "dlopen:",
    "carefree_dlopen:",
    "mov x2, x30",
    "b {open}",
    ".size dlopen, .-dlopen",
    "dlmopen:",
    "mov x3, x30",
    "b {open_in}",
    ".size dlmopen, .-dlmopen",
    ".popsection",
    open = sym open_from,
    open_in = sym open_in_from,
);

/// `dlopen(3)`, called from `caller`.
unsafe extern "C-unwind" fn open_from(
    file: *const c_char,
    mode: c_int,
    caller: *const c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        open(file, mode, || by_caller(file, mode, caller, |file, mode| DLOPEN.get()(file, mode)))
    }
}

/// `dlmopen(3)`, called from `caller`.
unsafe extern "C-unwind" fn open_in_from(
    namespace: c_long,
    file: *const c_char,
    mode: c_int,
    caller: *const c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        open(file, mode, || {
            by_caller(file, mode, caller, |file, mode| DLMOPEN.get()(namespace, file, mode))
        })
    }
}

/// Calls `load`, which is `dlopen` of `file`.
///
/// # Safety
/// As for `dlopen`.
unsafe fn open(file: *const c_char, mode: c_int, load: impl Fn() -> *mut c_void) -> *mut c_void {
    if file.is_null() || mode & libc::RTLD_NOLOAD != 0 {
        // Nothing is loaded.
        return load();
    }
    if !fiber::on_fiber() {
        return tls::loading(load);
    }
    // SAFETY: the caller's promise, who waits.
    let loaded = unsafe { offload(|| without_parking(|| tls::loading(&load))) };
    without_parking(|| {
        if loaded.is_null() {
            return tls::loading(&load);
        }
        // As after a call of the fiber's own, an earlier one's error is forgotten.
        // SAFETY: no preconditions.
        unsafe { libc::dlerror() };
        loaded
    })
}

interpose! {
    anywhere
    /// `dlclose(3)`.
    fn dlclose(library: *mut c_void) -> c_int {
        // SAFETY: the caller's promise, who waits.
        unsafe {
            if !fiber::on_fiber() {
                return tls::unloading(|| original(library));
            }
            // Destructors may wait as constructors may.
            match offload(|| without_parking(|| tls::unloading(|| original(library)))) {
                0 => 0,
                // What is no library's handle is none now: for `dlerror`.
                _ => without_parking(|| original(library)),
            }
        }
    }
}

/// Bytes of a path, with the NUL.
const PATH: usize = libc::PATH_MAX as usize;

/// Calls `load` with the path at which libc would look for `file` if `caller` called it.
///
/// # Safety
/// `file` is a string.
unsafe fn by_caller(
    file: *const c_char,
    mode: c_int,
    caller: *const c_void,
    load: impl Fn(*const c_char, c_int) -> *mut c_void,
) -> *mut c_void {
    if file.is_null() {
        return load(file, mode);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(file) }.to_bytes();
    let origin = [&b"$ORIGIN"[..], b"${ORIGIN}"].into_iter().find(|text| name.starts_with(text));
    if origin.is_none() && name.contains(&b'/') || name.is_empty() {
        return load(file, mode);
    }
    let theirs = object_at(caller);
    let ours = object_at(open_from as *const c_void);
    if theirs.is_null() || theirs == ours {
        return load(file, mode);
    }
    let mut path = [0; PATH];
    match origin {
        Some(origin) => {
            // SAFETY: an object; it was loaded by a path that fits.
            let told = unsafe { dlinfo(theirs, RTLD_DI_ORIGIN, path.as_mut_ptr().cast()) };
            let length = path.iter().position(|byte| *byte == 0).unwrap_or(PATH);
            let rest = &name[origin.len()..];
            if told != 0 || !append(&mut path, length, rest) {
                return load(file, mode);
            }
            load(path.as_ptr().cast(), mode)
        }
        None => {
            // One that is there already is found by its name.
            let there = load(file, mode | libc::RTLD_NOLOAD);
            if !there.is_null() || mode & libc::RTLD_NOLOAD != 0 {
                return there;
            }
            let file =
                if find(theirs, ours, name, &mut path) { path.as_ptr().cast() } else { file };
            load(file, mode)
        }
    }
}

/// Looks for `name` in the directories in which libc would look for the object `theirs` and not for
/// `ours`, and leaves the path in `path`.
fn find(theirs: *mut c_void, ours: *mut c_void, name: &[u8], path: &mut [u8; PATH]) -> bool {
    let searched = directories(ours);
    directories(theirs).iter().any(|directory| {
        path[..directory.len().min(PATH)].copy_from_slice(&directory[..directory.len().min(PATH)]);
        !searched.contains(directory)
            && append(path, directory.len(), b"/")
            && append(path, directory.len() + 1, name)
            // SAFETY: a string.
            && unsafe { libc::access(path.as_ptr().cast(), libc::R_OK) } == 0
    })
}

/// Puts `more` behind the first `length` bytes of `path`, and a NUL; false if it does not fit.
fn append(path: &mut [u8; PATH], length: usize, more: &[u8]) -> bool {
    let end = length + more.len();
    if end >= PATH {
        return false;
    }
    path[length..end].copy_from_slice(more);
    path[end] = 0;
    true
}

const RTLD_DL_LINKMAP: c_int = 2;
const RTLD_DI_SERINFO: c_int = 4;
const RTLD_DI_SERINFOSIZE: c_int = 5;
const RTLD_DI_ORIGIN: c_int = 6;

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        more: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
    fn dlinfo(object: *mut c_void, request: c_int, answer: *mut c_void) -> c_int;
}

/// The loader's handle of the object that `address` lies in, or null.
fn object_at(address: *const c_void) -> *mut c_void {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let mut object = ptr::null_mut();
    // SAFETY: two places to write to.
    match unsafe { dladdr1(address, info.as_mut_ptr(), &raw mut object, RTLD_DL_LINKMAP) } {
        0 => ptr::null_mut(),
        _ => object,
    }
}

/// The beginning of `Dl_serinfo`; then come the directories.
#[repr(C)]
#[derive(Clone, Copy)]
struct SearchInfo {
    size: usize,
    count: c_uint,
}

/// `Dl_serpath`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SearchPath {
    name: *const c_char,
    flags: c_uint,
}

/// Where libc looks for libraries that `object` names.
fn directories(object: *mut c_void) -> Vec<Vec<u8>> {
    let mut head = SearchInfo { size: 0, count: 0 };
    // SAFETY: an object that calls, or this one; a place to write the size to.
    if unsafe { dlinfo(object, RTLD_DI_SERINFOSIZE, (&raw mut head).cast()) } != 0 {
        return Vec::new();
    }
    // Words, for the alignment of pointers.
    let mut memory = vec![0_usize; head.size.div_ceil(size_of::<usize>()).max(2)];
    let info = memory.as_mut_ptr();
    // SAFETY: as much memory as it asks for, which begins with what it has said; it adds an array of
    // `count` directories whose names are strings in that memory.
    unsafe {
        info.cast::<SearchInfo>().write(head);
        if dlinfo(object, RTLD_DI_SERINFO, info.cast()) != 0 {
            return Vec::new();
        }
        let paths = info.byte_add(size_of::<SearchInfo>()).cast::<SearchPath>();
        let paths = std::slice::from_raw_parts(paths, head.count as usize);
        paths.iter().map(|path| CStr::from_ptr(path.name).to_bytes().to_vec()).collect()
    }
}
