//! The threads of a program that knows no fibers become fibers.
//!
//! `carefree run PROGRAM` has the dynamic loader load this library before libc. Its functions of libc's names
//! win over libc's: those of `interpose`, by which calls that wait park the fiber, and those here, by which
//! threads are fibers in the first place. The program and its libraries are not changed.
//!
//! | room | what |
//! |---|---|
//! | `start`, `environment`, `report` | before `main`: whether threads become fibers; the frame below `main`; what is told at the end |
//! | `thread` | creating, joining, ending and naming threads; what they are to the kernel |
//! | `signal` | masks of threads, and handlers that run on the thread that a signal is for; what is said where a fault ends the program |
//! | `kept`, `elf` | where threads were that kept their carriers, for the report |
//! | `mutex` | what cannot be had of mutexes, which is said |
//! | `stat` | how many threads `/proc/self/stat` shows |
//! | `library`, `caller` | libraries that are loaded later, and the callers of `dlopen` |
//! | `process`, `clone`, `variadic`, `unsuited` | `fork` and its kin, and the programs that a thread starts |
//!
//! Until the program creates its second thread, nothing is changed but that calls pass through the stand-ins.
//! Then the first thread becomes a fiber (`runtime::hosted::adopt`), and its kernel thread becomes the
//! *dispatcher* of signals.

#[macro_use]
mod next;

mod signal;
mod thread;

mod caller;
mod clone;
mod elf;
mod environment;
mod kept;
mod library;
mod mutex;
mod place;
mod process;
mod report;
mod start;
mod stat;
mod unsuited;
mod variadic;
