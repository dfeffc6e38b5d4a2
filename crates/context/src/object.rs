//! The object of the process that this copy of Carefree is a part of: the program itself, or a library.
//!
//! In a program, and in a library that the loader puts before libc (`LD_PRELOAD`, or one that a program is
//! linked with), functions of libc's names that Carefree defines win over libc's in the whole process. In a
//! library that a program loads later (an extension of Python's or Ruby's, a plugin) they do not: all others,
//! and the library's own calls too, would find libc's first. So Carefree's functions are *protected* symbols
//! (`.protected` beside each definition): what the linker puts into one object with them calls them directly,
//! wherever that object is in the loader's order, and all other objects find what they would find without.
//!
//! A loader-like pass over the object's own table of addresses (`DT_JMPREL`, `DT_RELA`) would do the same
//! at run time, and was rejected: the table is read-only by then where a library is linked with `-z relro`
//! `-z now`, calls made by constructors that run earlier would be missed, and a library whose symbols a
//! linker script makes local has no entries to find. Protected symbols cost nothing at run time, and none
//! of this matters to them. Hidden ones would do the same for a library, but a program's have to be seen by
//! the C libraries that it loads.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use carefree_ground::host::SystemCall;

use crate::loader;

/// One object, as the loader has it.
#[derive(Debug)]
pub struct Object {
    /// Whether the rest is set.
    known: AtomicBool,
    /// The lowest address of its segments, and the end of the highest.
    start: AtomicUsize,
    end: AtomicUsize,
    /// By which name it was loaded: the loader's string, which stays as long as the object.
    name: AtomicPtr<c_char>,
    /// Whether it is a library, and not the program.
    library: AtomicBool,
    /// Whether libc comes before it in the loader's list, so that others find libc's functions first.
    behind_libc: AtomicBool,
}

/// The object that contains this code. The first call asks the loader, without allocating: an allocator may be
/// the first to call a function of libc's name, and leads here then.
pub fn own() -> &'static Object {
    static OWN: Object = Object {
        known: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        name: AtomicPtr::new(ptr::null_mut()),
        library: AtomicBool::new(false),
        behind_libc: AtomicBool::new(false),
    };
    if !OWN.known.load(Ordering::Acquire) {
        // Another thread that does this at the same time finds the same.
        OWN.find(own as *const () as usize);
        OWN.known.store(true, Ordering::Release);
    }
    &OWN
}

impl Object {
    /// Notes what the loader says of the object that contains `here`. (It may show none to a static program.)
    fn find(&self, here: usize) {
        let libc = libc::__errno_location as *const () as usize;
        let (mut library, mut behind_libc) = (false, false);
        loader::any_object(|info| {
            let Some((start, end)) = extent(info) else { return false };
            let found = (start..end).contains(&here);
            if found {
                self.start.store(start, Ordering::Relaxed);
                self.end.store(end, Ordering::Relaxed);
                self.name.store(info.dlpi_name.cast_mut(), Ordering::Relaxed);
                self.library.store(library, Ordering::Relaxed);
                self.behind_libc.store(behind_libc, Ordering::Relaxed);
            }
            // The loader shows the program first.
            library = true;
            behind_libc |= (start..end).contains(&libc);
            found
        });
    }

    /// Whether it is the program, and not a library.
    pub fn is_program(&self) -> bool {
        !self.library.load(Ordering::Relaxed)
    }

    /// Whether the program and its other libraries find libc's functions before those of this object.
    pub fn is_behind_libc(&self) -> bool {
        self.behind_libc.load(Ordering::Relaxed)
    }

    /// Whether `address` lies in it.
    pub fn contains(&self, address: *const c_void) -> bool {
        let segments = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        segments.contains(&(address as usize))
    }

