//! Targets written in shell: the mistakes that programs may make, and what the lab says of them.

#[path = "../support/samples.rs"]
mod samples;
mod variants;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carefree_lab::hosted::Hosting;
use carefree_lab::run::Outcome;
use carefree_lab::targets::lineup::{Field, Lineup, Sizes, Wishes};
use carefree_lab::targets::{Folders, read_all};
use carefree_lab::trial::Trial;
use carefree_workloads::workload::{Size, Workload};
use tempfile::TempDir;

/// A target whose runtime is `sh` under other names, one for each version.
const TOML: &str = r#"schema = 1
name = "fake"
title = "Fake"
package = "apt install fake"

[find]
globs = ["HERE/versions/*/bin/fake"]
version = ["{runtime}", "version"]
after = "fake version "

[parts.rare]
probe = ["false"]
package = "apt install rare"

[programs.units]
workloads = ["alloc", "switch"]
run = ["{runtime}", "sample", "{folder}/program.sh"]
"#;

/// Its units, and what stands in the file of each beside its role.
const UNITS: [(&str, &str); 19] = [
    ("good", "fiber\""),
    // It says that it switched more often than the kernel knows of.
    ("kernel", "thread\"\nkernel = true\nmax_units = 1\nwhy = \"it would take all day\""),
    // Programs whose work is not proven.
    ("idle", "fiber\""),
    ("eager", "fiber\""),
    ("hasty", "fiber\""),
    ("slow", "fiber\""),
    ("restless", "fiber\""),
    ("threadless", "thread\"\nkernel = true"),
    ("few", "fiber\""),
    ("garbage", "fiber\""),
    ("crash", "fiber\""),
    ("hang", "fiber\""),
    // They leave a process behind: one that holds the sample's output, and one that has left the
    // sample's group as well.
    ("leaver", "fiber\""),
    ("runaway", "fiber\""),
    // It leaves a file where it runs.
    ("litterer", "fiber\""),
    ("evil", "fiber\""),
    ("refuse", "fiber\""),
    ("exotic", "fiber\"\nneeds = [\"rare\"]"),
    ("young", "fiber\"\nsince = \"2.0\""),
];

fn toml() -> String {
    let unit = |(name, rest)| format!("\n[units.{name}]\nwhat = \"a shell\"\nrole = \"{rest}\n");
    TOML.to_owned() + &UNITS.map(unit).concat()
}

/// Says which version it is, or runs a sample.
const RUNTIME: &str = r#"#!/bin/sh
case $1 in
version) echo "This is fake version VERSION, by nobody" ;;
sample) shift; exec sh "$@" ;;
*) exit 1 ;;
esac
"#;

const PROGRAM: &str = r#"
for order; do
    case $order in
    unit=*|workload=*|units=*|switches=*|rounds=*|phases=*) eval "${order%%=*}=${order#*=}" ;;
    esac
done
stop() {
    [ "$phases" = 1 ] || return 0
    echo "{\"phase\":\"$1\"}"
    read -r answer
}
made=$((units * switches))
did=$units
run=2000
echo "chatter of the runtime's own"
echo "$workload begins" >&2
case $unit in
few) did=$((units - 1)) ;;
idle) made=0 ;;
eager) made=$((made + 1)) ;;
hasty) run=0 ;;
slow) run=90000000000 ;;
garbage) echo '{"sample":{"units":"many"}}'; exit 0 ;;
crash) stop base; echo "ran out of rope" >&2; kill -SEGV $$ ;;
hang) exec sleep 600 ;;
evil)
    printf '\033[31mred\007\n' >&2
    printf '%s\n' '{"failure":{"message":"\u001b]0;mine\u0007"}}'
    exit 1 ;;
