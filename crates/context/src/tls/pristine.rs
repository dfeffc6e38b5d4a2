//! Examines a thread that has run nothing yet.
//!
//! The thread runs on memory allocated here, so its stack's address and length, which libc writes
//! into `struct pthread`, are known and can be recognised. Until it has taken the snapshot the
//! thread must not allocate (malloc would leave its thread cache in the snapshot), touch a
//! `thread_local`, call a function that may set errno or dlerror, or panic; everything it needs is
//! allocated and looked up before.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use carefree_ground::kernel;

use super::glibc::{DTV_FROM_TP, UNALLOCATED, constants, pthread_attr_setstack};
use super::probe::Probes;
use super::symbols::STATIC;
use crate::arch;
use crate::loader;

/// How many objects with thread-local variables a process may have. glibc has no limit; large programs
/// have some dozens.
const MODULES: usize = 512;
/// The largest block in bytes, which bounds the snapshot buffer. (Of that, no more takes memory than is used.
/// Libraries with large variables are few, but common: OpenBLAS has 60 KiB.)
pub(super) const BLOCK_MAX: usize = carefree_settings::denied::MOST_STORAGE as usize;
const TOO_LARGE: &str =
    "the thread-local storage of this program and its libraries is too large: more than 1 MiB";
/// The sizes of blocks, and of their parts below and above the thread pointer, are multiples of this.
pub(super) const UNIT: usize = 64;
/// Bytes of the pristine thread's stack: an unusual number, so that it is recognised in `struct
/// pthread`.
pub(super) const STACK: usize = BLOCK_MAX + 0x4_3000;

/// The static thread-local storage of one object: the executable, or a library.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// libc's number for the object, an index into the dynamic thread vector.
    pub(super) id: usize,
    /// Address of its first byte minus the thread pointer.
    pub(super) from_tp: isize,
    /// Bytes in memory.
    pub(super) size: usize,
    /// Alignment that its segment asks for.
    pub(super) align: usize,
}

/// What the pristine thread found; it fills this in without allocating.
#[derive(Debug)]
pub(super) struct Findings {
    /// Whether to examine libc as well, or libraries only.
    thorough: bool,
    pub(super) pthread_size: usize,
    pub(super) tp: usize,
    pub(super) pthread: usize,
    pub(super) tid: u32,
    pub(super) errno: usize,
    modules: Box<[Found; MODULES]>,
    count: usize,
    /// The dynamic thread vector: addresses, [`UNALLOCATED`], 0 where there never was a module.
    vector: Box<[usize; MODULES]>,
    entries: usize,
    pub(super) generation: usize,
    /// Whether some object is in the middle of being loaded.
    pub(super) unsettled: bool,
    /// Whether there are variables of an object that the loader does not show (of another namespace).
    pub(super) strangers: bool,
    /// libc's own number; 0, which no object has, in a static program.
    pub(super) libc: usize,
    /// Bytes of the block below and above the thread pointer. `snapshot` has the former rounded up to
    /// [`UNIT`].
    pub(super) below: usize,
    pub(super) above: usize,
    pub(super) snapshot: Box<[u64]>,
    /// The place of the restartable-sequences area, relative to the thread pointer.
    pub(super) rseq: Option<Range<isize>>,
    pub(super) probes: Probes,
    /// The thread's stack, which is no longer mapped.
    pub(super) stack: Range<usize>,
    failure: Option<&'static str>,
}

impl Findings {
    /// The thread pointer's position in `snapshot`.
    pub(super) fn below(&self) -> usize {
        self.below.next_multiple_of(UNIT)
    }

    /// All objects with a fixed place in the block, libc among them.
    pub(super) fn modules(&self) -> &[Found] {
        &self.modules[..self.count]
    }

    /// The dynamic thread vector's entries for module 1, 2, …
    pub(super) fn vector(&self) -> &[usize] {
        &self.vector[..self.entries]
    }

    /// The position that corresponds to `address` in a block with the thread pointer at `tp`;
    /// `None` if the address does not lie in the thread's block.
    pub(super) fn position(&self, address: usize, tp: usize) -> Option<usize> {
        (self.tp - self.below..self.tp + self.above)
            .contains(&address)
            .then(|| address.wrapping_sub(self.tp).wrapping_add(tp))
    }

    /// The place of libc's own variables in a block with the thread pointer at `tp`.
    pub(super) fn libc_place(&self, tp: usize) -> Range<usize> {
        let libc = self.modules().iter().find(|m| m.id == self.libc);
        libc.map_or(0..0, |m| {
            let start = tp.wrapping_add_signed(m.from_tp);
            start..start + m.size
        })
    }

