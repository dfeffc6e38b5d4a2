//! The same source with `std::thread` and with `carefree`.

/// A program that can be written with either, and what it sees.
macro_rules! program {
    ($name:ident, $thread:path) => {
        #[allow(deprecated, reason = "std has deprecated functions, and so have we")]
        mod $name {
            use std::cell::Cell;
            use std::num::NonZero;
            use std::time::{Duration, Instant};

            use $thread as thread;

            thread_local!(static COUNT: Cell<u32> = const { Cell::new(1) });

            fn functions() -> String {
                let _: fn(fn() -> i32) -> thread::JoinHandle<i32> = thread::spawn;
                let _: fn() -> thread::Thread = thread::current;
                let _: fn() -> bool = thread::panicking;
                let _: fn() = thread::yield_now;
                let _: fn() = thread::park;
                let _: fn(Duration) = thread::park_timeout;
                let _: fn(u32) = thread::park_timeout_ms;
                let _: fn(Duration) = thread::sleep;
                let _: fn(u32) = thread::sleep_ms;
                let _: fn() -> std::io::Result<NonZero<usize>> = thread::available_parallelism;
                let _: fn(&thread::Thread) -> thread::ThreadId = thread::Thread::id;
                let _: fn(&thread::Thread) -> Option<&str> = thread::Thread::name;
                let _: fn(&thread::Thread) = thread::Thread::unpark;
                let _: fn() -> thread::Builder = thread::Builder::new;
                let _: fn(thread::Builder, String) -> thread::Builder = thread::Builder::name;
                let _: fn(thread::Builder, usize) -> thread::Builder = thread::Builder::stack_size;
                let key: &'static thread::LocalKey<Cell<u32>> = &COUNT;
                let read: Result<u32, thread::AccessError> = key.try_with(Cell::get);
                format!("{read:?}")
            }

            fn values() -> String {
                let plain: thread::Result<i32> = thread::spawn(|| 1).join();
                let built = thread::Builder::new()
                    .name("built".into())
                    .stack_size(256 * 1024)
                    .spawn(|| thread::current().name().map(str::to_owned))
                    .unwrap();
                let name = (built.thread().name().map(str::to_owned), built.join().unwrap());
                let text = String::from("borrowed");
                let (length, sum) = thread::scope(|s| {
                    let length = s.spawn(|| text.len());
                    let named = thread::Builder::new().name("in a scope".into());
                    let sum = named.spawn_scoped(s, || 1 + 2).unwrap();
                    (length.join().unwrap(), sum.join().unwrap())
                });
                // SAFETY: joined at once.
                let unchecked = unsafe { thread::Builder::new().spawn_unchecked(|| text.len()) };
                let unchecked = unchecked.unwrap().join().unwrap();
                format!("{plain:?} {name:?} {length} {sum} {unchecked}")
            }

            fn parked() -> String {
                let begun = Instant::now();
                thread::park_timeout(Duration::from_millis(1));
                thread::park_timeout_ms(1);
                thread::sleep_ms(1);
                thread::sleep(Duration::from_millis(1));
                thread::yield_now();
                // An earlier unpark is not lost, and several count as one.
                thread::current().unpark();
                thread::current().unpark();
                thread::park();
                let waiter = thread::spawn(thread::park);
                waiter.thread().unpark();
                let joined = waiter.join();
                format!("{} {joined:?}", begun.elapsed() >= Duration::from_millis(2))
            }

            fn panics() -> String {
                let text = |payload: Box<dyn std::any::Any + Send>| {
                    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
                    text.or(payload.downcast_ref::<String>().cloned())
                };
                let scope = std::panic::catch_unwind(|| {
                    thread::scope(|s| {
                        s.spawn(|| panic!("not joined"));
                    })
                });
                let joined = thread::scope(|s| s.spawn(|| panic!("joined")).join().unwrap_err());
                let whole = std::panic::catch_unwind(|| thread::scope(|_| panic!("the scope's")));
                let name = std::panic::catch_unwind(|| {
                    thread::Builder::new().name("with a \0".into()).spawn(|| ())
                });
                // A scope does not wait for threads that it has not spawned.
                let scoped = std::panic::catch_unwind(|| {
                    thread::scope(|s| {
                        let named = thread::Builder::new().name("a\0b".into());
                        named.spawn_scoped(s, || ()).map(|_| ())
                    })
                });
                struct Sees(std::sync::mpsc::Sender<bool>);
                impl Drop for Sees {
                    fn drop(&mut self) {
                        self.0.send(thread::panicking()).unwrap();
                    }
                }
                let (sender, receiver) = std::sync::mpsc::channel();
                let sees = Sees(sender);
                let seen = thread::spawn(move || {
                    let _sees = sees;
                    panic!("seen");
                });
                let ended = seen.join().unwrap_err();
                format!(
                    "{:?} {:?} {:?} {:?} {:?} {:?} {} {}",
                    text(scope.unwrap_err()),
                    text(joined),
                    text(whole.unwrap_err()),
                    text(name.map(|_| ()).unwrap_err()),
                    text(scoped.unwrap_err()),
                    text(ended),
                    receiver.recv().unwrap(),
                    thread::panicking(),
                )
            }

            fn printed() -> String {
                let handle = thread::Builder::new().name("shown".into()).spawn(|| ()).unwrap();
                let shown = format!("{:?} {:#?} {handle:?}", handle.thread(), handle.thread().id());
                handle.join().unwrap();
                let scope = thread::scope(|s| {
                    let handle = s.spawn(|| ());
                    let shown = format!("{handle:?}");
                    handle.join().unwrap();
                    shown
                });
                shown + &scope
            }

            fn ids() -> String {
                let handle = thread::spawn(|| thread::current().id());
                let id = handle.thread().id();
                let own = thread::current().id();
                let theirs = handle.join().unwrap();
                format!("{} {} {}", id == theirs, own == theirs, own == thread::current().id())
            }

            fn ending() -> String {
                let (end, ends) = std::sync::mpsc::channel::<()>();
                let handle = thread::spawn(move || ends.recv().is_err());
                let before = handle.is_finished();
                drop(end);
                while !handle.is_finished() {
                    thread::yield_now();
                }
                format!("{before} {:?}", handle.join())
            }

            /// All that the program sees, without numbers of threads, which may differ.
            pub(super) fn all() -> Vec<String> {
                let said =
                    [functions(), values(), parked(), panics(), printed(), ids(), ending()];
                // The number of a thread, also where `{:#?}` gives it a line of its own.
                let masked = |text: String| {
                    let mut masked = String::new();
                    let mut rest = text.as_str();
                    while let Some(at) = rest.find("ThreadId(") {
                        let (before, after) = rest.split_at(at + "ThreadId(".len());
                        masked += before;
                        rest = &after[after.find(')').unwrap()..];
                    }
                    masked + rest
                };
                said.into_iter().map(masked).collect()
            }
        }
    };
}

program!(threads, std::thread);
program!(fibers, carefree);

#[test]
fn a_program_sees_the_same() {
    let expected = threads::all();
    assert_eq!(fibers::all(), expected, "called by a plain thread");
    assert_eq!(carefree::run(fibers::all), expected, "called by a fiber");
}
