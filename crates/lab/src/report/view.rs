//! The figures that a report shows, of one record or several, arranged in rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use carefree_workloads::named::distinct;
use carefree_workloads::role::Role;
use carefree_workloads::workload::Workload;

use crate::record::{self, Measurement, Parameters, Record, Subject};
use crate::version::version_key;

/// The figures that are shown.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) figures: Vec<Figure<'a>>,
    /// What each place is called, where there are several.
    pub(super) places: Vec<String>,
    /// The records, each with its place.
    pub(super) records: Vec<(usize, &'a Record)>,
    /// The size that tables show, of each place and workload.
    sizes: BTreeMap<(usize, String), Parameters>,
    /// The figures by their units.
    by_unit: BTreeMap<Who<'a>, Vec<&'a Measurement>>,
}

/// A figure by its workload and metric.
pub(super) type Name<'n> = (&'n str, &'n str);

/// A figure and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure<'a> {
    pub(super) m: &'a Measurement,
    /// Figures of one place were made on one machine: by number, in [`View::places`].
    pub(super) place: usize,
}

impl<'a> Figure<'a> {
    fn who(&self) -> Who<'a> {
        let s = &self.m.subject;
        Who { place: self.place, runtime: &s.runtime, version: &s.version, unit: &s.unit }
    }

    /// Whether it was measured at this size.
    pub(super) fn is_of_size(&self, size: Option<&Parameters>) -> bool {
        size == Some(&plain(&self.m.subject.parameters))
    }
}

/// A unit of a runtime's version, in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who<'a> {
    pub(super) place: usize,
    pub(super) runtime: &'a str,
    pub(super) version: &'a str,
    pub(super) unit: &'a str,
}

/// A unit, and the size at which tables show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) who: Who<'a>,
    pub(super) seat: Seat,
    pub(super) size: &'a Parameters,
    /// Whether it is the size of most ([`View::size`]).
    pub(super) usual: bool,
}

/// The column a unit stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seat {
    Coroutine,
    Fiber,
    Thread,
}

impl Seat {
    pub(super) const ALL: [Seat; 3] = [Seat::Coroutine, Seat::Fiber, Seat::Thread];

    pub(super) fn of(m: &Measurement) -> Seat {
        match m.role() {
            Role::Thread => Seat::Thread,
            // The bare one beside the scheduled one; elsewhere a coroutine is all there is.
            Role::Fiber if m.subject.runtime == "carefree" && m.subject.unit == "coroutine" => {
                Seat::Coroutine
            }
            Role::Fiber => Seat::Fiber,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Seat::Coroutine => "Coroutine",
            Seat::Fiber => "Fiber",
            Seat::Thread => "Thread",
        }
    }
}

/// The units of one row: what a user of one runtime chooses from.
#[derive(Clone, Debug)]
pub(super) struct Crew<'a> {
    /// `ruby 3.3.8`; where two runtimes share a row, one a line.
    pub(super) label: String,
    pub(super) seats: [Option<Who<'a>>; 3],
    /// Whether the unit of a seat is in this row for the first time. A runtime's thread is beside
    /// each of its kinds of fiber, to be compared with.
    fresh: [bool; 3],
}

impl<'a> Crew<'a> {
    pub(super) fn at(&self, seat: Seat) -> Option<Who<'a>> {
        self.seats[seat as usize]
    }

    /// Whether the row says anything about these figures that no row above has said.
    pub(super) fn says(&self, view: &View<'_>, figures: &[Name<'_>]) -> bool {
        self.seats.iter().zip(self.fresh).any(|(who, fresh)| {
            let who = who.filter(|_| fresh);
            who.is_some_and(|who| figures.iter().any(|name| view.find(who, *name).is_some()))
        })
    }
}

