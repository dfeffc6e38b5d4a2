//! C and C++ libraries with thread-local variables, loaded by dlopen at various times.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{
    Fiber, Library, Slot, alone, bodies, build, child, isolated, layout, on_fiber, run_all, run_on,
    yield_now,
};

const DYNAMIC: &str = "-ftls-model=global-dynamic";
const FIXED: &str = "-ftls-model=initial-exec";
/// A fixed place has at most the alignment of the thread control block.
const ALIGN: &str = if cfg!(target_arch = "x86_64") { "-DALIGN=64" } else { "-DALIGN=16" };

/// Checks initial values, changes them, moves, and checks that they are still changed.
fn use_variables(library: Library) {
    assert_eq!(library.call(c"initial"), 1, "not the initial values");
    let address = library.call(c"address");
    library.call(c"spoil");
    yield_now();
    assert_eq!(library.call(c"initial"), 0);
    assert_eq!(library.call(c"address"), address);
    assert_eq!(library.call(c"add"), 2);
}

/// Runs fibers on new and reused blocks, which move between kernel threads.
fn use_on_many(library: Library) {
    run_all(2, 10, bodies(40, |_| move || use_variables(library)));
}

#[test]
fn variables_with_storage_at_first_use() {
    isolated("libraries::variables_with_storage_at_first_use", &[], || {
        let Some(path) = build("dynamic", "variables.c", &[DYNAMIC]) else { return };
        let slot = run_on(Slot::new(), || ());
        let mut early = Fiber::new(Slot::new(), yield_now);
        assert!(!early.enter());
        let library = Library::open(&path);
        // A block built before, one built after, one with a fiber on it, and on a thread.
        let slot = run_on(slot, move || use_variables(library));
        drop(run_on(slot, move || use_variables(library)));
        assert!(early.enter());
        use_on_many(library);
        std::thread::spawn(move || assert_eq!(library.call(c"initial"), 1)).join().unwrap();
    });
}

#[test]
fn variables_by_descriptor() {
    let reserve = [("CAREFREE_TLS_RESERVE", "1024")];
    isolated("libraries::variables_by_descriptor", &reserve, || {
        // Descriptors are what aarch64's compilers use; the loader gives such a library a fixed
        // place while it has room, and storage at first use afterwards.
        let dialect: &[&str] =
            if cfg!(target_arch = "x86_64") { &["-mtls-dialect=gnu2"] } else { &[] };
        layout();
        for number in 0..12 {
            let bytes = format!("-DBYTES={}", 60 + number);
            let mut flags = vec![DYNAMIC, ALIGN, &bytes];
            flags.extend(dialect);
            let name = format!("descriptor{number}");
            let Some(path) = build(&name, "variables.c", &flags) else { return };
            let library = Library::open(&path);
            layout().refresh().unwrap();
            use_on_many(library);
        }
    });
}

#[test]
fn a_fiber_that_loads_a_library_can_use_it() {
    isolated("libraries::a_fiber_that_loads_a_library_can_use_it", &[], || {
        let Some(path) = build("by-fiber", "variables.c", &[DYNAMIC]) else { return };
        on_fiber(move || use_variables(Library::open(&path)));
    });
}

#[test]
fn libraries_loaded_before_the_layout_was_made() {
    isolated("libraries::libraries_loaded_before_the_layout_was_made", &[], || {
        let Some(dynamic) = build("before-dynamic", "variables.c", &[DYNAMIC]) else { return };
        let fixed = build("before-fixed", "variables.c", &[FIXED, ALIGN]).unwrap();
        let libraries = [Library::open(&dynamic), Library::open(&fixed)];
        libraries.iter().copied().for_each(use_on_many);
        assert_eq!(layout().reserve_used(), 0);
        // Closed and loaded again, perhaps at another place.
        libraries.into_iter().for_each(Library::close);
        layout().refresh().unwrap();
        use_on_many(Library::open(&dynamic));
        let library = Library::open(&fixed);
        layout().refresh().unwrap();
        use_on_many(library);
    });
}

