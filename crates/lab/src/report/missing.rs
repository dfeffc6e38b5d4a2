//! Rows that a table has not, and why: as far as records and targets tell.

use std::collections::{BTreeMap, BTreeSet};

use carefree_workloads::named::{distinct, list};
use carefree_workloads::role::Role;

use super::table::Table;
use super::view::View;
use super::work::Fetches as Servers;
use crate::hosted;
use crate::noise::WarningKind;
use crate::record::{Measurement, Parameters, Subject};
use crate::targets;

/// The runtimes whose threads are not measured as fibers because our targets have no such unit. Nothing
/// where no other runtime has one among these figures.
pub(super) fn hosted<'a>(figures: impl Iterator<Item = &'a Measurement>) -> Option<String> {
    let figures: Vec<&Measurement> = figures.collect();
    let with: BTreeSet<&str> = figures
        .iter()
        .filter(|m| hosted::is_hosted(&m.subject.unit))
        .map(|m| &*m.subject.runtime)
        .collect();
    let threads = figures.iter().filter(|m| m.role() == Role::Thread);
    let mut without = distinct(threads.map(|m| &*m.subject.runtime));
    without.retain(|name| !with.contains(name) && targets::has_hosted(name) == Some(false));
    without.sort_unstable();
    (!with.is_empty() && !without.is_empty()).then(|| {
        let unit = hosted::name_of("thread");
        let (stand, have) = match without.len() {
            1 => ("stands", "its target has"),
            _ => ("stand", "their targets have"),
        };
        format!("{} {stand} without {unit}: {have} no such unit.", list(&without))
    })
}

/// How the reasons of [`servers`] begin.
const NOT_HERE: &str = "Not under this load";

/// Has what all of several tables say of missing servers said by the last one alone.
pub(super) fn say_once(tables: &mut [Table]) {
    let [first, .., _] = &*tables else { return };
    let everywhere = |note: &&String| tables.iter().all(|table| table.notes.contains(note));
    let missing = first.notes.iter().filter(|note| note.starts_with(NOT_HERE));
    let common: Vec<String> = missing.filter(everywhere).cloned().collect();
    for table in &mut *tables {
        table.notes.retain(|note| !common.contains(note));
    }
    if let Some(last) = tables.last_mut() {
        let once = |note: String| note.replacen(NOT_HERE, "Not under any load", 1);
        last.notes.extend(common.into_iter().map(once));
    }
}

/// Why servers that were asked for are not in the table of this load, a sentence for each reason.
pub(super) fn servers(view: &View<'_>, all: &[Servers<'_>], load: &Parameters) -> Vec<String> {
    let plain = |parameters: &Parameters| parameters.clone().without("cores");
    let idle = |parameters: &Parameters| parameters.number("idle").unwrap_or(0);
    let who = |s: &Subject| format!("{} {} {}", s.runtime, s.version, s.unit);
    // Each server there is, with the most idle connections it held.
    let mut held: BTreeMap<(usize, String), u64> = BTreeMap::new();
    let mut here: BTreeSet<(usize, String)> = BTreeSet::new();
    for servers in all {
        for m in &servers.figures {
            let key = (servers.place, who(&m.subject));
            if servers.parameters == *load {
                here.insert(key.clone());
            }
            let most = held.entry(key).or_default();
            *most = idle(&servers.parameters).max(*most);
        }
    }
    // The loads of a place that has none of this one are of another run.
    let is_measured = |place: usize| here.iter().any(|(of, _)| *of == place);
    let mut reasons: BTreeMap<Reason, Vec<String>> = BTreeMap::new();
    let mut give = |place: usize, who: &str, reason: Reason| {
        let name = match view.places[place].as_str() {
            "" => who.to_owned(),
            place => format!("{who} on {place}"),
        };
        let of = reasons.entry(reason).or_default();
        if !of.contains(&name) {
            of.push(name);
        }
    };
    for &(place, record) in view.records.iter().filter(|(place, _)| is_measured(*place)) {
        for failed in record.failures.iter().filter(|failed| failed.subject.workload == "serve") {
            let who = who(&failed.subject);
            let is_asked = plain(&failed.subject.parameters) == *load;
            if is_asked && !here.contains(&(place, who.clone())) {
                let said = failed.message.lines().next().unwrap_or_default();
                give(place, &who, Reason::Failed(said.to_owned()));
            }
        }
        for warning in &record.warnings {
            match warning.kind {
                WarningKind::FewerUnits => {
                    let fewer =
                        held.iter().filter(|((of, _), most)| *of == place && **most < idle(load));
                    for ((_, who), _) in fewer {
                        let said = warning.message.strip_prefix(&format!("{who} "));
                        if let Some(why) = said.filter(|said| said.contains("idle connections")) {
                            give(place, who, Reason::Lacks(why.to_owned()));
                        }
                    }
                }
                WarningKind::LeftOut => {
                    let told = [" is left out of serve", " has no serve", " is left out: "];
                    let cut = told.iter().find_map(|words| warning.message.find(words));
                    let Some((who, why)) = cut.map(|at| warning.message.split_at(at)) else {
                        continue;
                    };
                    // What a server of one kind lacks says nothing of the others.
                    let kind =
                        why.split_once("--kind ").and_then(|(_, rest)| rest.split(':').next());
                    let own = load.get("kind").map(ToString::to_string);
                    if kind.is_none_or(|kind| own.as_deref() == Some(kind))
                        && !here.contains(&(place, who.to_owned()))
                    {
                        give(place, who, Reason::Lacks(why.trim_start().to_owned()));
                    }
                }
                _ => {}
            }
        }
    }
    let sentence = |(reason, who): (Reason, Vec<String>)| {
        let who: Vec<&str> = who.iter().map(String::as_str).collect();
        format!("{NOT_HERE}: {}{}.", list(&who), reason.of(who.len()))
    };
    reasons.into_iter().map(sentence).collect()
}

/// Why a server is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// What it said when it failed.
    Failed(String),
    /// What is so of it: `has no serve: …`, `is left out: it needs …`.
    Lacks(String),
}

impl Reason {
    /// What follows the names of so many servers.
    fn of(&self, count: usize) -> String {
        let (joint, said) = match self {
            Reason::Failed(said) => (": ", said),
            Reason::Lacks(said) => (" ", said),
        };
        let mut said = said.trim_end_matches('.').to_owned();
        if count > 1 && matches!(self, Reason::Lacks(_)) {
            let verbs = [("has ", "have "), ("holds ", "hold "), ("is ", "are ")];
            for (one, many) in verbs {
                if let Some(rest) = said.strip_prefix(one) {
                    said = format!("{many}{rest}").replacen(": it ", ": they ", 1);
                    said = said.replacen(": they needs ", ": they need ", 1);
                    break;
                }
            }
        }
        format!("{joint}{said}")
    }
}
