//! Third-party code, unchanged, on fibers: `std`, clients of databases and of HTTP, a
//! TLS library, C libraries, thread pools, an async runtime.
//!
//! `modes` runs all of it again over the other reactor and with shared thread-local storage. A test
//! that needs a program or a library that is not installed prints `skipped`.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod coroutines;
mod curl;
mod executors;
mod faults;
mod https;
mod kit;
mod locks;
mod modes;
mod postgres;
mod redis;
mod sqlite;
mod std;
