//! `carefree run`: what it says, and how what it runs ends.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use carefree_testing::artifact;
use support::{carefree, run, stderr, stdout};

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

#[test]
fn a_report_that_cannot_be_written_changes_no_end() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let within = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let ours = env!("CARGO_BIN_EXE_carefree");
    for (set_up, report) in [("true", "/dev/full".to_owned()), ("ulimit -f 0", within("report"))] {
        for (stderr, lines) in [("", 1), ("2>/dev/full", 0), ("2>&-", 0)] {
            let script =
                format!("{set_up}; {ours} run --report {report} /bin/bash -c 'exit 7' {stderr}");
            let output = Command::new("/bin/bash").args(["-c", &script]).output().unwrap();
            assert_eq!(output.status.code(), Some(7), "{script}: {output:?}");
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(told.lines().count(), lines, "{script}: {told}");
            assert!(lines == 0 || told.starts_with("carefree: no report: "), "{script}: {told}");
        }
    }
}

#[test]
fn a_report_that_has_no_place_is_told_before_the_program_starts() {
    let folder = tempfile::tempdir().unwrap();
    let within = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, began) = (within("file"), within("began"));
    fs::write(&file, "kept").unwrap();
    let report = |place: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_carefree"))
            .args(["run", "--report", place, "/bin/sh", "-c", &format!("echo >{began}; exit 7")])
            .output()
            .unwrap();
        let has_begun = fs::remove_file(&began).is_ok();
        (output.status.code(), has_begun, String::from_utf8(output.stderr).unwrap())
    };
    for (place, why) in [
        (within("none/report"), format!("there is no folder {}", within("none"))),
        (within(""), "this is a folder; name a file in it".to_owned()),
        (format!("{file}/report"), "Not a directory (os error 20)".to_owned()),
    ] {
        let expected = format!("carefree: --report {place}: {why}\n");
        assert_eq!(report(&place), (Some(2), false, expected));
    }
    // To see that there is a place leaves no mark: a reader of the pipe would wait no longer.
    let pipe = within("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink(within("later"), within("link")).unwrap();
    for place in [file.clone(), within("new"), within("link"), "/dev/full".to_owned()] {
        let output = Command::new(env!("CARGO_BIN_EXE_carefree"))
            .args(["run", "--report", &place, "--", "/bin/ls", folder.path().to_str().unwrap()])
            .env("CAREFREE_RUN", "off")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "file\nlink\npipe\n", "{place}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

/// The runtime of a sanitizer ends a program in which it does not come first, or whose threads' stacks it does not
/// know.
#[test]
fn threads_of_programs_with_sanitizers_stay_threads() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    let text = r#"
        #include <pthread.h>
        #include <stdio.h>
        static void *begin(void *argument) { puts("began"); return argument; }
        int main(void) {
            pthread_t thread;
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
    "#;
    fs::write(&source, text).unwrap();
    for flags in [
        &["-fsanitize=address"][..],
        &["-fsanitize=address", "-static-libasan"],
        &["-fsanitize=thread"],
    ] {
        let mut compiler = Command::new("cc");
        compiler.args(flags).arg("-pthread").arg(&source).arg("-o").arg(&program);
        // (Leaks cannot be looked for where this test is traced.)
        if !compiler.output().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: cc {flags:?} does not work here");
            continue;
        }
        let settings = [("ASAN_OPTIONS", "detect_leaks=0")];
        let native = Command::new(&program).envs(settings).output().unwrap();
        if !native.status.success() {
            eprintln!("skipped: {flags:?} does not work here");
            continue;
        }
        let output = carefree().arg("run").arg(&program).envs(settings).output().unwrap();
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), "began\n"), "{output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
        assert!(stderr(&output).contains("stay threads, because a sanitizer"), "{output:?}");
        let mut started = carefree();
        started.args(["run", "/bin/sh", "-c", "\"$0\"; exit $?"]).arg(&program).envs(settings);
        let output = started.output().unwrap();
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), "began\n"), "{output:?}");
        assert_eq!(stderr(&output), "", "{output:?}");
    }
}

