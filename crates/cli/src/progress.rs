//! A progress bar on standard error, where somebody looks at it.

use std::io::{self, IsTerminal};
use std::time::Duration;

use carefree_lab::run::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or nothing where standard error is not a terminal.
#[derive(Debug)]
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(crate) fn new(samples: usize) -> Bar {
        if !io::stderr().is_terminal() {
            return Bar(None);
        }
        let bar = ProgressBar::new(samples as u64);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg:<20} {eta:>4} left");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        // No ticking thread: it would take time from the samples. The bar moves between them.
        bar.tick();
        Bar(Some(bar))
    }

    pub(crate) fn show(&self, progress: Progress<'_>) {
        let Some(bar) = &self.0 else { return };
        bar.set_position(progress.done as u64);
        match progress.next {
            Some(trial) => bar.set_message(format!("{} {}", trial.unit, trial.workload)),
            None => bar.finish_and_clear(),
        }
    }
}

/// `2 min 5 s`.
pub(crate) fn spoken(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}
