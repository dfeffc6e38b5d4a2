//! How far a run is, on standard error: a bar on a terminal, else a line now and then.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use carefree_lab::number::whole;
use carefree_lab::printable;
use carefree_lab::run::Progress;
use carefree_lab::targets::Waiting;
use indicatif::{ProgressBar, ProgressStyle};

use crate::complain;

/// How often a run writes a line where there is no terminal: often enough for a log that is
/// followed, and never in a shorter run.
const PACE: Duration = Duration::from_secs(30);

/// How long a program may be silent before that is said where there is no terminal.
const SILENCE: Duration = Duration::from_secs(5);

/// What is shown of a run.
#[derive(Debug)]
pub(crate) enum Bar {
    /// On a terminal.
    Drawn(ProgressBar),
    /// Elsewhere.
    Told { begun: Instant, last: Instant, making: Option<(String, Instant)> },
}

impl Bar {
    pub(crate) fn new() -> Bar {
        if !io::stderr().is_terminal() {
            let now = Instant::now();
            return Bar::Told { begun: now, last: now, making: None };
        }
        let bar = ProgressBar::new(0);
        set_style(&bar, WORDS);
        // No ticking thread: it would take time from the samples. The bar moves between them.
        bar.tick();
        Bar::Drawn(bar)
    }

    /// Says what is done before the samples.
    pub(crate) fn say(&mut self, what: String) {
        match self {
            Bar::Drawn(bar) => {
                set_style(bar, WORDS);
                set_message(bar, &what);
                bar.tick();
            }
            Bar::Told { .. } => self.tell(&what),
        }
    }

    /// Says what is made before the samples, which may take minutes the first time: on a terminal at once, elsewhere
    /// when it has taken long.
    pub(crate) fn prepare(&mut self, what: String) {
        self.prepared();
        match self {
            Bar::Drawn(_) => self.say(what),
            Bar::Told { making, .. } => *making = Some((what, Instant::now())),
        }
    }

    /// What was made last is there.
    pub(crate) fn prepared(&mut self) {
        let Bar::Told { making, .. } = self else { return };
        if let Some((what, begun)) = making.take().filter(|(_, begun)| begun.elapsed() >= SILENCE) {
            complain(format_args!("{what} took {}", spoken(begun.elapsed())));
        }
    }

