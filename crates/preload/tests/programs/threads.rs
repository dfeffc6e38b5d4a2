//! How threads begin, what they have, and how they end.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use carefree_testing::artifact::preload;

use crate::common::{
    LIBRARY, compare, compare_c, compare_compiled, compare_over, compare_script, compile,
    compile_parts, run,
};

#[test]
fn a_thread_that_stays_one_joins_and_names_fibers() {
    compare_c("creators.c");
}

#[test]
fn threads_are_created_joined_and_named() {
    compare_c("threads.c");
}

/// Not that of the carrier, and not that of the first thread where this was renamed.
#[test]
fn threads_have_the_names_of_their_creators() {
    compare_c("named.c");
}

/// Where the first thread is tied to one processor, others may be tied to others.
#[test]
fn threads_have_the_processors_that_they_ask_for() {
    compare_c("processors.c");
}

/// (Natively the kernel may leave a thread its processor, and have another run the new one a moment later.)
#[test]
fn all_that_yield_let_others_run() {
    let Some(program) = compile("cc", &[], "gives_way.c") else { return };
    for name in ["sched_yield", "thrd_yield", "pthread_yield"] {
        let output = run(&[program.as_os_str(), OsStr::new(name)], Some((1, None)));
        assert_eq!(output.stdout, b"soon\n", "{name}: {output:?}");
    }
}

/// With two carriers on one processor, the other one has to do what a thread waits for.
#[test]
fn carriers_give_way_whose_threads_only_yield() {
    let Some(program) = compile("cc", &[], "turns.c") else { return };
    compare_over(&[program.as_os_str()], &[(1, None), (2, None)]);
}

#[test]
fn threads_end_by_exits_and_cancellation() {
    compare_c("ending.c");
}

/// A fault without a handler ends the program as it would have, after a line that says what it runs under.
#[test]
fn a_crash_says_how_to_try_without_fibers() {
    let Some(program) = compile("cc", &["-O0"], "crash.c") else { return };
    let deep = ["deep", "restored"];
    let faults = [
        ("fault", "SIGSEGV"),
        ("trap", "SIGILL or SIGTRAP"),
        ("break", "SIGTRAP"),
        ("reset", "SIGSEGV"),
    ];
    let faults = faults.into_iter().chain(deep.map(|how| (how, "SIGSEGV")));
    for (how, line) in faults.chain([("sent", ""), ("handler", "")]) {
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
        let is_overflow = errors.contains(": a thread has overflowed its stack of ");
        assert_eq!(is_overflow, deep.contains(&how), "{how}: {errors}");
    }
}

#[test]
fn exceptions_that_nothing_catches_are_named() {
    compare_compiled("c++", "thrown.cpp");
}

#[test]
fn threads_are_refused_without_memory() {
    compare_c("exhausted.c");
}

/// A stack of 8 MiB takes 10 MiB of it.
#[test]
fn stacks_fit_a_limit_of_address_space() {
    compare_c("limited.c");
}

#[test]
fn threads_are_refused_where_a_limit_is_set_later() {
    compare_c("limited_later.c");
}

/// (It may be that libc's own threads end by a fault there.)
#[test]
fn a_thread_that_is_detached_while_it_is_joined_is_joined() {
    let Some(program) = compile("cc", &[], "detached_amid_join.c") else { return };
    for carriers in [1, 2] {
        let output = run(&[program.as_os_str()], Some((carriers, None)));
        assert_eq!(output.stdout, b"wrong: 0\n", "{output:?}");
    }
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

#[test]
fn the_last_thread_ends_the_process_if_it_is_none_but_a_thread() {
    let Some(program) = compile("cc", &[], "last.c") else { return };
    let hows = [
        "stack",
        "bound",
        "stack exits",
        "bound cancelled",
        "bound late",
        "bound failing",
        "bound forks",
    ];
    for how in hows {
        compare(&[program.as_os_str(), OsStr::new(how)]);
    }
}

#[test]
fn the_first_threads_keys_are_destroyed_before_it_counts_as_ended() {
    let Some(program) = compile("cc", &[], "leaves.c") else { return };
    compare(&[program.as_os_str()]);
    compare(&[program.as_os_str(), OsStr::new("last")]);
}

/// As programs of FreePascal all do.
#[test]
fn a_program_ends_by_a_jump_to_where_main_returns_to() {
    let Some(program) = compile("cc", &["-O1"], "main_left.c") else { return };
    compare(&[program.as_os_str()]);
    for how in ["after a thread", "in a thread"] {
        compare(&[program.as_os_str(), OsStr::new(how)]);
    }
}

#[test]
fn threads_are_told_their_policies() {
    compare_c("policies.c");
}

/// `carefree run --threads-for`.
#[test]
fn threads_stay_threads_by_where_they_start() {
    let dynamic: &[&str] = &["-pie", "FOLDER/libstarts.so.1"];
    let fixed: &[&str] = &["-no-pie", "FOLDER/libstarts.so.1"];
    let parts = [("libstarts.so.1", LIBRARY), ("dynamic", dynamic), ("fixed", fixed)];
    let Some((_folder, [_, dynamic, fixed])) = compile_parts("exempt.c", parts) else { return };
    for program in [dynamic, fixed] {
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
    let go: &[&str] = &["-shared", "-fPIC", "-DLIBRARY", "-DGO"];
    let parts = [("libplain.so", LIBRARY), ("libgo.so", go), ("program", &[])];
    let Some((_folder, [plain, go, program])) = compile_parts("goroutines.c", parts) else {
        return;
    };
    let paths = [&program, &plain, &go, &plain, &go].map(|path| path.as_os_str());
    let output = run(&paths, Some((2, None)));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    let kinds: Vec<_> = told.lines().collect();
    let [plain, go] = ["fiber", "thread"];
    assert_eq!(kinds, [plain, plain, go, go, plain, plain, go, go]);
}

#[test]
fn threads_are_told_the_processor_time_they_have_used() {
    compare_c("cpu_time.c");
}

#[test]
fn threads_are_told_what_the_kernel_has_used_for_them() {
    compare_c("split_time.c");
}

#[test]
fn threads_that_create_others_until_there_is_room_let_those_end() {
    compare_c("crowded.c");
}

#[test]
fn asynchronous_cancellation_ends_waits_within_libc() {
    compare_c("anywhere.c");
}

#[test]
fn threads_of_python() {
    compare_script("python3", "threads.py");
}

#[test]
fn the_kernel_says_how_many_threads_there_are() {
    compare_c("stat.c");
}

#[test]
fn functions_of_newer_libcs_are_stood_in_for() {
    compare_c("newer.c");
}

#[test]
fn threads_of_ruby() {
    compare_script("ruby", "threads.rb");
}

#[test]
fn threads_have_a_floating_point_environment_of_their_own() {
    compare_c("floating.c");
}

#[test]
fn threads_have_a_gs_base_of_their_own() {
    compare_c("gs.c");
}
