//! No memory leaks, over many fibers in a row and many blocks.

use std::ffi::c_void;
use std::ptr;

use crate::harness::{Library, Slot, build, emulated, isolated, run_on, yield_now};

/// Bytes allocated by malloc, and bytes of resident memory; `None` if libc does not tell.
fn memory() -> Option<[isize; 2]> {
    // Since glibc 2.33.
    // SAFETY: looks a symbol up, and calls it by its type.
    let used = unsafe {
        let function = libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr());
        if function.is_null() {
            return None;
        }
        let mallinfo2: extern "C" fn() -> [usize; 10] = std::mem::transmute(function);
        // In use in the arenas and by mmap.
        let info = mallinfo2();
        info[7] + info[4]
    };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: isize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    Some([used as isize, pages * 4096])
}

/// Makes libc and others keep memory for the fiber.
fn leave_traces(library: Option<Library>, keys: &[libc::pthread_key_t]) {
    thread_local!(static TEXT: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) });
    TEXT.with_borrow_mut(|text| *text = "thread-local".repeat(10));
    assert!(!std::thread::current().id().eq(&unused_id()));
    for key in keys {
        // SAFETY: live keys, whose destructor frees the value.
        unsafe { libc::pthread_setspecific(*key, libc::malloc(24)) };
    }
    drop(vec![0_u8; 1000]);
    // SAFETY: asks for texts and randomness.
    unsafe {
        libc::strerror(12_345);
        libc::dlsym(libc::RTLD_DEFAULT, c"no such symbol".as_ptr());
        let mut bytes = [0_u8; 16];
        libc::getrandom(bytes.as_mut_ptr().cast(), 16, 0);
    }
    if let Some(library) = library {
        assert_eq!(library.call(c"initial"), 1);
        library.call(c"spoil");
    }
    yield_now();
}

fn unused_id() -> std::thread::ThreadId {
    static ID: std::sync::OnceLock<std::thread::ThreadId> = std::sync::OnceLock::new();
    *ID.get_or_init(|| std::thread::spawn(|| std::thread::current().id()).join().unwrap())
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: allocated by leave_traces.
    unsafe { libc::free(value) };
}

fn keys() -> Vec<libc::pthread_key_t> {
    // More than lie in the control block; only some are used.
    let mut keys = Vec::new();
    for _ in 0..70 {
        let mut key = 0;
        // SAFETY: a valid destructor.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(free)) }, 0);
        keys.push(key);
    }
    vec![keys[0], keys[40], keys[69]]
}

/// Runs `step` `count` times after a warm-up, and checks that memory grew by less than 16 bytes
/// each: by a quarter of that as malloc counts, where some kilobytes vary with its caches, and by
/// half of it in resident memory.
fn check(count: usize, mut step: impl FnMut()) {
    for _ in 0..count / 20 {
        step();
    }
    let Some(before) = memory() else { return println!("skipped: libc has no mallinfo2") };
    for _ in 0..count {
        step();
    }
    let after = memory().unwrap();
    let [used, resident] = [after[0] - before[0], after[1] - before[1]];
    println!("{count} steps: {used} bytes more in use, {resident} more resident");
    assert!(used < count as isize * 4, "{used} bytes leaked by {count}");
    // It includes an emulator's own memory.
    assert!(
        emulated() || resident < count as isize * 8,
        "{resident} bytes of memory lost by {count}"
    );
}

#[test]
fn a_hundred_thousand_fibers_in_a_row() {
    isolated("leaks::a_hundred_thousand_fibers_in_a_row", &[], || {
        let library = build("leak", "variables.c", &["-ftls-model=global-dynamic"]);
        let library = library.map(|path| Library::open(&path));
        let keys = keys();
        let mut slots: Vec<Slot> = (0..4).map(|_| Slot::new()).collect();
        let mut next = 0;
        check(100_000, || {
            let keys = keys.clone();
            let slot = slots.swap_remove(next % 4);
            slots.push(run_on(slot, move || leave_traces(library, &keys)));
            next += 1;
        });
    });
}

#[test]
fn blocks_built_and_retired() {
    isolated("leaks::blocks_built_and_retired", &[], || {
        let library = build("leak-blocks", "variables.c", &["-ftls-model=global-dynamic"]);
        let library = library.map(|path| Library::open(&path));
        let keys = keys();
        check(20_000, || {
            // Two at once, so that what is passed on is not always from the last.
            let keys = keys.clone();
            let (idle, used) = (Slot::new(), Slot::new());
            drop(run_on(used, move || leave_traces(library, &keys)));
            drop(idle);
        });
    });
}

#[test]
fn blocks_without_fibers() {
    isolated("leaks::blocks_without_fibers", &[], || {
        check(50_000, || drop(Slot::with_stack(16 * 1024)));
    });
}

#[test]
fn caches_of_a_retired_block_are_reused() {
    isolated("leaks::caches_of_a_retired_block_are_reused", &[], || {
        let slot = run_on(Slot::new(), || drop(vec![1_u8; 100]));
        let id = slot.block().id();
        drop(slot);
        let address = std::sync::Arc::new(std::sync::atomic::AtomicPtr::new(ptr::null_mut()));
        let slot = Slot::new();
        assert_eq!(slot.block().id(), id);
        let found = address.clone();
        run_on(slot, move || {
            // What libc keeps was passed on with the id.
            let memory = Box::new([1_u8; 100]);
            found.store(memory.as_ptr().cast_mut(), std::sync::atomic::Ordering::Relaxed);
        });
        assert!(!address.load(std::sync::atomic::Ordering::Relaxed).is_null());
    });
}
