//! Libraries with thread-local variables, loaded by `dlopen` while fibers are alive.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, mpsc};

use carefree_interpose as _;
use carefree_runtime::{JoinHandle, Runtime, spawn, yield_now};

const FIXED: &str = "-ftls-model=initial-exec";
const DYNAMIC: &str = "-ftls-model=global-dynamic";

/// One test at a time: there is not much room for variables with a fixed place.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Builds a library of `source`; `None`, and a word about it, where there is no compiler.
fn build(directory: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let path = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loading").join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&path).arg(source).args(flags);
    let Ok(output) = compiler.output() else {
        println!("skipped: cc is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(path)
}

fn string(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

/// A library that is loaded.
#[derive(Clone, Copy)]
struct Library(*mut c_void);

// SAFETY: a handle of the loader's, good on any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    fn open(path: &Path) -> Library {
        // SAFETY: a library made for these tests.
        let handle = unsafe { libc::dlopen(string(path).as_ptr(), libc::RTLD_NOW) };
        // SAFETY: there is an error if there is no handle.
        assert!(!handle.is_null(), "{:?}", unsafe { CStr::from_ptr(libc::dlerror()) });
        Library(handle)
    }

    fn address(self, name: &CStr) -> *mut c_void {
        // SAFETY: a library that is loaded, and a name.
        let function = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!function.is_null(), "{name:?}");
        function
    }

    fn call(self, name: &CStr) -> isize {
        // SAFETY: the type of the source's functions.
        unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn() -> isize>(self.address(name))()
        }
    }

    /// Checks initial values, changes them, and checks that they stay changed.
    fn spoil(self) {
        assert_eq!(self.call(c"initial"), 1, "not the initial values");
        assert_eq!(self.call(c"spoil"), 1);
        yield_now();
        assert_eq!(self.call(c"spoilt"), 1, "not what was written");
    }

    fn close(self) {
        // SAFETY: no fiber uses it any more.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// Fibers that are alive before libraries are loaded, and use those that they are sent.
struct Crowd(Vec<(JoinHandle<()>, mpsc::Sender<Library>, mpsc::Receiver<()>)>);

impl Crowd {
    fn new(count: usize) -> Crowd {
        let fiber = |_| {
            let (send, libraries) = mpsc::channel::<Library>();
            let (used, done) = mpsc::channel();
            let fiber = spawn(move || {
                used.send(()).unwrap();
                for library in libraries {
                    library.spoil();
                    used.send(()).unwrap();
                }
            });
            done.recv().unwrap();
            (fiber, send, done)
        };
        Crowd((0..count).map(fiber).collect())
    }

    /// Each fiber finds the library's initial values, and spoils them.
    fn spoil(&self, library: Library) {
        self.0.iter().for_each(|(_, send, _)| send.send(library).unwrap());
        for (number, (.., done)) in self.0.iter().enumerate() {
            assert!(done.recv().is_ok(), "fiber {number} has panicked");
        }
    }

    fn end(self) {
        for (fiber, send, _) in self.0 {
            drop(send);
            fiber.join().unwrap();
        }
    }
}

/// How libraries may have their variables.
fn models() -> Vec<&'static [&'static str]> {
    let mut models: Vec<&[&str]> = vec![&[FIXED], &[DYNAMIC], &[]];
    if cfg!(target_arch = "x86_64") {
        models.push(&[DYNAMIC, "-mtls-dialect=gnu2"]);
    }
    models
}

/// Runs `f` as a fiber where there is one carrier, and where there are two.
fn on_fibers(f: impl Fn() + Send + Sync + Copy + 'static) {
    for carriers in [1, 2] {
        Runtime::builder().carriers(carriers).build().unwrap().run(f);
    }
}

/// `f` is to load the library at a path.
fn fibers_alive_find_initial_values(f: fn(PathBuf) -> Library) {
    let _alone = alone();
    on_fibers(move || {
        let directory = tempfile::tempdir().unwrap();
        for (number, model) in models().into_iter().enumerate() {
            let name = format!("library{number}.so");
            let Some(path) = build(directory.path(), &name, "variables.c", model) else { return };
            let crowd = Crowd::new(20);
            let waits = spawn(carefree_runtime::park);
            // One that has not run when the library is loaded; there may be an idle stack for it.
            let (send, receive) = mpsc::channel::<Library>();
            let late = spawn(move || receive.recv().unwrap().spoil());
            let library = f(path);
            assert_eq!(library.call(c"initial_at_load"), 1, "in the constructor; {model:?}");
            library.spoil();
            send.send(library).unwrap();
            late.join().unwrap();
            crowd.spoil(library);
            // Stacks that others have used before, and new ones.
            let more: Vec<_> = (0..40).map(|_| spawn(move || library.spoil())).collect();
            more.into_iter().for_each(|fiber| fiber.join().unwrap());
            waits.thread().unpark();
            waits.join().unwrap();
            crowd.end();
            library.close();
        }
    });
}

