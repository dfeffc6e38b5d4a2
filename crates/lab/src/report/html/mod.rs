//! Records as one page that needs nothing else: no network, no files beside it.
//!
//! Pictures are SVG, each with a table of what it shows; a policy in the page's head forbids it to
//! load anything. Without its script the page shows all workloads one below the other, and its
//! tables cannot be sorted; nothing else is missing.

mod bars;
mod changes;
mod crossings;
mod curves;
mod dumbbells;
mod markup;
mod panels;
mod past;
pub(super) mod picture;
mod scale;
mod sources;
mod strips;

use std::collections::HashMap;

use carefree_workloads::named::distinct;
use markup::{MOST, left_out, list, list_of, unbroken};
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub(crate) use changes::{comparison, history};

use super::topic::Topic;
use super::view::View;
use super::{tables, text, words};
use crate::history as past_of;
use crate::number::{self, counted};
use crate::record::Record;

const STYLE: &str = include_str!("style.css");
const PAGE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("script.js");

/// The method in short, for readers of the page alone.
const METHOD: [&str; 6] = [
    "Each sample is taken by a process of its own, so that none starts on another's warm stacks, \
     grown heap or high-water mark.",
    "Samples of all runtimes, units and workloads are taken in random order, every one its first \
     before any its second: a disturbance that lasts strikes all alike.",
    "Each program proves its work: units that ran to their end, switches asked for and made. A \
     yield that did not switch is counted, and time is divided by the switches that were made.",
    "The median is quoted, with a 95% interval by the bootstrap. Nothing is dropped: outliers are \
     counted and left in.",
    "A sentence claims a difference only where the two intervals do not meet.",
    "Memory is two figures: the process's own, and the whole with what the kernel keeps for a \
     thread, without which threads look as cheap as fibers.",
];

pub(super) fn render(records: &[Record]) -> String {
    let view = View::new(records);
    let steps: Vec<String> = past_of::sentences(records)
        .iter()
        .map(|step| format!("{}.", text::capitalized(step)))
        .collect();
    let charts = panels::render(&view);
    let choice = choice(&view, &charts);
    let sections = vec![
        ("summary", "In plain words", summary(&view, records, &steps)),
        ("charts", "Charts", charts),
        ("tables", "Tables", all_tables(&view)),
        ("history", "History", past::render(records, &runtimes(&view), &steps)),
        ("figures", "Every figure", figures(&view)),
        ("programs", "The programs", sources::render(&view)),
        ("doubts", "Reasons for doubt", doubts(records)),
        ("method", "How it was measured", method(records)),
        ("environment", "Where it was measured", environment(records)),
    ];
    page("Fiber vs Thread Benchmark", &subtitle(records), &choice, sections)
}

/// The names of all runtimes.
fn runtimes<'a>(view: &View<'a>) -> Vec<&'a str> {
    distinct(view.figures.iter().map(|figure| &*figure.m.subject.runtime))
}

/// The orders that rows of these charts can stand in: first the one that they are made in. The rows
/// have what each goes by.
fn orders(charts: &Markup) -> Vec<(&'static str, &'static str)> {
    let has = |name: &str| {
        let start = format!(" data-{name}=\"");
        charts.0.split(&start).skip(1).any(|rest| !rest.starts_with('"'))
    };
    let mut orders = vec![
        ("ratio", "by ratio, largest first"),
        ("best", "best first"),
        ("fiber", "by fiber, smallest first"),
        ("thread", "by thread, smallest first"),
        ("name", "by name"),
    ];
    // Bars stand best first where other charts are ordered by ratio, too.
    orders.retain(|(name, _)| has(name) && !(*name == "best" && has("ratio")));
    orders
}