leaver) sleep 600 & echo $! > "$0.left" ;;
runaway) setsid sleep 600 & echo $! > "$0.left" ;;
litterer) pwd > "$0.place"; echo image > fake_crash.blob ;;
refuse) echo '{"failure":{"message":"not today","advice":"come back"}}'; exit 1 ;;
esac
stop base; [ "$unit" = restless ] || stop alive; stop done
more='"gc":{"on":true,"collections":3},"figures":{"wishes":2.5},"mood":"fine"'
[ "$unit" = kernel ] && more="$more,\"voluntary\":1,\"involuntary\":0"
echo "{\"sample\":{\"units\":$did,\"switches_asked\":$((units * switches)),\"switches_made\":$made,\"rounds\":[{\"create_ns\":1000,\"run_ns\":$run}],$more}}"
echo "  "
"#;

struct Fake {
    top: TempDir,
}

impl Fake {
    fn new() -> Fake {
        let fake = Fake { top: tempfile::tempdir().expect("a folder") };
        let folder = fake.at("targets/fake");
        fs::create_dir_all(&folder).expect("made");
        fake.write_toml(&toml());
        fs::write(folder.join("program.sh"), PROGRAM).expect("written");
        for version in ["1.9", "1.10"] {
            fake.install(version);
        }
        fake
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    fn write_toml(&self, toml: &str) {
        let toml = toml.replace("HERE", &self.top.path().display().to_string());
        fs::write(self.at("targets/fake/target.toml"), toml).expect("written");
    }

    fn install(&self, version: &str) {
        let bin = self.at(&format!("versions/{version}/bin"));
        fs::create_dir_all(&bin).expect("made");
        executable(&bin.join("fake"), &RUNTIME.replace("VERSION", version));
    }

    fn folders(&self) -> Folders {
        Folders::open_in(&self.at("cache"), &[self.at("targets")]).expect("writable")
    }

    fn field(&self, runtime: &str, units: &[&str]) -> Result<Field, String> {
        self.field_of(&Wishes {
            runtimes: vec![runtime.into()],
            units: units.iter().map(|&unit| unit.to_owned()).collect(),
            ..Wishes::default()
        })
    }

    fn field_of(&self, wishes: &Wishes) -> Result<Field, String> {
        let folders = self.folders();
        let (targets, mistakes) = read_all(folders.targets());
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let sizes = samples::sizes(&[Workload::Alloc], 5);
        let lineup = Lineup::find(wishes, &targets).map_err(|error| format!("{error:#}"))?;
        Ok(lineup.field(&sizes, &folders, &mut |_| true))
    }

    fn run(&self, units: &[&str], samples: u32, patience: Duration) -> Outcome {
        run(&self.field("fake", units).expect("it is there"), samples, patience)
    }
}

fn messages(field: &Field) -> Vec<&str> {
    field.notes.iter().map(|note| note.message.as_str()).collect()
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

fn run(field: &Field, samples: u32, patience: Duration) -> Outcome {
    samples::run(field, field.kinds.clone(), samples, patience)
}

const LONG: Duration = Duration::from_secs(60);

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
    let outcome = Fake::new().run(&units, 2, Duration::from_secs(3));
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
        "the sample's process ended without an answer: `units` is \"many\", not a whole number"
    );
    assert!(message("crash").contains("was ended by SIGSEGV"), "{}", message("crash"));
    assert_eq!(failure("crash").stderr.as_deref(), Some("alloc begins\nran out of rope"));
    assert_eq!(failure("crash").times, 2);
    assert_eq!(message("hang"), "took more than 3 s and was ended");
    assert_eq!(failure("hang").times, 1, "it would hang again");
    assert_eq!(message("refuse"), "not today");
    assert_eq!(failure("refuse").advice.as_deref(), Some("come back"));
    assert!(started.elapsed() < LONG);
}