impl<'a> View<'a> {
    pub(super) fn new(records: &'a [Record]) -> View<'a> {
        let mut keys: Vec<String> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut figures: Vec<Figure<'a>> = Vec::new();
        let mut known: HashMap<(usize, &'a Subject, &'a str), usize> = HashMap::new();
        let mut placed = Vec::new();
        for record in records {
            let place = *places.entry(place_of(record)).or_insert_with_key(|key| {
                keys.push(key.clone());
                keys.len() - 1
            });
            placed.push((place, record));
            for m in &record.results {
                let at = *known.entry((place, &m.subject, &m.metric)).or_insert(figures.len());
                // Of a figure that was measured again, the last one counts.
                match figures.get_mut(at) {
                    Some(figure) => figure.m = m,
                    None => figures.push(Figure { m, place }),
                }
            }
        }
        let mut by_unit: BTreeMap<Who<'a>, Vec<&'a Measurement>> = BTreeMap::new();
        for figure in &figures {
            by_unit.entry(figure.who()).or_default().push(figure.m);
        }
        let others = keys.iter().filter(|key| *key != "published").count();
        let places = keys
            .into_iter()
            .map(|key| match key == "published" {
                true if others > 0 => key,
                false if others > 1 => key,
                _ => String::new(),
            })
            .collect();
        let sizes = sizes(&figures);
        View { figures, places, records: placed, sizes, by_unit }
    }

    /// The size at which tables show a workload: the one most figures have, and of several the
    /// largest.
    pub(super) fn size(&self, place: usize, workload: &str) -> Option<&Parameters> {
        self.sizes.get(&(place, workload.to_owned()))
    }

    /// A unit's figure, at the size that tables show; where the unit does not come in that size,
    /// as one that only a few hundred of can be had, at its own largest.
    pub(super) fn find(
        &self,
        who: Who<'_>,
        (workload, metric): Name<'_>,
    ) -> Option<&'a Measurement> {
        let size = self.size(who.place, workload)?;
        self.of_unit(who)
            .iter()
            .copied()
            .filter(|m| (&*m.subject.workload, &*m.metric) == (workload, metric))
            .max_by_key(|m| {
                let own = &m.subject.parameters;
                (plain(own) == *size, own.number("units"))
            })
    }

    fn of_unit<'w>(&'w self, who: Who<'w>) -> &'w [&'a Measurement] {
        self.by_unit.get(&who).map_or(&[], Vec::as_slice)
    }

    /// The units of all crews, each once, in the order of the tables.
    pub(super) fn units(&self) -> Vec<(Who<'a>, Seat)> {
        let mut seen = BTreeSet::new();
        let crews = self.crews();
        let seats = crews.iter().flat_map(|crew| Seat::ALL.map(|seat| (crew.at(seat), seat)));
        let units = seats.filter_map(|(who, seat)| Some((who?, seat)));
        units.filter(|(who, _)| seen.insert(*who)).collect()
    }

    /// The sizes at which tables show the units of a workload, each unit once.
    pub(super) fn shown_sizes(&self, workload: &str) -> Vec<Shown<'a>> {
        let shown = |(who, seat): (Who<'a>, Seat)| {
            let m = self.of_unit(who).iter().find(|m| m.subject.workload == workload)?;
            let m = self.find(who, (workload, &m.metric))?;
            let size = &m.subject.parameters;
            let usual = self.size(who.place, workload) == Some(&plain(size));
            Some(Shown { who, seat, size, usual })
        };
        self.units().into_iter().filter_map(shown).collect()
    }

    /// The rows of the fiber-vs-thread tables, in order.
    pub(super) fn crews(&self) -> Vec<Crew<'a>> {
        let mut units: BTreeMap<Who<'a>, Seat> = BTreeMap::new();
        for (who, figures) in &self.by_unit {
            let is_gated =
                |m: &&&Measurement| m.subject.workload.parse().is_ok_and(Workload::is_gated);
            if let Some(m) = figures.iter().rfind(is_gated) {
                units.insert(*who, Seat::of(m));
            }
        }
        // Units of one version are beside each other.
        let mut runtimes: Vec<_> =
            units.keys().map(|who| (who.place, who.runtime, who.version)).collect();
        runtimes.dedup();
        // Ours first, then by name, the versions in the order of their release.
        runtimes.sort_by_cached_key(|&(place, runtime, version)| {
            let ours = ["carefree", "rust"].iter().position(|&name| name == runtime);
            (place, ours.unwrap_or(2), runtime, version_key(version))
        });
        let of =
            |(place, runtime, version): (usize, &'a str, &'a str), seat: Seat| -> Vec<Who<'a>> {
                let first = Who { place, runtime, version, unit: "" };
                let own = units.range(first..).take_while(|(who, _)| {
                    (who.place, who.runtime, who.version) == (place, runtime, version)
                });
                own.filter(|(_, at)| **at == seat).map(|(who, _)| *who).collect()
            };
        // The first of each place's.
        let mut rusts = BTreeMap::new();
        for &key in runtimes.iter().filter(|key| key.1 == "rust") {
            rusts.entry(key.0).or_insert(key);
        }
        let mut crews = Vec::new();
        let mut joined = BTreeSet::new();
        let mut lent: BTreeSet<Who<'a>> = BTreeSet::new();
        for &key in &runtimes {
            if joined.contains(&key) {
                continue;
            }
            let (place, runtime, version) = key;
            let coroutine = of(key, Seat::Coroutine).first().copied();
            let lights = of(key, Seat::Fiber);
            let mut heavies = of(key, Seat::Thread);
            let mut label = format!("{runtime} {version}");
            // `carefree` has no threads of its own: std's stand beside its fibers.
            let taken = heavies.iter().any(|who| lent.contains(who));
            if runtime == "carefree" && heavies.is_empty() {
                if let Some(&rust) = rusts.get(&place) {
                    heavies = of(rust, Seat::Thread);
                    lent.extend(heavies.iter().copied());
                    if !heavies.is_empty() {
                        label += &format!("\n{} {}", rust.1, rust.2);
                    }
                    if of(rust, Seat::Fiber).is_empty() {
                        joined.insert(rust);
                    }
                }
            }
            // Its line has room for the units, too.
            let mut before_units = "\n";
            if !self.places[place].is_empty() {
                label += &format!("\n{}", self.places[place]);
                before_units = " ";
            }
            let rows = lights.len().max(heavies.len()).max(1);
            for at in 0..rows {
                let pick = |all: &[Who<'a>]| all.get(at).or(all.first()).copied();
                let (light, heavy) = (pick(&lights), pick(&heavies));
                let mut names: Vec<&str> = Vec::new();
                names.extend(light.map(|who| who.unit).filter(|&unit| unit != "fiber"));
                names.extend(heavy.map(|who| who.unit).filter(|&unit| unit != "thread"));
                let label = match names.is_empty() {
                    true => label.clone(),
                    false => format!("{label}{before_units}({})", names.join(" / ")),
                };
                crews.push(Crew {
                    label,
                    seats: [coroutine.filter(|_| at == 0), light, heavy],
                    fresh: [at == 0, at < lights.len(), at < heavies.len() && !taken],
                });
            }
        }
        crews
    }
}

