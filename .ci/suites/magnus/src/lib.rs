//! What magnus's users write: functions that release the interpreter's lock, and wait on fibers.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ptr;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use carefree::JoinHandle;
use magnus::{Error, Object as _, Ruby, function};

/// Runs `work` without the interpreter's lock, as `Thread` does while it waits. It must not panic.
fn without_the_lock<R>(work: impl FnOnce() -> R) -> R {
    struct Call<F, R> {
        work: Option<F>,
        result: Option<R>,
    }
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(call: *mut c_void) -> *mut c_void {
        // SAFETY: the call below, which waits for this.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        call.result = call.work.take().map(|work| work());
        ptr::null_mut()
    }
    fn runner<F: FnOnce() -> R, R>(_: &Call<F, R>) -> unsafe extern "C" fn(*mut c_void) -> *mut c_void {
        run::<F, R>
    }
    let mut call = Call { work: Some(work), result: None };
    let run = runner(&call);
    // SAFETY: `work` calls nothing of Ruby's, and the call outlives it.
    unsafe { rb_sys::rb_thread_call_without_gvl(Some(run), (&raw mut call).cast(), None, ptr::null_mut()) };
    call.result.expect("it was run")
}

/// Seconds that so many fibers take that sleep for so many milliseconds each.
fn sleepers(count: usize, milliseconds: u64) -> f64 {
    without_the_lock(|| sleep_all(count, milliseconds))
}

/// The same, with the interpreter's lock held.
fn sleepers_with_the_lock(count: usize, milliseconds: u64) -> f64 {
    sleep_all(count, milliseconds)
}

fn sleep_all(count: usize, milliseconds: u64) -> f64 {
    let (begin, nap) = (Instant::now(), Duration::from_millis(milliseconds));
    join((0..count).map(|_| carefree::spawn(move || std::thread::sleep(nap))));
    begin.elapsed().as_secs_f64()
}

/// How many of so many connections get their number from a server that sends back what it gets.
fn fetch(port: u16, count: usize) -> usize {
    let one = move |n: usize| {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        writeln!(stream, "{n}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer == format!("answer {n}"))
    };
    let got = without_the_lock(|| join((0..count).map(|n| carefree::spawn(move || one(n)))));
    got.into_iter().filter(|got| matches!(got, Ok(true))).count()
}

/// Has so many fibers wait for each other and for a lock; returns how many came through.
fn meetings(count: usize) -> usize {
    without_the_lock(|| {
        let (barrier, passed) = (Barrier::new(count), Mutex::new(0));
        carefree::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    barrier.wait();
                    *passed.lock().unwrap() += 1;
                    barrier.wait();
                });
            }
        });
        passed.into_inner().unwrap()
    })
}

/// Whether a panic ends no more than its fiber.
fn panics() -> bool {
    let ended: std::thread::Result<()> = without_the_lock(|| carefree::spawn(|| panic!("on a fiber")).join());
    ended.is_err()
}

/// Whether fibers are fibers here, or `carefree run` makes them so.
fn has_fibers() -> bool {
    let platform = carefree::platform();
    platform.tls == carefree::TlsMode::Own || platform.hosted
}

fn join<T>(fibers: impl Iterator<Item = JoinHandle<T>>) -> Vec<T> {
    let fibers: Vec<_> = fibers.collect();
    fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect()
}

#[magnus::init]
fn init(ruby: &Ruby) -> Result<(), Error> {
    let module = ruby.define_module("Sample")?;
    module.define_singleton_method("sleepers", function!(sleepers, 2))?;
    module.define_singleton_method("sleepers_with_the_lock", function!(sleepers_with_the_lock, 2))?;
    module.define_singleton_method("fetch", function!(fetch, 2))?;
    module.define_singleton_method("meetings", function!(meetings, 1))?;
    module.define_singleton_method("panics", function!(panics, 0))?;
    module.define_singleton_method("fibers?", function!(has_fibers, 0))?;
    Ok(())
}
