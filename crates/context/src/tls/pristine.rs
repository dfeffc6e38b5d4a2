//! Looks at a thread that has run nothing yet, and makes of it the [`Layout`] of this process.
//!
//! The thread runs on memory of ours, so that its stack's address and length, which libc writes
//! into `struct pthread`, are known and can be recognised. Until the snapshot is taken it must not
//! allocate (malloc would leave its thread cache in the snapshot), touch a `thread_local`, or
//! panic; everything it needs is allocated before.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;

use super::attributes::pthread_attr_setstack;
use super::destructors::KeyTable;
use super::layout::{DTV_FROM_TP, Layout, Module, debugger_offset, symbol};
use crate::arch;

/// Modules with thread-local storage a process may have at the start. glibc has no limit; the
/// busiest programs have some dozens.
const MODULES: usize = 256;
/// Bytes of a block at most, snapshot buffer and page-sized stacks being bounded by it.
const BLOCK_MAX: usize = 64 * 1024;
/// The pristine thread's stack: an unusual number, so that it is recognised in `struct pthread`.
const STACK: usize = 0x4_3000;
/// What the first frames of a fiber are given of its first page before the reserve is.
const FIRST_FRAMES: usize = 1024;
/// The least reserve for libraries loaded later; libstdc++ and libgomp fit.
const RESERVE_MIN: usize = 256;

/// What the pristine thread found out; filled by it without allocating.
struct Findings {
    pthread_size: usize,
    tp: usize,
    pthread: usize,
    tid: u32,
    errno: usize,
    modules: [Module; MODULES],
    count: usize,
    /// libc's writable segments.
    writable: [Range<usize>; 4],
    segments: usize,
    before: usize,
    after: usize,
    dtv_generation: usize,
    snapshot: Box<[u64]>,
    keys: Option<KeyTable>,
    failure: Option<&'static str>,
}

/// Starts the pristine thread, waits for it and evaluates what it saw.
pub(super) fn discover() -> Result<Layout, String> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return Err("own thread-local storage is known for Linux with glibc only".into());
    }
    let size_of_pthread = symbol(c"_thread_db_sizeof_pthread").cast::<u32>();
    if size_of_pthread.is_null() {
        return Err("libc does not tell the size of its thread control block".into());
    }
    let mut findings = Box::new(Findings {
        // SAFETY: glibc exports it as a 32-bit number.
        pthread_size: unsafe { size_of_pthread.read() } as usize,
        tp: 0,
        pthread: 0,
        tid: 0,
        errno: 0,
        modules: [Module::default(); MODULES],
        count: 0,
        writable: [const { 0..0 }; 4],
        segments: 0,
        before: 0,
        after: 0,
        dtv_generation: 0,
        snapshot: vec![0; BLOCK_MAX / 8].into_boxed_slice(),
        keys: None,
        failure: None,
    });
    let stack = run_on_own_stack(&mut findings)?;
    if let Some(failure) = findings.failure {
        return Err(failure.into());
    }
    evaluate(findings, stack)
}