/// A nested function of GNU C's that uses its surroundings is called by code on the stack.
#[test]
fn threads_of_programs_with_executable_stacks_stay_threads() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    let text = r#"
        #include <pthread.h>
        #include <stdio.h>
        static int apply(int (*volatile function)(int)) { return function(1); }
        static void *begin(void *argument) {
            int x = *(int *)argument;
            int add(int y) { return x + y; }
            printf("%d\n", apply(add));
            return argument;
        }
        int main(void) {
            int x = 41;
            pthread_t thread;
            return pthread_create(&thread, 0, begin, &x) || pthread_join(thread, 0);
        }
    "#;
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-pthread"]).arg(&source).arg("-o").arg(&program);
    if !compiler.output().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: gcc is not installed");
    }
    let output = carefree().arg("run").arg(&program).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "42\n"), "{output:?}");
    assert!(
        stderr(&output)
            .contains("stay threads, because its threads need stacks that can be executed"),
        "{output:?}"
    );
    let mut started = carefree();
    started.args(["run", "/bin/sh", "-c", "\"$0\"; exit $?"]).arg(&program);
    let output = started.output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "42\n"), "{output:?}");
    let doctor = carefree().arg("doctor").arg(&program).output().unwrap();
    assert!(stdout(&doctor).contains("stacks that can be executed"), "{doctor:?}");
}

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
    let compile = |text: &str, arguments: &[&std::ffi::OsStr], out: &std::path::Path| {
        let source = out.with_extension("c");
        fs::write(&source, text).unwrap();
        let mut compiler = std::process::Command::new("cc");
        let status = compiler.arg("-o").arg(out).arg(&source).args(arguments).status();
        status.map(|status| assert!(status.success()))
    };
    let stored = "__thread char stored[600 << 10]; char *at(int n) { return stored + n; }";
    if compile(stored, &["-shared", "-fPIC"].map(std::ffi::OsStr::new), &library).is_err() {
        return eprintln!("skipped: cc is not installed");
    }
    let main = |kib: u32| {
        format!(
            "static __thread char own[{kib} << 10]; char *at(int); \
             int main(int count, char **_) {{ own[count] = *at(count); return own[0]; }}"
        )
    };
    let mut path = std::ffi::OsString::from("-Wl,-rpath,");
    path.push(folder.path());
    for (kib, fits) in [(300, true), (600, false)] {
        compile(&main(kib), &[library.as_os_str(), &path], &program).unwrap();
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

#[test]
fn a_program_whose_threads_stay_threads_is_run_unless_strict() {
    let folder = tempfile::tempdir().unwrap();
    let java = folder.path().join("java");
    fs::write(&java, "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(&java, fs::Permissions::from_mode(0o755)).unwrap();
    let java = java.to_str().unwrap();
    let output = run(["run", java]);
    assert_eq!(stdout(&output), "ran\n");
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(stderr(&output).contains("stay threads, because"), "{output:?}");
    let output = run(["run", "--strict", java]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("is not run, because"), "{output:?}");
}

/// The doctor has fibers itself, and says whose they are.
#[test]
fn a_program_with_fibers_of_its_own_is_told_of() {
    artifact::preload();
    let output = run(["run", "/proc/self/exe", "doctor"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("\nnote  thread-local storage: threads\n"), "{output:?}");
    assert!(stdout(&output).contains("the program runs under `carefree run`"), "{output:?}");
}

#[test]
fn threads_stay_threads_where_that_is_asked_for() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    let text = r#"
        #include <pthread.h>
        #include <unistd.h>
        static void *begin(void *argument) { usleep(1000); return argument; }
        int main(void) {
            pthread_t thread;
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
    "#;
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let compiled = compiler.arg("-pthread").arg(&source).arg("-o").arg(&program).status();
    let Ok(compiled) = compiled else { return eprintln!("skipped: cc is not installed") };
    assert!(compiled.success());
    let report = folder.path().join("report.json");
    let figure = |names: &[&str], key: &str| {
        let mut command = carefree();
        command.args(["run", "--strict", "--report"]).arg(&report);
        names.iter().for_each(|name| _ = command.args(["--threads-for", name]));
        let output = command.arg("--").arg(&program).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let report = fs::read_to_string(&report).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report.pointer(key).and_then(serde_json::Value::as_u64)
    };
    assert_eq!((figure(&[], "/threads"), figure(&[], "/kept")), (Some(1), Some(0)));
    assert_eq!(figure(&[], "/waits_by_kind/Sleep"), Some(1));
    assert!(figure(&[], "/used") >= Some(1) && figure(&[], "/stuck_ms").is_some());
    assert_eq!(figure(&["other", "begin"], "/kept"), Some(1));
    // The environment has the last word, as the message of a crash says: there is no report then.
    fs::remove_file(&report).unwrap();
    let mut command = carefree();
    command.env("CAREFREE_RUN", "off").args(["run", "--only", "--report"]).arg(&report);
    assert!(command.arg(&program).status().unwrap().success());
    assert!(!report.exists());
}

/// The program is not looked at by `carefree run`, for a shell starts it.
#[test]
fn a_program_that_another_one_starts_may_have_to_keep_its_threads() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let text = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static void *begin(void *argument) {
            char path[64];
            snprintf(path, sizeof path, "/proc/self/task/%d", (int)gettid());
            puts(access(path, F_OK) ? "fiber" : "thread");
            return argument;
        }
        int main(void) {
            pthread_t thread;
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
    "#;
    fs::write(place("program.c"), text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-D_GNU_SOURCE", "-pthread"]).arg(place("program.c"));
    let Ok(compiled) = compiler.arg("-o").arg(place("java")).status() else {
        return eprintln!("skipped: cc is not installed");
    };
    assert!(compiled.success());
    artifact::copy_program(place("java"), place("other"));
    // (The loader says that it does not find what valgrind would have preloaded.)
    let script =
        "cd \"$0\"; ./java; ./other; LD_PRELOAD=$LD_PRELOAD:/none/vgpreload_core.so ./other";
    let mut command = carefree();
    command.args(["run", "--strict", "/bin/sh", "-c", script]).arg(folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stdout(&output), "thread\nfiber\nthread\n", "{output:?}");
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
    fs::write(place("source.c"), text).unwrap();
    for (part, options) in [("tracer.so", &["-shared", "-fPIC", "-DLIBRARY"][..]), ("program", &[])]
    {
        let mut compiler = Command::new("cc");
        compiler.args(["-D_GNU_SOURCE", "-pthread"]).args(options).arg(place("source.c"));
        let Ok(compiled) = compiler.arg("-o").arg(place(part)).status() else {
            return eprintln!("skipped: cc is not installed");
        };
        assert!(compiled.success());
    }
    let mut command = carefree();
    command.args(["run", "--strict"]).arg(place("program"));
    let output = command.env("LD_PRELOAD", place("tracer.so")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stdout(&output), "sleeps as a fiber: 0\n", "{output:?}");
}

/// The report says in which function threads have kept their carriers, and for how long: also in one that is not
/// exported.
#[test]
fn the_report_says_where_carriers_were_kept() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    // No system call is made meanwhile. On a busy machine the kernel lets another thread run when such a call
    // returns, more often than amid a function, and all the time until this one's next turn would be told of there.
    let text = r#"
        #include <pthread.h>
        static volatile unsigned long sum;
        static __attribute__((noinline)) void computes(void) {
            for (unsigned long n = 0; n < 600000000; n++) sum += n * n;
        }
        static void *begin(void *argument) {
            computes();
            return argument;
        }
        int main(void) {
            pthread_t thread;
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
    "#;
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let compiled = compiler.args(["-O1", "-pthread"]).arg(&source).arg("-o").arg(&program).status();
    let Ok(compiled) = compiled else { return eprintln!("skipped: cc is not installed") };
    assert!(compiled.success());
    let report = |name: &str| {
        let file = folder.path().join(name);
        let mut command = carefree();
        command.args(["run", "--strict", "--report"]).arg(&file).arg("--").arg(&program);
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        fs::read_to_string(&file).unwrap()
    };
    let json: serde_json::Value = serde_json::from_str(&report("report.json")).unwrap();
    let longest = &json["kept_by"][0];
    assert_eq!((&longest["function"], &longest["object"]), (&"computes".into(), &"program".into()));
    // (It is told of what the monitor sees: some milliseconds less.)
    let (ms, all) = (longest["ms"].as_u64().unwrap(), json["stuck_ms"].as_u64().unwrap());
    assert!(ms >= 100 && ms <= all, "{json}");
    let text = report("report.txt");
    assert!(text.lines().any(|line| line.ends_with("  computes (program)")), "{text}");
}

/// What shows only when the first thread is created: `--strict` holds there, too.
#[test]
fn a_program_whose_threads_cannot_be_fibers_ends_if_it_must_not_run() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    let text = r#"
        #include <pthread.h>
        #include <stdio.h>
        static __thread char large[2 << 20];
        static void *begin(void *argument) {
            large[1] = 1;
            return argument;
        }
        int main(void) {
            pthread_t thread;
            if (pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0)) return 2;
            puts("ran");
        }
    "#;
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let compiled = compiler.arg("-pthread").arg(&source).arg("-o").arg(&program).status();
    let Ok(compiled) = compiled else { return eprintln!("skipped: cc is not installed") };
    assert!(compiled.success());
    let attempt = |options: &[&str]| {
        carefree().arg("run").args(options).arg("--").arg(&program).output().unwrap()
    };
    let output = attempt(&["--strict"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""), "{output:?}");
    assert!(stderr(&output).starts_with("carefree: the program ends here"), "{output:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    let output = attempt(&[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "ran\n"), "{output:?}");
    assert!(stderr(&output).contains("stay threads"), "{output:?}");
    assert!(stderr(&output).contains("more than 1 MiB"), "{output:?}");
}

/// Go sets masks and stacks of its threads behind Carefree's back, and ends where they are fibers'.
#[test]
fn threads_of_programs_in_go_stay_threads() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.go"), folder.path().join("program"));
    let text = r#"
        package main

        // #include <unistd.h>
        import "C"
        import "runtime"

        func main() {
            done := make(chan int)
            for n := 0; n < 4; n++ {
                go func() {
                    sum := 0
                    for i := 0; i < 30_000_000; i++ {
                        sum += i ^ n
                    }
                    C.usleep(100)
                    done <- sum
                }()
            }
            for n := 0; n < 50; n++ {
                runtime.GC()
            }
            for n := 0; n < 4; n++ {
                <-done
            }
            println("ran")
        }
    "#;
    fs::write(&source, text).unwrap();
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&program, &source])
        .envs([("CGO_ENABLED", "1"), ("GO111MODULE", "off")])
        .output();
    let Ok(built) = built else { return eprintln!("skipped: go is not installed") };
    if !built.status.success() {
        return eprintln!("skipped: go cannot build: {}", stderr(&built));
    }
    let name = program.to_str().unwrap();
    let output = run(["doctor", name]);
    assert!(stdout(&output).starts_with(&format!("The threads of {name} stay threads.\n")));
    // Also where another program starts it.
    for command in [&["/bin/sh", "-c", name] as &[_], &[name]] {
        for _ in 0..8 {
            let mut run = carefree();
            let output = run.args(["run", "--carriers", "2"]).args(command).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(stderr(&output).ends_with("ran\n"), "{output:?}");
        }
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

/// What a program starts does not overwrite its report, and has one of its own if it has threads.
#[test]
fn each_process_with_threads_has_a_report() {
    artifact::preload();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    let text = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void *begin(void *argument) { return argument; }
        static int threads(int count) {
            pthread_t thread;
            while (count-- > 0) if (pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0)) return 1;
            return 0;
        }
        int main(int count, char **arguments) {
            (void)arguments;
            if (threads(3)) return 1;
            if (count > 1 && !system(arguments[1])) return 0;
            // One child has threads, and one has none.
            for (int i = 0; i < 2; i++) {
                int status;
                pid_t child = fork();
                if (!child) exit(threads(i));
                if (waitpid(child, &status, 0) != child || status) return 1;
            }
            return 0;
        }
    "#;
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let compiled = compiler.arg("-pthread").arg(&source).arg("-o").arg(&program).status();
    let Ok(compiled) = compiled else { return eprintln!("skipped: cc is not installed") };
    assert!(compiled.success());
    // Of each report, whether it is the program's, and how many threads it tells of.
    let told = |name: &str, command: &[&str]| {
        let reports = folder.path().join(name);
        fs::create_dir(&reports).unwrap();
        let mut run = carefree();
        run.args(["run", "--strict", "--report"]).arg(reports.join("report.json")).arg("--");
        let output = run.args(command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut told: Vec<_> = fs::read_dir(&reports)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let json: serde_json::Value =
                    serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
                let name = path.file_name().unwrap().to_str().unwrap();
                let process = json["process"].as_u64().unwrap();
                assert!(
                    name == "report.json" || name == format!("report.{process}.json"),
                    "{name}"
                );
                (name == "report.json", json["threads"].as_u64().unwrap())
            })
            .collect();
        // (Some shells end without one.)
        told.retain(|(_, threads)| *threads > 0);
        told.sort_unstable();
        told
    };
    let program = program.to_str().unwrap();
    assert_eq!(told("forks", &[program]), [(false, 1), (true, 3)]);
    assert_eq!(
        told("shell", &["/bin/sh", "-c", &format!("{program}; true")]),
        [(false, 1), (false, 3)]
    );
    assert_eq!(told("alone", &[program, "true"]), [(true, 3)]);
}
