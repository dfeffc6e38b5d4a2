//! Programs that know nothing of fibers do the same whether their threads are threads or fibers: what they
//! print, and how they end.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::ffi::OsStr;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use carefree_testing::artifact::preload;
use tempfile::TempDir;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Runs a command natively, or as `carefree run` does, with so many carriers over a reactor (over the one of the
/// environment, or the default, where that is `None`).
fn run(command: &[&OsStr], fibers: Option<(u32, Option<&str>)>) -> Output {
    let mut run = Command::new(command[0]);
    run.args(&command[1..]).env_remove("LD_PRELOAD");
    if let Some((carriers, reactor)) = fibers {
        run.env("LD_PRELOAD", preload()).env("CAREFREE_CARRIERS", carriers.to_string());
        run.envs(reactor.map(|reactor| ("CAREFREE_REACTOR", reactor)));
    }
    run.output().unwrap()
}

/// Whether a command does on fibers what it does on threads.
fn compare(command: &[&OsStr]) {
    compare_over(command, &[(1, None), (2, None), (2, Some("epoll"))]);
}

/// Whether it does so with these carriers and reactors.
fn compare_over(command: &[&OsStr], hows: &[(u32, Option<&str>)]) {
    let native = run(command, None);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for &how in hows {
        let fibers = run(command, Some(how));
        let errors = text(&fibers.stderr);
        assert_eq!(text(&fibers.stdout), text(&native.stdout), "{how:?}: {errors}");
        let ends = |output: &Output| (output.status.code(), output.status.signal());
        assert_eq!(ends(&fibers), ends(&native), "{how:?}: {errors}");
        assert_eq!(errors, text(&native.stderr), "{how:?}");
    }
}

/// Compares a program in C.
fn compare_c(name: &str) {
    compare_compiled("cc", name);
}

/// Compares a program that `compiler` compiles.
fn compare_compiled(compiler: &str, name: &str) {
    let Some(program) = compile(compiler, &[], name) else { return };
    compare(&[program.as_os_str()]);
}

/// A program that was compiled for one test.
struct Program {
    path: PathBuf,
    _folder: TempDir,
}

impl Deref for Program {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Compiles a program, if there is such a compiler.
fn compile(compiler: &str, options: &[&str], name: &str) -> Option<Program> {
    let folder = tempfile::tempdir().unwrap();
    let program = Program { path: folder.path().join("program"), _folder: folder };
    let mut command = Command::new(compiler);
    command.args(["-O1", "-pthread"]).args(options).arg("-o").arg(&*program);
    let Ok(compiled) = command.arg(source(name)).args(["-lrt", "-lutil"]).status() else {
        eprintln!("skipped: {compiler} is not installed");
        return None;
    };
    assert!(compiled.success());
    Some(program)
}

/// Compares a program of an interpreter's.
fn compare_script(interpreter: &str, name: &str) {
    if Command::new(interpreter).arg("--version").output().is_err() {
        return eprintln!("skipped: {interpreter} is not installed");
    }
    compare(&[OsStr::new(interpreter), source(name).as_os_str()]);
}

#[test]
fn threads_are_created_joined_and_named() {
    compare_c("threads.c");
}

#[test]
fn threads_end_by_exits_and_cancellation() {
    compare_c("ending.c");
}

#[test]
fn variables_of_threads_may_be_large() {
    compare_c("storage.c");
}

/// A fault without a handler ends the program as it would have, after a line that says what it runs under.
#[test]
fn a_crash_says_how_to_try_without_fibers() {
    let Some(program) = compile("cc", &["-O0"], "crash.c") else { return };
    let faults = [("fault", "SIGSEGV"), ("trap", "SIGILL or SIGTRAP"), ("break", "SIGTRAP")];
    for (how, line) in faults.into_iter().chain([("sent", ""), ("handler", "")]) {
        let command = [program.as_os_str(), OsStr::new(how)];
        let (native, fibers) = (run(&command, None), run(&command, Some((2, None))));
        assert_eq!(fibers.stdout, native.stdout, "{how}");
        let ends = |output: &Output| (output.status.code(), output.status.signal());
        assert_eq!(ends(&fibers), ends(&native), "{how}");
        let errors = String::from_utf8_lossy(&fibers.stderr).into_owned();
        if line.is_empty() {
            assert_eq!(errors, "", "{how}");
            continue;
        }
        assert_eq!(errors.lines().count(), 1, "{how}: {errors}");
        let named =
            line.split(" or ").any(|name| errors.starts_with(&format!("carefree: {name} in")));
        assert!(named && errors.ends_with("set CAREFREE_RUN=off\n"), "{how}: {errors}");
    }
}

#[test]
fn exceptions_that_nothing_catches_are_named() {
    compare_compiled("c++", "thrown.cpp");
}

#[test]
fn signals_reach_the_threads_that_they_are_for() {
    compare_c("signals.c");
}

/// At spin locks too, and though handlers leave by `pthread_exit` or `siglongjmp`.
#[test]
fn threads_that_spin_are_interrupted() {
    compare_c("spinning.c");
}

#[test]
fn threads_are_refused_without_memory() {
    compare_c("exhausted.c");
}

/// As jemalloc's, tcmalloc's and Chromium's are.
#[test]
fn a_fork_asks_an_allocator_that_is_locked_for_nothing() {
    compare_c("fork_allocator.c");
}

#[test]
fn a_fork_does_not_wait_for_a_thread_that_waits_for_its_allocator() {
    compare_c("fork_loading.c");
}

/// Not by signals that the thread has handled before it waits.
#[test]
fn waits_are_interrupted_by_handlers_alone() {
    compare_c("handled_before.c");
}

/// With and without the mask, out of handlers and not.
#[test]
fn jumps_restore_masks() {
    compare_c("jumps.c");
}

/// A stack of 8 MiB takes 10 MiB of it.
#[test]
fn stacks_fit_a_limit_of_address_space() {
    compare_c("limited.c");
}

#[test]
fn alternate_stacks_are_those_of_threads() {
    compare_c("alternate.c");
}

/// Also amid computing, where they wait, jump, exit, fork or are cancelled.
#[test]
fn handlers_run_on_the_alternate_stacks_of_their_threads() {
    compare_c("on_alternate.c");
}

/// Also many at a time on few carriers, and on other carriers than they began on.
#[test]
fn handlers_of_faults_wait() {
    compare_c("faults.c");
}

#[test]
fn pending_signals_are_handled_where_they_are_unblocked() {
    compare_c("opened.c");
}

#[test]
fn signals_are_not_lost_with_threads_that_end() {
    compare_c("storm.c");
}

/// Each that can be handled, also those that carriers do not block.
#[test]
fn handlers_run_on_threads_and_amid_nothing() {
    compare_c("barrage.c");
}

/// Installed before there are threads, and so before the runtime's.
#[test]
fn handlers_of_forks_may_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (program, library) = (folder.path().join("program"), folder.path().join("libhandlers.so"));
    let compile = |arguments: &[&str], with: Option<&Path>, out: &Path| {
        let mut compiler = Command::new("cc");
        compiler.args(arguments).args(["-O1", "-pthread", "-o"]).arg(out);
        compiler.arg(source("fork_handlers.c")).args(with);
        compiler.status().map(|status| assert!(status.success()))
    };
    if compile(&["-shared", "-fPIC", "-DLIBRARY"], None, &library).is_err() {
        return eprintln!("skipped: cc is not installed");
    }
    compile(&[], Some(&library), &program).unwrap();
    compare(&[program.as_os_str()]);
}

/// Also with one carrier, where the thread that has unlocked runs on.
#[test]
fn threads_get_locks_that_are_taken_again_at_once() {
    compare_c("starving.c");
}

#[test]
fn signals_may_come_faster_than_they_are_handled() {
    compare_c("flood.c");
}

/// As collectors stop them: the handler waits until they may go on. What they have waited for goes on as natively.
#[test]
fn threads_are_stopped_by_handlers_that_wait() {
    compare_c("stopped.c");
}

#[test]
fn signals_cut_no_lookup_of_a_name_short() {
    compare_c("names.c");
}

#[test]
fn handlers_that_wait_leave_malloc_whole() {
    compare_c("midst.c");
}

#[test]
fn signals_are_not_lost_with_the_first_thread() {
    compare_c("first.c");
}

#[test]
fn threads_wait_for_signals_and_for_their_cleanup() {
    compare_c("waiting.c");
}

#[test]
fn masks_hold_for_the_wait_that_they_are_given_for() {
    compare_c("masks.c");
}

#[test]
fn threads_are_told_the_stacks_they_asked_for() {
    compare_c("stacks.c");
}

#[test]
fn threads_have_what_their_attributes_ask_for() {
    compare_c("attributes.c");
}

/// A program may believe that a thread has left its stack when it has only said that it will. (On threads this
/// goes well by chance.)
#[test]
fn threads_are_not_created_on_stacks_that_others_have_not_left() {
    let Some(program) = compile("cc", &[], "own_stack.c") else { return };
    for carriers in [1, 2] {
        let output = run(&[program.as_os_str()], Some((carriers, None)));
        assert!(output.status.success() && output.stdout == b"done\n", "{carriers}: {output:?}");
    }
}

/// What a library's variables begin with, in threads that were there before it was loaded.
#[test]
fn threads_find_the_initial_values_of_libraries_that_are_loaded_later() {
    let folder = tempfile::tempdir().unwrap();
    let (program, library) = (folder.path().join("program"), folder.path().join("liblater.so"));
    let compile = |arguments: &[&str], out: &Path| {
        let mut compiler = Command::new("cc");
        compiler.args(arguments).args(["-O1", "-pthread", "-o"]).arg(out).arg(source("later.c"));
        compiler.status().map(|status| assert!(status.success()))
    };
    if compile(&["-shared", "-fPIC", "-DLIBRARY"], &library).is_err() {
        return eprintln!("skipped: cc is not installed");
    }
    compile(&[], &program).unwrap();
    compare(&[program.as_os_str(), library.as_os_str()]);
}

/// The second thread that loads a library parks until the first one's constructor has done with waiting. A library
/// that loads another one is its caller for libc, so that its own path leads to it.
#[test]
fn threads_load_libraries_while_a_constructor_waits() {
    let folder = tempfile::tempdir().unwrap();
    let [program, waits, loads] =
        ["program", "libwaits.so", "libloads.so"].map(|name| folder.path().join(name));
    let inner = folder.path().join("inner/libinner.so");
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    let compile = |arguments: &[&str], out: &Path| {
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-pthread", "-o"]).arg(out).args(arguments).arg(source("loading.c"));
        compiler.status().map(|status| assert!(status.success()))
    };
    let library = ["-shared", "-fPIC"];
    if compile(&[&library[..], &["-DINNER"]].concat(), &inner).is_err() {
        return eprintln!("skipped: cc is not installed");
    }
    compile(&[&library[..], &["-DWAITS"]].concat(), &waits).unwrap();
    compile(&[&library[..], &["-DLOADS", "-Wl,-rpath,$ORIGIN/inner"]].concat(), &loads).unwrap();
    compile(&["-rdynamic"], &program).unwrap();
    let command = [program.as_os_str(), waits.as_os_str(), loads.as_os_str()];
    compare(&command);
    // On one carrier it is certain who waits for what.
    let report = folder.path().join("report.json");
    let mut run = Command::new(&program);
    run.args(&command[1..]).env("LD_PRELOAD", preload()).env("CAREFREE_CARRIERS", "1");
    assert!(run.env("CAREFREE_RUN_REPORT", &report).status().unwrap().success());
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("\"Mutex\": "), "nothing waited for the loader's lock: {report}");
}