/// The figures of a workload that a user of one runtime chooses from.
#[derive(Clone, Debug)]
pub(super) struct Family<'a> {
    /// `ruby 3.3.8`; `carefree 0.1.0, rust 1.95.0`.
    pub(super) label: String,
    /// Which machine's they are: one of the view's places.
    pub(super) place: usize,
    pub(super) figures: Vec<&'a Measurement>,
}

impl<'a> View<'a> {
    /// The families that have figures of `workload`. Carefree's units and Rust's own are one.
    pub(super) fn families(&self, workload: &str) -> Vec<Family<'a>> {
        type Key<'a> = (usize, bool, &'a str, Vec<(u8, u64, String)>);
        let mut found: BTreeMap<Key<'a>, Vec<&'a Measurement>> = BTreeMap::new();
        for Figure { m, place } in &self.figures {
            let s = &m.subject;
            if s.workload == workload {
                let key = match ["carefree", "rust"].contains(&&*s.runtime) {
                    true => (*place, false, "", Vec::new()),
                    false => (*place, true, &*s.runtime, version_key(&s.version)),
                };
                found.entry(key).or_default().push(m);
            }
        }
        let family = |((place, ..), figures): (Key<'a>, Vec<&'a Measurement>)| {
            let name = |m: &&Measurement| format!("{} {}", m.subject.runtime, m.subject.version);
            let mut names = distinct(figures.iter().map(name));
            names.extend(Some(&self.places[place]).filter(|place| !place.is_empty()).cloned());
            Family { label: names.join(", "), place, figures }
        };
        found.into_iter().map(family).collect()
    }
}

/// Figures of records with the same name for their place were made on one machine.
fn place_of(record: &Record) -> String {
    match &record.source {
        Some(_) => "published".to_owned(),
        None => record::machine_name(&record.environment),
    }
}

/// The records of each machine, in the order of the first of each; published ones each by itself.
pub(super) fn by_machine(records: &[Record]) -> Vec<Vec<&Record>> {
    let mut machines: Vec<Vec<&Record>> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for record in records {
        let new = machines.len();
        let at = match record.source {
            Some(_) => new,
            None => *known.entry(place_of(record)).or_insert(new),
        };
        match machines.get_mut(at) {
            Some(own) => own.push(record),
            None => machines.push(vec![record]),
        }
    }
    machines
}

/// What tells sizes apart: cores are the machine's part.
fn plain(parameters: &Parameters) -> Parameters {
    parameters.clone().without("cores")
}

fn sizes(figures: &[Figure<'_>]) -> BTreeMap<(usize, String), Parameters> {
    let mut counts: BTreeMap<(usize, String), BTreeMap<Parameters, usize>> = BTreeMap::new();
    for Figure { m, place } in figures {
        let sizes = counts.entry((*place, m.subject.workload.clone())).or_default();
        *sizes.entry(plain(&m.subject.parameters)).or_default() += 1;
    }
    counts
        .into_iter()
        .filter_map(|(key, sizes)| {
            let best = sizes
                .into_iter()
                .max_by_key(|(size, count)| (*count, size.number("units").unwrap_or(0)));
            Some((key, best?.0))
        })
        .collect()
}
