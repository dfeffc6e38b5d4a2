//! A comparison, for people and for programs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use carefree_workloads::named::distinct;
use serde_json::{Value, json};

use super::ink::Ink;
use super::table::{Table, Tone, wrap};
use super::{Format, csv, escape, html, ink, names};
use crate::compare::{self, Comparison, Pair, Suspect, Verdict};
use crate::metric::spoken;
use crate::number::counted;

/// Shows a comparison, with colours where `colour` says so and the format has any.
///
/// # Errors
/// One line, for a format that comparisons do not have.
pub fn comparison(comparison: &Comparison, format: Format, colour: bool) -> Result<String> {
    match format {
        Format::Text => Ok(ink::safe(text(comparison, Ink::new(colour)), colour)),
        Format::Markdown => Ok(ink::safe(markdown(comparison), false)),
        Format::Csv => Ok(ink::safe(spreadsheet(comparison), false)),
        Format::Json => Ok(json(comparison)),
        Format::Html => Ok(html::comparison(
            comparison,
            &cautions(comparison),
            &sentences(comparison),
            &table(comparison),
        )),
        Format::Svg => bail!(
            "there is no comparison in svg; the formats are {}, and carefree report --format svg \
             shows records side by side",
            names(&Format::OF_COMPARISONS)
        ),
    }
}

/// What a reader has to know before the table.
fn cautions(comparison: &Comparison) -> Vec<String> {
    let mut found = Vec::new();
    if !comparison.machines.is_empty() {
        found.push(format!(
            "The two sides were measured on different machines ({}): what differs may be the \
             machine and not the program.",
            comparison.machines.join("; ")
        ));
    }
    let shared = comparison.pairs.iter().filter(|pair| pair.shared).count();
    if shared > 0 {
        let rest = if shared == 1 { "rests" } else { "rest" };
        found.push(format!(
            "{} {rest} on samples that stand on both sides: the later run has used \
             those of the earlier one again. Measure anew with carefree bench --force.",
            counted(shared, "figure")
        ));
    }
    found.extend(suspicions(comparison));
    if comparison.pairs.is_empty() {
        found.push(
            "The two sides have no figure in common: the same runtime, unit, workload, parameters \
             and metric. (--quick and --units measure other sizes than the published ones.)"
                .into(),
        );
    }
    found
}

/// What else than a version is another, and of which runtimes.
fn suspicions(comparison: &Comparison) -> Vec<String> {
    let mut found: BTreeMap<Suspect, Vec<String>> = BTreeMap::new();
    for pair in &comparison.pairs {
        let Some(suspect) = pair.suspect else { continue };
        found.entry(suspect).or_default().push(runtime(pair));
    }
    let of = |(suspect, runtimes): (Suspect, Vec<String>)| {
        let figures = counted(runtimes.len(), "figure");
        format!(
            "For {figures} ({}) {} is another on the new side, and may be what differs.",
            distinct(runtimes).join(", "),
            suspect.words()
        )
    };
    found.into_iter().map(of).collect()
}

/// What it comes to, in plain words.
fn sentences(comparison: &Comparison) -> Vec<String> {
    // What one figure has told, its rate tells again.
    let told = comparison.told();
    let of = |verdict| told.iter().copied().filter(move |p| p.change.verdict == verdict);
    let about = |pair: &Pair| {
        let (subject, metric) =
            (pair.new.subject.spoken_since(&pair.old.subject), &pair.new.metric);
        format!("{subject}, {}: {}", spoken(metric), pair.change.words(metric))
    };
    let mut found = Vec::new();
    for (verdict, word) in [(Verdict::Worse, "worse"), (Verdict::Better, "better")] {
        // Of several that changed as much, the first.
        let most = of(verdict).rev().max_by(|a, b| a.change.factor().total_cmp(&b.change.factor()));
        let Some(most) = most else { continue };
        let count = counted(of(verdict).count(), "figure");
        found.push(format!("{count} {word}, most of all {}.", about(most)));
    }
    let same = of(Verdict::NoneShown).count();
    if same > 0 {
        found.push(format!(
            "{} with no difference shown: if there is one, these samples do not tell it \
             from chance.",
            counted(same, "figure")
        ));
    }
    let few = of(Verdict::NoneShown).filter(|pair| !pair.could_tell()).count();
    if few > 0 {
        let of_them = if few == same {
            "None of these could".into()
        } else {
            format!("{few} of these could not")
        };
        found.push(format!(
            "{of_them} have shown one, however large: with so few samples chance may always have \
             done it. Take 4 or more on each side."
        ));
    }
    // What is no multiple of anything is not larger than what is.
    let size = |pair: &&Pair| Some(pair.change.factor()).filter(|f| f.is_finite()).unwrap_or(0.0);
    if let Some(most) = of(Verdict::Untested).max_by(|a, b| size(a).total_cmp(&size(b))) {
        let largest = match size(&most) >= compare::UNTESTED {
            true => format!("; the largest change is {}", about(most)),
            false => String::new(),
        };
        found.push(format!(
            "{} untested: one side has a figure and no samples, as published ones do{largest}.",
            counted(of(Verdict::Untested).count(), "figure")
        ));
    }
    for (count, side) in [(comparison.only_old, "old"), (comparison.only_new, "new")] {
        if count > 0 {
            found.push(format!("{} on the {side} side alone.", counted(count, "figure")));
        }
    }
    found
}

