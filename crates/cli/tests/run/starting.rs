//! The program that is run: how it is found, what it inherits, what is preloaded into it, and how it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use carefree_testing::artifact;

use crate::compiled::compile;
use crate::support::{carefree, run, stderr, stdout};

#[test]
fn a_program_ends_as_without() {
    let output = run(["run", "/bin/sh", "-c", "echo told; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(stdout(&output), "told\n");
}

#[test]
fn mistyped_settings_are_told_of() {
    let run = |command: &[&str]| {
        let mistyped = [("CAREFREE_CARRIER", "2"), ("CAREFREE_TEST_LIMIT", "300")];
        carefree().args(command).envs(mistyped).output().unwrap()
    };
    let line = "carefree: CAREFREE_CARRIER is no setting, but CAREFREE_CARRIERS is\n";
    for command in [&["run", "/bin/sh", "-c", "echo told; exit 7"][..], &["doctor", "/bin/ls"]] {
        assert_eq!(stderr(&run(command)), line);
    }
    assert_eq!(stdout(&run(&["run", "/bin/echo", "told"])), "told\n");
    let mut command = carefree();
    let output = command.env("CAREFREE_RUN", "of").args(["run", "/bin/true"]).output().unwrap();
    assert_eq!(stderr(&output), "carefree: CAREFREE_RUN=of is neither `off` nor `only`\n");
}

#[test]
fn what_is_not_there_is_said() {
    let output = run(["run", "no-such-program-here"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert_eq!(stderr(&output), "carefree: no-such-program-here: no such program in PATH\n");
    let output = run(["run"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = run(["run", "--carriers", "0", "sh"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for size in ["much", "-1", "1T", ""] {
        let output = run(["run", "--stack", size, "sh", "-c", "echo run"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains("not a number of bytes"), "{output:?}");
    }
}

/// As `env` and shells have it.
#[test]
fn what_cannot_be_started_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str, text: &str, mode| {
        let place = folder.path().join(name);
        fs::write(&place, text).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
        place.to_str().unwrap().to_owned()
    };
    let cases = [
        (folder.path().to_str().unwrap().to_owned(), 126),
        (place("text", "#!/bin/sh\n", 0o644), 126),
        (place("lost", "#!/no/such/interpreter\n", 0o755), 127),
        (place("windows", "#!/bin/sh\r\n", 0o755), 127),
    ];
    for (program, code) in cases {
        let output = run(["run", &program]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
        assert!(stderr(&output).starts_with(&format!("carefree: {program}: ")), "{output:?}");
        // Also where that cannot be said.
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let status = carefree().args(["run", &program]).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code));
    }
}

#[test]
fn programs_are_found_in_odd_ways() {
    artifact::preload();
    let output = run(["run", ""]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    // From a folder that is not there any more, and by the loader.
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place");
    let ours = env!("CARGO_BIN_EXE_carefree");
    let script = format!(
        "mkdir $0; cd $0; cp /bin/true ..; rmdir $0; {ours} run --strict ../true; \
         loader=$(sed -n 's/.* \\(.*ld-linux.*\\)/\\1/p' /proc/self/maps | head -1); {ours} run --strict $loader /bin/true"
    );
    let output = Command::new("/bin/bash").args(["-ec", &script]).arg(&place).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output), "", "{output:?}");
}

/// What Rust changes before `main` is changed back.
#[test]
fn a_program_inherits_what_it_would_without() {
    let told = |set_up: &str, prefix: &str| {
        let look = "for n in 0 1 2; do readlink /proc/self/fd/$n || echo closed; done >&9; \
                    grep -E ^Sig[PBIC] /proc/self/status >&9; grep -c . /proc/self/limits >&9";
        let script =
            format!("exec 9>&1 </dev/zero 2>/dev/null; {set_up}; {prefix} /bin/bash -c '{look}'");
        let output = Command::new("/bin/bash").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let ours = format!("{} run", env!("CARGO_BIN_EXE_carefree"));
    for set_up in
        ["true", "exec <&-", "exec >&- 2>&-", "exec <&- >&- 2>&-", "trap '' PIPE", "trap '' INT"]
    {
        let native = told(set_up, "");
        // (What comes from this test is not the same in number.)
        let lines = |text: &str| {
            let line =
                |line: &str| if line.starts_with("pipe:") { "pipe" } else { line }.to_owned();
            text.lines().map(line).collect::<Vec<_>>()
        };
        assert!(native.lines().count() > 6, "{native}");
        assert_eq!(lines(&told(set_up, &ours)), lines(&native), "{set_up}");
    }
}

/// The loader would leave the library out in a line of its own, and run the program on threads.
#[test]
fn a_library_that_cannot_be_preloaded_is_said() {
    let library = artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let beside = folder.path().join("a folder");
    fs::create_dir(&beside).unwrap();
    let program = beside.join("carefree");
    artifact::copy_program(env!("CARGO_BIN_EXE_carefree"), &program);
    fs::copy(library, beside.join("libcarefree.so")).unwrap();
    let attempt = |arguments: &[&str]| Command::new(&program).args(arguments).output().unwrap();
    let output = attempt(&["run", "--strict", "echo", "ran"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""), "{output:?}");
    assert!(stderr(&output).contains("a space or a colon ends a path"), "{output:?}");
    let output = attempt(&["run", "echo", "ran"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "ran\n"), "{output:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    assert_eq!(attempt(&["doctor", "echo"]).status.code(), Some(1));
    fs::write(beside.join("libcarefree.so"), "no library").unwrap();
    let output = attempt(&["run", "--strict", "echo", "ran"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// Such a library traces calls, sends them through a proxy, or tells another time. Carefree stands between it and libc.
#[test]
fn what_else_is_preloaded_sees_the_calls_of_threads() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let text = r#"
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        #ifdef LIBRARY
        int usleep(useconds_t time) {
            int (*next)(useconds_t) = (int (*)(useconds_t))dlsym(RTLD_NEXT, "usleep");
            char path[64];
            snprintf(path, sizeof path, "/proc/self/task/%d", (int)gettid());
            printf("sleeps as a %s", access(path, F_OK) ? "fiber" : "thread");
            return next(time);
        }
        #else
        static void *begin(void *argument) {
            printf(": %d\n", usleep(1000));
            return argument;
        }
        int main(void) {
            pthread_t thread;
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
        #endif
    "#;
    for (part, options) in [
        ("tracer.so", &["-D_GNU_SOURCE", "-shared", "-fPIC", "-DLIBRARY"][..]),
        ("program", &["-D_GNU_SOURCE"]),
    ] {
        if !compile(text, options, &place(part)) {
            return;
        }
    }
    let mut command = carefree();
    command.args(["run", "--strict"]).arg(place("program"));
    let output = command.env("LD_PRELOAD", place("tracer.so")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stdout(&output), "sleeps as a fiber: 0\n", "{output:?}");
}
