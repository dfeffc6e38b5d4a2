//! A progress bar on standard error, where somebody looks at it.

use std::io::{self, IsTerminal};
use std::time::Duration;

use carefree_lab::run::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or nothing where standard error is not a terminal.
#[derive(Debug)]
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(crate) fn new() -> Bar {
        if !io::stderr().is_terminal() {
            return Bar(None);
        }
        let bar = ProgressBar::new(0);
        // How long is left can be said once something is done.
        set_style(&bar, "{wide_bar} {pos}/{len} {msg:<28}");
        // No ticking thread: it would take time from the samples. The bar moves between them.
        bar.tick();
        Bar(Some(bar))
    }

    /// Says what is done before the samples.
    pub(crate) fn say(&self, what: String) {
        if let Some(bar) = &self.0 {
            bar.set_message(what);
            bar.tick();
        }
    }

    pub(crate) fn show(&self, progress: Progress<'_>) {
        let Some(bar) = &self.0 else { return };
        if progress.done == 1 {
            set_style(bar, "{wide_bar} {pos}/{len} {msg:<28} {eta:>4} left");
        }
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        match progress.next {
            Some(trial) => bar.set_message(trial.to_string()),
            None => bar.finish_and_clear(),
        }
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    // The templates are ours and right; a bar in the wrong style is still a bar.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// `2 min 5 s`.
pub(crate) fn spoken(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}
