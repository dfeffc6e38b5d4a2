//! libc's state of a thread besides variables: locale, locks of streams, stack bounds, messages.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{
    Fiber, Library, Slot, alone, bodies, build, child, isolated, layout, on_fiber, run_all, run_on,
    yield_now,
};

#[test]
fn a_locale_is_not_inherited() {
    // SAFETY: makes a locale, which lives on.
    let locale = unsafe { libc::newlocale(libc::LC_ALL_MASK, c"C".as_ptr(), ptr::null_mut()) };
    assert!(!locale.is_null());
    // LC_GLOBAL_LOCALE is (locale_t) -1.
    let current = || {
        // SAFETY: asks only.
        unsafe { libc::uselocale(ptr::null_mut()) as usize }
    };
    let (global, locale) = (usize::MAX, locale as usize);
    let mut slot = Slot::new();
    for _ in 0..2 {
        slot = run_on(slot, move || {
            assert_eq!(current(), global);
            // SAFETY: made above.
            unsafe { libc::uselocale(locale as libc::locale_t) };
            yield_now();
            assert_eq!(current(), locale);
            // SAFETY: a letter.
            assert_ne!(unsafe { libc::isalpha(c_int::from(b'a')) }, 0);
        });
    }
    assert_eq!(current(), global);
}

#[test]
fn a_locale_set_for_the_process_reaches_the_next_fiber() {
    const TEST: &str = "libc_state::a_locale_set_for_the_process_reaches_the_next_fiber";
    isolated(TEST, &[], || {
        unsafe extern "C" {
            fn __ctype_b_loc() -> *const *const u16;
        }
        // SAFETY: the caller's own table.
        let table = || unsafe { __ctype_b_loc().read() as usize };
        let slot = run_on(Slot::new(), || ());
        // SAFETY: changes the locale; nothing else runs in this process.
        let set = unsafe { libc::setlocale(libc::LC_CTYPE, c"C.UTF-8".as_ptr()) };
        if set.is_null() {
            return println!("skipped: there is no locale C.UTF-8");
        }
        let mine = table();
        let slot = run_on(slot, move || assert_eq!(table(), mine));
        drop(slot);
        on_fiber(move || assert_eq!(table(), mine));
    });
}

#[test]
fn stdout_is_locked_by_a_fiber_not_by_its_carrier() {
    const TEST: &str = "libc_state::stdout_is_locked_by_a_fiber_not_by_its_carrier";
    isolated(TEST, &[], || {
        unsafe extern "C" {
            static stdout: *mut c_void;
            fn flockfile(stream: *mut c_void);
            fn ftrylockfile(stream: *mut c_void) -> c_int;
            fn funlockfile(stream: *mut c_void);
            fn puts(text: *const i8) -> c_int;
        }
        // SAFETY: stdout is open.
        let lock = || unsafe { flockfile(stdout) };
        // SAFETY: stdout is open.
        let try_lock = || unsafe { ftrylockfile(stdout) == 0 };
        // SAFETY: stdout is open, and the caller holds its lock.
        let unlock = || unsafe { funlockfile(stdout) };
        let mut owner = Fiber::new(Slot::new(), move || {
            lock();
            lock();
            // SAFETY: a C string.
            unsafe { puts(c"a line of C's".as_ptr().cast()) };
            unlock();
            yield_now();
            unlock();
        });
        let mut other = Fiber::new(Slot::new(), move || {
            assert!(!try_lock());
            yield_now();
            assert!(try_lock());
            unlock();
        });
        assert!(!owner.enter());
        assert!(!other.enter());
        assert!(owner.enter());
        assert!(other.enter());
    });
}

#[test]
fn lines_printed_by_many_fibers_are_whole() {
    const TEST: &str = "libc_state::lines_printed_by_many_fibers_are_whole";
    if alone(TEST) {
        println!(); // Ends the line of the test's runner.
        run_all(
            3,
            50,
            bodies(100, |fiber| {
                move || {
                    for line in 0..10 {
                        println!("line {line} of fiber {fiber}.");
                        yield_now();
                    }
                }
            }),
        );
        return;
    }
    let output = child(TEST, &[], &[]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    for fiber in 0..100 {
        for line in 0..10 {
            let line = format!("line {line} of fiber {fiber}.");
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line}\n{text}");
        }
    }
}

