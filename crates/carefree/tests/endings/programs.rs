// Small programs about the end of threads, values and processes. They are compiled twice, with
// `thread` as `std::thread` and as `carefree`: what they print and how they end must be the same.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

macro_rules! say {
    ($($text:tt)*) => {
        // Not `println!`, which is line-buffered and locked.
        write_out(&format!("{}\n", format_args!($($text)*)))
    };
}

fn write_out(text: &str) {
    // SAFETY: bytes that live until then.
    unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
    LINES.fetch_add(1, Ordering::SeqCst);
}

/// How many lines were printed.
static LINES: AtomicUsize = AtomicUsize::new(0);

/// Waits until so many lines were printed: then what was begun has ended.
fn until_said(lines: usize) {
    while LINES.load(Ordering::SeqCst) < lines {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for the end of the process.
fn until_it_ends() {
    thread::sleep(Duration::from_secs(1000));
}

/// Prints when it is dropped, and on which thread, as `WHERE` is set there.
struct Loud(&'static str);

impl Drop for Loud {
    fn drop(&mut self) {
        let place = WHERE.try_with(Cell::get).unwrap_or("a thread without thread-locals");
        let panics = if thread::panicking() { ", panicking" } else { "" };
        say!("{} dropped on {place}{panics}", self.0);
    }
}

/// Panics when it is dropped.
struct Explosive(&'static str);

impl Drop for Explosive {
    fn drop(&mut self) {
        panic!("{} explodes", self.0);
    }
}

/// Ends the process when it is dropped.
struct Final(i32);

impl Drop for Final {
    fn drop(&mut self) {
        std::process::exit(self.0);
    }
}

thread_local! {
    static WHERE: Cell<&'static str> = const { Cell::new("a thread") };
    static FIRST: Loud = const { Loud("first") };
    static SECOND: Loud = const { Loud("second") };
    static THIRD: Loud = const { Loud("third") };
    static SLOT: RefCell<Vec<Box<dyn std::any::Any>>> = const { RefCell::new(Vec::new()) };
    static LAZY: Loud = Loud(std::hint::black_box("lazy"));
    static USES: Uses = const { Uses };
    static SPAWNS: Spawns = const { Spawns };
    static WAITS: Waits = const { Waits };
    static EXPLODES: Explosive = const { Explosive("a thread-local") };
    static ENDS: Final = const { Final(9) };
}

/// Looks at other thread-locals when it is dropped.
struct Uses;

impl Drop for Uses {
    fn drop(&mut self) {
        say!("first is {}", if FIRST.try_with(|_| ()).is_ok() { "there" } else { "gone" });
        say!("lazy is {}", if LAZY.try_with(|_| ()).is_ok() { "there" } else { "gone" });
        say!("itself is {}", if USES.try_with(|_| ()).is_ok() { "there" } else { "gone" });
    }
}

/// Spawns when it is dropped.
struct Spawns;

impl Drop for Spawns {
    fn drop(&mut self) {
        let sum = thread::spawn(|| {
            LAZY.with(|_| ());
            6 * 7
        });
        say!("a thread of a destructor's returned {}", sum.join().unwrap());
    }
}

/// Waits when it is dropped.
struct Waits;

impl Drop for Waits {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(5));
        thread::yield_now();
        let (send, receive) = mpsc::channel();
        let other = thread::spawn(move || send.send(1).unwrap());
        say!("received {:?}", receive.recv());
        other.join().unwrap();
    }
}

fn on(place: &'static str) {
    WHERE.with(|here| here.set(place));
}

/// A moment, long enough for what was begun to end.
fn settle() {
    thread::sleep(Duration::from_millis(100));
}

fn text(payload: &(dyn std::any::Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no text".to_owned(),
    }
}

/// For programs that are never woken.
static LOCK: Mutex<()> = Mutex::new(());
static CONDITION: Condvar = Condvar::new();

fn wait_for_ever() {
    let guard = LOCK.lock().unwrap();
    drop(CONDITION.wait_while(guard, |()| true));
}

extern "C" fn at_exit() {
    say!("atexit");
}

extern "C" fn end_of_key(value: *mut libc::c_void) {
    say!("a key's value {} destroyed", value as usize);
}

pub(super) const ALL: &[(&str, fn())] = &[
    ("thread_locals_in_their_order", || {
        let thread = thread::spawn(|| {
            on("the thread");
            SECOND.with(|_| ());
            FIRST.with(|_| ());
            THIRD.with(|_| ());
            let _on_stack = Loud("a local");
            Loud("the value")
        });
        on("main");
        let value = thread.join().unwrap();
        say!("joined");
        drop(value);
    }),
    ("thread_locals_after_a_panic", || {
        let captured = Loud("captured");
        let thread = thread::spawn(move || {
            let captured = captured;
            on("the thread");
            THIRD.with(|_| ());
            FIRST.with(|_| ());
            let _first = Loud("a local");
            let _second = Loud("another local");
            let _ = &captured;
            panic!("on purpose");
        });
        on("main");
        let error = thread.join().unwrap_err();
        say!("joined: {}", text(&*error));
    }),
    ("destructors_that_look_at_others", || {
        let thread = thread::spawn(|| {
            USES.with(|_| ());
            FIRST.with(|_| ());
        });
        thread.join().unwrap();
        let thread = thread::spawn(|| {
            FIRST.with(|_| ());
            USES.with(|_| ());
        });
        thread.join().unwrap();
    }),
    ("destructors_that_spawn_and_wait", || {
        let thread = thread::spawn(|| {
            FIRST.with(|_| ());
            SPAWNS.with(|_| ());
            WAITS.with(|_| ());
            SECOND.with(|_| ());
        });
        thread.join().unwrap();
    }),
    ("values_in_a_thread_local_in_their_order", || {
        let thread = thread::spawn(|| {
            on("the thread");
            SLOT.with(|slot| {
                slot.borrow_mut().push(Box::new(Loud("one")));
                slot.borrow_mut().push(Box::new(Loud("two")));
            });
        });
        thread.join().unwrap();
    }),
    ("keys_of_pthreads", || {
        let mut keys = [0; 2];
        for key in &mut keys {
            // SAFETY: a place for a key, and a function.
            unsafe { libc::pthread_key_create(key, Some(end_of_key)) };
        }
        let thread = thread::spawn(move || {
            FIRST.with(|_| ());
            for (value, key) in keys.into_iter().enumerate() {
                // SAFETY: a key of its own; the value is never looked through.
                unsafe { libc::pthread_setspecific(key, (value + 1) as *const _) };
            }
        });
        thread.join().unwrap();
    }),
    ("a_detached_value_while_the_thread_locals_are_there", || {
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                let there = FIRST.try_with(|_| ()).is_ok();
                say!("the value is dropped while thread-locals are {}", if there { "there" } else { "gone" });
            }
        }
        drop(thread::spawn(|| {
            on("the thread");
            FIRST.with(|_| ());
            // Detached by then.
            thread::sleep(Duration::from_millis(50));
            Last
        }));
        until_said(2);
    }),
    ("a_value_whose_handle_is_dropped_late", || {
        on("main");
        let thread = thread::spawn(|| {
            on("the thread");
            FIRST.with(|_| ());
            Loud("the value")
        });
        while !thread.is_finished() {
            thread::yield_now();
        }
        until_said(1);
        drop(thread);
        say!("detached");
    }),
    ("a_handle_dropped_while_thread_locals_end", || {
        use std::sync::atomic::{AtomicU32, Ordering};
        static STEP: AtomicU32 = AtomicU32::new(0);
        struct Gate;
        impl Drop for Gate {
            fn drop(&mut self) {
                STEP.store(1, Ordering::SeqCst);
                while STEP.load(Ordering::SeqCst) != 2 {
                    thread::yield_now();
                }
                say!("the thread-local is dropped");
            }
        }
        thread_local!(static GATE: Gate = const { Gate });
        on("main");
        let thread = thread::spawn(|| {
            on("the thread");
            FIRST.with(|_| ());
            GATE.with(|_| ());
            Loud("the value")
        });
        while STEP.load(Ordering::SeqCst) != 1 {
            thread::yield_now();
        }
        drop(thread);
        say!("detached");
        STEP.store(2, Ordering::SeqCst);
        until_said(4);
    }),
    ("a_panic_nobody_joins", || {
        drop(thread::spawn(|| {
            on("the thread");
            FIRST.with(|_| ());
            thread::sleep(Duration::from_millis(30));
            panic::panic_any(Loud("the payload"));
        }));
        until_said(2);
    }),
    ("a_payload_that_explodes", || {
        let thread = thread::spawn(|| panic::panic_any(Explosive("the payload")));
        let error = thread.join().unwrap_err();
        let dropped = panic::catch_unwind(AssertUnwindSafe(|| drop(error)));
        say!("dropped: {}", text(&*dropped.unwrap_err()));
    }),
    ("a_detached_payload_that_explodes", || {
        drop(thread::spawn(|| {
            thread::sleep(Duration::from_millis(30));
            panic::panic_any(Explosive("the payload"));
        }));
        until_it_ends();
    }),
    ("a_detached_value_that_explodes", || {
        drop(thread::spawn(|| {
            thread::sleep(Duration::from_millis(30));
            Explosive("the value")
        }));
        until_it_ends();
    }),
    ("a_thread_local_that_explodes", || {
        let thread = thread::spawn(|| EXPLODES.with(|_| ()));
        say!("joined: {}", thread.join().is_ok());
    }),
    ("a_panic_while_panicking", || {
        let thread = thread::spawn(|| {
            let _explosive = Explosive("a local");
            panic!("first");
        });
        say!("joined: {}", thread.join().is_ok());
    }),
    ("panics_in_turn_and_within_destructors", || {
        struct Catches;
        impl Drop for Catches {
            fn drop(&mut self) {
                let caught = panic::catch_unwind(|| panic!("within"));
                say!("caught {}, panicking: {}", caught.is_err(), thread::panicking());
            }
        }
        let thread = thread::spawn(|| {
            let first = panic::catch_unwind(|| {
                let _catches = Catches;
                panic!("first");
            });
            say!("first: {}, panicking: {}", first.is_err(), thread::panicking());
            panic::resume_unwind(Box::new("resumed"));
        });
        say!("joined: {}", text(&*thread.join().unwrap_err()));
    }),
    ("a_wait_while_panicking", || {
        let thread = thread::spawn(|| {
            struct Late;
            impl Drop for Late {
                fn drop(&mut self) {
                    thread::sleep(Duration::from_millis(10));
                    let other = thread::spawn(thread::panicking);
                    say!("the other panics: {}", other.join().unwrap());
                    say!("this one panics: {}", thread::panicking());
                }
            }
            let _late = Late;
            panic!("on purpose");
        });
        say!("joined: {}", thread.join().is_ok());
    }),
    ("a_poisoned_lock", || {
        static POISONED: Mutex<u32> = Mutex::new(0);
        let thread = thread::spawn(|| {
            let _guard = POISONED.lock().unwrap();
            thread::sleep(Duration::from_millis(5));
            panic!("with the lock");
        });
        say!("joined: {}, poisoned: {}", thread.join().is_ok(), POISONED.is_poisoned());
    }),
    ("a_panic_with_a_name", || {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            say!("the hook: {}", std::thread::current().name().unwrap_or("no name"));
            hook(info);
        }));
        let named = thread::Builder::new().name("worker".into());
        say!("joined: {}", named.spawn(|| panic!("on purpose")).unwrap().join().is_ok());
    }),
    ("a_scope_with_a_panic", || {
        let caught = panic::catch_unwind(|| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    on("the scoped thread");
                    FIRST.with(|_| ());
                    panic!("in the scope");
                });
                scope.spawn(|| thread::sleep(Duration::from_millis(200)));
                until_said(1);
                say!("the scope's function ends");
            });
        });
        say!("caught: {}", text(&*caught.unwrap_err()));
    }),
    ("a_scope_whose_panic_is_joined", || {
        let joined = thread::scope(|scope| {
            let one = scope.spawn(|| panic!("in the scope"));
            let other = scope.spawn(|| Loud("the value"));
            (one.join().is_ok(), other.join().is_ok())
        });
        say!("joined: {joined:?}");
    }),
    ("a_scope_that_panics_itself", || {
        let caught = panic::catch_unwind(|| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(20));
                    say!("the thread ends");
                });
                panic!("the scope itself");
            });
        });
        say!("caught: {}", text(&*caught.unwrap_err()));
    }),
    ("exit_while_others_wait", || {
        // SAFETY: a function of this program.
        unsafe { libc::atexit(at_exit) };
        for _ in 0..3 {
            thread::spawn(wait_for_ever);
        }
        let (_send, receive) = mpsc::channel::<()>();
        thread::spawn(move || receive.recv());
        let thread = thread::spawn(|| {
            FIRST.with(|_| ());
            let _local = Loud("never dropped");
            thread::sleep(Duration::from_millis(30));
            say!("exits");
            std::process::exit(7);
        });
        let _ = thread.join();
        say!("not reached");
    }),
    ("exit_of_two_at_once", || {
        let threads: Vec<_> = (0..2).map(|_| thread::spawn(|| std::process::exit(3))).collect();
        for thread in threads {
            let _ = thread.join();
        }
        say!("not reached");
    }),
    ("exit_in_a_destructor", || {
        let thread = thread::spawn(|| ENDS.with(|_| ()));
        let _ = thread.join();
        say!("not reached");
    }),
    ("abort_while_others_wait", || {
        // SAFETY: a function of this program.
        unsafe { libc::atexit(at_exit) };
        thread::spawn(wait_for_ever);
        let _ = thread::spawn(|| std::process::abort()).join();
        say!("not reached");
    }),
    ("a_signal_that_kills", || {
        // SAFETY: a signal to this process.
        let _ = thread::spawn(|| unsafe { libc::raise(libc::SIGTERM) }).join();
        settle();
        say!("not reached");
    }),
    ("main_returns_while_others_wait", || {
        // SAFETY: a function of this program.
        unsafe { libc::atexit(at_exit) };
        thread::spawn(wait_for_ever);
        thread::spawn(|| {
            let _local = Loud("never dropped");
            thread::sleep(Duration::from_secs(1000));
        });
        thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
        settle();
        say!("main returns");
    }),
    ("main_returns_while_another_prints", || {
        use std::io::Write as _;
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(b"half a line");
            send.send(()).unwrap();
            thread::sleep(Duration::from_secs(1000));
        });
        receive.recv().unwrap();
    }),
    ("main_panics_while_others_wait", || {
        thread::spawn(wait_for_ever);
        FIRST.with(|_| ());
        thread::sleep(Duration::from_millis(10));
        panic!("main panics");
    }),
    ("a_panic_that_may_not_unwind", || {
        extern "C" fn callback() {
            panic!("in a callback");
        }
        let thread = thread::spawn(|| callback());
        say!("joined: {}", thread.join().is_ok());
    }),
    // The handler waits for a lock that others have, which need what the runtime locks for the fork.
    ("forks_with_handlers_that_lock", || {
        static mut LOCK: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
        extern "C" fn before() {
            // SAFETY: a mutex of libc's.
            unsafe { libc::pthread_mutex_lock(&raw mut LOCK) };
        }
        extern "C" fn after() {
            // SAFETY: it is held, by `before`.
            unsafe { libc::pthread_mutex_unlock(&raw mut LOCK) };
        }
        // SAFETY: functions of this program.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        static FORKING: AtomicUsize = AtomicUsize::new(3);
        for _ in 0..2 {
            thread::spawn(|| {
                while FORKING.load(Ordering::SeqCst) != 0 {
                    before();
                    thread::sleep(Duration::from_micros(50));
                    after();
                    thread::spawn(|| ()).join().unwrap();
                }
            });
        }
        let forks = || {
            let mut ended = 0;
            for _ in 0..20 {
                // SAFETY: the child calls what it may.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        before();
                        libc::_exit(7);
                    }
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    ended += i32::from(libc::WEXITSTATUS(status) == 7);
                }
            }
            FORKING.fetch_sub(1, Ordering::SeqCst);
            ended
        };
        let threads: Vec<_> = (0..3).map(|_| thread::spawn(forks)).collect();
        let ended: i32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        say!("{ended} children");
    }),
    ("a_thousand_with_destructors", || {
        use std::sync::atomic::{AtomicU32, Ordering};
        static DROPPED: AtomicU32 = AtomicU32::new(0);
        struct Counts;
        impl Drop for Counts {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
        thread_local!(static COUNTS: Counts = const { Counts });
        let threads: Vec<_> = (0..1000)
            .map(|number| {
                thread::spawn(move || {
                    COUNTS.with(|_| ());
                    Box::new(number)
                })
            })
            .collect();
        let sum: i32 = threads.into_iter().map(|thread| *thread.join().unwrap()).sum();
        say!("{sum}, {} dropped", DROPPED.load(Ordering::Relaxed));
    }),
    ("joins_itself", || {
        use std::sync::{Mutex, mpsc};
        static OWN: Mutex<Option<thread::JoinHandle<()>>> = Mutex::new(None);
        // The message says where it is from.
        std::panic::set_hook(Box::new(|_| ()));
        let (tell, told) = mpsc::channel();
        let handle = thread::spawn(move || {
            let own = loop {
                // (The lock is released before others run.)
                let own = OWN.lock().unwrap().take();
                match own {
                    Some(own) => break own,
                    None => thread::yield_now(),
                }
            };
            let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.join()));
            tell.send(joined.is_err()).unwrap();
        });
        *OWN.lock().unwrap() = Some(handle);
        say!("refused: {}", told.recv().unwrap());
    }),
    // What handlers of signals do meanwhile is the program.
    ("sleeps_for_ever", || until_a_handler_ends_it(|| thread::sleep(std::time::Duration::MAX))),
    ("polls_for_ever", || {
        until_a_handler_ends_it(|| {
            // SAFETY: no files.
            unsafe { libc::poll(std::ptr::null_mut(), 0, -1) };
        });
    }),
];

/// Waits on a fiber while a handler of a signal ends the process, later than a deadlock would be told (2 s).
fn until_a_handler_ends_it(wait: fn()) {
    extern "C" fn ends(_: libc::c_int) {
        // SAFETY: ends the process, without the program's code.
        unsafe { libc::_exit(7) };
    }
    // SAFETY: a handler that may be called anywhere, and a number.
    unsafe {
        libc::signal(libc::SIGALRM, ends as *const () as usize);
        libc::alarm(4);
    }
    let _ = thread::spawn(wait).join();
}
