//! What programs say of their work, and what of it is believed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::fake::{Fake, LONG, messages, toml};

#[test]
fn a_program_that_does_as_it_is_told_has_its_figures_kept() {
    let outcome = Fake::new().run(&["good"], 2, LONG);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_eq!(outcome.taken.len(), 2);
    let sample = &outcome.taken[0].sample;
    assert_eq!((sample.account.units, sample.account.switches_made), (5, 10));
    assert_eq!(sample.account.rounds[0].total_ns(), 3_000);
    assert!(sample.account.gc.is_some_and(|gc| gc.on && gc.collections == Some(3)));
    assert_eq!(sample.account.figures["wishes"], 2.5);
    assert_eq!(sample.account.more["mood"], "fine", "what the lab does not know is kept");
    let memory = sample.memory.expect("it stopped to be looked at");
    assert!(memory.own.base > 0 && memory.own.peak >= memory.own.base, "{memory:?}");
}

#[test]
fn of_the_kernels_threads_no_more_switches_pass_than_the_kernel_counted() {
    let fake = Fake::new();
    let outcome = fake.run(&["kernel"], 1, LONG);
    let sample = &outcome.taken[0].sample;
    assert_eq!((sample.account.switches_asked, sample.account.switches_made), (2, 1));
    let field = fake.field("fake", &["kernel"]).expect("it is there");
    let note = "fake 1.10 kernel runs with 1 units at most: it would take all day";
    assert_eq!(messages(&field), [note], "a crowd that was lowered is told of");
}

#[test]
fn each_way_to_fail_is_named_and_stops_no_other_unit() {
    let started = Instant::now();
    let units = ["good", "few", "garbage", "crash", "hang", "refuse"];
    // (The others begin and end within that on a busy machine, too.)
    let outcome = Fake::new().run(&units, 2, Duration::from_secs(12));
    assert_eq!(outcome.taken.len(), 2, "{outcome:?}");
    let failure = |unit: &str| {
        let found = outcome.failed.iter().find(|failed| failed.subject.unit == unit);
        found.unwrap_or_else(|| panic!("{unit} did not fail: {outcome:?}"))
    };
    let message = |unit: &str| failure(unit).message.as_str();
    assert_eq!(
        message("few"),
        "the program did other work than was ordered: 4 units in place of 5"
    );
    assert_eq!(
        message("garbage"),
        "the program's answer has a mistake: `units` is \"many\", not a whole number"
    );
    assert!(message("crash").contains("was ended by SIGSEGV"), "{}", message("crash"));
    assert_eq!(failure("crash").stderr.as_deref(), Some("alloc begins\nran out of rope"));
    assert_eq!(failure("crash").times, 2);
    assert_eq!(message("hang"), "took more than 12 s and was ended");
    assert_eq!(failure("hang").times, 1, "it would hang again");
    assert_eq!(message("refuse"), "not today");
    assert_eq!(failure("refuse").advice.as_deref(), Some("come back"));
    assert!(started.elapsed() < LONG);
}

#[test]
fn a_process_that_is_left_behind_holds_nothing_up_and_is_ended() {
    for unit in ["leaver", "runaway"] {
        let started = Instant::now();
        let fake = Fake::new();
        let outcome = fake.run(&[unit], 4, LONG);
        assert_eq!(outcome.taken.len(), 4, "{:?}", outcome.failed);
        // Output that nothing is to come from any more is waited for ten seconds.
        assert!(started.elapsed() < LONG / 2, "the output of {unit} was waited for");
        let left = fs::read_to_string(fake.at("targets/fake/program.sh.left"))
            .or_else(|_| fs::read_to_string(fake.at("cache/targets/fake/program.sh.left")))
            .expect("it ran");
        if unit == "runaway" {
            // What is in a session of its own comes to `carefree` for its end, and not to this process.
            let killed = Command::new("kill").arg(left.trim()).status().expect("kill starts");
            assert!(killed.success());
        }
        assert_is_gone(left.trim());
    }
}

#[test]
fn what_a_program_leaves_where_it_runs_is_gone_with_the_sample() {
    let fake = Fake::new();
    // The program is named by a path from the folder that the lab runs in, which is not the sample's.
    let here = std::env::current_dir().expect("a folder");
    let up = "../".repeat(here.components().count() - 1);
    let program = format!("{up}{}/program.sh", fake.at("targets/fake").display());
    fake.write_toml(&toml().replace("{folder}/program.sh", &program.replace("//", "/")));
    let outcome = fake.run(&["litterer"], 2, LONG);
    assert_eq!(outcome.taken.len(), 2, "{:?}", outcome.failed);
    let place = fs::read_to_string(fake.at("targets/fake/program.sh.place")).expect("it ran");
    assert!(!Path::new(place.trim()).exists(), "{place} is left");
    assert!(!here.join("fake_crash.blob").exists(), "it is in the lab's folder");
}

/// Waits for the end of a process that was told to end.
fn assert_is_gone(process: &str) {
    let started = Instant::now();
    loop {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        assert!(started.elapsed() < LONG, "{process} runs on: {stat}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn work_that_is_not_proven_makes_no_figure() {
    let units = ["idle", "eager", "hasty", "slow", "restless", "threadless"];
    let outcome = Fake::new().run(&units, 1, LONG);
    assert!(outcome.taken.is_empty(), "{:?}", outcome.taken);
    let expected = [
        ("idle", "of 10 switches asked for, none can be proven"),
        ("eager", "the program did other work than was ordered: 11 switches made, 10 asked for"),
        ("hasty", "the program says that a round took no time"),
        ("slow", "the program says that its rounds took 90.000 s, and ran for"),
        (
            "restless",
            "the program was to stop at the phases base, alive, done; it stopped at: base, done",
        ),
        ("threadless", "the process had 1 threads when all 5 units were to be alive"),
    ];
    for (unit, message) in expected {
        let found = outcome.failed.iter().find(|failed| failed.subject.unit == unit);
        let said = &found.unwrap_or_else(|| panic!("{unit}: {:?}", outcome.failed)).message;
        assert!(said.starts_with(message), "{unit}: {said}");
    }
}

#[test]
fn what_a_program_says_is_no_order_to_the_terminal() {
    let outcome = Fake::new().run(&["evil"], 1, LONG);
    let failed = &outcome.failed[0];
    assert_eq!(failed.message, "\\u{1b}]0;mine\\u{7}");
    assert_eq!(failed.stderr.as_deref(), Some("alloc begins\n\\u{1b}[31mred\\u{7}"));
}

#[test]
fn one_that_always_fails_is_given_up() {
    let outcome = Fake::new().run(&["crash"], 50, LONG);
    assert_eq!(outcome.failed[0].times, 3);
}