#[test]
fn pthread_getattr_np_returns_the_fibers_stack() {
    fn bounds(thread: libc::pthread_t) -> (usize, usize) {
        // SAFETY: the attributes are initialised by the first call; the thread lives.
        unsafe {
            let mut attributes = std::mem::zeroed();
            assert_eq!(libc::pthread_getattr_np(thread, &mut attributes), 0);
            let (mut base, mut size) = (ptr::null_mut(), 0);
            assert_eq!(libc::pthread_attr_getstack(&attributes, &mut base, &mut size), 0);
            libc::pthread_attr_destroy(&mut attributes);
            (base as usize, size)
        }
    }
    // SAFETY: no preconditions.
    let me = || unsafe { libc::pthread_self() };
    let library = build("bounds", "bounds.c", &["-pthread"]).map(|path| Library::open(&path));
    let long = [32 * 1024, 64 * 1024, 1024 * 1024].map(Slot::with_stack);
    // A thread's stack could not be this short.
    let short = [layout().size() + 8 * 1024, 16 * 1024 - 64].map(Slot::with_short_stack);
    for slot in long.into_iter().chain(short) {
        let stack = slot.stack();
        run_on(slot, move || {
            assert_eq!(bounds(me()), stack);
            let local = 0;
            let here = &raw const local as usize;
            assert!((stack.0..stack.0 + stack.1).contains(&here));
            // C code calls it through its own symbol table.
            if let Some(library) = library {
                assert_eq!(library.call(c"stack_base") as usize, stack.0);
                assert_eq!(library.call(c"stack_size") as usize, stack.1);
            }
        });
    }
    // The result is also right for threads, and when a fiber asks about a thread.
    let thread = me() as usize;
    let (base, size) = bounds(me());
    let here = &raw const base as usize;
    assert!((base..base + size).contains(&here));
    on_fiber(move || assert_eq!(bounds(thread as libc::pthread_t), (base, size)));
}

#[test]
fn cancellation_state_is_not_inherited() {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
        fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    }
    let change = |state, kind| {
        let mut old = [9, 9];
        // SAFETY: valid values; no thread cancels this one.
        unsafe {
            assert_eq!(pthread_setcancelstate(state, &mut old[0]), 0);
            assert_eq!(pthread_setcanceltype(kind, &mut old[1]), 0);
        }
        old
    };
    let mut slot = Slot::new();
    for _ in 0..3 {
        slot = run_on(slot, move || {
            assert_eq!(change(1, 1), [0, 0]);
            yield_now();
            assert_eq!(change(1, 1), [1, 1]);
        });
    }
}

#[test]
fn errors_of_dlsym_and_of_names_are_not_inherited() {
    unsafe extern "C" {
        fn __h_errno_location() -> *mut c_int;
    }
    let mut slot = Slot::new();
    for _ in 0..3 {
        slot = run_on(slot, || {
            // SAFETY: looks up a name that does not exist.
            unsafe {
                assert!(libc::dlerror().is_null(), "a former fiber's error");
                assert_eq!(*__h_errno_location(), 0);
                *__h_errno_location() = 3;
                assert!(libc::dlsym(libc::RTLD_DEFAULT, c"no such symbol".as_ptr()).is_null());
            }
        });
    }
    run_on(slot, || {
        // SAFETY: looks up a name that does not exist.
        unsafe {
            libc::dlsym(libc::RTLD_DEFAULT, c"no such symbol".as_ptr());
            assert!(!libc::dlerror().is_null());
        }
    });
}

#[test]
fn texts_and_names_from_new_and_used_blocks() {
    unsafe extern "C" {
        fn __res_init() -> c_int;
    }
    let resolved = Arc::new(AtomicUsize::new(0));
    run_all(
        2,
        5,
        bodies(25, |fiber| {
            let resolved = resolved.clone();
            move || {
                let number = 10_000 + fiber as c_int;
                // SAFETY: the text lives until this fiber asks for another.
                let text = unsafe { libc::strerror(number) };
                yield_now();
                // SAFETY: the text lives until this fiber asks for another.
                let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap();
                assert!(text.ends_with(&number.to_string()), "{text}");
                if fiber % 2 == 0 {
                    // SAFETY: reads the configuration into this fiber's resolver state.
                    unsafe { __res_init() };
                }
                // SAFETY: the arguments are as getaddrinfo wants them; the answer is freed once.
                unsafe {
                    let mut answer = ptr::null_mut();
                    let name = c"localhost".as_ptr();
                    if libc::getaddrinfo(name, ptr::null(), ptr::null(), &mut answer) == 0 {
                        assert!(!answer.is_null());
                        libc::freeaddrinfo(answer);
                        resolved.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }),
    );
    if resolved.load(Ordering::Relaxed) == 0 {
        println!("skipped: localhost has no address here");
    } else {
        assert_eq!(resolved.load(Ordering::Relaxed), 25);
    }
}

#[test]
fn a_fiber_gets_the_processor_and_the_time() {
    on_fiber(|| {
        // SAFETY: no preconditions.
        let processor = unsafe { libc::sched_getcpu() };
        assert!((0..4096).contains(&processor), "{processor}");
        assert!(std::time::Instant::now().elapsed().as_secs() < 60);
        assert!(std::thread::available_parallelism().is_ok());
    });
    assert!(layout().size() > 0);
}