#[test]
fn variables_with_a_fixed_place() {
    isolated("libraries::variables_with_a_fixed_place", &[], || {
        let Some(path) = build("fixed", "variables.c", &[FIXED, ALIGN]) else { return };
        let slot = run_on(Slot::new(), || ());
        let before = layout().to_string();
        let library = Library::open(&path);
        layout().refresh().unwrap();
        assert!(layout().reserve_used() >= 8 + 16 + 8 + 8 + 4, "{}", layout().reserve_used());
        assert!(layout().reserve_used() <= layout().reserve());
        assert_ne!(layout().to_string(), before);
        let low = slot.block().low() as isize;
        let slot = run_on(slot, move || {
            let address = library.call(c"address");
            assert!((low..low + layout().size() as isize).contains(&address));
            use_variables(library);
        });
        drop(run_on(slot, move || use_variables(library)));
        use_on_many(library);
        let used = layout().reserve_used();
        library.close();
        layout().refresh().unwrap();
        assert_eq!(layout().reserve_used(), 0);
        // The same set of libraries as before is known, and found again.
        for _ in 0..20 {
            let library = Library::open(&path);
            layout().refresh().unwrap();
            assert_eq!(layout().reserve_used(), used);
            on_fiber(move || use_variables(library));
            library.close();
            layout().refresh().unwrap();
        }
        // Another library in its place has its own initial values.
        let other = build("fixed-other", "variables.c", &[FIXED, ALIGN, "-DBYTES=80"]).unwrap();
        let other = Library::open(&other);
        layout().refresh().unwrap();
        use_on_many(other);
    });
}