/// How the table is to be read.
const NOTES: [&str; 2] = [
    "Ratio: the new median by the old one, with its 95% interval (bootstrap). p: Mann-Whitney, \
     two-sided.",
    "Called better or worse where the interval leaves out 1 and p is below 0.05; by chance alone, \
     1 figure in 20 would have a p like that.",
];

fn table(comparison: &Comparison) -> Table {
    let mut table = Table::new("Old and New")
        .left(["Runtime", "Unit", "Workload", "Figure"])
        .right(["Old", "New", "Ratio", "95% interval", "p"])
        .left(["Verdict"]);
    for pair in &comparison.pairs {
        let Pair { old, new, change, shared, .. } = pair;
        let ends = |(low, high): (f64, f64)| format!("{low:.2}–{high:.2}");
        let verdict = if *shared { "the same samples".into() } else { change.cell(&new.metric) };
        table.rows.push(vec![
            runtime(pair),
            new.subject.unit.clone(),
            workload(comparison, pair),
            spoken(&new.metric),
            old.shown(),
            new.shown(),
            if change.ratio.is_finite() { format!("{:.2}", change.ratio) } else { "–".into() },
            change.interval.map_or_else(|| "–".into(), ends),
            change.p.map_or_else(|| "–".into(), chance),
            verdict,
        ]);
    }
    if comparison.pairs.iter().any(|pair| pair.change.interval.is_some()) {
        table.notes = NOTES.map(str::to_owned).to_vec();
    }
    let mut table = table.without_empty().with_marks_explained();
    if let Some(last) = table.columns.len().checked_sub(1) {
        let tones = comparison.pairs.iter().enumerate();
        table.tones = tones.filter_map(|(row, pair)| Some(((row, last), tone(pair)?))).collect();
    }
    table
}

/// Whether a pair's change is welcome, where there is one; of what nothing tells from chance, as
/// published figures, where it is large. (Its words are in brackets.)
fn tone(pair: &Pair) -> Option<Tone> {
    let is_more = pair.change.ratio > 1.0;
    let tone = match is_more == pair.new.quantity().more_is_better() {
        true => Tone::Good,
        false => Tone::Bad,
    };
    let is_told = match pair.change.verdict {
        Verdict::Better | Verdict::Worse => true,
        Verdict::Untested => pair.change.factor() >= compare::UNTESTED,
        Verdict::NoneShown => false,
    };
    (is_told && !pair.shared).then_some(tone)
}

/// `ruby 3.2 → 3.3`, or `ruby 3.3` where it is the same.
fn runtime(pair: &Pair) -> String {
    let (old, new) = (&pair.old.subject, &pair.new.subject);
    if old.version == new.version {
        format!("{} {}", new.runtime, new.version)
    } else {
        format!("{} {} → {}", new.runtime, old.version, new.version)
    }
}

