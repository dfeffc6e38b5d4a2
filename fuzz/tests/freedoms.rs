//! The differences that are accepted are freedoms of the kernel's: threads have them among themselves.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::path::Path;

use carefree_fuzz::call::{Buffer, Call, Lies, List, Step, Via};
use carefree_fuzz::compare::{Made, THREADS, Workers};
use carefree_fuzz::known::known;
use carefree_fuzz::object::{Family, Object};
use carefree_fuzz::program::{Program, Sequence};

/// Milliseconds that are more than any of these calls takes.
const PATIENCE: u64 = 5000;

fn sent(fd: u8, buffers: &[Buffer]) -> Step {
    let list = List { buffers: buffers.to_vec(), lies: Lies::Well, count: None };
    Step { via: Via::Function, call: Call::WriteList { fd, list } }
}

/// A thread sends on one connection, and then, on another, more than there is.
fn program(before: u64) -> Program {
    let sockets = Object::Sockets { family: Family::Tcp, nonblocking: false };
    let elsewhere = [Buffer { length: before, lies: Lies::Well }];
    let list =
        [Buffer { length: 163_386, lies: Lies::Well }, Buffer { length: 52, lies: Lies::Null }];
    Program::Sequence(Sequence {
        file_limit: None,
        storm: None,
        objects: vec![sockets; 2],
        steps: vec![sent(0, &elsewhere), sent(2, &list)],
    })
}

#[test(seconds = 300)]
fn how_much_tcp_takes_before_a_bad_pointer() {
    let mut workers =
        Workers::new(Path::new(env!("CARGO_BIN_EXE_carefree-fuzz"))).expect("a place for files");
    let mut outcomes = Vec::new();
    for before in (0..32).map(|times| times * 1000) {
        let program = program(before);
        let Made::Lines(lines) = workers.run(THREADS, &program, PATIENCE) else {
            panic!("threads do not come to an end")
        };
        let outcome = lines[1].clone();
        let first = outcomes.first().unwrap_or(&outcome);
        let is_known = *first == outcome || known(&program, 1, first, &outcome).is_some();
        assert!(is_known, "after {before} bytes: {outcome}; after none: {first}");
        outcomes.push(outcome);
    }
    outcomes.sort_unstable();
    outcomes.dedup();
    println!("{outcomes:?}");
    assert!(known(&program(0), 1, "163386", "130617").is_none(), "more than a piece less");
    assert!(known(&program(0), 1, "163386", "163387").is_none(), "more than is there");
    assert!(known(&program(0), 1, "163386", "EPIPE").is_none(), "another error");
    assert!(known(&program(0), 0, "163386", "163385").is_none(), "no bad pointer");
}