#[test]
fn a_library_that_does_not_fit_is_named() {
    const TEST: &str = "libraries::a_library_that_does_not_fit_is_named";
    if alone(TEST) {
        let Some(path) = build("large", "variables.c", &[FIXED, ALIGN, "-DBYTES=700"]) else {
            return;
        };
        on_fiber(|| ());
        Library::open(&path);
        layout().refresh().unwrap();
        on_fiber(|| ());
        println!("went on");
        return;
    }
    let output = child(TEST, &[("CAREFREE_TLS_RESERVE", "64")], &[]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = stdout.lines().find(|line| line.contains("skipped")) {
        return println!("{line}");
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !stdout.contains("went on"), "{stdout}\n{stderr}");
    let line = stderr.lines().find(|line| line.starts_with("carefree: ")).expect(&stderr);
    assert!(line.contains("liblarge-") && line.contains(" bytes of thread-local"), "{line}");
    let (_, rest) = line.split_once("CAREFREE_TLS_RESERVE=").expect(line);
    let enough = rest.split(' ').next().unwrap();
    assert!((700..=1024).contains(&enough.parse().unwrap()), "{line}");
    // The reserve that it asks for is enough.
    let output = child(TEST, &[("CAREFREE_TLS_RESERVE", enough)], &[]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("went on"), "{stdout}");
}

#[test]
fn more_libraries_than_the_vector_has_room_for() {
    isolated("libraries::more_libraries_than_the_vector_has_room_for", &[], || {
        let Some(path) = build("copied", "variables.c", &[DYNAMIC]) else { return };
        let copies: Vec<PathBuf> = (0..40)
            .map(|number| {
                let copy =
                    path.with_file_name(format!("libcopy{number}-{}.so", std::process::id()));
                std::fs::copy(&path, &copy).unwrap();
                copy
            })
            .collect();
        // Fibers that have some of them in use while more are loaded and others closed.
        let mut fibers: Vec<_> = Vec::new();
        let mut open: Vec<Library> = Vec::new();
        for (number, copy) in copies.iter().enumerate() {
            open.push(Library::open(copy));
            let used = open.clone();
            fibers.push(Fiber::new(Slot::new(), move || {
                used.iter().for_each(|library| assert_eq!(library.call(c"initial"), 1));
                used.iter().for_each(|library| assert_eq!(library.call(c"add"), 1));
                let addresses: HashSet<isize> = used.iter().map(|l| l.call(c"address")).collect();
                assert_eq!(addresses.len(), used.len());
                yield_now();
                used.iter().for_each(|library| assert_eq!(library.call(c"add"), 2));
            }));
            assert!(!fibers[number].enter());
        }
        let mut slots: Vec<Slot> = fibers
            .into_iter()
            .map(|mut fiber| {
                assert!(fiber.enter());
                fiber.into_slot()
            })
            .collect();
        // Every other is closed; others, of another kind, get their numbers.
        for library in open.iter().step_by(2) {
            library.close();
        }
        let kept: Vec<Library> = open.iter().skip(1).step_by(2).copied().collect();
        let fixed = Library::open(&build("gap", "variables.c", &[FIXED, ALIGN]).unwrap());
        layout().refresh().unwrap();
        let fresh = Library::open(&build("gap2", "variables.c", &[DYNAMIC, "-DBYTES=90"]).unwrap());
        slots.push(Slot::new());
        for slot in slots {
            let kept = kept.clone();
            run_on(slot, move || {
                kept.into_iter().chain([fixed, fresh]).for_each(use_variables);
            });
        }
        copies.iter().for_each(|copy| std::fs::remove_file(copy).unwrap());
    });
}

#[test]
fn libraries_come_and_go_while_blocks_are_built_and_reset() {
    const TEST: &str = "libraries::libraries_come_and_go_while_blocks_are_built_and_reset";
    isolated(TEST, &[], || {
        let Some(fixed) = build("go-fixed", "variables.c", &[FIXED, ALIGN]) else { return };
        let dynamic = build("go-dynamic", "variables.c", &[DYNAMIC]).unwrap();
        let permanent = Library::open(&build("stay", "variables.c", &[DYNAMIC]).unwrap());
        layout();
        let stop = AtomicBool::new(false);
        // Fibers use a library only while it is loaded.
        let loaded: Mutex<Option<[Library; 2]>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut slot = Slot::new();
                    while !stop.load(Ordering::Relaxed) {
                        let loaded = loaded.lock().unwrap();
                        layout().refresh().unwrap();
                        let libraries = *loaded;
                        slot = run_on(slot, move || {
                            use_variables(permanent);
                            libraries.into_iter().flatten().for_each(use_variables);
                        });
                        drop(loaded);
                        drop(Slot::new());
                        layout().refresh().unwrap();
                    }
                });
            }
            for _ in 0..200 {
                let libraries = [Library::open(&fixed), Library::open(&dynamic)];
                *loaded.lock().unwrap() = Some(libraries);
                std::thread::yield_now();
                *loaded.lock().unwrap() = None;
                libraries.into_iter().for_each(Library::close);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_cpp_object_is_made_and_destroyed_with_each_fiber() {
    isolated("libraries::a_cpp_object_is_made_and_destroyed_with_each_fiber", &[], || {
        let Some(path) = build("object", "object.cpp", &[]) else { return };
        let library = Library::open(&path);
        let mut slot = Slot::new();
        for round in 1..=3 {
            slot = run_on(slot, move || {
                let length = library.call(c"append");
                yield_now();
                assert_eq!(library.call(c"append"), length + 1);
                assert_eq!(library.call(c"catch_one"), 6);
                assert_eq!(library.call(c"count_made"), round);
                assert_eq!(library.call(c"count_destroyed"), round - 1);
            });
            assert_eq!(library.call(c"count_destroyed"), round);
        }
        run_all(
            2,
            10,
            bodies(50, |_| {
                move || {
                    let length = library.call(c"append");
                    yield_now();
                    assert_eq!(library.call(c"append"), length + 1);
                }
            }),
        );
        assert_eq!(library.call(c"count_destroyed"), 53);
    });
}
