//! What PyO3's users write: functions that release the interpreter's lock, and wait on fibers.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use carefree::JoinHandle;
use pyo3::prelude::*;

/// Seconds that so many fibers take that sleep for so many milliseconds each.
#[pyfunction]
fn sleepers(py: Python<'_>, count: usize, milliseconds: u64) -> f64 {
    py.detach(|| sleep_all(count, milliseconds))
}

/// The same, with the interpreter's lock held.
#[pyfunction]
fn sleepers_with_the_lock(count: usize, milliseconds: u64) -> f64 {
    sleep_all(count, milliseconds)
}

fn sleep_all(count: usize, milliseconds: u64) -> f64 {
    let (begin, nap) = (Instant::now(), Duration::from_millis(milliseconds));
    join((0..count).map(|_| carefree::spawn(move || std::thread::sleep(nap))));
    begin.elapsed().as_secs_f64()
}

/// Of each of so many connections, what a server answers to its number.
#[pyfunction]
fn fetch(py: Python<'_>, port: u16, count: usize) -> PyResult<Vec<String>> {
    let one = move |n| {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        writeln!(stream, "{n}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    let answers = py.detach(|| join((0..count).map(|n| carefree::spawn(move || one(n)))));
    answers.into_iter().map(|answer| Ok(answer?)).collect()
}

/// What a function of Python's returns for each number, called by as many fibers. A fiber's waits park it also
/// while it has the interpreter's lock.
#[pyfunction]
fn call(py: Python<'_>, function: Py<PyAny>, count: usize) -> PyResult<Vec<Py<PyAny>>> {
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let results: Vec<Mutex<Option<PyResult<Py<PyAny>>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    py.detach(|| {
        carefree::scope(|scope| {
            for (n, place) in results.iter().enumerate() {
                let function = &function;
                scope.spawn(move || {
                    OWN.set(n);
                    carefree::yield_now();
                    let result = Python::attach(|py| {
                        let result = function.call1(py, (n,));
                        std::thread::sleep(Duration::from_millis(1));
                        result
                    });
                    assert_eq!(OWN.get(), n);
                    *place.lock().unwrap() = Some(result);
                });
            }
        });
    });
    let taken = results.into_iter().map(|place| place.into_inner().unwrap());
    taken.map(|result| result.expect("all were called")).collect()
}

/// Panics on a fiber.
#[pyfunction]
fn panics(py: Python<'_>) {
    py.detach(|| {
        let ended: std::thread::Result<()> = carefree::spawn(|| panic!("on a fiber")).join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Has so many fibers wait for each other and for a lock; returns how many came through.
#[pyfunction]
fn meetings(py: Python<'_>, count: usize) -> usize {
    py.detach(|| {
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

/// Whether fibers are fibers here, or `carefree run` makes them so.
#[pyfunction]
fn has_fibers() -> bool {
    let platform = carefree::platform();
    platform.tls == carefree::TlsMode::Own || platform.hosted
}

fn join<T>(fibers: impl Iterator<Item = JoinHandle<T>>) -> Vec<T> {
    let fibers: Vec<_> = fibers.collect();
    fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect()
}

#[pymodule]
fn sample(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sleepers, module)?)?;
    module.add_function(wrap_pyfunction!(sleepers_with_the_lock, module)?)?;
    module.add_function(wrap_pyfunction!(fetch, module)?)?;
    module.add_function(wrap_pyfunction!(call, module)?)?;
    module.add_function(wrap_pyfunction!(panics, module)?)?;
    module.add_function(wrap_pyfunction!(meetings, module)?)?;
    module.add_function(wrap_pyfunction!(has_fibers, module)?)
}