    /// By which name it was loaded. For the program, that may be empty.
    pub fn name(&self) -> &'static CStr {
        let name = self.name.load(Ordering::Relaxed);
        // SAFETY: the loader's string, which stays as long as the object is loaded, and so as long as code in it
        // can ask.
        if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } }
    }

    /// Keeps it loaded until the process ends, even after `dlclose`: carriers run its code.
    pub(crate) fn stay(&self) {
        #[cfg(not(target_feature = "crt-static"))]
        if !self.is_program() {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            // SAFETY: a string; nothing is loaded. The handle is one more reason to stay, and is kept.
            unsafe { libc::dlopen(self.name().as_ptr(), flags) };
        }
    }
}

/// The lowest address of an object's segments, and the end of the highest.
fn extent(info: &libc::dl_phdr_info) -> Option<(usize, usize)> {
    if info.dlpi_phdr.is_null() {
        return None;
    }
    // SAFETY: the loader's description of the program headers, which stay during the visit.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = loaded.clone().map(|header| header.p_vaddr as usize).min()?;
    let end = loaded.map(|header| header.p_vaddr as usize + header.p_memsz as usize).max()?;
    let base = info.dlpi_addr as usize;
    Some((base.wrapping_add(start), base.wrapping_add(end)))
}

/// What a call of `name` would reach without this copy of Carefree; null if there is no such function.
///
/// In a program, or before libc, that is the next one of that name: other libraries of `LD_PRELOAD` stay in the
/// chain. Behind libc it is the first one, which the object's calls would find if Carefree's were not there:
/// libc's, or that of a library put before it, or another Carefree's in the program.
#[cfg(not(target_feature = "crt-static"))]
pub fn next(name: &CStr, version: Option<&CStr>) -> *mut c_void {
    // SAFETY: strings; the loader answers with an address or null.
    let look_up = |place: *mut c_void, version: Option<&CStr>| unsafe {
        match version {
            Some(version) => libc::dlvsym(place, name.as_ptr(), version.as_ptr()),
            None => libc::dlsym(place, name.as_ptr()),
        }
    };
    let own = own();
    let mut place = libc::RTLD_NEXT;
    let mut first = ptr::null_mut();
    if own.is_behind_libc() {
        place = libc::RTLD_DEFAULT;
        first = look_up(place, None);
    }
    if first.is_null() || own.contains(first) {
        place = libc::RTLD_NEXT;
        first = look_up(place, None);
    }
    // Where libc has several, that one; but not if another library's comes before libc's.
    let Some(version) = version else { return first };
    let of_version = look_up(place, Some(version));
    let is_passed_over = !first.is_null() && !same_object(of_version, first);
    if of_version.is_null() || is_passed_over { first } else { of_version }
}

/// `syscall` of the copy of Carefree that makes the process's threads fibers, if it is another one than this:
/// under `carefree run`.
pub fn host() -> Option<SystemCall> {
    #[cfg(not(target_feature = "crt-static"))]
    {
        // SAFETY: looks a string up.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"carefree_run_hosts".as_ptr()) };
        if found.is_null() || own().contains(found) {
            return None;
        }
        // SAFETY: `preload` defines it with this type.
        let hosts = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> bool>(found) };
        // SAFETY: libc's function, and what stands in for it, have this type; a null pointer is None.
        let call = unsafe {
            std::mem::transmute::<*mut c_void, Option<SystemCall>>(next(c"syscall", None))
        };
        call.filter(|_| hosts())
    }
    #[cfg(target_feature = "crt-static")]
    None
}

/// Whether two addresses lie in one object.
#[cfg(not(target_feature = "crt-static"))]
pub fn same_object(one: *const c_void, other: *const c_void) -> bool {
    if one == other {
        // `dladdr` goes through all symbols of the object, which the start of each program would pay for.
        return !one.is_null();
    }
    let base = |address| {
        // SAFETY: zeros are such a structure, which the loader fills in if it knows the address.
        unsafe {
            let mut info = std::mem::zeroed::<libc::Dl_info>();
            (libc::dladdr(address, &raw mut info) != 0).then_some(info.dli_fbase)
        }
    };
    base(one).is_some_and(|one| base(other) == Some(one))
}
