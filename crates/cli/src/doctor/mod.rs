//! `carefree doctor`: whether fibers work here, how, and what limits them; and which runtimes there
//! are to compare with.

mod checks;
mod libraries;
mod program;
mod report;
mod runtimes;
mod trial;

use std::env;
use std::ffi::OsStr;
use std::process::ExitCode;

use carefree::TlsMode;

use crate::args::{Doctor, DoctorFormat};
use crate::mistyped::complain_of_settings;
use crate::run::program::Program;
use crate::targets::folders_are_there;
use crate::watch::watched;
use crate::{complain, exit, terminal};

pub(crate) use trial::try_fibers;

pub(crate) fn doctor(orders: &Doctor) -> ExitCode {
    if let Err(error) = folders_are_there(&orders.targets) {
        complain(error);
        return ExitCode::from(exit::USAGE);
    }
    complain_of_settings();
    if let Some(name) = &orders.program {
        return of_program(name, orders.format);
    }
    // The doctor asks many programs for their versions; some may not answer, and would outlive it.
    let program = env::current_exe();
    let _watched = program.ok().and_then(|program| watched(&program, false));
    let tried = trial::in_a_process_of_its_own();
    let works = tried.is_ok();
    let mut found = checks::all(tried);
    found.extend(runtimes::all(&orders.targets));
    let threads = carefree::platform().tls == TlsMode::Threads;
    let text = match orders.format {
        DoctorFormat::Text => {
            let headline = match (works, threads) {
                (true, false) => "Fibers work here.",
                (true, true) => "Threads stand for fibers here.",
                (false, _) => "Fibers do not work here.",
            };
            report::text(headline, &found, terminal::wants_colour())
        }
        DoctorFormat::Json => report::json(&found, works, threads),
    };
    end(works, &text)
}

/// What `carefree run` would make of a program.
fn of_program(name: &OsStr, format: DoctorFormat) -> ExitCode {
    let program = match Program::find(name) {
        Ok(program) => program,
        Err(error) => {
            complain(format!("{}: {error}", name.to_string_lossy()));
            return ExitCode::from(exit::USAGE);
        }
    };
    let (fibers, found) = program::threads(name, &program);
    let text = match format {
        DoctorFormat::Text => {
            let name = name.to_string_lossy();
            let headline = match fibers {
                true => format!("The threads of {name} become fibers under carefree run."),
                false => format!("The threads of {name} stay threads."),
            };
            report::text(&headline, &found, terminal::wants_colour())
        }
        DoctorFormat::Json => report::json_of_program(fibers, &found),
    };
    end(fibers, &text)
}

fn end(well: bool, text: &str) -> ExitCode {
    match terminal::print(text) {
        Ok(()) if well => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(exit::FAILED),
        Err(error) => {
            complain(error);
            ExitCode::from(exit::USAGE)
        }
    }
}
