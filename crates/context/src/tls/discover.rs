//! Makes the [`Layout`] of this process from what the pristine thread saw.
//!
//! What a copy of a thread's block must not share with the thread that it was copied from, by field of
//! `struct pthread` (the names are glibc's; which of them exist, and where, differs by version):
//!
//! * `header.tcb`, `header.self`, `specific[0]`, `__resp`, `robust_prev` and all other pointers
//!   into the block: rebased for every copy. Found by value.
//! * `header.dtv`: a vector is allocated for each block.
//! * `list`: linked to itself. libc does not know fibers; see the module `tls` for the consequences.
//! * `tid`: an id that no thread can have.
//! * `stackblock`, `stackblock_size`: the fiber's.
//! * `cleanup_jmp_buf` points into the pristine thread's frames: null.
//! * `rseq_area`: marked as unregistered.
//!
//! And what it must share: `header.stack_guard` and `header.pointer_guard` (the process has one
//! canary for the stack protector and one key with which pointers in `jmp_buf`s are mangled; on
//! aarch64 they are global variables anyway), `header.multiple_threads` (true, as the pristine
//! thread exists beside another one; it makes libc's locks atomic), `user_stack` (so that libc does
//! not unmap the block if it comes to own it, in the child of a `fork`). `feature_1` and
//! `ssp_base`, of shadow stacks, are 0: a Rust program is not marked as supporting shadow stacks,
//! so the loader leaves them off.

use std::ffi::{CStr, c_void};
use std::ops::Range;

use super::glibc::{DTV_FROM_TP, UNALLOCATED, debugger_field};
use super::initial_values::InitialValues;
use super::layout::Layout;
use super::libraries::{Changes, Libraries, Room, are_threads, has_plug_ins};
use super::pristine::{self, BLOCK_MAX, STACK, UNIT};
use super::symbols::{STATIC, symbol};
use crate::loader;
use crate::object;

/// Bytes of a fiber's first page that the runtime's bookkeeping and the fiber's first frames get
/// before the reserve does.
const FIRST_FRAMES: usize = 1280;
/// The least reserve for libraries loaded later; libstdc++ and libgomp fit, and a library with Carefree in it.
/// On aarch64 the loader also places libraries there that do not need it, up to 512 bytes
/// (`rtld.optional_static_tls`).
const RESERVE_MIN: usize = if cfg!(target_arch = "x86_64") { 320 } else { 576 };
/// The same where a program's threads are fibers: with more, a thread that waits for a lock takes a second page. A
/// library with Carefree in it does not fit.
const RESERVE_MIN_OF_THREADS: usize = if cfg!(target_arch = "x86_64") { 256 } else { 576 };

/// What glibc leaves for them by default, rounded up.
const LOADERS_RESERVE: usize = 2048;

