//! `carefree doctor PROGRAM`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::compiled::compile;
use crate::support::{run, stderr, stdout};

/// The tests of the lab have the library built, so it may be there or not.
#[test]
fn the_doctor_says_what_becomes_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let denied = folder.path().join("java");
    fs::write(&denied, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&denied, fs::Permissions::from_mode(0o755)).unwrap();
    let denied = denied.to_str().unwrap();
    let output = run(["doctor", denied]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).starts_with(&format!("The threads of {denied} stay threads.\n")));
    assert!(stdout(&output).contains("Because the JVM waits"), "{output:?}");
    let output = run(["doctor", "--format", "json", "/bin/sh"]);
    let report: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    let fibers = report["become_fibers"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!fibers)), "{output:?}");
    let because = report["checks"][0]["reason"].as_str();
    assert_eq!(because.is_none(), fibers, "{output:?}");
    let output = run(["doctor", "no-such-program-here"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(stderr(&output), "carefree: no-such-program-here: no such program in PATH\n");
}

/// The program's own and that of its libraries.
#[test]
fn the_doctor_sees_too_much_thread_local_storage() {
    let folder = tempfile::tempdir().unwrap();
    let [program, library] = ["program", "libstored.so"].map(|name| folder.path().join(name));
    let stored = "__thread char stored[600 << 10]; char *at(int n) { return stored + n; }";
    if !compile(stored, &["-shared", "-fPIC"], &library) {
        return;
    }
    let main = |kib: u32| {
        format!(
            "static __thread char own[{kib} << 10]; char *at(int); \
             int main(int count, char **_) {{ own[count] = *at(count); return own[0]; }}"
        )
    };
    let mut path = OsString::from("-Wl,-rpath,");
    path.push(folder.path());
    for (kib, fits) in [(300, true), (600, false)] {
        assert!(compile(&main(kib), &[library.as_os_str(), &path], &program));
        let output = run(["doctor", "--format", "json", program.to_str().unwrap()]);
        let report: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
        let because = report["checks"][0]["reason"].as_str().unwrap_or_default();
        let is_told = because.contains("1200 KiB of thread-local storage: more than 1 MiB")
            || because.contains("1201 KiB of thread-local storage: more than 1 MiB");
        // (The library that carefree run needs may be missing, which is told first.)
        let is_there = !because.contains("libcarefree.so");
        assert_eq!(is_told, is_there && !fits, "{output:?}");
    }
}
