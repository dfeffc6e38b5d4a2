//! Records as one page that needs nothing else: no network, no files beside it.
//!
//! Pictures are SVG, written here, each with a table of what it shows; a policy in the page's head
//! forbids it to load anything. Without its script the page shows all workloads one below the
//! other and cannot sort; nothing else is missing.

mod bars;
mod changes;
mod curves;
mod markup;
mod panels;
mod past;
pub(super) mod picture;
mod scale;

use std::fmt::Write;

use markup::escape;

pub(crate) use changes::{comparison, history};

use super::view::View;
use super::{number, tables, text, words};
use crate::history as past_of;
use crate::record::Record;

const STYLE: &str = include_str!("style.css");
const PAGE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("script.js");

/// How figures come about, for who has read nothing else.
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
    let sections = vec![
        ("summary", "In plain words", summary(&view, records)),
        ("charts", "Charts", panels::render(&view)),
        ("tables", "Tables", all_tables(&view)),
        ("history", "History", past::render(records)),
        ("figures", "Every figure", figures(&view)),
        ("doubts", "Reasons for doubt", doubts(records)),
        ("method", "How it was measured", method(records)),
        ("environment", "Where it was measured", environment(records)),
    ];
    page("Fiber vs Thread Benchmark", &subtitle(records), sections)
}