#[test]
fn a_fiber_loads_a_library_beside_others() {
    fibers_alive_find_initial_values(|path| Library::open(&path));
}

#[test]
fn a_thread_loads_a_library_beside_fibers() {
    fibers_alive_find_initial_values(|path| {
        std::thread::spawn(move || Library::open(&path)).join().unwrap()
    });
}

#[test]
fn a_library_is_loaded_into_the_namespace_by_its_number() {
    fibers_alive_find_initial_values(|path| {
        let path = string(&path);
        // SAFETY: a library made for these tests.
        let handle = unsafe { libc::dlmopen(libc::LM_ID_BASE, path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Library(handle)
    });
}

#[test]
fn libraries_are_closed_and_loaded_again_in_the_same_place() {
    let _alone = alone();
    on_fibers(|| {
        let directory = tempfile::tempdir().unwrap();
        for model in models() {
            let [mut one, mut other] = [model.to_vec(), model.to_vec()];
            one.push("-DSTART=5");
            other.push("-DSTART=6");
            let Some(one) = build(directory.path(), "one.so", "variables.c", &one) else { return };
            let other = build(directory.path(), "other.so", "variables.c", &other).unwrap();
            let crowd = Crowd::new(10);
            for round in 0..12 {
                // The same twice, then another.
                let library = Library::open(if round / 2 % 2 == 0 { &one } else { &other });
                library.spoil();
                crowd.spoil(library);
                spawn(move || library.spoil()).join().unwrap();
                library.close();
            }
            crowd.end();
        }
    });
}

#[test]
fn libraries_come_and_go_while_fibers_start_and_end() {
    let _alone = alone();
    Runtime::builder().carriers(2).build().unwrap().run(|| {
        let directory = tempfile::tempdir().unwrap();
        let one = build(directory.path(), "one.so", "variables.c", &[FIXED, "-DSTART=5"]);
        let Some(one) = one else { return };
        let other = [FIXED, "-DSTART=6"];
        let other = build(directory.path(), "other.so", "variables.c", &other).unwrap();
        // The library that is there, as long as it is borrowed.
        let current = Arc::new(RwLock::new(None::<Library>));
        let over = Arc::new(AtomicBool::new(false));
        let spawners: Vec<_> = (0..4)
            .map(|_| {
                let (current, over) = (Arc::clone(&current), Arc::clone(&over));
                spawn(move || {
                    let mut used = 0;
                    while !over.load(Ordering::SeqCst) {
                        // Some begin before a library is loaded and use it, some begin after.
                        let fibers: Vec<_> = (0..8)
                            .map(|_| {
                                let current = Arc::clone(&current);
                                spawn(move || {
                                    let library = current.read().unwrap();
                                    library.iter().for_each(|library| library.spoil());
                                    usize::from(library.is_some())
                                })
                            })
                            .collect();
                        used += fibers.into_iter().map(|f| f.join().unwrap()).sum::<usize>();
                    }
                    used
                })
            })
            .collect();
        for round in 0..60 {
            let library = Library::open(if round % 2 == 0 { &one } else { &other });
            *current.write().unwrap() = Some(library);
            for _ in 0..20 {
                yield_now();
            }
            *current.write().unwrap() = None;
            library.close();
        }
        over.store(true, Ordering::SeqCst);
        let used: usize = spawners.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        println!("{used} uses");
    });
}

#[test]
fn a_library_that_is_not_there_is_told_to_the_fiber() {
    on_fibers(|| {
        let error = || {
            // SAFETY: the caller's own text, which is copied.
            unsafe {
                let text = libc::dlerror();
                (!text.is_null()).then(|| CStr::from_ptr(text).to_str().unwrap().to_owned())
            }
        };
        // SAFETY: names; nothing is called.
        unsafe {
            assert!(libc::dlopen(c"/nowhere/absent.so".as_ptr(), libc::RTLD_NOW).is_null());
            yield_now();
            assert!(error().unwrap().contains("/nowhere/absent.so"));
            assert!(libc::dlopen(c"libabsent.so".as_ptr(), libc::RTLD_NOW).is_null());
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
            assert!(!libc.is_null());
            assert_eq!(error(), None, "of an earlier call");
            assert_eq!(libc::dlclose(libc), 0);
            let program = libc::dlopen(std::ptr::null(), libc::RTLD_NOW);
            assert!(!program.is_null());
            assert_eq!(libc::dlclose(program), 0);
        }
    });
}

/// A library that names another one is understood as if libc were called.
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