#[test]
fn a_constructor_creates_the_first_thread() {
    let folder = tempfile::tempdir().unwrap();
    let (program, library) = (folder.path().join("program"), folder.path().join("libbegins.so"));
    let compile = |arguments: &[&str], out: &Path| {
        let mut compiler = Command::new("cc");
        compiler.args(arguments).args(["-O1", "-pthread", "-o"]).arg(out);
        compiler.arg(source("constructor.c")).status().map(|status| assert!(status.success()))
    };
    if compile(&["-shared", "-fPIC", "-DLIBRARY"], &library).is_err() {
        return eprintln!("skipped: cc is not installed");
    }
    compile(&[], &program).unwrap();
    compare(&[program.as_os_str(), library.as_os_str()]);
}

#[test]
fn threads_are_told_their_policies() {
    compare_c("policies.c");
}

/// `carefree run --threads-for`.
#[test]
fn threads_stay_threads_by_where_they_start() {
    let folder = tempfile::tempdir().unwrap();
    let (program, library) = (folder.path().join("program"), folder.path().join("libstarts.so.1"));
    let compile = |arguments: &[&OsStr]| {
        Command::new("cc").args(["-O1", "-pthread"]).args(arguments).status().map(|status| {
            assert!(status.success());
        })
    };
    let source = source("exempt.c");
    let [shared, code, define, out] = ["-shared", "-fPIC", "-DLIBRARY", "-o"].map(OsStr::new);
    if compile(&[shared, code, define, out, library.as_os_str(), source.as_os_str()]).is_err() {
        return eprintln!("skipped: cc is not installed");
    }
    let (library, source) = (library.as_os_str(), source.as_os_str());
    for fixed in ["-pie", "-no-pie"] {
        compile(&[OsStr::new(fixed), out, program.as_os_str(), source, library]).unwrap();
        // Of the four functions, those that stay threads.
        let told = |names: &str| {
            let mut run = Command::new(&program);
            run.env("LD_PRELOAD", preload()).env("CAREFREE_RUN_THREADS_FOR", names);
            let output = run.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            // Names that nothing has are told, each in a line.
            let errors = String::from_utf8(output.stderr).unwrap();
            let unknown =
                names.split(", ").filter(|name| ["no_such_function", "libstart"].contains(name));
            assert_eq!(errors.lines().count(), unknown.clone().count(), "{errors}");
            for (line, name) in errors.lines().zip(unknown) {
                assert!(
                    line.starts_with(&format!("carefree: --threads-for {name}: no ")),
                    "{line}"
                );
            }
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text.lines().count(), 4, "{text}");
            let threads = text.lines().filter_map(|line| line.strip_suffix(" thread"));
            threads.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told("no_such_function"), "");
        assert_eq!(told("hidden"), "hidden");
        // Of a library's function, all that start there.
        assert_eq!(told("inside"), "inside beside");
        assert_eq!(told("libstarts.so"), "inside beside");
        assert_eq!(told("libstart"), "");
        assert_eq!(told("other, libstarts.so.1"), "other inside beside");
        assert_eq!(told("libstart, other, no_such_function"), "other");
    }
}

