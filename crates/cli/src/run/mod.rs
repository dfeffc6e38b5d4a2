//! `carefree run`: the threads of a program become fibers.

pub(crate) mod elf;
mod inherited;
pub(crate) mod library;
pub(crate) mod program;
mod report;
mod rights;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use carefree_lab::hosted::Hosting;
use carefree_settings::names;

use crate::args::Run;
use crate::mistyped::complain_of_settings;
use crate::{complain, exit};
use program::{Program, Verdict};

/// Exit codes of shells, and of `env`, for what cannot be started.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What runs programs so for `carefree bench`; nothing where the library is missing.
pub(crate) fn hosting() -> Option<Hosting> {
    let program = std::env::current_exe().ok()?;
    Hosting::by(&program, &library::find().ok()?).ok()
}

pub(crate) fn run(orders: &Run) -> ExitCode {
    let Some((name, arguments)) = orders.command.split_first() else {
        complain("name a program, as `carefree run python3 app.py`");
        return ExitCode::from(exit::USAGE);
    };
    let program = match Program::find(name) {
        Ok(program) => program,
        Err(error) => {
            complain(format!("{}: {error}", name.to_string_lossy()));
            return ExitCode::from(code(&error));
        }
    };
    if let Some(wrong) = orders.report.as_deref().and_then(report::obstacle) {
        complain(wrong);
        return ExitCode::from(exit::USAGE);
    }
    complain_of_settings();
    let mut command = Command::new(program.path());
    command.arg0(name).args(arguments);
    inherited::give(&mut command);
    let refused = match program.verdict() {
        Verdict::Fibers => match library::find() {
            Ok(library) => {
                give(&mut command, orders, &library);
                None
            }
            Err(error) => Some(error),
        },
        Verdict::Threads(why) => Some(why),
    };
    if let Some(why) = refused {
        let name = name.to_string_lossy();
        if orders.strict {
            complain(format!("{name} is not run, because {why}"));
            return ExitCode::from(exit::FAILED);
        }
        complain(format!("the threads of {name} stay threads, because {why}"));
    }
    let error = command.exec();
    complain(format!("{}: {error}", program.path().display()));
    ExitCode::from(code(&error))
}

/// The exit code for a program that cannot be started.
fn code(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}

/// What the library finds in the environment.
fn give(command: &mut Command, orders: &Run, library: &Path) {
    // Next to libc: what else is loaded first, as a tracer or a proxy, sees the program's calls before.
    let mut preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if !preload.is_empty() {
        preload.push(":");
    }
    preload.push(library);
    command.env("LD_PRELOAD", preload);
    if let Err(wrong) = names::check_one("CAREFREE_RUN") {
        complain(wrong);
    }
    // Asked for now, so it wins over what is in the environment: but not over `off`, by which users try without.
    let is_off = std::env::var_os("CAREFREE_RUN").is_some_and(|set| set == "off");
    if !is_off {
        command.env_remove("CAREFREE_RUN");
    }
    if let Some(carriers) = orders.carriers {
        command.env("CAREFREE_CARRIERS", carriers.to_string());
    }
    if let Some(stack) = orders.stack {
        command.env("CAREFREE_STACK", stack.to_string());
    }
    if orders.only && !is_off {
        command.env("CAREFREE_RUN", "only");
    }
    if orders.strict {
        command.env("CAREFREE_RUN_STRICT", "1");
    } else {
        command.env_remove("CAREFREE_RUN_STRICT");
    }
    if !orders.threads_for.is_empty() {
        command.env("CAREFREE_RUN_THREADS_FOR", orders.threads_for.join(","));
    }
    if let Some(report) = &orders.report {
        let report = std::path::absolute(report).unwrap_or_else(|_| report.clone());
        command.env("CAREFREE_RUN_REPORT", report);
        // Which it is still when it has become the program.
        command.env("CAREFREE_RUN_REPORT_PROCESS", std::process::id().to_string());
    }
}
