//! Small samples of a target's programs.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use carefree_lab::course::Course;
use carefree_lab::plan::Plan;
use carefree_lab::process::Launch;
use carefree_lab::run::{Outcome, Runner};
use carefree_lab::serving::Serving;
use carefree_lab::sweep::Sweep;
use carefree_lab::targets::lineup::{Field, Sizes};
use carefree_lab::trial::Trial;
use carefree_workloads::workload::{Size, Workload};

pub(crate) fn sizes(workloads: &[Workload], crowd: u64) -> Sizes {
    Sizes {
        workloads: workloads.to_vec(),
        size: Size::Quick,
        feed: Sweep::new(Size::Quick),
        fetch: Course::new(Size::Quick),
        serve: Serving::new(Size::Quick),
        crowd: Some(crowd),
        pin: false,
        program: String::new(),
    }
}

/// Takes so many samples of each of these kinds of the field's.
pub(crate) fn run(field: &Field, kinds: Vec<Trial>, samples: u32, patience: Duration) -> Outcome {
    let nothing = || Launch::plain(Command::new("/nowhere/at/all"));
    Runner {
        launch: &|trial| field.launch(trial).unwrap_or_else(nothing),
        interrupted: &AtomicBool::new(false),
        patience,
        progress: &mut |_| {},
        keep: &mut |_| {},
        enough: &|_| false,
    }
    .run(&Plan::new(kinds, samples, 7))
}
