//! Where threads were that kept their carriers, for `--report`.
//!
//! The runtime's monitor says which carriers it finds kept, and for how long (`tell_of_kept`). One that runs is
//! interrupted, and notes where it is; of one that waits in the kernel, the kernel tells. What a place's
//! function is called is asked at the end. Threads that keep no carrier pay nothing, nor does any without
//! `--report`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use carefree_context::mapped_file::MappedFile;
use carefree_ground::{file, kernel};
use carefree_runtime::hosted;
use libc::siginfo_t;

use crate::elf::{self, Function};
use crate::signal::OURS;

/// Places that can be told apart: a loop has few.
const PLACES: usize = 1024;
/// Places looked at for one that is free or the same.
const STEPS: usize = 16;

struct Place {
    /// 0 while it is free.
    address: AtomicUsize,
    nanos: AtomicU64,
}

static NOTED: [Place; PLACES] =
    [const { Place { address: AtomicUsize::new(0), nanos: AtomicU64::new(0) } }; PLACES];

/// In the child of a fork: none is noted.
pub(crate) fn renew() {
    for place in &NOTED {
        place.address.store(0, Ordering::Relaxed);
        place.nanos.store(0, Ordering::Relaxed);
    }
}

/// Has the places noted from now on.
pub(crate) fn prepare() {
    hosted::tell_of_kept(ask);
}

/// What the kernel is told of a signal that a program queues (`siginfo_t`).
#[repr(C)]
struct Queued {
    signal: c_int,
    errno: c_int,
    code: c_int,
    _aligned: c_int,
    process: libc::pid_t,
    user: libc::uid_t,
    value: u64,
    _rest: [u64; 12],
}
const _: () = assert!(size_of::<Queued>() == size_of::<siginfo_t>());

/// Has the place noted where a thread is that has kept its carrier for so long.
fn ask(thread: i32, nanos: u64) {
    if let Some(place) = sleeps_at(thread) {
        return note(place, nanos);
    }
    let process = std::process::id() as i32;
    let queued = Queued {
        signal: OURS,
        errno: 0,
        code: libc::SI_QUEUE,
        _aligned: 0,
        process,
        user: 0,
        value: nanos,
        _rest: [0; 12],
    };
    let info = (&raw const queued) as usize;
    let arguments = [process as usize, thread as usize, OURS as usize, info, 0, 0];
    // SAFETY: what is told of a signal, of its size.
    let _ = unsafe { kernel::call(libc::SYS_rt_tgsigqueueinfo, arguments) };
}

/// Where a thread waits in the kernel: its program counter. `None` if it runs.
fn sleeps_at(thread: i32) -> Option<usize> {
    let mut path = [0; 48];
    write!(&mut path[..47], "/proc/self/task/{thread}/syscall").ok()?;
    let told = file::read(CStr::from_bytes_until_nul(&path).ok()?)?;
    let told = std::str::from_utf8(&told).ok()?.trim_end();
    // The call's number, its arguments, and two pointers; or "running".
    let (_, place) = told.rsplit_once(' ')?;
    usize::from_str_radix(place.strip_prefix("0x")?, 16).ok()
}

/// Whether a signal asks for the place that it has interrupted: for how long its thread has kept the carrier.
pub(crate) fn asked(info: &siginfo_t) -> Option<u64> {
    // SAFETY: queued signals have a value.
    (info.si_code == libc::SI_QUEUE).then(|| unsafe { info.si_value().sival_ptr } as u64)
}

/// Notes a place. (Within a handler of signals: without a lock, and without memory.)
pub(crate) fn note(address: usize, nanos: u64) {
    let first = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    for step in 0..STEPS {
        let place = &NOTED[(first as usize + step) % PLACES];
        let order = Ordering::Relaxed;
        let known = match place.address.compare_exchange(0, address, order, order) {
            Ok(_) => address,
            Err(known) => known,
        };
        if known == address {
            place.nanos.fetch_add(nanos, order);
            return;
        }
    }
    // All near ones are taken: it is left out.
}

/// A function in which threads kept carriers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site {
    /// `?` if it has no name.
    pub(crate) function: String,
    /// The file name of the program or library that it belongs to; `?` if it is of none, as compiled at run time.
    pub(crate) object: String,
}

/// The functions in which threads kept carriers, and for how many nanoseconds: the longest first.
pub(crate) fn sites() -> Vec<(Site, u64)> {
    let mut sums = BTreeMap::<Site, u64>::new();
    for place in &NOTED {
        let address = place.address.load(Ordering::Relaxed);
        if address != 0 {
            *sums.entry(site(address)).or_default() += place.nanos.load(Ordering::Relaxed);
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(a, first), (b, second)| {
        second.cmp(first).then_with(|| a.function.cmp(&b.function))
    });
    sums
}

fn site(address: usize) -> Site {
    let unknown = || "?".to_owned();
    // SAFETY: zeros are such a structure, which the loader fills in if it knows the address.
    let mut info = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: room for the answer.
    if unsafe { libc::dladdr(address as *const c_void, &raw mut info) } == 0 {
        return Site { function: unknown(), object: unknown() };
    }
    // SAFETY: strings of the loader's, which stay as long as the object; the second may be null.
    let (path, exported) = unsafe {
        let exported = (!info.dli_sname.is_null()).then(|| CStr::from_ptr(info.dli_sname));
        (CStr::from_ptr(info.dli_fname), exported)
    };
    let base = info.dli_fbase as usize;
    let function = named_by_file(path, base, address)
        .or_else(|| exported.map(|name| name.to_string_lossy().into_owned()));
    let path = path.to_string_lossy();
    let object = Path::new(&*path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Site { function: function.unwrap_or_else(unknown), object }
}

/// The name of the function at an address, by the object's own table of symbols.
fn named_by_file(path: &CStr, base: usize, address: usize) -> Option<String> {
    // The program's path may be relative to another folder.
    let own = std::env::current_exe().ok()?;
    let own_name = own.file_name()?.to_string_lossy().into_owned();
    let is_program = Path::new(&*path.to_string_lossy()).file_name()?.to_string_lossy() == own_name;
    let path = if is_program { CString::from(c"/proc/self/exe") } else { path.to_owned() };
    let file = MappedFile::open(&path)?;
    // SAFETY: used here alone, before the file is closed.
    let bytes = unsafe { file.bytes() };
    let place = if elf::is_relocated(bytes) { address.wrapping_sub(base) } else { address };
    let contains = |function: &Function<'_>| {
        place.checked_sub(function.address).is_some_and(|within| within < function.bytes)
    };
    let name = elf::find_function(bytes, contains)
        .map(|function| String::from_utf8_lossy(function.name).into_owned());
    // SAFETY: once, and the bytes are not used any more.
    unsafe { file.close() };
    name
}