/// A page of sections, each with what it goes by in links, its title and its body; those without a
/// body are left out. The first is the summary.
fn page(title: &str, subtitle: &str, mut sections: Vec<(&str, &str, String)>) -> String {
    sections.retain(|(_, _, body)| !body.is_empty());
    let links: String = sections
        .iter()
        .map(|(id, title, _)| format!("<li><a href=\"#{id}\">{title}</a></li>"))
        .collect();
    let bodies: String = sections
        .iter()
        .map(|(id, title, body)| {
            format!(
                "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">\
                 {title}</h2>\n{body}</section>\n"
            )
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{PAGE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#summary\">Skip to the summary</a>\n\
         <header><div><h1>{title}</h1>\n<p class=\"soft\">{}</p></div>\n\
         <button id=\"theme\" type=\"button\" hidden>Dark page</button></header>\n\
         <nav aria-label=\"Sections\"><ul>{links}</ul></nav>\n<main>\n{bodies}</main>\n\
         <footer>Made by carefree {}.</footer>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        escape(subtitle),
        env!("CARGO_PKG_VERSION"),
    )
}

/// When and on what, in a line.
fn subtitle(records: &[Record]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for record in records {
        let environment = &record.environment;
        let part = match &record.source {
            Some(_) => "published figures".to_owned(),
            None => {
                let date = environment.started.get(..10).unwrap_or_default();
                let cpu = environment.cpu.as_deref().unwrap_or("unknown processor");
                let cores = environment.cores_allowed;
                let word = if cores == 1 { "core" } else { "cores" };
                format!("{cpu}, {cores} {word}, {date}")
            }
        };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    match parts.len() {
        0..=3 => parts.join(" · "),
        count => format!("{} · and {} more", parts[..2].join(" · "), count - 2),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: String = items.map(|item| format!("<li>{}</li>\n", escape(&item))).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

fn summary(view: &View<'_>, records: &[Record]) -> String {
    let topics = words::topics(view);
    let mut html = String::new();
    // Few sentences need no help; many are told in a line for each topic, with the rest behind it.
    let many = topics.iter().map(|(_, said)| said.len()).sum::<usize>() > 8;
    let (runtimes, spans) = words::spans(view).unwrap_or_default();
    let open = if many { "" } else { " open" };
    if runtimes > 0 {
        let _ = writeln!(
            html,
            "<p class=\"lead\">What a thread takes, in multiples of what the lighter unit (fiber, \
             goroutine, task) takes: the least and the most of the {runtimes} runtimes measured \
             here.</p>"
        );
    }
    for (topic, said) in topics {
        let sentences = list(said.into_iter());
        let _ = match spans.get(topic) {
            Some(span) => writeln!(
                html,
                "<details class=\"topic\"{open}><summary><h3>{topic}</h3>: {}</summary>{sentences}\
                 </details>",
                escape(span)
            ),
            None if many => writeln!(html, "<h3>{topic}</h3>\n{sentences}"),
            None => writeln!(html, "{sentences}"),
        };
    }
    let steps: Vec<String> = past_in_short(records).collect();
    if !steps.is_empty() {
        let _ = writeln!(html, "<h3>From version to version</h3>\n{}", list(steps.into_iter()));
    }
    if html.is_empty() {
        html.push_str(
            "<p>There is nothing to compare: no fiber and thread did the same work.</p>\n",
        );
    }
    let doubts = records.iter().map(|r| r.warnings.len() + r.failures.len()).sum::<usize>();
    if doubts > 0 {
        let (is, word) = if doubts == 1 { ("is", "reason") } else { ("are", "reasons") };
        let _ =
            writeln!(html, "<p>There {is} <a href=\"#doubts\">{doubts} {word} for doubt</a>.</p>");
    }
    html
}

/// The largest steps of the history.
fn past_in_short(records: &[Record]) -> impl Iterator<Item = String> + use<> {
    past_of::sentences(records)
        .into_iter()
        .take(3)
        .map(|step| format!("{}.", text::capitalized(&step)))
}

fn all_tables(view: &View<'_>) -> String {
    let shown = |table: &super::table::Table| {
        format!(
            "<h3>{}</h3>\n{}{}",
            escape(&table.title),
            markup::table(table, &table.title),
            markup::notes(&table.notes)
        )
    };
    tables::published(view).iter().map(shown).collect()
}

fn figures(view: &View<'_>) -> String {
    tables::intervals(view, true).map_or_else(String::new, |table| {
        format!(
            "<details><summary>All {} figures, with their intervals</summary>{}{}</details>\n",
            table.rows.len(),
            markup::table(&table, &table.title),
            markup::notes(&table.notes)
        )
    })
}

fn doubts(records: &[Record]) -> String {
    let mut items = String::new();
    for record in records {
        for warning in &record.warnings {
            let _ = writeln!(
                items,
                "<li><strong>{}.</strong> What to do: {}.</li>",
                escape(&text::capitalized(&warning.message)),
                escape(&warning.advice)
            );
        }
        for failed in &record.failures {
            let advice = failed.advice.as_ref();
            let advice =
                advice.map_or_else(String::new, |advice| format!(" What to do: {advice}."));
            let said = failed.stderr.as_ref();
            let said = said.map_or_else(String::new, |s| format!("<pre>{}</pre>", escape(s)));
            let _ = writeln!(
                items,
                "<li><strong>Failed: {}</strong>{}{said}</li>",
                escape(&text::failure(failed)),
                escape(&advice)
            );
        }
        if record.run.interrupted {
            items.push_str("<li>Broken off: these are the samples until then.</li>\n");
        }
    }
    if items.is_empty() { items } else { format!("<ul class=\"doubts\">\n{items}</ul>\n") }
}

fn method(records: &[Record]) -> String {
    let mut html = String::new();
    if records.iter().any(|record| record.source.is_none()) {
        html += &list(METHOD.into_iter().map(str::to_owned));
    }
    for source in records.iter().filter_map(|record| record.source.as_ref()) {
        let title = escape(&source.title);
        let title = match &source.address {
            // Nothing else becomes a link, whatever a record says.
            Some(address) if address.starts_with("https://") => {
                format!("<a href=\"{}\">{title}</a>", escape(address))
            }
            _ => title,
        };
        html += &format!("<h3>As published: {title}</h3>\n{}", list(source.notes.iter().cloned()));
    }
    html
}

fn environment(records: &[Record]) -> String {
    let mut html = String::new();
    // A folder has dozens of runs, each with as much to say.
    let folded = records.len() > 1;
    for record in records {
        let e = &record.environment;
        let title = match (&record.source, e.started.as_str()) {
            (Some(source), _) => source.title.clone(),
            (None, "") => continue,
            (None, started) => started.to_owned(),
        };
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let cores = match (e.cores_allowed, e.cores) {
            (0, _) => None,
            (allowed, cores) if allowed == cores => Some(cores.to_string()),
            (allowed, cores) => Some(format!("{allowed} of {cores}")),
        };
        let variables: Vec<String> =
            e.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mode = |mode: &str, reason: &str| known(mode).map(|mode| format!("{mode}: {reason}"));
        let run = &record.run;
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
        let title = escape(&title);
        let _ = match folded {
            true => {
                writeln!(html, "<details class=\"card\"><summary><h3>{title}</h3></summary><dl>")
            }
            false => writeln!(html, "<div class=\"card\"><h3>{title}</h3><dl>"),
        };
        for (name, fact) in facts {
            if let Some(fact) = fact {
                let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&fact));
            }
        }
        for facts in &run.runtimes {
            let _ = writeln!(html, "<dt>Runtime</dt><dd>{}</dd>", escape(&facts.to_string()));
        }
        if let Some(again) = text::used_again(record) {
            let _ = writeln!(html, "<dt>Used again</dt><dd>{}</dd>", escape(&again));
        }
        if !run.command.is_empty() {
            let command = escape(&run.command);
            let _ = writeln!(html, "<dt>Command</dt><dd><code>{command}</code></dd>");
        }
        html.push_str(if folded { "</dl></details>\n" } else { "</dl></div>\n" });
    }
    html
}