/// Runs [`look`] on a new thread whose stack is the returned range (no longer mapped by then).
fn run_on_own_stack(findings: &mut Findings) -> Result<Range<usize>, String> {
    let fail =
        |what: &str, code: c_int| format!("{what}: {}", std::io::Error::from_raw_os_error(code));
    // SAFETY: a new private mapping.
    let map = unsafe {
        libc::mmap(
            ptr::null_mut(),
            STACK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(format!("no memory to look at a thread: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: attributes are initialised before use and destroyed after; the mapping outlives the
    // thread, which is joined before it is unmapped, and `findings` outlives the join as well.
    let code = unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        let mut thread = 0;
        libc::pthread_attr_init(&mut attributes);
        let mut code = pthread_attr_setstack(&mut attributes, map, STACK);
        if code == 0 {
            let argument = ptr::from_mut(findings).cast();
            code = libc::pthread_create(&mut thread, &attributes, look, argument);
        }
        if code == 0 {
            code = libc::pthread_join(thread, ptr::null_mut());
        }
        libc::pthread_attr_destroy(&mut attributes);
        libc::munmap(map, STACK);
        code
    };
    if code != 0 {
        return Err(fail("no thread could be started to look at", code));
    }
    Ok(map as usize..map as usize + STACK)
}

/// The pristine thread's body.
extern "C" fn look(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the creator passes its Findings and waits for this thread.
    let found = unsafe { &mut *argument.cast::<Findings>() };
    found.tp = arch::thread_pointer() as usize;
    // SAFETY: no preconditions.
    found.pthread = unsafe { libc::pthread_self() } as usize;
    // SAFETY: no preconditions. The raw call, since a later part of Carefree may interpose ours.
    found.tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    // SAFETY: no preconditions.
    found.errno = unsafe { libc::__errno_location() } as usize;
    // SAFETY: the callback gets `found` back and does not allocate.
    unsafe { libc::dl_iterate_phdr(Some(visit_object), ptr::from_mut(found).cast()) };
    // The block reaches from the lowest to the highest of: modules, control block, rseq area.
    let tp = found.tp as isize;
    let control = found.pthread as isize - tp;
    let mut low = control.min(0);
    let mut high = (control + found.pthread_size as isize).max(2 * size_of::<usize>() as isize);
    for module in &found.modules[..found.count] {
        low = low.min(module.from_tp);
        high = high.max(module.from_tp + module.size as isize);
    }
    if let Some(rseq) = rseq_from_tp() {
        low = low.min(rseq);
        high = high.max(rseq + 32);
    }
    found.before = (low.unsigned_abs()).next_multiple_of(64);
    found.after = (high as usize).next_multiple_of(64);
    let size = found.before + found.after;
    if size > BLOCK_MAX {
        found.failure = Some("the thread-local storage of this program's libraries is too large");
        return ptr::null_mut();
    }
    // On the side where libc ends (above the control block on x86-64, the last module on aarch64)
    // the rounding may reach past the mapping; what lies there is not part of the block.
    let exact = found.before + high as usize;
    // SAFETY: this thread's own block, readable from `low` to `high`; below `low` is its stack.
    unsafe {
        ptr::copy_nonoverlapping(
            (found.tp - found.before) as *const u8,
            found.snapshot.as_mut_ptr().cast(),
            exact,
        );
        let dtv = ((found.tp + DTV_FROM_TP) as *const *const usize).read();
        found.dtv_generation = dtv.read();
    }
    // From here on this thread may allocate and change its storage: the snapshot is taken.
    match KeyTable::find(
        &found.writable[..found.segments],
        found.pthread as *const u8,
        found.pthread_size,
    ) {
        Ok(keys) => found.keys = Some(keys),
        Err(failure) => found.failure = Some(failure),
    }
    ptr::null_mut()
}

/// Notes the object's static thread-local storage and, if it is libc, its writable segments.
unsafe extern "C" fn visit_object(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: `look` passes its Findings, the loader passes a valid description.
    let (found, info) = unsafe { (&mut *argument.cast::<Findings>(), &*info) };
    // SAFETY: as the loader describes it.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let mut is_libc = false;
    for header in headers.iter().filter(|h| h.p_type == libc::PT_TLS) {
        // A module without storage on this thread yet gets it from the loader when first used.
        if info.dlpi_tls_data.is_null() {
            continue;
        }
        if found.count == MODULES {
            found.failure = Some("too many libraries with thread-local storage");
            return 1;
        }
        let data = info.dlpi_tls_data as usize;
        let size = header.p_memsz as usize;
        found.modules[found.count] = Module {
            id: info.dlpi_tls_modid,
            from_tp: data.wrapping_sub(found.tp) as isize,
            size,
            align: (header.p_align as usize).max(1),
        };
        found.count += 1;
        is_libc |= (data..data + size).contains(&found.errno);
    }
    if is_libc {
        let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        for header in loads.filter(|h| h.p_flags & libc::PF_W != 0) {
            if found.segments < found.writable.len() {
                let start = (info.dlpi_addr + header.p_vaddr) as usize;
                found.writable[found.segments] = start..start + header.p_memsz as usize;
                found.segments += 1;
            }
        }
    }
    0
}

/// Where libc registered its restartable-sequences area, relative to the thread pointer.
fn rseq_from_tp() -> Option<isize> {
    let offset = symbol(c"__rseq_offset").cast::<isize>();
    let size = symbol(c"__rseq_size").cast::<u32>();
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: glibc exports both as constants of these types; the size is 0 when unregistered.
    unsafe { (size.read() != 0).then(|| offset.read()) }
}

fn evaluate(found: Box<Findings>, stack: Range<usize>) -> Result<Layout, String> {
    let modules = &found.modules[..found.count];
    let libc_module = modules
        .iter()
        .find(|m| {
            let start = found.tp.wrapping_add_signed(m.from_tp);
            (start..start + m.size).contains(&found.errno)
        })
        .ok_or("libc's own thread-local storage was not found")?;
    let align = modules.iter().map(|m| m.align).max().unwrap_or(1).max(64);
    if align > 4096 {
        return Err(format!("a library aligns its thread-local storage to {align} bytes"));
    }

    // The reserve lies where the loader will put the next library: below the modules on x86-64,
    // above them on aarch64.
    let used = found.before + found.after;
    let reserve = reserve(used)?;
    let low_reserve = if cfg!(target_arch = "x86_64") { reserve } else { 0 };
    let size = used + reserve;
    let tp = low_reserve + found.before;
    let reserve = if low_reserve > 0 { 0..reserve } else { used..size };
    let position = |address: usize| address.wrapping_sub(found.tp).wrapping_add(tp);
    let pthread = position(found.pthread);

    let field = |name, what: &str| {
        debugger_offset(name)
            .filter(|offset| *offset + 8 <= found.pthread_size)
            .map(|offset| pthread + offset)
            .ok_or(format!("libc does not tell where a thread's {what} lies"))
    };
    let tid = field(c"_thread_db_pthread_tid", "id")?;
    let list = field(c"_thread_db_pthread_list", "list entry")?;
    let cancel_flags = field(c"_thread_db_pthread_cancelhandling", "cancellation flags").ok();

    let mut image = vec![0u64; size / 8].into_boxed_slice();
    image[low_reserve / 8..][..used / 8].copy_from_slice(&found.snapshot[..used / 8]);

    // The list entry links threads libc knows; a fiber's is alone in its list, so that nobody who
    // unlinks it writes anywhere else. libc's list nodes are two pointers.
    let own_list = (found.pthread + list - pthread) as u64;
    image[list / 8] = own_list;
    image[list / 8 + 1] = own_list;

    let block = found.tp - found.before..found.tp + found.after;
    let mut rebase = Vec::new();
    let (mut stack_base, mut stack_size) = (Vec::new(), Vec::new());
    for (index, word) in image.iter_mut().enumerate() {
        let value = *word as usize;
        if block.contains(&value) {
            *word = position(value) as u64;
            rebase.push(index as u32);
        } else if value == stack.start {
            stack_base.push(index * 8);
        } else if value == STACK {
            stack_size.push(index * 8);
        } else if stack.contains(&value) {
            // Into the pristine thread's frames: its way out through pthread_exit.
            *word = 0;
        }
    }
    let ([stack_base], [stack_size]) = (&stack_base[..], &stack_size[..]) else {
        return Err("libc's notes of a thread's stack were not recognised".into());
    };
    let stored_tid = (image[tid / 8] >> (tid % 8 * 8)) as u32;
    if stored_tid != found.tid {
        return Err("libc's note of a thread's id is not where it tells".into());
    }
    let dtv = tp + DTV_FROM_TP;
    rebase.retain(|index| *index as usize * 8 != dtv);

    let rseq = rseq_from_tp().map(|from_tp| tp.wrapping_add_signed(from_tp));
    if let Some(rseq) = rseq {
        // cpu_id_start 0, cpu_id -1 (not registered), no critical section: the kernel writes to
        // the carrier's area, so a fiber must not read a processor number here.
        image[rseq / 8] = u64::from(u32::MAX) << 32;
        image[rseq / 8 + 1..][..3].fill(0);
    }

    let mut reset: Vec<Range<usize>> = Vec::new();
    let mut others: Vec<&Module> = modules.iter().filter(|m| m.id != libc_module.id).collect();
    others.sort_by_key(|m| m.from_tp);
    for module in others {
        let start = tp.wrapping_add_signed(module.from_tp);
        match reset.last_mut() {
            // Only padding lies between two neighbours that are this near.
            Some(last)
                if start - last.end < 64
                    && !(last.end..start)
                        .contains(&tp.wrapping_add_signed(libc_module.from_tp)) =>
            {
                last.end = start + module.size;
            }
            _ => reset.push(start..start + module.size),
        }
    }
    let in_reset = |index: &u32| reset.iter().any(|r| r.contains(&(*index as usize * 8)));
    let rebase_in_reset = rebase.iter().copied().filter(in_reset).collect();
    let call_tls_dtors = symbol(c"__call_tls_dtors");
    if call_tls_dtors.is_null() {
        return Err("libc does not export what runs thread-local destructors".into());
    }
    Ok(Layout {
        size,
        align,
        tp,
        reserve,
        image,
        rebase: rebase.into_boxed_slice(),
        pthread,
        tid,
        cancel_flags,
        stack_base: *stack_base,
        stack_size: *stack_size,
        modules: modules.into(),
        reset: reset.into_boxed_slice(),
        rebase_in_reset,
        generation: found.dtv_generation,
        keys: found.keys.ok_or("libc's table of pthread keys was not looked for")?,
        // SAFETY: glibc's `void __call_tls_dtors (void)`.
        call_tls_dtors: unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(call_tls_dtors)
        },
    })
}

/// Bytes to keep free for libraries loaded later.
fn reserve(used: usize) -> Result<usize, String> {
    let bytes = match std::env::var("CAREFREE_TLS_RESERVE") {
        Err(_) => {
            // What is left of the first page, never less than what common libraries need.
            4096_usize.saturating_sub(used + FIRST_FRAMES).max(RESERVE_MIN)
        }
        Ok(text) => text.parse::<usize>().ok().filter(|bytes| *bytes <= BLOCK_MAX).ok_or(
            format!("CAREFREE_TLS_RESERVE={text} is not a number of bytes up to {BLOCK_MAX}"),
        )?,
    };
    Ok(bytes.next_multiple_of(64))
}