/// Those that a library in Go creates, by what it exports.
#[test]
fn threads_of_go_stay_threads() {
    let folder = tempfile::tempdir().unwrap();
    let [program, go, plain] =
        ["program", "libgo.so", "libplain.so"].map(|name| folder.path().join(name));
    let compile = |arguments: &[&str], out: &Path| {
        let mut compiler = Command::new("cc");
        compiler.args(arguments).args(["-O1", "-pthread", "-o"]).arg(out);
        compiler.arg(source("goroutines.c")).status().map(|status| assert!(status.success()))
    };
    let library = ["-shared", "-fPIC", "-DLIBRARY"];
    if compile(&[&library[..], &["-DGO"]].concat(), &go).is_err() {
        return eprintln!("skipped: cc is not installed");
    }
    compile(&library, &plain).unwrap();
    compile(&[], &program).unwrap();
    let paths = [&plain, &go, &plain, &go].map(|path| path.as_os_str());
    let output = run(&[&[program.as_os_str()], &paths[..]].concat(), Some((2, None)));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    let kinds: Vec<_> = told.lines().collect();
    let [plain, go] = ["fiber", "thread"];
    assert_eq!(kinds, [plain, plain, go, go, plain, plain, go, go]);
}

#[test]
fn threads_fork_and_start_programs() {
    compare_c("processes.c");
}

