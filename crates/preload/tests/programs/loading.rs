//! Libraries that are loaded while there are threads, and programs that cannot load Carefree's.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use carefree_testing::artifact::preload;
use tempfile::TempDir;

use crate::common::{LIBRARY, compare, compare_c, compile, compile_parts};

fn program_and_library(name: &str) -> Option<(TempDir, [PathBuf; 2])> {
    compile_parts(name, [("program", &[]), ("liblater.so", LIBRARY)])
}

/// Compares a program in C that is told the path of a library, and loads it.
fn compare_with_library(name: &str) {
    if let Some((_folder, paths)) = program_and_library(name) {
        compare(&paths.each_ref().map(|path| path.as_os_str()));
    }
}

#[test]
fn variables_of_threads_may_be_large() {
    compare_c("storage.c");
}

#[test]
fn signals_cut_no_lookup_of_a_name_short() {
    compare_c("names.c");
}

/// What `_res` says: servers, times, and where to search.
#[test]
fn names_are_looked_up_as_the_thread_has_asked_for() {
    compare_c("resolver.c");
}

/// What a library's variables begin with, in threads that were there before it was loaded.
#[test]
fn threads_find_the_initial_values_of_libraries_that_are_loaded_later() {
    compare_with_library("later.c");
}

/// Programs with many plug-ins, as interpreters are, load their last ones when threads are there.
#[test]
fn a_program_that_has_loaded_a_plug_in_may_load_a_large_one() {
    compare_with_library("plug_ins.c");
}

/// Functions that it calls, it finds when it first calls them.
#[test]
fn programs_that_lie_at_fixed_addresses_have_addresses_of_functions() {
    let options = ["-fno-pie", "-no-pie", "-Wl,-z,lazy"];
    if let Some(program) = compile("cc", &options, "fixed.c") {
        compare(&[program.as_os_str()]);
    }
}

/// A constructor has a lock of the loader's while it waits for what a thread of Carefree's, or a carrier that is added,
/// is to do.
#[test]
fn constructors_wait_for_other_threads() {
    let Some((_folder, [program, library])) = program_and_library("loader_waits.c") else { return };
    // Each first in a process as well: threads that are there already need no lock.
    let whats = ["name", "user", "read", "command", "thread"].map(OsStr::new);
    for what in whats {
        compare(&[program.as_os_str(), library.as_os_str(), what]);
    }
    compare(&[&[program.as_os_str(), library.as_os_str()], &whats[..]].concat());
}

#[test]
fn what_the_loader_calls_for_each_library_may_wait() {
    compare_c("loader_waits.c");
}

/// The second thread that loads a library parks until the first one's constructor has done with waiting. A library
/// that loads another one is its caller for libc, so that its own path leads to it.
#[test]
fn threads_load_libraries_while_a_constructor_waits() {
    let inner = "-Wl,-rpath,$ORIGIN/inner";
    let parts: [(&str, &[&str]); 4] = [
        ("inner/libinner.so", &["-shared", "-fPIC", "-DINNER"]),
        ("libwaits.so", &["-shared", "-fPIC", "-DWAITS"]),
        ("libloads.so", &["-shared", "-fPIC", "-DLOADS", inner]),
        ("program", &["-rdynamic"]),
    ];
    let Some((folder, [_, waits, loads, program])) = compile_parts("loading.c", parts) else {
        return;
    };
    let command = [program.as_os_str(), waits.as_os_str(), loads.as_os_str()];
    compare(&command);
    // On one carrier it is certain which thread waits for what.
    let report = folder.path().join("report.json");
    let mut run = Command::new(&program);
    run.args(&command[1..]).env("LD_PRELOAD", preload()).env("CAREFREE_CARRIERS", "1");
    assert!(run.env("CAREFREE_RUN_REPORT", &report).status().unwrap().success());
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("\"Mutex\": "), "nothing waited for the loader's lock: {report}");
}

#[test]
fn a_constructor_creates_the_first_thread() {
    compare_with_library("constructor.c");
}

/// Programs of other libcs would not begin with the library, and those of sanitizers would end.
#[test]
fn programs_that_cannot_load_the_library_are_started_without_it() {
    let linked: &[&str] = &["-DUNSUITED", "-LFOLDER", "-lasan", "-Wl,-rpath,FOLDER"];
    let parts = [
        ("libasan.so", LIBRARY),
        ("unsuited", linked),
        ("suited", &["-DSUITED"]),
        ("program", &[]),
    ];
    let Some((folder, [_, unsuited, suited, program])) = compile_parts("unsuited.c", parts) else {
        return;
    };
    let script = folder.path().join("script");
    std::fs::write(&script, format!("#! {} -x\n", unsuited.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    compare(&[&program, &unsuited, &script, &suited].map(|path| path.as_os_str()));
}