/// The workload, with its parameters where it was measured with several.
fn workload(comparison: &Comparison, pair: &Pair) -> String {
    let subject = &pair.new.subject;
    let sizes: BTreeSet<_> = comparison
        .pairs
        .iter()
        .filter(|other| other.new.subject.workload == subject.workload)
        .map(|other| other.new.subject.parameters.clone().without("cores"))
        .collect();
    match sizes.len() {
        0 | 1 => subject.workload.clone(),
        _ => {
            let parameters = wrap(&subject.parameters.to_string(), 24);
            format!("{}\n{}", subject.workload, parameters.join("\n"))
        }
    }
}

/// A chance, with as many digits as mean something.
fn chance(p: f64) -> String {
    if p < 0.001 { "<0.001".into() } else { format!("{p:.3}") }
}

fn text(comparison: &Comparison, ink: Ink) -> String {
    let mut text = String::new();
    for caution in cautions(comparison) {
        text += &format!("{}\n", ink.yellow(&caution));
    }
    if !comparison.pairs.is_empty() {
        text += &table(comparison).text_section(ink);
    }
    text += &format!("\n{}\n\n", ink.bold("In plain words"));
    for sentence in sentences(comparison) {
        text += &format!("  {sentence}\n");
    }
    text
}

/// The cautions come before the table: a reader of the table alone must have seen them.
fn markdown(comparison: &Comparison) -> String {
    let mut page = String::from("## Old and New\n");
    for caution in cautions(comparison) {
        page += &format!("\n**{}**\n", escape::text(&caution));
    }
    if !comparison.pairs.is_empty() {
        let table = table(comparison);
        page += &format!("\n{}\n", table.markdown());
        page += &escape::list(&table.notes);
    }
    let sentences = sentences(comparison);
    if !sentences.is_empty() {
        page += &format!("\n### In plain words\n\n{}", escape::list(&sentences));
    }
    page
}

/// A field of a pair: its name, and its value in JSON and in a spreadsheet.
type Field = (&'static str, Value, String);

fn fields(Pair { old, new, change, suspect, .. }: &Pair) -> [Field; 16] {
    let text = |name, text: &str| (name, json!(text), text.to_owned());
    let number = |name, value: f64| (name, json!(value), value.to_string());
    let optional = |name, value: Option<f64>| (name, json!(value), csv::number(value));
    let s = &new.subject;
    [
        text("runtime", &s.runtime),
        text("old_version", &old.subject.version),
        text("new_version", &s.version),
        text("unit", &s.unit),
        text("workload", &s.workload),
        ("parameters", json!(s.parameters), s.parameters.to_string()),
        text("metric", &new.metric),
        text("value_unit", &new.value_unit),
        number("old", old.median),
        number("new", new.median),
        number("ratio", change.ratio),
        optional("ratio_low", change.interval.map(|(low, _)| low)),
        optional("ratio_high", change.interval.map(|(_, high)| high)),
        optional("p", change.p),
        text("verdict", change.verdict.name()),
        suspect.map_or(("suspect", Value::Null, String::new()), |it| text("suspect", it.name())),
    ]
}

fn spreadsheet(comparison: &Comparison) -> String {
    let mut lines = String::from(
        "runtime,old_version,new_version,unit,workload,parameters,metric,\
         value_unit,old,new,ratio,ratio_low,ratio_high,p,verdict,suspect\n",
    );
    for pair in &comparison.pairs {
        lines += &csv::line(fields(pair).into_iter().map(|(_, _, cell)| cell));
    }
    lines
}

/// One object, a pair a line.
fn json(comparison: &Comparison) -> String {
    let pair = |pair: &Pair| {
        let fields = fields(pair).into_iter().map(|(name, value, _)| (name.to_owned(), value));
        let shared = ("same_samples".to_owned(), json!(pair.shared));
        format!("    {}", Value::Object(fields.chain([shared]).collect()))
    };
    let pairs: Vec<String> = comparison.pairs.iter().map(pair).collect();
    let pairs = match pairs.is_empty() {
        true => "[]".to_owned(),
        false => format!("[\n{}\n  ]", pairs.join(",\n")),
    };
    let machines = json!(comparison.machines);
    let Comparison { only_old, only_new, .. } = comparison;
    format!(
        "{{\n  \"machines\": {machines},\n  \"only_old\": {only_old},\n  \"only_new\": {only_new},\n  \
         \"pairs\": {pairs}\n}}\n"
    )
}
