//! `carefree doctor`: whether fibers work here, how, and what limits them; and which runtimes there
//! are to compare with.

mod checks;
mod report;
mod runtimes;
mod trial;

use std::process::ExitCode;

use carefree::TlsMode;

use crate::args::{Doctor, DoctorFormat};
use crate::targets::folders_are_there;
use crate::{complain, exit, terminal};

pub(crate) use trial::try_fibers;

pub(crate) fn doctor(orders: &Doctor) -> ExitCode {
    if let Err(error) = folders_are_there(&orders.targets) {
        complain(error);
        return ExitCode::from(exit::USAGE);
    }
    let tried = trial::in_a_process_of_its_own();
    let works = tried.is_ok();
    let mut found = checks::all(tried);
    found.extend(runtimes::all(&orders.targets));
    let threads = carefree::platform().tls == TlsMode::Threads;
    let text = match orders.format {
        DoctorFormat::Text => report::text(&found, works, threads, terminal::wants_colour()),
        DoctorFormat::Json => report::json(&found, works, threads),
    };
    match terminal::print(&text) {
        Ok(()) if works => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(exit::FAILED),
        Err(error) => {
            complain(error);
            ExitCode::from(exit::FAILED)
        }
    }
}