/// Which runtimes are shown, and in which order; the script has it work, and keeps it in the address.
fn choice(view: &View<'_>, charts: &Markup) -> Markup {
    let runtimes = runtimes(view);
    let orders = orders(charts);
    html! {
        @if runtimes.len() > 1 {
            form id="choice" hidden {
                fieldset {
                    legend { "Runtimes" }
                    @for runtime in &runtimes {
                        label { input type="checkbox" name="only" value=(runtime) checked; (runtime) }
                    }
                }
                @if orders.len() > 1 {
                    label class="sort" {
                        "Order of charts "
                        select name="sort" {
                            @for (value, name) in &orders { option value=(value) { (name) } }
                        }
                    }
                }
                p id="none" hidden { "No runtime is chosen." }
            }
        }
    }
}

/// A page of sections, each with its id for links, its title and its body. Sections with an empty
/// body are left out. The first is the summary. `choice` is what a reader may choose of the figures.
fn page(
    title: &str,
    subtitle: &str,
    choice: &Markup,
    mut sections: Vec<(&str, &str, Markup)>,
) -> String {
    const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
                          script-src 'unsafe-inline'; img-src data:";
    sections.retain(|(_, _, body)| !body.0.is_empty());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(PAGE)) }
            }
            body {
                a class="skip" href="#summary" { "Skip to the summary" }
                header {
                    div { h1 { (title) } p class="soft" { (subtitle) } }
                    button id="theme" type="button" hidden { "Dark page" }
                }
                nav aria-label="Sections" {
                    ul {
                        @for (id, title, _) in &sections {
                            li { a href={ "#" (id) } { (title) } }
                        }
                    }
                }
                (choice)
                main {
                    @for (id, title, body) in &sections {
                        section id=(id) aria-labelledby={ (id) "-title" } {
                            h2 id={ (id) "-title" } { (title) }
                            (body)
                        }
                        "\n"
                    }
                }
                footer { "Made by carefree " (env!("CARGO_PKG_VERSION")) "." }
                script { (PreEscaped(SCRIPT)) }
            }
        }
        "\n"
    };
    page.into_string()
}

/// When and on what, in a line.
fn subtitle(records: &[Record]) -> String {
    let parts = distinct(records.iter().map(|record| match &record.source {
        Some(_) => "published figures".to_owned(),
        None => {
            let environment = &record.environment;
            let date = environment.started.get(..10).unwrap_or_default();
            let cpu = environment.cpu.as_deref().unwrap_or("unknown processor");
            format!("{cpu}, {}, {date}", counted(environment.cores_allowed, "core"))
        }
    }));
    match parts.len() {
        0..=3 => parts.join(" · "),
        count => format!("{} · and {} more", parts[..2].join(" · "), count - 2),
    }
}

/// With more sentences than these, each topic is a line that opens to show its sentences.
const FEW: usize = 8;

/// `steps` are those of the figures' history, a sentence each, what matters most first.
fn summary(view: &View<'_>, records: &[Record], steps: &[String]) -> Markup {
    let topics = words::topics(view);
    let many = topics.iter().map(|topic| topic.said.len()).sum::<usize>() > FEW;
    let load_of = |load: &Option<String>| html! { @if let Some(load) = load { " (" (load) ")" } };
    let has_ratios = topics.iter().any(|topic| topic.lead.is_some() && topic.load.is_none());
    let names = runtimes(view);
    let largest = &steps[..steps.len().min(3)];
    let doubts = all_doubts(records).len();
    html! {
        @if has_ratios {
            p class="lead all" {
                "What a thread takes, in multiples of what the lighter unit (fiber, goroutine, \
                 task) takes: the least and the most of the runtimes that can be compared."
            }
        }
        @for Topic { title, lead, load, said } in &topics {
            @match lead {
                Some(lead) => details class="topic" open[!many] {
                    // (Of all runtimes: where some are left out, the script hides it.)
                    summary { h3 { (title) } (load_of(load)) span class="all" { ": " (lead) } }
                    (list_of(&names, said))
                },
                None => {
                    @let (first, rest) = said.split_at(if said.len() > 2 * FEW { FEW } else { said.len() });
                    div class="topic" {
                        @if many || load.is_some() { h3 { (title) } (load_of(load)) }
                        (list_of(&names, first))
                        @if !rest.is_empty() {
                            details class="topic" {
                                summary { span class="all" { (rest.len()) " " } "more" }
                                (list_of(&names, rest))
                            }
                        }
                    }
                },
            }
        }
        @if !largest.is_empty() {
            div class="topic" { h3 { "From version to version" } (list_of(&names, largest)) }
        }
        @if topics.is_empty() && largest.is_empty() {
            p { "There is nothing to compare: no fiber and thread did the same work in three samples or more." }
        }
        @if doubts > 0 {
            @let is = if doubts == 1 { "is" } else { "are" };
            p { "There " (is) " " a href="#doubts" { (counted(doubts, "reason")) " for doubt" } "." }
        }
    }
}