    /// Says what is waited for: on a terminal all the time, elsewhere now and then.
    pub(crate) fn wait(&mut self, waiting: &Waiting) {
        let Waiting { done, total, names, longest } = waiting;
        match self {
            Bar::Drawn(bar) => {
                advance(bar, *done, *total, false);
                set_message(bar, &waited_for(names));
                bar.tick();
            }
            Bar::Told { last, .. } if *longest >= SILENCE && last.elapsed() >= SILENCE => {
                *last = Instant::now();
                complain(format_args!(
                    "{done} of {total} have answered; waiting for {}",
                    waited_for(names)
                ));
            }
            Bar::Told { .. } => {}
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        if let Bar::Drawn(bar) = self {
            bar.finish_and_clear();
        }
    }

    /// Says a line that stays, above the bar if there is one.
    pub(crate) fn complain(&self, line: &str) {
        match self {
            Bar::Drawn(bar) => bar.suspend(|| complain(line)),
            Bar::Told { .. } => complain(line),
        }
    }

    pub(crate) fn show(&mut self, progress: Progress<'_>) {
        let Progress { done, total, next } = progress;
        match self {
            Bar::Drawn(bar) => {
                // The time left is unknown until the first sample is done.
                advance(bar, done, total, done > 0);
                match next {
                    Some(trial) => set_message(bar, &trial.to_string()),
                    None => bar.finish_and_clear(),
                }
            }
            Bar::Told { .. } => {
                if let Some(trial) = next {
                    let (done, total) = (whole(done as u64), whole(total as u64));
                    self.tell(&format!("{done} of up to {total} samples taken; now {trial}"));
                }
            }
        }
    }

    /// Shows how many tasks are done, and what is under way.
    pub(crate) fn count(&mut self, done: usize, all: usize, what: String) {
        match self {
            Bar::Drawn(bar) => {
                advance(bar, done, all, false);
                set_message(bar, &what);
            }
            Bar::Told { .. } => self.tell(&format!("{done} of {all} tasks done; now {what}")),
        }
    }

    fn tell(&mut self, what: &str) {
        if let Some(line) = self.due(what) {
            complain(&line);
        }
    }

    /// The line to write, if it is time for one.
    fn due(&mut self, what: &str) -> Option<String> {
        match self {
            Bar::Told { begun, last, .. } if last.elapsed() >= PACE => {
                *last = Instant::now();
                Some(format!("{} so far: {what}", spoken(begun.elapsed())))
            }
            _ => None,
        }
    }
}

/// One of several, with how many more there are.
fn waited_for(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// Before there is anything to count, which would be a full bar of none.
const WORDS: &str = "{wide_msg}";

/// How a count is shown on so many columns, in one line: the words last, as much of them as has room.
fn layout(columns: u16, is_timed: bool) -> String {
    let left = if is_timed { " {eta:>4} left" } else { "" };
    match columns {
        ..32 => "{pos}/{len} {wide_msg}".to_owned(),
        32..60 => format!("{{pos}}/{{len}}{left} {{wide_msg}}"),
        _ => format!("{{bar:{}}} {{pos}}/{{len}}{left} {{wide_msg}}", columns / 3),
    }
}

fn advance(bar: &ProgressBar, done: usize, total: usize, is_timed: bool) {
    bar.set_length(total as u64);
    bar.set_position(done as u64);
    set_style(bar, &layout(columns(), is_timed));
}

/// The width of the terminal, which may change; 80 where it is not known.
fn columns() -> u16 {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: there is room for the answer.
    let known = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    if known && size.ws_col > 0 { size.ws_col } else { 80 }
}

/// Shows a text, which may have a target's title in it.
fn set_message(bar: &ProgressBar, what: &str) {
    bar.set_message(printable::line(what).into_owned());
}

fn set_style(bar: &ProgressBar, template: &str) {
    // The templates are ours and right; a bar in the wrong style is still a bar.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// `2 min 5 s`; of a short time, digits enough to tell it: `4.2 s`, `730 ms`.
pub(crate) fn spoken(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds @ 1..10 if time.subsec_millis() >= 100 => {
            format!("{seconds}.{} s", time.subsec_millis() / 100)
        }
        seconds @ 1..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::{ProgressDrawTarget, TermLike};
    use std::sync::{Arc, Mutex};

    #[test]
    fn short_times_have_digits_enough_to_tell_them() {
        let said = |ms| spoken(Duration::from_millis(ms));
        assert_eq!(["0 ms", "730 ms", "4.2 s", "9 s"], [0, 730, 4_250, 9_000].map(said)[..]);
        assert_eq!(["50 s", "2 min 5 s"], [50_999, 125_000].map(said)[..]);
    }

    /// A terminal that keeps what is written.
    #[derive(Debug)]
    struct Paper {
        columns: u16,
        lines: Arc<Mutex<Vec<String>>>,
    }

    impl TermLike for Paper {
        fn width(&self) -> u16 {
            self.columns
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.lines.lock().unwrap().push(text.trim_end().to_owned());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_count_has_one_line_on_every_terminal() {
        for (columns, expected) in [
            (20, "3/1234 ruby 3.4.1 th"),
            (40, "3/1234"),
            (60, "░░░░░░░░░░░░░░░░░░░░ 3/1234"),
            (200, "throughput"),
        ] {
            let lines = Arc::default();
            let paper = Paper { columns, lines: Arc::clone(&lines) };
            let bar = ProgressBar::new(1234);
            bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(paper)));
            set_style(&bar, &layout(columns, true));
            bar.set_position(3);
            set_message(&bar, "ruby 3.4.1 thread (carefree) throughput");
            bar.tick();
            let lines = lines.lock().unwrap();
            let last = lines.iter().rfind(|line| !line.is_empty()).expect("it is drawn");
            assert!(last.contains(expected), "{columns}: {last}");
            assert!(last.chars().count() <= usize::from(columns), "{columns}: {last}");
        }
    }

    #[test]
    fn a_bar_begins_with_words_and_not_full() {
        let bar = ProgressBar::hidden();
        let lines = Arc::default();
        let paper = Paper { columns: 80, lines: Arc::clone(&lines) };
        bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(paper)));
        Bar::Drawn(bar).say("looking for runtimes".into());
        let drawn: Vec<String> =
            lines.lock().unwrap().drain(..).filter(|l| !l.is_empty()).collect();
        assert!(drawn.iter().all(|line| line == "looking for runtimes"), "{drawn:?}");
        assert!(!drawn.is_empty());
    }

    #[test]
    fn a_title_is_no_order_to_the_terminal() {
        let bar = ProgressBar::hidden();
        set_message(&bar, "making \u{1b}[2J ready");
        assert_eq!(bar.message(), "making \\u{1b}[2J ready");
    }

    #[test]
    fn a_log_gets_a_line_now_and_then() {
        let long_ago = Instant::now().checked_sub(PACE * 5).expect("an uptime of some minutes");
        let mut bar = Bar::Told { begun: long_ago, last: long_ago, making: None };
        assert_eq!(bar.due("one"), Some("2 min 30 s so far: one".into()));
        assert_eq!(bar.due("another at once"), None);
    }
}
