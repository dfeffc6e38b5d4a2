//! What a report says in plain words of one thing, and the words for it.

use crate::number::times;
use crate::record::{Measurement, Subject};

/// What there is to say of one thing.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) title: String,
    /// What it comes to over all runtimes, where there are several.
    pub(super) lead: Option<String>,
    /// Which load the sentences are of, where they do not say it themselves.
    pub(super) load: Option<String>,
    pub(super) said: Vec<String>,
}

impl Topic {
    /// The line above the sentences, where they need one.
    pub(super) fn heading(&self) -> Option<String> {
        let load = self.load.as_ref()?;
        let lead = self.lead.as_ref().map_or_else(String::new, |lead| format!(" {lead}."));
        Some(format!("{} ({load}):{lead}", self.title))
    }
}

/// `2.9x (python greenlet) to 88x (rust task)`: the least and the most of these ratios.
pub(super) fn ends(mut ratios: Vec<(f64, &Subject)>) -> Option<String> {
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let of = |(ratio, subject): &(f64, &Subject)| (factor_shown(*ratio), unit_of(subject));
    match &ratios[..] {
        [] => None,
        [one] => Some(of(one)).map(|(ratio, unit)| format!("{ratio} ({unit})")),
        [least, .., most] => {
            let ((least, one), (most, other)) = (of(least), of(most));
            Some(match least == most {
                true => format!("{least} ({one}, {other})"),
                false => format!("{least} ({one}) to {most} ({other})"),
            })
        }
    }
}

/// A factor that is claimed: in two decimals where one would have it that nothing is different.
pub(super) fn factor_shown(factor: f64) -> String {
    match times(factor) {
        none if none == "1.0x" => format!("{factor:.2}x"),
        shown => shown,
    }
}

/// `python greenlet`.
pub(super) fn unit_of(subject: &Subject) -> String {
    format!("{} {}", subject.runtime, subject.unit)
}

/// A unit's noun in a sentence.
pub(super) fn noun(m: &Measurement) -> String {
    match m.subject.unit.as_str() {
        "puma" => "thread of Puma".into(),
        "puma (carefree)" => "thread of Puma (carefree)".into(),
        unit @ ("platform" | "virtual") => format!("{unit} thread"),
        "async" => "async function".into(),
        "may" => "coroutine of may".into(),
        unit => unit.to_owned(),
    }
}

/// Of a noun, with what stands behind it: `threads of Puma (carefree)`.
pub(super) fn plural(noun: &str) -> String {
    if let Some((noun, kind)) = noun.split_once(" (") {
        return format!("{} ({kind}", plural(noun));
    }
    match noun.split_once(" of ") {
        Some((noun, whose)) => format!("{} of {whose}", plural(noun)),
        None if noun.ends_with('s') => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}
