//! Threads that stay the kernel's because the user says so: `carefree run --threads-for`.
//!
//! A name stands for a function, and then for the threads that start with it. A function of a library, or the
//! file name of one, stands for all threads that start in that library. Functions are looked up as the loader
//! does; those of the program that are not exported, in the program's own table of symbols.

use std::ffi::{CStr, CString, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use carefree_context::loader;
use carefree_context::mapped_file::MappedFile;
use carefree_context::object::same_object;
use carefree_ground::text::Text;
use carefree_runtime::wait::without_parking;

use crate::elf::{self, Function, find_function};

const VARIABLE: &str = "CAREFREE_RUN_THREADS_FOR";

static NAMES: OnceLock<Vec<Name>> = OnceLock::new();

/// Threads that stayed the kernel's for this reason.
pub(crate) static KEPT: AtomicU64 = AtomicU64::new(0);

/// In the child of a fork.
pub(crate) fn renew() {
    KEPT.store(0, Ordering::Relaxed);
}

#[derive(Debug)]
struct Name {
    text: CString,
    /// The address of the program's function of this name, without the place where the program is loaded.
    in_program: Option<usize>,
}

/// Reads the names, which are separated by commas. To be called before the program's code runs.
pub(crate) fn prepare() {
    let Some(names) = carefree_settings::text(VARIABLE) else { return };
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names = names.filter_map(|name| {
        let in_program = with_program(|file| {
            let named = |function: &Function<'_>| function.name == name.as_bytes();
            find_function(file, named).map(|function| function.address)
        });
        Some(Name { text: CString::new(name).ok()?, in_program })
    });
    let _ = NAMES.set(names.collect());
}

/// Whether a thread that starts with `function` stays one of the kernel's.
pub(crate) fn is_exempt(function: usize) -> bool {
    let Some(names) = NAMES.get() else { return false };
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        without_parking(|| tell_of_unknown(names));
    }
    let is_meant = names.iter().any(|name| name.means(function));
    if is_meant {
        KEPT.fetch_add(1, Ordering::Relaxed);
    }
    is_meant
}

/// Says which names nothing has. (When the program creates its first thread: most libraries are loaded by then.)
fn tell_of_unknown(names: &[Name]) {
    for Name { text, .. } in names.iter().filter(|name| !name.is_known()) {
        Text::print_line(format_args!(
            "carefree: --threads-for {}: no function of this program or its libraries has this name, and no library \
             that is loaded so far",
            text.to_string_lossy()
        ));
    }
}

impl Name {
    /// Whether a function or a library has this name.
    fn is_known(&self) -> bool {
        // SAFETY: the name is a string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.text.as_ptr()) };
        let is_library = || {
            loader::any_object(|info| {
                // SAFETY: the loader's string; empty for the program.
                !info.dlpi_name.is_null() && self.is_file(unsafe { CStr::from_ptr(info.dlpi_name) })
            })
        };
        self.in_program.is_some() || !found.is_null() || is_library()
    }

    /// Whether it is the file name of the library at `path`, with or without the number of its version.
    fn is_file(&self, path: &CStr) -> bool {
        let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let wanted = self.text.to_bytes();
        let is_library = wanted.windows(3).any(|part| part == b".so");
        is_library
            && name
                .strip_prefix(wanted)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
    }

    fn means(&self, function: usize) -> bool {
        let place = function as *const c_void;
        // SAFETY: the name is a string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.text.as_ptr()) };
        if found.cast_const() == place {
            return true;
        }
        // SAFETY: zeros are such a structure, which the loader fills in if it knows the address.
        let mut info = unsafe { std::mem::zeroed::<libc::Dl_info>() };
        // SAFETY: room for the answer.
        if unsafe { libc::dladdr(place, &raw mut info) } == 0 {
            return false;
        }
        if info.dli_fbase.cast_const() == program() {
            let base = if is_relocated() { info.dli_fbase as usize } else { 0 };
            return self.in_program.is_some_and(|address| base.wrapping_add(address) == function);
        }
        if !found.is_null() && same_object(found, place) {
            return true;
        }
        // SAFETY: the loader's string, which stays as long as the object.
        self.is_file(unsafe { CStr::from_ptr(info.dli_fname) })
    }
}

/// Where the program lies.
fn program() -> *const c_void {
    static PROGRAM: OnceLock<usize> = OnceLock::new();
    *PROGRAM.get_or_init(|| {
        // SAFETY: takes nothing; the answer is where the program's headers lie in memory.
        let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as *const c_void;
        // SAFETY: zeros are such a structure, which the loader fills in if it knows the address.
        unsafe {
            let mut info = std::mem::zeroed::<libc::Dl_info>();
            if libc::dladdr(headers, &raw mut info) == 0 { 0 } else { info.dli_fbase as usize }
        }
    }) as *const c_void
}

/// Whether the program's symbols are relative to where it lies: it may lie anywhere.
fn is_relocated() -> bool {
    static RELOCATED: OnceLock<bool> = OnceLock::new();
    *RELOCATED.get_or_init(|| with_program(|file| Some(elf::is_relocated(file))) == Some(true))
}

/// Calls `f` with the program's file.
fn with_program<T>(f: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let file = MappedFile::open(c"/proc/self/exe")?;
    // SAFETY: `f` alone uses them, before the file is closed.
    let found = f(unsafe { file.bytes() });
    // SAFETY: once, and the bytes are not used any more.
    unsafe { file.close() };
    found
}
