//! Libraries with thread-local variables, loaded by `dlopen` while fibers are alive.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::ffi::{CStr, CString, c_void};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, mpsc};

use carefree_interpose as _;
use carefree_runtime::{JoinHandle, Runtime, spawn, yield_now};

mod constructors;
mod libcs;
mod modes;

const FIXED: &str = "-ftls-model=initial-exec";
const DYNAMIC: &str = "-ftls-model=global-dynamic";

/// One test at a time: there is not much room for variables with a fixed place.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Builds a library from `source`; `None`, and a message, if there is no compiler.
fn build(directory: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let path = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loading").join(source);
    let cross = format!("{}-linux-gnu-gcc", std::env::consts::ARCH);
    let for_us = |compiler: &&str| {
        let output = Command::new(compiler).arg("-dumpmachine").output();
        output.is_ok_and(|output| output.stdout.starts_with(std::env::consts::ARCH.as_bytes()))
    };
    let Some(compiler) = ["cc", &cross].into_iter().find(for_us) else {
        println!("skipped: cc is not installed");
        return None;
    };
    let mut compiler = Command::new(compiler);
    compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&path).arg(source).args(flags);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(path)
}

fn string(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

/// A loaded library.
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
        assert!(!handle.is_null(), "{:?}", error());
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

/// Fibers that start before libraries are loaded, and use the libraries that they are sent.
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

/// The ways in which libraries may have their variables.
fn models() -> Vec<&'static [&'static str]> {
    let mut models: Vec<&[&str]> = vec![&[FIXED], &[DYNAMIC], &[]];
    if cfg!(target_arch = "x86_64") {
        models.push(&[DYNAMIC, "-mtls-dialect=gnu2"]);
    }
    models
}

/// The message of `dlerror`, which it returns once.
fn error() -> Option<String> {
    // SAFETY: the caller's own text, which is copied.
    unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_str().unwrap().to_owned())
    }
}

/// Runs `f` as a fiber where there is one carrier, and where there are two.
fn on_fibers(f: impl Fn() + Send + Sync + Copy + 'static) {
    for carriers in [1, 2] {
        Runtime::builder().carriers(carriers).build().unwrap().run(f);
    }
}

/// `f` loads the library at a path.
fn fibers_alive_find_initial_values(f: fn(PathBuf) -> Library) {
    let _alone = alone();
    on_fibers(move || {
        let directory = tempfile::tempdir().unwrap();
        for (number, model) in models().into_iter().enumerate() {
            let name = format!("library{number}.so");
            let Some(path) = build(directory.path(), &name, "variables.c", model) else { return };
            let crowd = Crowd::new(20);
            let (wake, woken) = mpsc::channel::<()>();
            let waits = spawn(move || woken.recv().unwrap_err());
            // A fiber that has not run yet when the library is loaded. It may get an idle stack.
            let (send, receive) = mpsc::channel::<Library>();
            let late = spawn(move || receive.recv().unwrap().spoil());
            let library = f(path);
            assert_eq!(library.call(c"initial_at_load"), 1, "in the constructor; {model:?}");
            library.spoil();
            send.send(library).unwrap();
            late.join().unwrap();
            crowd.spoil(library);
            // Some of these get stacks that other fibers have used, some get new ones.
            let more: Vec<_> = (0..40).map(|_| spawn(move || library.spoil())).collect();
            more.into_iter().for_each(|fiber| fiber.join().unwrap());
            drop(wake);
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
        // The library that is loaded now. A fiber that uses it borrows this meanwhile.
        let current = Arc::new(RwLock::new(None::<Library>));
        let over = Arc::new(AtomicBool::new(false));
        let spawners: Vec<_> = (0..4)
            .map(|_| {
                let (current, over) = (Arc::clone(&current), Arc::clone(&over));
                spawn(move || {
                    let mut used = 0;
                    while !over.load(Ordering::SeqCst) {
                        // Some of these begin before a library is loaded, some after.
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

/// Loading a library that is in use again, or another one, does not change what fibers wrote to its variables.
#[test]
fn what_fibers_have_written_stays() {
    let _alone = alone();
    on_fibers(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(path) = build(directory.path(), "one.so", "variables.c", &[FIXED]) else { return };
        let other = build(directory.path(), "other.so", "variables.c", &[FIXED]).unwrap();
        let (opened, library) = mpsc::channel();
        let (go_on, done) = mpsc::channel::<()>();
        let user = spawn({
            let path = path.clone();
            move || {
                let library = Library::open(&path);
                library.spoil();
                opened.send(library).unwrap();
                done.recv().unwrap_err();
                assert_eq!(library.call(c"spoilt"), 1, "not what was written");
            }
        });
        let library = library.recv().unwrap();
        library.spoil();
        let other = Library::open(&other);
        let again = Library::open(&path);
        // SAFETY: a library made for these tests.
        let there = Library(unsafe {
            libc::dlopen(string(&path).as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD)
        });
        assert_eq!(again.0, library.0);
        assert_eq!(there.0, library.0);
        assert_eq!(library.call(c"spoilt"), 1, "not what was written");
        drop(go_on);
        user.join().unwrap();
        other.spoil();
        [library, again, there, other].into_iter().for_each(Library::close);
        // SAFETY: as above; nothing is loaded.
        let gone =
            unsafe { libc::dlopen(string(&path).as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        assert!(gone.is_null());
        // Loaded anew.
        let library = Library::open(&path);
        library.spoil();
        library.close();
    });
}

/// The child of a fork loads libraries, for its thread and for fibers of its own.
#[test]
fn a_child_of_fork_loads_libraries() {
    let _alone = alone();
    on_fibers(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(path) = build(directory.path(), "one.so", "variables.c", &[FIXED]) else { return };
        let crowd = Crowd::new(10);
        // SAFETY: no library is being loaded just now; the child ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let done = catch_unwind(|| {
                let library = Library::open(&path);
                library.spoil();
                library.close();
                let path = path.clone();
                Runtime::builder().carriers(1).build().unwrap().run(move || {
                    let crowd = Crowd::new(10);
                    let library = Library::open(&path);
                    crowd.spoil(library);
                    crowd.end();
                });
            });
            // SAFETY: ends the child at once; its status is all that the parent asks for.
            unsafe { libc::_exit(if done.is_ok() { 7 } else { 8 }) };
        }
        let library = Library::open(&path);
        crowd.spoil(library);
        let mut status = 0;
        // SAFETY: the child made above, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
        crowd.end();
        library.close();
    });
}