    /// Copies the thread's bytes at `place`, positions in a block with the thread pointer at `tp`,
    /// into that block's `image`.
    pub(super) fn copy_to(&self, image: &mut [u64], place: &Range<usize>, tp: usize) {
        let from = place.start + self.below() - tp;
        assert!(place.end <= size_of_val(image) && from + place.len() <= self.below() + self.above);
        // SAFETY: both ranges are in bounds, as was just checked; any bytes make words.
        unsafe {
            image.as_mut_ptr().cast::<u8>().add(place.start).copy_from_nonoverlapping(
                self.snapshot.as_ptr().cast::<u8>().add(from),
                place.len(),
            );
        }
    }
}

/// Starts the pristine thread and waits for its findings: about libraries only, or (`thorough`)
/// about libc as well.
pub(super) fn look(thorough: bool) -> Result<Box<Findings>, String> {
    let constants = constants();
    let pthread_size =
        constants.pthread_size.ok_or("libc does not tell the size of its thread control block")?;
    let mut findings = Box::new(Findings {
        thorough,
        pthread_size,
        tp: 0,
        pthread: 0,
        tid: 0,
        errno: 0,
        modules: vec![Found::default(); MODULES].try_into().expect("MODULES elements"),
        count: 0,
        vector: Box::new([0; MODULES]),
        entries: 0,
        generation: 0,
        unsettled: false,
        strangers: false,
        libc: 0,
        below: 0,
        above: 0,
        snapshot: vec![0; BLOCK_MAX / 8].into_boxed_slice(),
        rseq: constants.rseq(),
        probes: Probes::new(if thorough { BLOCK_MAX } else { 0 }),
        stack: 0..0,
        failure: None,
    });
    run_on_own_stack(&mut findings)?;
    match findings.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(findings),
    }
}

/// Runs [`body`] on a new thread.
fn run_on_own_stack(findings: &mut Findings) -> Result<(), String> {
    // SAFETY: a new private mapping, which replaces none.
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
    findings.stack = map as usize..map as usize + STACK;
    // SAFETY: attributes are initialised before use and destroyed after. The thread is joined, so the
    // mapping and `findings` outlive it.
    let code = unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        let mut thread = std::mem::zeroed::<libc::pthread_t>();
        libc::pthread_attr_init(&mut attributes);
        let mut code = pthread_attr_setstack(&mut attributes, map, STACK);
        if code == 0 {
            let argument = ptr::from_mut(findings).cast();
            code = libc::pthread_create(&mut thread, &attributes, body, argument);
        }
        if code == 0 {
            code = libc::pthread_join(thread, ptr::null_mut());
        }
        libc::pthread_attr_destroy(&mut attributes);
        libc::munmap(map, STACK);
        code
    };
    if code == libc::EINVAL {
        // libc has not found room for it on that stack.
        return Err(TOO_LARGE.into());
    }
    if code != 0 {
        let why = std::io::Error::from_raw_os_error(code);
        return Err(format!(
            "no thread could be started to look at: {why}; raise the limit of threads (ulimit -u, or \
             pids.max of the control group)"
        ));
    }
    Ok(())
}

/// The pristine thread's body.
extern "C" fn body(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the creator passes its Findings, and does not use them until it has joined this thread.
    let found = unsafe { &mut *argument.cast::<Findings>() };
    // No destructor runs and nothing panics: failures are stored.
    if let Err(failure) = found.observe() {
        found.failure = Some(failure);
    }
    ptr::null_mut()
}

