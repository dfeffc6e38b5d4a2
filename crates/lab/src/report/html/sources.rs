//! The programs that measure: what a figure is of can be read beside it.

use carefree_workloads::named::distinct;
use maud::{Markup, html};

use crate::record::Measurement;
use crate::report::view::View;
use crate::targets;

/// Links to the programs that have measured these figures.
pub(super) fn links<'a>(figures: impl Iterator<Item = &'a Measurement>) -> Markup {
    // Published figures were measured by other programs.
    let measured = figures.filter(|m| m.ci_low.is_some());
    let mut runtimes = distinct(measured.map(|m| &*m.subject.runtime));
    runtimes.retain(|runtime| !targets::sources(runtime).is_empty());
    html! {
        @if !runtimes.is_empty() {
            p {
                "The programs that did this:"
                @for runtime in &runtimes { " " a href={ "#program-" (runtime) } { (runtime) } }
            }
        }
    }
}

/// The programs of the runtimes that have figures, each behind a line that opens.
pub(super) fn render(view: &View<'_>) -> Markup {
    // Published figures were measured by other programs.
    let own = view.figures.iter().filter(|figure| figure.m.ci_low.is_some());
    let runtimes = distinct(own.map(|figure| &*figure.m.subject.runtime));
    let sources: Vec<(&str, Vec<(&str, &str)>)> = runtimes
        .into_iter()
        .map(|runtime| (runtime, targets::sources(runtime)))
        .filter(|(_, files)| !files.is_empty())
        .collect();
    html! {
        @if !sources.is_empty() {
            p {
                "As they come with carefree " (env!("CARGO_PKG_VERSION"))
                "; a target of one's own, and a record of another version, may have others. The \
                 fingerprint in the record tells. How they are asked: docs/targets.md."
            }
            @for (runtime, files) in &sources {
                details class="card" id={ "program-" (runtime) } {
                    summary { h3 { (runtime) } }
                    @for (name, text) in files {
                        h4 { (name) }
                        pre class="source" tabindex="0" { (text) }
                    }
                }
            }
        }
    }
}
