//! What `carefree run` would make of a program.

use std::ffi::OsStr;

use carefree::TlsMode;

use super::checks::{Check, Verdict};
use super::libraries;
use crate::run::library;
use crate::run::program::{self, Program};

/// Whether the program's threads would be fibers, and why not.
pub(super) fn threads(name: &OsStr, program: &Program) -> (bool, Vec<Check>) {
    let of = format!("threads of {}", name.to_string_lossy());
    let library = library::find();
    let why = match (program.verdict(), &library) {
        (program::Verdict::Threads(why), _) => Some((why, None)),
        (program::Verdict::Fibers, Err(why)) => Some((why.clone(), None)),
        (program::Verdict::Fibers, Ok(_)) => {
            let platform = carefree::platform();
            let of_libraries = libraries::why_not(program).map(|why| (why, None));
            of_libraries.or_else(|| {
                (platform.tls != TlsMode::Own).then(|| {
                    let why = "fibers cannot have thread-local storage of their own here";
                    (why.to_owned(), Some("carefree doctor, without a program, tells more"))
                })
            })
        }
    };
    let mut found = Vec::new();
    match &why {
        None => found.push(Check::new(&of, Verdict::Good, "fibers").means(
            "carefree run has its second thread, and all after it, run on fibers. What differs: \
             docs/run.md.",
        )),
        Some((why, advice)) => {
            let check = Check::new(&of, Verdict::Bad, "threads").reason(why).means(
                "carefree run says so in one line and runs it as it is; with --strict it does not.",
            );
            found.push(match advice {
                Some(advice) => check.advice(*advice),
                None => check,
            });
        }
    }
    found.push(
        Check::new("program", Verdict::Good, program.path().display().to_string())
            .means("This is what carefree run would start."),
    );
    if let Ok(library) = &library {
        found.push(
            Check::new("library", Verdict::Good, library.display().to_string())
                .means("carefree run has the loader put it before libc."),
        );
    }
    (why.is_none(), found)
}
