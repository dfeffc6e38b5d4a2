//! Threads that stay threads, and why: what `carefree run` and its library say of them, and `--strict`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use carefree_testing::artifact;

use crate::compiled::{compile, compile_by, compile_plainly, place};
use crate::support::{carefree, run, stderr, stdout};

/// The runtime of a sanitizer ends a program in which it does not come first, or whose threads' stacks it does not
/// know.
#[test]
fn threads_of_programs_with_sanitizers_stay_threads() {
    artifact::preload();
    let (_folder, program) = place();
    let text = r#"
        #include <pthread.h>
        #include <stdio.h>
        static void *begin(void *argument) { puts("began"); return argument; }
        int main(void) {
            pthread_t thread;
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
    "#;
    for flags in [
        &["-fsanitize=address"][..],
        &["-fsanitize=address", "-static-libasan"],
        &["-fsanitize=thread"],
    ] {
        let compiled = compile_by("cc", text, flags, &program);
        if !compiled.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: cc {flags:?} does not work here");
            continue;
        }
        // (Leaks cannot be looked for where this test is traced.)
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
    let (_folder, program) = place();
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
    let compiled = compile_by("gcc", text, &["-O1"], &program);
    if !compiled.is_ok_and(|output| output.status.success()) {
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

/// Go sets masks and stacks of its threads behind Carefree's back, and ends where they are fibers'.
#[test]
fn threads_of_programs_in_go_stay_threads() {
    artifact::preload();
    let (folder, program) = place();
    let source = folder.path().join("program.go");
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

/// What shows only when the first thread is created: `--strict` holds there, too.
#[test]
fn a_program_whose_threads_cannot_be_fibers_ends_if_it_must_not_run() {
    artifact::preload();
    let (_folder, program) = place();
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
    if !compile_plainly(text, &program) {
        return;
    }
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
    let (folder, program) = place();
    let text = r#"
        #include <pthread.h>
        #include <unistd.h>
        static void *begin(void *argument) { usleep(1000); return argument; }
        int main(void) {
            pthread_t thread;
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
    "#;
    if !compile_plainly(text, &program) {
        return;
    }
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
    let within = |name: &str| folder.path().join(name);
    let text = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <threads.h>
        #include <unistd.h>
        static void *begin(void *argument) {
            char path[64];
            snprintf(path, sizeof path, "/proc/self/task/%d", (int)gettid());
            puts(access(path, F_OK) ? "fiber" : "thread");
            return argument;
        }
        static int begin_by_c11(void *argument) {
            return begin(argument) != argument;
        }
        int main(void) {
            thrd_t other;
            pthread_t thread;
            if (thrd_create(&other, begin_by_c11, 0) || thrd_join(other, 0)) return 1;
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
    "#;
    if !compile(text, &["-D_GNU_SOURCE"], &within("java")) {
        return;
    }
    artifact::copy_program(within("java"), within("other"));
    // (The loader says that it does not find what valgrind would have preloaded.)
    let script = "cd \"$0\"; ./java; ./other; CAREFREE_RUN=off ./other; LD_PRELOAD=$LD_PRELOAD:/none/vgpreload_core.so ./other";
    let mut command = carefree();
    command.args(["run", "--strict", "/bin/sh", "-c", script]).arg(folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        stdout(&output),
        "thread\nthread\nfiber\nfiber\nthread\nthread\nthread\nthread\n",
        "{output:?}"
    );
}

/// The program's other threads are fibers.
#[test]
fn threads_of_gccs_openmp_stay_threads() {
    artifact::preload();
    let (_folder, program) = place();
    let text = r#"
        #define _GNU_SOURCE
        #include <omp.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static int is_thread(void) {
            char path[64];
            snprintf(path, sizeof path, "/proc/self/task/%d", (int)gettid());
            return !access(path, F_OK);
        }
        static int threads_in_a_loop(void) {
            int threads = 0;
            #pragma omp parallel num_threads(4) reduction(+: threads)
            threads += is_thread();
            return threads;
        }
        static void *begin(void *argument) {
            printf("%d of 1\n", is_thread());
            printf("%d of 4\n", threads_in_a_loop());
            return argument;
        }
        int main(void) {
            pthread_t thread;
            printf("%d of 4\n", threads_in_a_loop());
            return pthread_create(&thread, 0, begin, 0) || pthread_join(thread, 0);
        }
    "#;
    if !compile(text, &["-fopenmp"], &program) {
        return;
    }
    let output = run(["run", "--strict", program.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stdout(&output), "4 of 4\n0 of 1\n3 of 4\n", "{output:?}");
}
