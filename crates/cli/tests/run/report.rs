//! `--report`: where it is written, and what it says.

use std::fs;
use std::process::Command;

use carefree_testing::artifact;

use crate::compiled::{compile, compile_plainly, place};
use crate::support::carefree;

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

/// The report says in which function threads have kept their carriers, and for how long: also in one that is not
/// exported.
#[test]
fn the_report_says_where_carriers_were_kept() {
    artifact::preload();
    let (folder, program) = place();
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
    if !compile(text, &["-O1"], &program) {
        return;
    }
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

/// What a program starts does not overwrite its report, and has one of its own if it has threads.
#[test]
fn each_process_with_threads_has_a_report() {
    artifact::preload();
    let (folder, program) = place();
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
    if !compile_plainly(text, &program) {
        return;
    }
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
