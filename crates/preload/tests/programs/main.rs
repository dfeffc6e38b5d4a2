//! Programs that know nothing of fibers do the same whether their threads are threads or fibers: what they
//! print, and how they end.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod calls;
mod common;
mod loading;
mod locks;
mod processes;
mod signals;
mod threads;