impl Findings {
    /// Runs on the pristine thread.
    fn observe(&mut self) -> Result<(), &'static str> {
        self.tp = arch::thread_pointer() as usize;
        // SAFETY: these calls have no preconditions.
        unsafe {
            self.pthread = libc::pthread_self() as usize;
            // Not by libc's `syscall`, for which a stand-in may ask a thread-local variable whether it is
            // called on a fiber: in a library that was loaded by `dlopen`, that allocates its storage.
            self.tid = kernel::call(libc::SYS_gettid, [0; 6]).map_or(0, |tid| tid as u32);
            self.errno = libc::__errno_location() as usize;
        }
        // SAFETY: this thread's own vector, of which entry -1 holds the length.
        let vector = unsafe {
            let vector = ((self.tp + DTV_FROM_TP) as *const *const [usize; 2]).read();
            self.generation = vector.read()[0];
            std::slice::from_raw_parts(vector.add(1), vector.sub(1).read()[0])
        };
        for (index, entry) in vector.iter().enumerate().filter(|(_, entry)| entry[0] != 0) {
            let Some(slot) = self.vector.get_mut(index) else {
                return Err("there are too many libraries with thread-local storage");
            };
            *slot = entry[0];
            self.entries = index + 1;
        }
        // Does not allocate.
        loader::any_object(|object| !self.note(object));
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.find_strangers()?;
        self.measure()?;
        // SAFETY: this thread's own block; `measure` has checked that it fits into the snapshot.
        unsafe {
            ptr::copy_nonoverlapping(
                (self.tp - self.below) as *const u8,
                self.snapshot.as_mut_ptr().cast::<u8>().add(self.below() - self.below),
                self.below + self.above,
            );
        }
        // With the snapshot taken, this thread may allocate and change its storage.
        if self.thorough {
            self.probes.run(self.pthread..self.pthread + self.pthread_size, self.libc_area())?;
        }
        Ok(())
    }

    /// Stores what the loader says of an object's static thread-local storage; false on failure.
    fn note(&mut self, info: &libc::dl_phdr_info) -> bool {
        if info.dlpi_phdr.is_null() {
            return true;
        }
        // SAFETY: the loader's description of the program headers, which stay during the visit.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let Some(header) = headers.iter().find(|h| h.p_type == libc::PT_TLS) else {
            return true;
        };
        let id = info.dlpi_tls_modid;
        if info.dlpi_tls_data.is_null() {
            // The loader allocates this module's storage when a thread first uses it, unless the
            // loader has not registered the module yet or will give it a fixed place.
            self.unsettled |= id == 0
                || self.vector().get(id - 1).is_none_or(|data| *data == 0)
                || wants_fixed_place(info, headers);
            return true;
        }
        let data = info.dlpi_tls_data as usize;
        let size = header.p_memsz as usize;
        if !STATIC && (data..data + size).contains(&self.errno) {
            self.libc = id;
        }
        let module = Found {
            id,
            from_tp: data.wrapping_sub(self.tp) as isize,
            size,
            align: (header.p_align as usize).max(1),
        };
        match self.push(module) {
            Ok(()) => true,
            Err(failure) => {
                self.failure = Some(failure);
                false
            }
        }
    }

    fn libc_area(&self) -> Range<usize> {
        self.libc_place(self.tp)
    }

    fn push(&mut self, module: Found) -> Result<(), &'static str> {
        let Some(slot) = self.modules.get_mut(self.count) else {
            return Err("there are too many libraries with thread-local storage");
        };
        *slot = module;
        self.count += 1;
        Ok(())
    }

    /// Adds the variables of objects in other namespaces (`dlmopen`, `LD_AUDIT`), which the loader
    /// does not show to this one. Their length is unknown, but what lies above their start is not: on
    /// x86-64, where modules are put below one another, the memory up to the next module is theirs.
    fn find_strangers(&mut self) -> Result<(), &'static str> {
        for index in 0..self.entries {
            let (id, data) = (index + 1, self.vector[index]);
            let known = data == 0
                || data == UNALLOCATED
                || self.modules[..self.count].iter().any(|m| m.id == id);
            if known {
                continue;
            }
            self.strangers = true;
            let from_tp = data.wrapping_sub(self.tp) as isize;
            let above = self.modules[..self.count].iter().map(|m| m.from_tp).chain([0]);
            let next = above.filter(|other| *other > from_tp).min();
            let size = match next {
                Some(next) if cfg!(target_arch = "x86_64") => (next - from_tp) as usize,
                _ => 0,
            };
            self.push(Found { id, from_tp, size, align: 1 })?;
        }
        Ok(())
    }

    /// Measures the block, which spans all modules, the control block and the rseq area.
    fn measure(&mut self) -> Result<(), &'static str> {
        let control = self.pthread as isize - self.tp as isize;
        let mut low = control.min(0);
        let mut high = (control + self.pthread_size as isize).max(2 * size_of::<usize>() as isize);
        for module in &self.modules[..self.count] {
            low = low.min(module.from_tp);
            high = high.max(module.from_tp + module.size as isize);
        }
        if let Some(rseq) = &self.rseq {
            low = low.min(rseq.start);
            high = high.max(rseq.end);
        }
        self.below = low.unsigned_abs();
        self.above = high as usize;
        if self.below() + self.above > BLOCK_MAX {
            return Err(TOO_LARGE);
        }
        Ok(())
    }
}

/// Whether the object is marked with `DF_STATIC_TLS`: some of its code uses the initial-exec model.
fn wants_fixed_place(info: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr]) -> bool {
    const DT_NULL: u64 = 0;
    const DT_FLAGS: u64 = 30;
    const DF_STATIC_TLS: u64 = 0x10;
    let Some(header) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else {
        return false;
    };
    let mut entry = (info.dlpi_addr + header.p_vaddr) as *const [u64; 2];
    loop {
        // SAFETY: the dynamic section is mapped while the loader shows the object, and ends with
        // DT_NULL.
        let [tag, value] = unsafe { entry.read() };
        match tag {
            DT_NULL => return false,
            DT_FLAGS => return value & DF_STATIC_TLS != 0,
            _ => entry = entry.wrapping_add(1),
        }
    }
}