fn all_tables(view: &View<'_>) -> Markup {
    html! {
        @for table in tables::published(view) {
            h3 { (table.title) }
            (markup::table(&table, &table.title))
        }
    }
}

fn figures(view: &View<'_>) -> Markup {
    html! {
        @if let Some(table) = tables::intervals(view, true) {
            details {
                summary { "All " (table.rows.len()) " figures, with their intervals" }
                (markup::table(&table, &table.title))
            }
        }
    }
}

fn doubts(records: &[Record]) -> Markup {
    let said = all_doubts(records);
    html! {
        @if !said.is_empty() {
            ul class="doubts" {
                @for (doubt, times) in said.iter().take(MOST) {
                    li {
                        (PreEscaped(doubt))
                        @if *times > 1 { p class="soft" { "So in " (times) " runs." } }
                    }
                }
            }
            (left_out(said.len(), MOST, "reasons"))
        }
    }
}

/// The doubts of all records, and of how many each is: what holds of each run of a machine is said
/// once.
fn all_doubts(records: &[Record]) -> Vec<(String, usize)> {
    let mut said: Vec<(String, usize)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for doubt in records.iter().flat_map(doubts_of) {
        let at = *places.entry(doubt.0.clone()).or_insert(said.len());
        match said.get_mut(at) {
            Some((_, times)) => *times += 1,
            None => said.push((doubt.0, 1)),
        }
    }
    said
}

fn doubts_of(record: &Record) -> Vec<Markup> {
    let warnings = record.warnings.iter().map(|warning| {
        html! {
            strong { (unbroken(&text::capitalized(&warning.message))) "." }
            " What to do: " (unbroken(&warning.advice)) "."
        }
    });
    let failures = record.failures.iter().map(|failed| {
        html! {
            strong { "Failed: " (unbroken(&text::failure(failed))) }
            @if let Some(advice) = &failed.advice { " What to do: " (unbroken(advice)) "." }
            @if let Some(said) = &failed.stderr { pre { (said) } }
        }
    });
    let broken = record.run.interrupted;
    let broken = broken.then(|| html! { "Broken off: these are the samples until then." });
    warnings.chain(failures).chain(broken).collect()
}

fn method(records: &[Record]) -> Markup {
    html! {
        @if records.iter().any(|record| record.source.is_none()) {
            (list(None, &METHOD.map(str::to_owned)))
        }
        @for source in records.iter().filter_map(|record| record.source.as_ref()) {
            // Nothing else becomes a link, whatever a record says.
            @let address = source.address.as_ref().filter(|a| a.starts_with("https://"));
            h3 {
                "As published: "
                @match address {
                    Some(address) => a href=(address) { (source.title) },
                    None => (source.title),
                }
            }
            (list(None, &source.notes))
        }
    }
}

fn environment(records: &[Record]) -> Markup {
    // A folder may have dozens of runs: their facts are folded.
    let folded = records.len() > 1;
    html! {
        @for record in &records[..records.len().min(MOST)] {
            @let title = match &record.source {
                Some(source) => &source.title,
                None => &record.environment.started,
            };
            @let facts = html! {
                dl { @for (name, fact) in facts(record) { dt { (name) } dd { (fact) } } }
            };
            @if title.is_empty() {
            } @else if folded {
                // On paper this line is all.
                @let on = match &record.source {
                    Some(_) => String::new(),
                    None => text::hardware(&record.environment),
                };
                details class="card" {
                    summary { h3 { (title) } @if !on.is_empty() { ": " (on) } }
                    (facts)
                }
            } @else {
                div class="card" { h3 { (title) } (facts) }
            }
        }
        (left_out(records.len(), MOST, "runs"))
    }
}

