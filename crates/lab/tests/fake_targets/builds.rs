//! Programs that have to be built.

use std::fs;

use crate::fake::{Fake, LONG, PROGRAM, executable, messages, toml};

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