/// Starts a pristine thread and evaluates its findings.
pub(super) fn discover() -> Result<Layout, String> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return Err("own thread-local storage is known for Linux with glibc only".into());
    }
    let seen = Changes::now();
    let mut found = pristine::look(true)?;
    if found.strangers {
        return Err("a library in a namespace of its own (LD_AUDIT, dlmopen) has thread-local \
                    storage that cannot be measured"
            .into());
    }
    let libc_storage = found.modules().iter().any(|m| m.id == found.libc);
    if !libc_storage && !STATIC {
        return Err("libc's own thread-local storage was not found".into());
    }
    let align = found.modules().iter().map(|m| m.align).max().unwrap_or(1).max(UNIT);
    if align > 4096 {
        return Err(format!("a library aligns its thread-local storage to {align} bytes"));
    }

    // The reserve lies where the loader will place the next library: below the modules on x86-64,
    // above them on aarch64.
    let reserve = reserve(found.below() + found.above.next_multiple_of(UNIT))?;
    let [tp, above] = if cfg!(target_arch = "x86_64") {
        [found.below + reserve, found.above]
    } else {
        [found.below, found.above + reserve]
    };
    let [tp, above] = [tp, above].map(|bytes| bytes.next_multiple_of(UNIT));
    let size = tp + above;
    let reserve =
        if cfg!(target_arch = "x86_64") { 0..tp - found.below } else { tp + found.above..size };
    let pthread = found.pthread.wrapping_sub(found.tp).wrapping_add(tp);
    let pthread = pthread..pthread + found.pthread_size;

    let field = |name, bits, what: &str| {
        debugger_field(name)
            .filter(|field| field.bits * field.elements >= bits)
            .map(|field| pthread.start + field.offset as usize)
            .filter(|position| position + bits as usize / 8 <= pthread.end)
            .ok_or(format!("libc does not tell where a thread's {what}"))
    };
    let tid = field(c"_thread_db_pthread_tid", 32, "id lies")?;
    let list = field(c"_thread_db_pthread_list", 128, "list entry lies")?;
    let cancel = field(c"_thread_db_pthread_cancelhandling", 32, "cancellation flags lie")?;

    let mut image = vec![0u64; size / 8].into_boxed_slice();
    found.copy_to(&mut image, &(tp - found.below..tp + found.above), tp);

    // The list entry links the threads that libc knows. A fiber's is alone in its list, so
    // unlinking it writes nowhere else. libc's list nodes are two pointers.
    let own_list = (found.tp - tp + list) as u64;
    image[list / 8] = own_list;
    image[list / 8 + 1] = own_list;

    let mut rebase = Vec::new();
    let (mut stack_base, mut stack_length) = (Vec::new(), Vec::new());
    for (index, word) in image.iter_mut().enumerate() {
        let value = *word as usize;
        if let Some(position) = found.position(value, tp) {
            *word = position as u64;
            rebase.push(index as u32);
        } else if value == found.stack.start {
            stack_base.push(index * 8);
        } else if value == STACK {
            stack_length.push(index * 8);
        } else if found.stack.contains(&value) {
            // Into the pristine thread's frames: its way out through pthread_exit.
            *word = 0;
        }
    }
    let ([stack_base], [stack_size]) = (&stack_base[..], &stack_length[..]) else {
        return Err("libc's notes of a thread's stack were not recognised".into());
    };
    let stored_tid = (image[tid / 8] >> (tid % 8 * 8)) as u32;
    if stored_tid != found.tid {
        return Err("libc's note of a thread's id is not where it tells".into());
    }
    rebase.retain(|index| *index as usize * 8 != tp + DTV_FROM_TP);

    if let Some(rseq) = &found.rseq {
        // cpu_id_start 0, cpu_id -1 (not registered), no critical section: the kernel writes to
        // the carrier's area, so a fiber must not read a processor number here. sched_getcpu then asks
        // the kernel, and code with restartable sequences takes its slow path.
        let rseq = tp.wrapping_add_signed(rseq.start)..tp.wrapping_add_signed(rseq.end);
        image[rseq.start / 8..rseq.end / 8].fill(0);
        image[rseq.start / 8] = u64::from(u32::MAX) << 32;
    }

    let anew = found.probes.words().iter().filter_map(|a| found.position(*a, tp));
    let mut anew: Vec<usize> = anew.collect();
    if !anew.contains(&cancel) {
        anew.push(cancel);
    }
    let locate = |address: Option<usize>| address.and_then(|a| found.position(a, tp));
    let vector = found.vector().iter().map(|data| match *data {
        0 | UNALLOCATED => None,
        data => found.position(data, tp),
    });
    let values = InitialValues::gather(&found, size, tp)
        .map_err(|_| "libraries were loaded while a thread was looked at")?;
    // SAFETY: glibc's `void __call_tls_dtors (void)`.
    let call_tls_dtors = unsafe { function(c"__call_tls_dtors") };
    if call_tls_dtors.is_none() && !STATIC {
        return Err("libc does not export what runs thread-local destructors".into());
    }
    let mut free_libcs = None;
    if STATIC {
        // SAFETY: glibc's `void __libc_thread_freeres (void)`.
        free_libcs = unsafe { function(c"__libc_thread_freeres") };
        if free_libcs.is_none() {
            return Err("libc has nothing that frees what it keeps for a thread".into());
        }
    }
    // Libraries that were just being loaded are examined again at the next refresh.
    let seen = if found.unsettled { Changes::NONE } else { seen };
    let room = Room { size, tp, reserve: reserve.len() };
    let written =
        (0..).zip(&image).filter(|(_, word)| **word != 0).map(|(index, _)| index).collect();
    Ok(Layout {
        size,
        align,
        tp,
        reserve,
        image,
        written,
        rebase: rebase.into_boxed_slice(),
        pthread,
        libc: found.libc_place(tp),
        tid,
        stack_base: *stack_base,
        stack_size: *stack_size,
        anew: anew.into(),
        mallocs: if fibers_have_malloc_of_their_own() {
            Box::default()
        } else {
            found.probes.mallocs().iter().filter_map(|a| found.position(*a, tp)).collect()
        },
        libc_object: place_of(found.libc),
        dlerror: locate(found.probes.dlerror),
        robust: locate(found.probes.robust),
        vector: vector.collect(),
        generation: found.generation,
        libraries: Libraries::new(values, seen, room),
        keys: found.probes.keys.take().ok_or("libc's table of pthread keys was not looked for")?,
        call_tls_dtors,
        free_libcs,
    })
}

