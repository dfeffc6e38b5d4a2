//! What is left to libc: where it looks for libraries, and what it reports of those that it cannot load.

use std::ffi::{CString, c_char, c_void};

use carefree_runtime::{Runtime, yield_now};

use crate::{Crowd, FIXED, Library, alone, build, error, on_fibers, string};

#[test]
fn a_missing_library_is_reported_to_the_fiber() {
    on_fibers(|| {
        // SAFETY: names; nothing is called.
        unsafe {
            assert!(libc::dlopen(c"/nowhere/absent.so".as_ptr(), libc::RTLD_NOW).is_null());
            yield_now();
            assert!(error().unwrap().contains("/nowhere/absent.so"));
            assert!(libc::dlopen(c"libabsent.so".as_ptr(), libc::RTLD_NOW).is_null());
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
            assert!(!libc.is_null());
            assert_eq!(error(), None, "an earlier error is still there");
            assert_eq!(libc::dlclose(libc), 0);
            let program = libc::dlopen(std::ptr::null(), libc::RTLD_NOW);
            assert!(!program.is_null());
            assert_eq!(libc::dlclose(program), 0);
        }
    });
}

/// A library that calls `dlopen` is its caller for libc, too: its own search path and `$ORIGIN` count.
#[test]
fn a_library_loads_another_one_by_name() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let name = format!("libinner{}.so", std::process::id());
    let Some(_) = build(&inner, &name, "variables.c", &[FIXED]) else { return };
    let with_path = ["-Wl,-rpath,$ORIGIN/inner", "-Wl,--enable-new-dtags"];
    let knows = build(directory.path(), "knows.so", "loader.c", &with_path).unwrap();
    let old_way = ["-Wl,-rpath,$ORIGIN/inner", "-Wl,--disable-new-dtags"];
    let knows_too = build(directory.path(), "knows-too.so", "loader.c", &old_way).unwrap();
    let ignorant = build(directory.path(), "ignorant.so", "loader.c", &[]).unwrap();
    let load = |library: Library, name: &str| {
        let name = CString::new(name).unwrap();
        // SAFETY: the type that the source has.
        unsafe {
            let load = library.address(c"load");
            let load = std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const c_char) -> *mut c_void,
            >(load);
            load(name.as_ptr())
        }
    };
    let check = move || {
        let none = load(Library::open(&ignorant), &name);
        assert!(none.is_null());
        for library in [&knows, &knows_too] {
            let found = Library(load(Library::open(library), &name));
            assert!(!found.0.is_null(), "{}", library.display());
            found.spoil();
            found.close();
        }
        for origin in ["$ORIGIN", "${ORIGIN}"] {
            let found = Library(load(Library::open(&ignorant), &format!("{origin}/inner/{name}")));
            assert!(!found.0.is_null(), "{origin}");
            found.spoil();
            found.close();
        }
    };
    check();
    Runtime::builder().carriers(1).build().unwrap().run(check);
}

/// libc has a little room for variables with a fixed place, and refuses to load a library that needs more.
#[test]
fn a_library_for_which_there_is_no_room_is_refused() {
    let _alone = alone();
    on_fibers(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(path) = build(directory.path(), "small.so", "variables.c", &[FIXED]) else {
            return;
        };
        let large = [FIXED, "-DROOM=100000"];
        let large = build(directory.path(), "large.so", "variables.c", &large).unwrap();
        let crowd = Crowd::new(10);
        let library = Library::open(&path);
        crowd.spoil(library);
        // SAFETY: a library made for these tests.
        assert!(unsafe { libc::dlopen(string(&large).as_ptr(), libc::RTLD_NOW) }.is_null());
        let told = error().unwrap();
        assert!(told.contains("static TLS"), "{told}");
        assert_eq!(error(), None);
        crowd.end();
        library.close();
    });
}