#[test]
fn a_process_that_is_left_behind_holds_nothing_up_and_is_ended() {
    let started = Instant::now();
    let fake = Fake::new();
    let outcome = fake.run(&["leaver"], 2, LONG);
    assert_eq!(outcome.taken.len(), 2, "{:?}", outcome.failed);
    assert!(started.elapsed() < LONG, "its output was waited for");
    let left = fs::read_to_string(fake.at("targets/fake/program.sh.left"))
        .or_else(|_| fs::read_to_string(fake.at("cache/targets/fake/program.sh.left")));
    assert_is_gone(left.expect("it ran").trim());
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

#[test]
fn a_program_that_leaves_a_process_behind_tells_its_version_all_the_same() {
    let fake = Fake::new();
    let script = "#!/bin/sh\nsleep 600 &\necho 'This is fake version 4.0'\n";
    executable(&fake.at("mine"), script);
    let (targets, _) = read_all(fake.folders().targets());
    let target = targets.iter().find(|target| target.name() == "fake").expect("it is there");
    let runtime = target.named(&fake.at("mine"), None).expect("a version");
    assert_eq!(runtime.version(), "4.0");
}

#[test]
fn one_that_always_fails_is_given_up() {
    let outcome = Fake::new().run(&["crash"], 50, LONG);
    assert_eq!(outcome.failed[0].times, 3);
}

#[test]
fn versions_stand_side_by_side() {
    let fake = Fake::new();
    let versions = |runtime: &str| -> Vec<String> {
        let field = fake.field(runtime, &["good"]).expect("it is there");
        field.kinds.iter().map(|trial| trial.version.clone()).collect()
    };
    assert_eq!(versions("fake").len(), 1);
    assert_eq!(versions("fake@1.9"), ["1.9"]);
    assert_eq!(versions("fake@1.10"), ["1.10"]);
    let mut all = versions("fake@all");
    all.sort();
    assert_eq!(all, ["1.10", "1.9"]);
    let outcome = run(&fake.field("fake@all", &["good"]).expect("both"), 2, LONG);
    for version in ["1.9", "1.10"] {
        let count = outcome.taken.iter().filter(|taken| taken.trial.version == version).count();
        assert_eq!(count, 2, "{outcome:?}");
    }
}

/// Two builds of one version; each writes a file of its own when it runs.
#[test]
fn builds_of_one_version_have_names_and_each_runs_its_own_program() {
    let fake = Fake::new();
    for build in ["base", "patch"] {
        let bin = fake.at(build);
        fs::create_dir_all(&bin).expect("made");
        // Both say that they are where the first one is, as a build does that was not installed.
        let installed = fake.at("base").join("fake").display().to_string();
        let script = RUNTIME
            .replace("VERSION", "2.1")
            .replace(", by nobody\"", &format!("\"; echo {installed}"))
            .replace("shift;", "shift; echo ran >> $0.log;");
        assert!(script.contains(&installed), "{script}");
        executable(&bin.join("fake"), &script);
    }
    let with = |wishes: &[String]| {
        let units = vec!["good".to_owned()];
        fake.field_of(&Wishes { with: wishes.to_vec(), units, ..Wishes::default() })
    };
    let path = |build: &str| fake.at(build).join("fake").display().to_string();
    let (base, patch) = (path("base"), path("patch"));

    let unnamed = with(&[format!("fake={base}"), format!("fake={patch}")]).expect_err("which?");
    let right = format!("--with fake@base={base} --with fake@patch={patch}");
    assert!(unnamed.starts_with(&format!("{base} and {patch} are both fake 2.1: ")), "{unnamed}");
    assert!(unnamed.ends_with(&right), "{unnamed}");
    let wrong = with(&[format!("fake@a b={base}")]).expect_err("no name");
    assert!(wrong.starts_with("--with fake@a b: a name has letters, digits"), "{wrong}");

    let field = with(&[format!("fake@base={base}"), format!("fake@patch={patch}")]).expect("both");
    let versions: Vec<&str> = field.kinds.iter().map(|trial| trial.version.as_str()).collect();
    assert_eq!(versions, ["2.1 (base)", "2.1 (patch)"]);
    assert_eq!(run(&field, 3, LONG).taken.len(), 6);
    for build in [base, patch] {
        let ran = fs::read_to_string(format!("{build}.log")).expect("it ran");
        assert_eq!(ran.lines().count(), 3, "{build}");
    }
    // Named twice, it is one all the same.
    let twice = with(&[format!("fake={}", path("base")), format!("fake={}", path("base"))]);
    assert_eq!(twice.expect("one").kinds.len(), 1);
}

#[test]
fn a_runtime_that_was_built_anew_is_another_program() {
    let fake = Fake::new();
    let program =
        || fake.field("fake@1.9", &["good"]).expect("it is there").kinds[0].program.clone();
    let before = program();
    assert_eq!(program(), before);
    let same_version = format!("{}# another compiler's\n", RUNTIME.replace("VERSION", "1.9"));
    executable(&fake.at("versions/1.9/bin/fake"), &same_version);
    assert_ne!(program(), before);

    // A part of it that is another one by now counts as well.
    let with_probe = |version: &str| {
        toml().replace(r#"probe = ["false"]"#, &format!(r#"probe = ["echo", "{version}"]"#))
    };
    let with_part = |version| {
        // The file itself is one of the things that count: it stays as it is.
        fs::write(fake.at("rare"), version).expect("written");
        program()
    };
    let rare = fake.at("rare").display().to_string();
    fake.write_toml(&with_probe("x").replace(r#"["echo", "x"]"#, &format!(r#"["cat", "{rare}"]"#)));
    assert_ne!(with_part("1.0"), with_part("1.1"));
    assert_eq!(with_part("1.1"), with_part("1.1"));
}

#[test]
fn the_same_program_by_two_names_counts_once() {
    let fake = Fake::new();
    let link = fake.at("versions/also/bin");
    fs::create_dir_all(&link).expect("made");
    std::os::unix::fs::symlink(fake.at("versions/1.9/bin/fake"), link.join("fake")).expect("made");
    let field = fake.field("fake@all", &["good"]).expect("it is there");
    assert_eq!(field.kinds.len(), 2);
}

#[test]
fn a_program_that_was_named_takes_part() {
    let fake = Fake::new();
    executable(&fake.at("mine"), &RUNTIME.replace("VERSION", "3.0-mine"));
    let folders = fake.folders();
    let (targets, _) = read_all(folders.targets());
    let wish = |with: String| Wishes { with: vec![with], ..Wishes::default() };
    let mine = format!("fake={}", fake.at("mine").display());
    let lineup = Lineup::find(&wish(mine), &targets).expect("it is there");
    let versions: Vec<String> = lineup.runtimes().iter().map(|r| r.version()).collect();
    assert_eq!(versions, ["3.0-mine"], "and no other does");
    let wrong = format!(
        "{:#}",
        Lineup::find(&wish("fake=/bin/true".into()), &targets).expect_err("no fake")
    );
    assert_eq!(wrong, "/bin/true is no fake: it told no version");
    let wrong = format!("{:#}", Lineup::find(&wish("fake".into()), &targets).expect_err("no path"));
    assert!(wrong.contains("as in ruby=/path/to/ruby"), "{wrong}");
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
fn a_program_that_cannot_be_built_for_want_of_a_part_is_left_out_and_no_failure() {
    let fake = Fake::new();
    let parts = "[parts.compiler]\nprobe = [\"{bin}/fakec\", \"-version\"]\nafter = \"fakec \"\n\
                 package = \"apt install fakec\"\n\n[programs.units]\nneeds = [\"compiler\"]";
    let all = toml().replace("[programs.units]", parts);
    fake.write_toml(&all);
    let field = fake.field("fake@1.9", &["good"]).expect("it is there");
    assert_eq!((field.kinds.len(), field.failed.len()), (0, 0), "{field:?}");
    assert_eq!(messages(&field), ["fake 1.9 good is left out: it needs compiler"]);
    assert_eq!(field.notes[0].advice, "apt install fakec");

    // One of two programs can be had: the other's workloads are left out.
    let other = "[programs.other]\nworkloads = [\"alloc\"]\nrun = [\"{runtime}\"]\n\n[units.good]";
    let alloc = "workloads = [\"alloc\", \"switch\"]";
    assert!(all.contains(alloc));
    let switch = all
        .replace(alloc, "workloads = [\"alloc\"]")
        .replace("[units.good]", &other.replace("alloc", "switch"));
    fake.write_toml(&switch);
    let field = fake.field("fake@1.9", &["good"]).expect("it is there");
    assert_eq!(messages(&field), ["fake 1.9 good is left out of alloc: it needs compiler"]);

    // Beside the runtime that was found, wherever PATH leads; Java's old one told its version so.
    fake.write_toml(&all);
    let script = "#!/bin/sh\necho fakec 7.1 >&2\n";
    executable(&fake.at("versions/1.9/bin/fakec"), script);
    let field = fake.field("fake@1.9", &["good"]).expect("it is there");
    assert_eq!((field.kinds.len(), messages(&field)), (1, vec![]));
    assert_eq!(field.facts[0].parts["compiler"], "7.1");
}

#[test]
fn a_stand_in_with_nothing_behind_it_is_no_version() {
    let fake = Fake::new();
    let bin = fake.at("versions/none/bin");
    fs::create_dir_all(&bin).expect("made");
    let shim = "#!/bin/sh\necho 'no fake version to run was chosen' >&2\nexit 1\n";
    executable(&bin.join("fake"), shim);
    let (targets, _) = read_all(fake.folders().targets());
    let target = targets.iter().find(|target| target.name() == "fake").expect("it is there");
    let versions: Vec<String> = target.installed(&[]).map(|runtime| runtime.version()).collect();
    assert_eq!(versions.len(), 2, "{versions:?}");
    let silent = target.silent().expect("one");
    assert!(silent.contains("versions/none/bin/fake is there, but asked for"), "{silent}");
    let wrong = format!("{:#}", target.named(&bin.join("fake"), None).expect_err("no version"));
    assert!(wrong.ends_with("it failed; it said: no fake version to run was chosen"), "{wrong}");
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
fn a_build_is_done_once_and_again_when_a_file_changes() {
    let fake = Fake::new();
    let log = fake.at("log");
    let build = format!(
        "build = [[\"sh\", \"-c\", \"echo built >> {}; cp {{folder}}/program.sh {{cache}}/p\"]]\n\
         run = [\"{{runtime}}\", \"sample\", \"{{cache}}/p\"]",
        log.display()
    );
    let run = "run = [\"{runtime}\", \"sample\", \"{folder}/program.sh\"]";
    assert!(toml().contains(run));
    fake.write_toml(&toml().replace(run, &build));
    let builds = || fs::read_to_string(&log).expect("built").lines().count();
    for _ in 0..2 {
        let outcome = fake.run(&["good"], 1, LONG);
        assert_eq!(outcome.taken.len(), 1, "{outcome:?}");
        assert_eq!(builds(), 1);
    }
    fs::write(fake.at("targets/fake/program.sh"), format!("{PROGRAM}\n# new\n")).expect("written");
    assert_eq!(fake.run(&["good"], 1, LONG).taken.len(), 1);
    assert_eq!(builds(), 2);
    fake.write_toml(&toml().replace(run, &build.replace("cp ", "echo no such file >&2; false ")));
    let field = fake.field("fake", &["good", "few"]).expect("it is there");
    assert!(field.kinds.is_empty());
    assert_eq!(field.failed.len(), 1, "one program, told of once");
    assert_eq!(field.failed[0].message, "fake could not build its program");
    assert_eq!(field.failed[0].stderr.as_deref().map(str::trim), Some("no such file"));
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
