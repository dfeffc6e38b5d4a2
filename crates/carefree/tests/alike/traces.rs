//! Backtraces of panics.

use std::process::Command;

const CASE: &str = "CAREFREE_TEST_TRACE";

#[inline(never)]
fn fails() {
    panic!("for its backtrace");
}

/// The program's frames alone are shown, as a thread's are.
#[test]
fn a_backtrace_ends_where_the_program_does() {
    let cases: [(&str, fn()); 5] = [
        ("thread", || drop(std::thread::spawn(fails).join())),
        ("fiber", || drop(carefree::spawn(fails).join())),
        ("named", || {
            let named = carefree::Builder::new().name("named".into());
            drop(named.spawn(fails).unwrap().join());
        }),
        ("scoped", || carefree::scope(|scope| drop(scope.spawn(fails).join()))),
        ("run", || carefree::run(|| drop(std::panic::catch_unwind(fails)))),
    ];
    if let Ok(name) = std::env::var(CASE) {
        return cases.iter().find(|case| case.0 == name).expect("a case").1();
    }
    let frames = cases.map(|(name, _)| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "traces::a_backtrace_ends_where_the_program_does", "--nocapture"])
            .env(CASE, name)
            .env("RUST_BACKTRACE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        // A line of each frame begins with its number.
        let of_frame = |line: &&str| {
            line.trim_start().split_once(": ").is_some_and(|(n, _)| n.parse::<u32>().is_ok())
        };
        let frames: Vec<_> = said.lines().filter(of_frame).map(str::to_owned).collect();
        assert!(frames.iter().any(|frame| frame.contains("traces::fails")), "{name}: {said}");
        (name, frames)
    });
    let [(_, thread), fibers @ ..] = &frames;
    for (name, fiber) in &fibers[..3] {
        assert_eq!(fiber.len(), thread.len(), "{name}: {fiber:#?}");
    }
    // (What catches the panic is the program's own, and the closure in which it does.)
    let beyond = |frame: &&String| frame.contains("carefree_");
    for (name, fiber) in fibers {
        assert_eq!(fiber.iter().find(beyond), None, "{name}");
    }
}
