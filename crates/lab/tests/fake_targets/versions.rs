//! Which programs are found, and told apart.

use std::fs;

use carefree_lab::targets::lineup::{Lineup, Wishes};
use carefree_lab::targets::read_all;

use crate::fake::{Fake, LONG, RUNTIME, executable, run, toml};

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
    // Where it is the only one, a run says so: it is not for want of an installation.
    for version in ["1.9", "1.10"] {
        fs::remove_dir_all(fake.at(&format!("versions/{version}"))).expect("it was there");
    }
    let line = fake.field("fake", &[]).expect_err("no version");
    let said = "no fake here tells its version: ";
    assert!(line.starts_with(said) && line.contains("versions/none/bin/fake is there"), "{line}");
}
