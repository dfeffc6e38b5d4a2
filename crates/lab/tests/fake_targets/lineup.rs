//! Which units take part, and what is said of the others.

use std::fs;
use std::path::Path;

use carefree_lab::hosted::Hosting;
use carefree_lab::targets::lineup::{Lineup, Sizes, Wishes};
use carefree_lab::targets::read_all;
use carefree_lab::trial::Trial;
use carefree_workloads::workload::{Size, Workload};

use crate::fake::{Fake, executable, messages, toml};
use crate::samples;

#[test]
fn a_runtime_that_was_named_without_a_version_has_the_units_that_are_asked_for() {
    let fake = Fake::new();
    let versions = |units: &[&str]| -> Vec<String> {
        let field = fake.field("fake", units).expect("it is there");
        field.kinds.iter().map(|trial| format!("{} {}", trial.version, trial.unit)).collect()
    };
    // The unit came with 2.0, and only old ones are here.
    assert!(versions(&["young"]).is_empty());
    fake.install("2.1");
    assert_eq!(versions(&["young"]), ["2.1 young"], "an older one has nothing to add");
    let first = versions(&["good"]);
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(!first[0].starts_with("2.1"), "the first that is found: {first:?}");
    let both = versions(&["good", "young"]);
    assert_eq!(both, [first[0].as_str(), "2.1 good", "2.1 young"]);

    // A part that one version has and another has not.
    let probe = "probe = [\"{bin}/rare\"]";
    fake.write_toml(&toml().replace("probe = [\"false\"]", probe));
    executable(&fake.at("versions/2.1/bin/rare"), "#!/bin/sh\necho 1.0\n");
    assert_eq!(versions(&["exotic"]), ["2.1 exotic"]);
}

/// They are compared with each other, and what a thread costs depends on how many there are.
#[test]
fn threads_on_fibers_come_in_crowds_as_large_as_on_the_kernel() {
    let fake = Fake::new();
    let threads = "\n[units.plain]\nwhat = \"a thread\"\nrole = \"thread\"\nkernel = true\n\
                   carefree_run = true\n";
    fake.write_toml(&(toml() + threads).replace(r#""switch"]"#, r#""switch", "warm", "parked"]"#));
    let folders = fake.folders();
    let (targets, mistakes) = read_all(folders.targets());
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let shell = Path::new("/bin/sh");
    let hosting = Hosting::by(shell, shell).expect("it is there");
    let targets: Vec<_> = targets.into_iter().map(|t| t.hosted_by(Some(&hosting))).collect();
    let units = ["good", "plain", "plain (carefree)"].map(str::to_owned).to_vec();
    let wishes = Wishes { runtimes: vec!["fake".into()], units, ..Wishes::default() };
    let lineup = Lineup::find(&wishes, &targets).expect("it is there");
    let crowds = |crowd| {
        let workloads = [Workload::Warm, Workload::Parked];
        let sizes = Sizes { crowd, size: Size::Full, ..samples::sizes(&workloads, 0) };
        let field = lineup.field(&sizes, &folders, &mut |_| true);
        let of = |trial: &Trial| (trial.unit.clone(), trial.parameters.units());
        let kinds = field.kinds.iter();
        workloads.map(|w| kinds.clone().filter(|t| t.workload == w).map(of).collect::<Vec<_>>())
    };
    let all = |crowds: [u64; 3]| -> Vec<(String, u64)> {
        let units = ["good", "plain", "plain (carefree)"].map(str::to_owned);
        units.into_iter().zip(crowds).collect()
    };
    assert_eq!(crowds(None), [all([10_000, 1_000, 1_000]), all([10_000; 3])]);
    assert_eq!(crowds(Some(7)), [all([7; 3]), all([7; 3])]);
}

#[test]
fn units_that_are_not_here_are_left_out_and_told_of() {
    let fake = Fake::new();
    let field = fake.field("fake@1.9", &["good", "exotic", "young"]).expect("it is there");
    assert_eq!(field.kinds.len(), 1);
    assert_eq!(
        messages(&field),
        [
            "fake 1.9 exotic is left out: it needs rare",
            "fake 1.9 young is left out: it came with 2.0"
        ]
    );
    fake.install("2.1");
    let field = fake.field("fake@2", &["young"]).expect("it is there");
    assert_eq!(field.kinds.len(), 1, "{:?}", field.notes);
}

#[test]
fn names_that_lead_nowhere_are_answered_with_those_that_do() {
    let fake = Fake::new();
    let wrong = |runtime, units: &[&str]| fake.field(runtime, units).expect_err("no such thing");
    let line = wrong("ruby-ish", &[]);
    assert!(line.starts_with("there is no runtime 'ruby-ish'; the runtimes are"), "{line}");
    assert!(line.contains("carefree") && line.contains("fake"), "{line}");
    let line = wrong("fake", &["god"]);
    assert!(line.starts_with("there is no unit 'god'; the units are") && line.contains("good"));
    let line = wrong("fake@7", &[]);
    assert!(line.starts_with("there is no fake 7 here; there is 1.") && line.contains("1.9"));
}

#[test]
fn roles_select_units_whatever_their_names() {
    let field = Fake::new().field("fake", &["thread"]).expect("it is there");
    let names: Vec<&str> = field.kinds.iter().map(|trial| trial.unit.as_str()).collect();
    assert_eq!(names, ["kernel", "threadless"]);
}

#[test]
fn a_target_with_a_mistake_is_a_line_and_the_others_are_there() {
    let fake = Fake::new();
    let broken = fake.at("targets/broken");
    fs::create_dir_all(&broken).expect("made");
    fs::write(broken.join("target.toml"), "schema = 1\nnaem = \"x\"\n").expect("written");
    let (targets, mistakes) = read_all(&[fake.at("targets")]);
    assert_eq!(targets.len(), 1);
    assert_eq!(mistakes.len(), 1);
    assert!(mistakes[0].contains("broken/target.toml, line 2: unknown field `naem`"));
    assert!(!mistakes[0].contains('\n'));
}
