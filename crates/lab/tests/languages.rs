//! Every runtime that is installed runs its programs, at sizes that take a moment, and proves what
//! it did.

#[path = "support/samples.rs"]
mod samples;

use std::path::Path;
use std::time::Duration;

use carefree_lab::targets::lineup::{Lineup, Wishes};
use carefree_lab::targets::{Folders, Target, read_all};
use carefree_lab::trial::Trial;
use carefree_workloads::workload::Workload;

fn check(name: &str) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // What is built is kept from one run of the tests to the next, and for those of the command
    // line (crates/cli/tests/feed_fetch.rs), which look for it under this name.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs/carefree");
    let folders = Folders::open_in(&cache, &[top.join("targets")]).expect("writable");
    let (targets, mistakes) = read_all(folders.targets());
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let target: &Target = targets.iter().find(|target| target.name() == name).expect("it is ours");
    let Some(runtime) = target.installed(&[]).next() else {
        println!("skipped: {name} is not installed");
        return;
    };
    let wishes =
        Wishes { runtimes: vec![format!("{name}@{}", runtime.version())], ..Wishes::default() };
    let sizes = samples::sizes(&[Workload::Alloc, Workload::Switch, Workload::Warm], 3);
    let lineup = Lineup::find(&wishes, &targets).expect("it is there");
    let field = lineup.field(&sizes, &folders, &mut |_| true);
    field.notes.iter().for_each(|note| println!("{}", note.message));
    assert!(field.failed.is_empty(), "{:?}", field.failed);
    // Our own are tested elsewhere.
    let theirs = field.kinds.iter().filter(|trial| field.launch(trial).is_some());
    let mut kinds: Vec<Trial> = theirs.cloned().collect();
    for trial in &mut kinds {
        let switches = trial.parameters.number("switches").unwrap_or(0).min(200);
        trial.parameters.set("switches", switches);
        trial.warmup = trial.warmup.min(1);
    }
    let count = kinds.len();
    let outcome = samples::run(&field, kinds, 1, Duration::from_secs(120));
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_eq!(outcome.taken.len(), count);
    assert!(!outcome.taken.is_empty() || !field.notes.is_empty(), "it has no units");
    for taken in &outcome.taken {
        let (trial, sample) = (&taken.trial, &taken.sample);
        let what = format!("{trial}: {sample:?}");
        assert_eq!(sample.account.switches_asked, trial.parameters.switches_asked(), "{what}");
        assert!(sample.account.switches_made <= sample.account.switches_asked, "{what}");
        if trial.workload == Workload::Switch {
            // On one core a yield has another unit to yield to. Some schedulers give one unit two
            // turns now and then, and a busy machine takes some of the turns.
            let share = sample.account.switches_made as f64 / sample.account.switches_asked as f64;
            assert!(share > 0.5, "{what}");
        }
        if trial.workload == Workload::Alloc {
            let memory = sample.memory.expect("it stopped to be looked at");
            // No runtime starts in less; something else was looked at if there is less. (What a C++ program has
            // of its own at the start is 200 KiB; the rest is pages of its files.)
            let files = memory.files.map_or(0, |files| files.base);
            assert!(memory.own.base > 100_000, "{what}");
            assert!(memory.own.base + files > 500_000, "{what}");
            assert!(memory.own.peak >= memory.own.rest.min(memory.own.base), "{what}");
        }
        assert_eq!(sample.account.warmup.is_some(), trial.warmup > 0, "{what}");
    }
}

/// Those that are here, in the first version that has each.
#[test]
fn variants() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs/carefree");
    let folders = Folders::open_in(&cache, &[top.join("targets")]).expect("writable");
    let (targets, _) = read_all(folders.targets());
    let here = |target: &Target, variant: &str| {
        target.installed(&[]).any(|runtime| runtime.in_variant(variant).is_ok())
    };
    let all = targets.iter().flat_map(|t| t.variants().map(move |variant| (t, variant)));
    let (here, gone): (Vec<_>, Vec<_>) = all.partition(|(target, variant)| here(target, variant));
    gone.iter().for_each(|(target, variant)| println!("skipped: {}/{variant}", target.name()));
    let runtimes: Vec<String> =
        here.iter().map(|(target, variant)| format!("{}/{variant}", target.name())).collect();
    if runtimes.is_empty() {
        return;
    }
    let wishes = Wishes { runtimes, ..Wishes::default() };
    let lineup = Lineup::find(&wishes, &targets).expect("they are there");
    let field = lineup.field(&samples::sizes(&[Workload::Parked], 3), &folders, &mut |_| true);
    assert!(field.failed.is_empty(), "{:?}", field.failed);
    assert!(field.facts.iter().all(|facts| facts.variant.is_some()), "{:?}", field.facts);
    let count = field.kinds.len();
    assert!(count >= here.len(), "{:?}", field.kinds);
    let outcome = samples::run(&field, field.kinds.clone(), 1, Duration::from_secs(120));
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_eq!(outcome.taken.len(), count);
}

macro_rules! languages {
    ($($test:ident: $name:literal)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*

        #[test]
        fn every_target_of_ours_is_tested_here() {
            let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../targets");
            let (targets, _) = read_all(&[targets]);
            let mut names: Vec<&str> = targets.iter().map(Target::name).collect();
            let mut tested = vec![$($name),*];
            names.sort_unstable();
            tested.sort_unstable();
            assert_eq!(names, tested);
        }
    };
}

languages! {
    cpp: "c++"
    csharp: "csharp"
    d: "d"
    erlang: "erlang"
    go: "go"
    java: "java"
    lua: "lua"
    node: "node"
    ocaml: "ocaml"
    php: "php"
    python: "python"
    ruby: "ruby"
    rust: "rust"
}
