//! Where the result of a fiber that nothing joins is dropped: the same programs on threads and on fibers.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{own_tls, quiet, until};

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn add(&self, event: &'static str) {
        self.0.lock().unwrap().push(event);
    }

    fn has(&self, event: &str) -> bool {
        self.0.lock().unwrap().contains(&event)
    }
}

thread_local! {
    /// Has no destructor, so that it can be read at any time.
    static IS_CHILD: Cell<bool> = const { Cell::new(false) };
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// The value of a thread-local variable, whose destructor waits until it may end.
struct Local {
    log: Log,
    may_end: Arc<AtomicBool>,
}

impl Drop for Local {
    fn drop(&mut self) {
        self.log.add("locals end");
        until("the locals may end", || self.may_end.load(Ordering::Acquire));
    }
}

/// A result that logs where it is dropped.
struct Value(Log);

impl Drop for Value {
    fn drop(&mut self) {
        let alive = LOCAL.try_with(|_| ()).is_ok();
        self.0.add(match (IS_CHILD.get(), alive) {
            (true, true) => "dropped by itself",
            (true, false) => "dropped by itself, without locals",
            (false, true) => "dropped by another",
            (false, false) => "dropped by another, without locals",
        });
    }
}

/// When the handle is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Handle {
    BeforeTheEnd,
    DuringLocals,
    AfterTheEnd,
    Joined,
    Scoped,
    ScopedJoined,
}

const HANDLES: [Handle; 6] = [
    Handle::BeforeTheEnd,
    Handle::DuringLocals,
    Handle::AfterTheEnd,
    Handle::Joined,
    Handle::Scoped,
    Handle::ScopedJoined,
];

/// The program, for a module that has the API of `std::thread`.
macro_rules! program {
    ($name:ident, $($module:tt)+) => {
        fn $name(when: Handle, panics: bool) -> Vec<&'static str> {
            let log = Log::default();
            let (may_return, may_end) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
            let child = {
                let (log, may_return, may_end) = (log.clone(), may_return.clone(), may_end.clone());
                move || {
                    IS_CHILD.set(true);
                    LOCAL.set(Some(Local { log: log.clone(), may_end }));
                    let value = Value(log);
                    until("it may return", || may_return.load(Ordering::Acquire));
                    if panics {
                        panic::panic_any(value);
                    }
                    value
                }
            };
            let go = |flag: &AtomicBool| flag.store(true, Ordering::Release);
            let ends = || until("the locals end", || log.has("locals end"));
            match when {
                Handle::BeforeTheEnd => {
                    drop($($module)+::spawn(child));
                    go(&may_return);
                    ends();
                }
                Handle::DuringLocals => {
                    let handle = $($module)+::spawn(child);
                    go(&may_return);
                    ends();
                    drop(handle);
                }
                Handle::AfterTheEnd => {
                    let handle = $($module)+::spawn(child);
                    go(&may_return);
                    go(&may_end);
                    until("it has ended", || handle.is_finished());
                    // A thread is finished before its thread-local variables are.
                    ends();
                    drop(handle);
                }
                Handle::Joined => {
                    let handle = $($module)+::spawn(child);
                    go(&may_return);
                    go(&may_end);
                    drop(handle.join());
                }
                Handle::Scoped => $($module)+::scope(|scope| {
                    drop(scope.spawn(child));
                    go(&may_return);
                    ends();
                    go(&may_end);
                }),
                Handle::ScopedJoined => $($module)+::scope(|scope| {
                    let handle = scope.spawn(child);
                    go(&may_return);
                    go(&may_end);
                    drop(handle.join());
                }),
            }
            go(&may_end);
            until("the value is dropped", || log.0.lock().unwrap().len() == 2);
            std::mem::take(&mut *log.0.lock().unwrap())
        }
    };
}

program!(on_threads, std::thread);
program!(on_fibers, carefree_runtime);

#[test]
fn a_result_is_dropped_where_a_threads_is() {
    quiet();
    if !own_tls() {
        return;
    }
    for when in HANDLES {
        for panics in [false, true] {
            // A scope panics if a child has panicked that was not joined.
            if when == Handle::Scoped && panics {
                continue;
            }
            let expected = on_threads(when, panics);
            assert_eq!(on_fibers(when, panics), expected, "{when:?}, panics: {panics}");
        }
    }
}