/// What is known of where and how a record was measured.
fn facts(record: &Record) -> Vec<(&'static str, Markup)> {
    let e = &record.environment;
    let run = &record.run;
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let cores = match (e.cores_allowed, e.cores) {
        (0, _) => None,
        (allowed, cores) if allowed == cores => Some(cores.to_string()),
        (allowed, cores) => Some(format!("{allowed} of {cores}")),
    };
    let variables: Vec<String> =
        e.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mode = |mode: &str, reason: &str| known(mode).map(|mode| format!("{mode}: {reason}"));
    let measured = record.source.is_none();
    let facts: [(&str, Option<String>); 18] = [
        ("Processor", e.cpu.clone()),
        ("Cores", cores),
        ("Memory", e.memory.map(|bytes| number::size(bytes as f64))),
        ("Virtual machine", e.virtual_machine.map(|is| if is { "yes" } else { "no" }.into())),
        ("Container", e.container.clone()),
        ("Frequency governor", e.governor.clone()),
        ("Kernel", known(&e.kernel)),
        ("C library", known(&e.libc)),
        ("Page size", (e.page_size > 0).then(|| number::size(e.page_size as f64))),
        ("Transparent huge pages", e.thp.clone()),
        ("Address randomization", e.aslr.clone()),
        ("carefree", known(&e.carefree)),
        ("rustc", known(&e.rustc)),
        ("Fibers' thread-local storage", mode(&e.tls_mode, &e.tls_reason)),
        ("Guards of stacks", mode(&e.guard_mode, &e.guard_reason)),
        ("Variables", known(&variables.join(", "))),
        ("Samples of each", measured.then(|| run.samples.to_string())),
        ("Seed", measured.then(|| run.seed.to_string())),
    ];
    let facts = facts.into_iter().filter_map(|(name, fact)| Some((name, html! { (fact?) })));
    let runtimes = run.runtimes.iter().map(|facts| ("Runtime", html! { (facts) }));
    let again = text::used_again(&[record]).map(|again| ("Used again", html! { (again) }));
    let command = known(&run.command).map(|c| ("Command", html! { code { (c) } }));
    facts.chain(runtimes).chain(again).chain(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{Warning, WarningKind};

    #[test]
    fn only_orders_that_a_chart_can_follow_are_offered() {
        let of = |charts: &str| {
            let charts = PreEscaped(charts.to_owned());
            orders(&charts).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let bar = "<g data-name=\"ruby\" data-best=\"0\">";
        let row = "<g data-name=\"ruby\" data-ratio=\"3\" data-fiber=\"1\" data-thread=\"3\">";
        let alone = "<g data-name=\"php\" data-fiber=\"1\" data-thread=\"\">";
        assert_eq!(of(bar), ["best", "name"]);
        assert_eq!(of(&format!("{row}{bar}")), ["ratio", "fiber", "thread", "name"]);
        assert_eq!(of(alone), ["fiber", "name"]);
        assert_eq!(of("<path>"), [""; 0]);
    }

    #[test]
    fn the_summary_counts_the_doubts_that_it_links_to() {
        let record = |message: &str, interrupted: bool| {
            let warning = Warning::new(WarningKind::Unoptimized, message, "wait");
            let mut record = Record { warnings: vec![warning], ..Record::default() };
            record.run.interrupted = interrupted;
            record
        };
        let html = render(&[record("busy", false), record("busy", false), record("hot", true)]);
        assert!(html.contains(">3 reasons for doubt</a>"), "{html}");
        let doubts = html.split("<ul class=\"doubts\">").nth(1).expect("a list");
        let doubts = doubts.split("</ul>").next().unwrap_or_default();
        assert_eq!(doubts.matches("<li>").count(), 3, "{doubts}");
        assert!(doubts.contains("So in 2 runs."), "{doubts}");
    }
}