/// Programs of other libcs would not begin with the library, and those of sanitizers would end.
#[test]
fn programs_that_cannot_load_the_library_are_started_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let [program, unsuited, suited, library, script] =
        ["program", "unsuited", "suited", "libasan.so", "script"]
            .map(|name| folder.path().join(name));
    let compile = |arguments: &[&OsStr], out: &Path| {
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-pthread", "-o"]).arg(out).arg(source("unsuited.c"));
        compiler.args(arguments).status().map(|status| assert!(status.success()))
    };
    if compile(&["-shared", "-fPIC", "-DLIBRARY"].map(OsStr::new), &library).is_err() {
        return eprintln!("skipped: cc is not installed");
    }
    let mut path = std::ffi::OsString::from("-Wl,-rpath,");
    path.push(folder.path());
    let mut linked = std::ffi::OsString::from("-L");
    linked.push(folder.path());
    compile(&[OsStr::new("-DUNSUITED"), &linked, OsStr::new("-lasan"), &path], &unsuited).unwrap();
    compile(&[OsStr::new("-DSUITED")], &suited).unwrap();
    compile(&[], &program).unwrap();
    std::fs::write(&script, format!("#! {} -x\n", unsuited.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    compare(&[&program, &unsuited, &script, &suited].map(|path| path.as_os_str()));
}

/// By any way to create one, also where threads fork at once, and where a child of `vfork` changes its mask.
#[test]
fn threads_and_processes_inherit_what_their_creator_has() {
    let Some(program) = compile("cc", &[], "inherit.c") else { return };
    // (Of no meaning natively.)
    let program = ["env", "CAREFREE_RUN_THREADS_FOR=stays,stays_too", program.to_str().unwrap()];
    compare(&program.map(OsStr::new));
}

/// By number as well, and while others of the creator's are ready to run.
#[test]
fn what_is_cloned_begins_as_its_creator() {
    compare_c("clone.c");
}

/// Also while handlers wait that the kernel calls meanwhile.
#[test]
fn programs_in_place_of_a_thread_inherit_its_signals() {
    compare_c("exec.c");
}

#[test]
fn threads_are_told_the_processor_time_they_have_used() {
    compare_c("cpu_time.c");
}

#[test]
fn threads_are_told_what_the_kernel_has_used_for_them() {
    compare_c("split_time.c");
}

/// On the clocks of threads, and on those of the kernel's, with signals for one thread.
#[test]
fn timers_are_those_of_threads() {
    compare_c("timers.c");
}

/// Of a timer that was stopped, what the own process was sent, and a child that has ended.
#[test]
fn signals_come_before_the_call_that_has_caused_them_returns() {
    compare_c("ordered.c");
}

#[test]
fn signals_that_a_wait_does_not_handle_stay_with_the_process() {
    compare_c("suspended.c");
}

#[test]
fn threads_that_create_others_until_there_is_room_let_those_end() {
    compare_c("crowded.c");
}

/// `SIGPIPE` and `SIGXFSZ`, also of libc's streams; and what is ignored by default, while all threads block it.
#[test]
fn signals_that_a_call_raises_come_to_the_thread_that_makes_it() {
    compare_c("raised.c");
}

#[test]
fn what_the_kernel_keeps_for_one_thread_is_refused_and_told() {
    let Some(program) = compile("cc", &[], "rights.c") else { return };
    let output = run(&[program.as_os_str()], Some((2, None)));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "refused\n", "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("setfsuid") && told.contains("--threads-for"), "{told}");
}

#[test]
fn what_concerns_all_signals_spares_ours() {
    compare_c("all_signals.c");
}

#[test]
fn a_cancelled_thread_loses_no_signal_of_a_condition() {
    compare_c("cancels.c");
}

#[test]
fn asynchronous_cancellation_ends_waits_within_libc() {
    compare_c("anywhere.c");
}

#[test]
fn clocks_times_and_sizes_are_refused_as_by_libc_and_the_kernel() {
    compare_c("clocks.c");
}

/// (Over epoll, each such wait looks again every 5 ms.)
#[test]
fn other_processes_wake_waits_for_words() {
    let Some(program) = compile("cc", &[], "outside.c") else { return };
    compare_over(&[program.as_os_str()], &[(1, None), (2, None)]);
}

#[test]
fn threads_are_cancelled_amid_signals_of_their_own() {
    compare_c("cancelled_settling.c");
}

#[test]
fn timers_on_clocks_of_threads_call_functions() {
    compare_c("timer_calls.c");
}

/// Where it has no room for functions of Carefree's, the handler runs where the kernel has begun it.
#[test]
fn faults_are_handled_on_small_stacks() {
    compare_c("small_stack.c");
}

/// The kernel keeps them, for carriers block all signals.
#[test]
fn signals_that_come_while_they_are_ignored_are_gone() {
    compare_c("ignored.c");
}

/// Threads that stay threads wait for mutexes that inherit priorities and that others hold.
#[test]
fn mutexes_that_inherit_priorities_are_shared_with_threads_of_the_kernels() {
    let Some(program) = compile("cc", &[], "inherits.c") else { return };
    // (Of no meaning natively.)
    let names = "CAREFREE_RUN_THREADS_FOR=stays_incrementing,stays_waiting_in_vain,stays_locking_twice,\
                 stays_in_turns,stays_taking,stays_ending_inside";
    let program = ["env", names, program.to_str().unwrap()];
    compare(&program.map(OsStr::new));
}

#[test]
fn mutexes_that_cannot_be_shared_with_processes_are_told_of() {
    let Some(program) = compile("cc", &[], "shared_inherits.c") else { return };
    for (arguments, lines) in [(&[][..], 0), (&[OsStr::new("shared")], 1)] {
        let output = run(&[&[program.as_os_str()], arguments].concat(), Some((2, None)));
        assert!(output.status.success() && output.stdout == b"locked\n", "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told.lines().count(), lines, "{told}");
        assert!(lines == 0 || told.starts_with("carefree: this program shares a mutex"), "{told}");
    }
}

#[test]
fn threads_change_whose_the_process_is() {
    compare_c("identity.c");
}

#[test]
fn threads_wait_for_each_other() {
    compare_c("locks.c");
}

/// Robust mutexes, those that inherit priorities among them.
#[test]
fn mutexes_of_threads_that_ended_say_so() {
    compare_c("robust.c");
}

/// If the lock is of the kind that prefers writers.
#[test]
fn a_writer_that_waits_turns_readers_away() {
    compare_c("writers.c");
}

/// `pthread_once`, compiled without tables for unwinding.
#[test]
fn a_function_that_a_cancelled_thread_has_left_is_called_again() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-fno-exceptions", "-fno-asynchronous-unwind-tables", "-o"]);
    let Ok(compiled) = compiler.args([&program, &source("once.c")]).status() else {
        return eprintln!("skipped: cc is not installed");
    };
    assert!(compiled.success());
    compare(&[program.as_os_str()]);
}

#[test]
fn threads_of_python() {
    compare_script("python3", "threads.py");
}

#[test]
fn threads_of_ruby() {
    compare_script("ruby", "threads.rb");
}

/// In calls that wait in ways of their own.
#[test]
fn signals_and_cancellation_end_odd_waits() {
    compare_c("interrupted.c");
}

#[test]
fn signals_and_cancellation_end_waits_for_whole_messages() {
    compare_c("sockets.c");
}

#[test]
fn what_the_kernel_answers_at_once_is_not_waited_for() {
    compare_c("at_once.c");
}

#[test]
fn calls_end_halfway_as_by_the_kernel() {
    compare_c("halfway.c");
}

#[test]
fn signals_are_handled_in_time_and_once_each() {
    compare_c("sent.c");
}

/// The kernel has one of its threads trace a child: so there is one carrier.
#[test]
fn traced_children_are_seen_to_stop() {
    let Some(program) = compile("cc", &[], "traced.c") else { return };
    let native = run(&[program.as_os_str()], None);
    for reactor in [None, Some("epoll")] {
        let fibers = run(&[program.as_os_str()], Some((1, reactor)));
        assert_eq!(fibers, native, "{reactor:?}");
    }
}

#[test]
fn processes_in_the_background_of_a_terminal_are_stopped() {
    compare_c("terminals.c");
}