/// A function of libc's, if it exists.
///
/// # Safety
/// The function takes and returns nothing.
unsafe fn function(name: &CStr) -> Option<unsafe extern "C" fn()> {
    // SAFETY: the symbol is a function of this type; a null pointer is None.
    unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn()>>(symbol(name)) }
}

/// Where the object with thread-local variables of this number lies in memory, from its first segment to its
/// last.
fn place_of(module: usize) -> Range<usize> {
    let mut place = 0..0;
    loader::any_object(|info| {
        if info.dlpi_tls_modid != module || info.dlpi_phdr.is_null() {
            return false;
        }
        // SAFETY: the loader's description of the program headers, which stay during the visit.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let base = info.dlpi_addr as usize;
        let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let spans = segments.map(|header| {
            let start = base + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        });
        place = spans
            .reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))
            .unwrap_or(0..0);
        true
    });
    place
}

/// Whether each fiber is to have malloc's cache and arena for itself, as a thread has.
fn fibers_have_malloc_of_their_own() -> bool {
    carefree_settings::setting("CAREFREE_MALLOC").is_some_and(|text| text == "own")
}

/// Bytes that the loader has left for libraries loaded later: more than these it gives to none.
fn loaders_reserve(used: usize) -> usize {
    type StaticInfo = unsafe extern "C" fn(*mut usize, *mut usize);
    // SAFETY: glibc's function for its own parts and for sanitizers has this type; a null pointer is None.
    let static_info = unsafe {
        std::mem::transmute::<*mut c_void, Option<StaticInfo>>(symbol(c"_dl_get_tls_static_info"))
    };
    let Some(static_info) = static_info else { return LOADERS_RESERVE };
    let (mut size, mut align) = (0, 0);
    // SAFETY: it writes the size of all threads' static storage, control block included, and its alignment.
    unsafe { static_info(&raw mut size, &raw mut align) };
    size.saturating_sub(used).min(BLOCK_MAX)
}

/// Bytes to keep free for libraries loaded later.
fn reserve(used: usize) -> Result<usize, String> {
    let bytes =
        match carefree_settings::setting("CAREFREE_TLS_RESERVE").filter(|text| !text.is_empty()) {
            None => {
                // The rest of the first page, but never less than common libraries need.
                let least = if are_threads() { RESERVE_MIN_OF_THREADS } else { RESERVE_MIN };
                let rest = 4096_usize.saturating_sub(used + FIRST_FRAMES).max(least);
                // A host's later libraries must not end it, nor one of many plug-ins a program.
                let more_will_come = object::own().is_behind_libc() || has_plug_ins();
                if more_will_come { rest.max(loaders_reserve(used)) } else { rest }
            }
            Some(text) => text
                .to_str()
                .and_then(|text| text.parse::<usize>().ok())
                .filter(|bytes| *bytes <= BLOCK_MAX)
                .ok_or(format!(
                    "CAREFREE_TLS_RESERVE={} is not a number of bytes up to {BLOCK_MAX}",
                    text.to_string_lossy()
                ))?,
        };
    Ok(bytes)
}
