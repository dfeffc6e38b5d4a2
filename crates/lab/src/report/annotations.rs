//! The outcome of a comparison for the machinery that runs it.

use maud::html;

use crate::compare::{Comparison, Pair, Verdict};
use crate::metric::spoken;
use crate::printable;

/// A test case for each figure that both sides have, in the format that JUnit has made common; those
/// of `worse` have failed, those that nothing could be told of are skipped.
pub fn junit(comparison: &Comparison, worse: &[&Pair]) -> String {
    let is_worse = |pair: &Pair| worse.iter().any(|other| std::ptr::eq(*other, pair));
    let is_untold =
        |pair: &Pair| pair.shared || pair.change.verdict == Verdict::Untested || !pair.could_tell();
    let all = &comparison.pairs;
    let failed = all.iter().filter(|pair| is_worse(pair)).count();
    let skipped = all.iter().filter(|pair| !is_worse(pair) && is_untold(pair)).count();
    let suite = html! {
        testsuite name="carefree compare" tests=(all.len()) failures=(failed) skipped=(skipped) {
            "\n"
            @for pair in all {
                testcase classname=(of(pair)) name=(figure(pair)) {
                    @if is_worse(pair) {
                        failure message=(printable::line(&words(pair))) { (printable::line(&values(pair))) }
                    } @else if is_untold(pair) {
                        skipped message="no samples of its own that could tell" {}
                    }
                }
                "\n"
            }
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", suite.into_string())
}

/// A line for each figure that got worse, which GitHub Actions shows beside the change.
pub fn github(worse: &[&Pair]) -> String {
    let line = |pair: &&Pair| {
        let title = format!("{} {}", of(pair), figure(pair));
        let message = format!("{}: {}", words(pair), values(pair));
        format!("::error title={}::{}\n", property(&title), data(&message))
    };
    worse.iter().map(line).collect()
}

/// `ruby 3.3 thread`.
fn of(pair: &Pair) -> String {
    let s = &pair.new.subject;
    printable::line(&format!("{} {} {}", s.runtime, s.version, s.unit)).into_owned()
}

/// `alloc time per unit (units=10000)`.
fn figure(pair: &Pair) -> String {
    let s = &pair.new.subject;
    let name = format!("{} {} ({})", s.workload, spoken(&pair.new.metric), s.parameters);
    printable::line(&name).into_owned()
}

fn words(pair: &Pair) -> String {
    pair.change.words(&pair.new.metric)
}

/// `18.1 µs to 65.1 µs, ratio 3.55 to 3.65`.
fn values(pair: &Pair) -> String {
    let ends = pair.change.interval.map(|(low, high)| format!(", ratio {low:.2} to {high:.2}"));
    format!("{} to {}{}", pair.old.shown(), pair.new.shown(), ends.unwrap_or_default())
}

/// What would end a message is written by its number.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// And what would end a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Measurement, Record, Subject};
    use crate::stats::median;

    fn side(factor: f64) -> Record {
        let samples: Vec<f64> =
            [100.0, 103.0, 98.0, 101.0, 99.0, 102.0, 97.0].map(|v| v * factor).into();
        let measurement = |unit: &str, samples: Vec<f64>| Measurement {
            subject: Subject { unit: unit.into(), workload: "alloc".into(), ..Subject::default() },
            metric: "time_per_unit".into(),
            median: median(&samples),
            samples,
            ..Measurement::default()
        };
        let results = vec![
            measurement("a<b>&\"c\"", samples.clone()),
            measurement("few", samples[..2].into()),
        ];
        Record { results, ..Record::default() }
    }

    #[test]
    fn a_pipeline_is_told_of_each_figure() {
        let comparison = Comparison::new(&[side(1.0)], &[side(2.0)]);
        let worse = comparison.regressions(5.0);
        assert_eq!(worse.len(), 1);
        let junit = junit(&comparison, &worse);
        assert!(
            junit.starts_with("<?xml")
                && junit.contains("tests=\"2\" failures=\"1\" skipped=\"1\""),
            "{junit}"
        );
        assert!(
            junit.contains("a&lt;b&gt;&amp;&quot;c&quot;") && !junit.contains("a<b>"),
            "{junit}"
        );
        assert!(junit.contains("<failure message=\"2.0x slower\">"), "{junit}");
        let github = github(&worse);
        assert_eq!(github.lines().count(), 1, "{github}");
        assert!(
            github.starts_with("::error title=") && github.contains("::2.0x slower: 100 ns to")
        );
    }

    #[test]
    fn nothing_in_a_name_ends_an_annotation() {
        assert_eq!(property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
        assert_eq!(data("a:b\n"), "a:b%0A");
    }
}
