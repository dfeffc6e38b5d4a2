//! Some programs of fixed seeds, and those that were kept because they once differed.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::path::Path;
use std::{fs, thread};

use carefree_fuzz::compare::{FIBERS, Mode, Verdict, Workers, report};
use carefree_fuzz::generate::{Kind, draw};
use carefree_fuzz::program::Program;

/// What was kept of several lanes is run so often: chance has a say in it.
const OFTEN: usize = 8;
/// Programs that are drawn, for each number of carriers.
const SEEDS: u64 = 120;

fn workers() -> Workers {
    Workers::new(Path::new(env!("CARGO_BIN_EXE_carefree-fuzz"))).expect("a place for files")
}

fn assert_same(workers: &mut Workers, name: &str, program: &Program, modes: &[Mode]) {
    if let Verdict::Differs(difference) = workers.compare(program, modes) {
        let (mode, report) = (difference.mode.name, report(program, &difference));
        panic!("fibers differ from threads, {name}, over {mode}:\n{report}");
    }
}

#[test(seconds = 500)]
fn programs_that_once_differed() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("kept");
    let mut workers = workers();
    let mut run = 0;
    for entry in fs::read_dir(kept).expect("programs are kept") {
        let path = entry.expect("a file").path();
        // What is not mended yet is in a directory of its own.
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path).expect("it can be read");
        let program: Program = serde_json::from_str(&text).expect("a program");
        let often = if matches!(program, Program::Crowd(_)) { OFTEN } else { 1 };
        for _ in 0..often {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            assert_same(&mut workers, &name, &program, FIBERS.as_flattened());
        }
        run += 1;
    }
    assert!(run > 0, "no program is kept");
    if !workers.small {
        eprintln!("skipped: full file systems, which this process may not mount");
    }
}

#[test(seconds = 500)]
fn programs_of_fixed_seeds() {
    thread::scope(|scope| {
        for (first, modes) in (0u64..).zip(FIBERS) {
            scope.spawn(move || {
                let mut workers = workers();
                for seed in (0..SEEDS).map(|seed| 2 * seed + first) {
                    let program = draw(seed, Kind::Any);
                    assert_same(&mut workers, &format!("seed {seed}"), &program, &modes);
                }
            });
        }
    });
}

#[test]
fn a_seed_stands_for_one_program() {
    for seed in 0..200 {
        let program = draw(seed, Kind::Any);
        assert_eq!(program, draw(seed, Kind::Any));
        let text = serde_json::to_string(&program).expect("it can be written");
        assert_eq!(program, serde_json::from_str(&text).expect("it can be read"));
    }
}
