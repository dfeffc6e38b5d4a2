//! `carefree bench`.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::env;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, IsTerminal};
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, anyhow};
use carefree_lab::course::Course;
use carefree_lab::env::Environment;
use carefree_lab::folder;
use carefree_lab::leftovers;
use carefree_lab::noise::WarningKind;
use carefree_lab::number::{counted, whole};
use carefree_lab::plan::Plan;
use carefree_lab::printable;
use carefree_lab::process::Launch;
use carefree_lab::record::{RunFacts, fingerprint};
use carefree_lab::report::{self, Format};
use carefree_lab::run::Runner;
use carefree_lab::serving::Serving;
use carefree_lab::stats::FEWEST;
use carefree_lab::sweep::Sweep;
use carefree_lab::targets::lineup::{Field, Lineup, Sizes, Wishes};
use carefree_lab::targets::{self, Folders, Target};
use carefree_lab::trial::Trial;
use carefree_workloads::fetch::Settings;
use carefree_workloads::serve::Kind;
use carefree_workloads::workload::{Size, Workload};

use crate::args::Bench;
use crate::kept::{Finished, Kept};
use crate::out::Out;
use crate::progress::{Bar, spoken};
use crate::run::hosting;
use crate::targets::folders_are_there;
use crate::watch::watched;
use crate::{complain, exit, shortfall, terminal};

/// One sample may take this long. The slowest of the defaults takes seconds.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn bench(orders: &Bench) -> ExitCode {
    measure(orders).unwrap_or_else(|(code, error)| {
        complain(error);
        ExitCode::from(code)
    })
}

/// The targets there are: ours, and those in the folders that were named.
pub(crate) fn read_targets(orders: &Bench) -> Result<(Folders, Vec<Target>), (u8, Error)> {
    folders_are_there(&orders.targets).map_err(|error| (exit::USAGE, error))?;
    let folders = Folders::open(&orders.targets).map_err(|error| (exit::FAILED, error))?;
    let (targets, mistakes) = targets::read_all(folders.targets());
    mistakes.iter().for_each(complain);
    let hosting = hosting();
    let targets = targets.into_iter().map(|target| target.hosted_by(hosting.as_ref())).collect();
    Ok((folders, targets))
}

/// Takes the samples that were asked for, and keeps them.
pub(crate) fn take(orders: &Bench) -> Result<Finished, (u8, Error)> {
    let usage = |error| (exit::USAGE, error);
    let failed = |error| (exit::FAILED, error);
    orders.check_options().map_err(usage)?;
    let program =
        env::current_exe().context("cannot tell where this program is").map_err(failed)?;
    let interrupted = catch_interrupts().map_err(failed)?;

    let mut bar = Bar::new();
    let (folders, lineup) = line_up(orders, &mut bar)?;
    let mut sizes = sizes(orders);
    if lineup.has_ours() {
        // A program that cannot be read has no samples that another could use again.
        sizes.program = fs::read(&program).map(|bytes| fingerprint(&bytes)).unwrap_or_default();
    }
    let _watched = watched(&program, !orders.images.is_empty());
    let folders = folders.until(Arc::clone(&interrupted));
    let field = make_ready(&lineup, &sizes, &folders, &mut bar, &interrupted)?;
    let mut plan = plan(orders, &sizes, field.kinds.clone());
    let environment =
        Environment { machine: orders.fleet.machine.clone(), ..Environment::capture() };
    let captured = Instant::now();
    let begun = RunFacts {
        seed: plan.seed,
        samples: plan.samples,
        quick: orders.quick,
        pinned: orders.pin,
        command: command_line(),
        label: orders.label.clone(),
        runtimes: field.facts.clone(),
        ..RunFacts::default()
    };
    let mut kept =
        Kept::open(orders.record.clone(), &environment, begun, orders.force).map_err(usage)?;
    use_again(&mut plan, &mut kept, &bar);
    // A short run needs no announcement in a log; on a terminal every run has one.
    let is_long = plan.budget.is_some_and(|budget| budget > QUICK);
    if let Some(line) = announcement(&plan).filter(|_| is_long || io::stderr().is_terminal()) {
        bar.complain(&line);
    }
    carefree_lab::adopt_orphans();
    let kept = RefCell::new(kept);
    let mut outcome = Runner {
        launch: &|trial: &Trial| {
            field.launch(trial).unwrap_or_else(|| {
                let mut command = process::Command::new(&program);
                command.arg("__sample").args(trial.arguments());
                Launch::plain(command)
            })
        },
        interrupted: &interrupted,
        patience: PATIENCE,
        progress: &mut |progress| bar.show(progress),
        keep: &mut |taken| kept.borrow_mut().add(taken),
        enough: &|taken| {
            orders.precision.is_some_and(|percent| {
                kept.borrow().is_precise(&taken.trial, f64::from(percent) / 100.0, plan.seed)
            })
        },
    }
    .run(&plan);
    if !outcome.taken.is_empty() {
        // Samples are known by the second in which their run began: the next one is to have another.
        thread::sleep(Duration::from_secs(1).saturating_sub(captured.elapsed()));
    }
    outcome.failed.extend(field.failed);
    let left_out = shortfall::left_out(&outcome.left_out);
    let cut = shortfall::cut(plan.budget, &outcome.cut);
    let notes = field.notes.into_iter().chain(left_out).chain(cut).collect();
    Ok(kept.into_inner().finish(environment, notes, outcome))
}

/// Finds what takes part, and ends what earlier runs have left.
fn line_up(orders: &Bench, bar: &mut Bar) -> Result<(Folders, Lineup), (u8, Error)> {
    let (folders, targets) = read_targets(orders)?;
    let wishes = Wishes {
        runtimes: orders.runtimes.clone(),
        units: orders.unit.clone(),
        with: orders.with.clone(),
        images: orders.images.clone(),
    };
    bar.say("looking for runtimes".into());
    // What runs on would disturb this run.
    let left = leftovers::end();
    folder::remove_leftovers();
    if wishes.takes_all() {
        targets::survey(&targets, &mut |waiting| bar.wait(waiting));
    }
    let lineup = Lineup::find(&wishes, &targets).map_err(|error| (exit::USAGE, error))?;
    for (count, what) in [(left, "process"), (lineup.removed(), "container")] {
        if count > 0 {
            let what = format!("{what}{}", if count == 1 { "" } else { plural(what) });
            bar.complain(&format!("ended {count} {what} that a run which was killed had left"));
        }
    }
    Ok((folders, lineup))
}

/// Has the programs built that take the samples, and says which samples there are to take.
fn make_ready(
    lineup: &Lineup,
    sizes: &Sizes,
    folders: &Folders,
    bar: &mut Bar,
    interrupted: &AtomicBool,
) -> Result<Field, (u8, Error)> {
    let field = lineup.field(sizes, folders, &mut |runtime| {
        bar.prepare(format!("making {} {} ready", runtime.target().title(), runtime.version()));
        !interrupted.load(Ordering::Relaxed)
    });
    bar.prepared();
    if interrupted.load(Ordering::Relaxed) {
        return Err((exit::INTERRUPTED, anyhow!("broken off before the first sample")));
    }
    if field.kinds.is_empty() && field.failed.is_empty() {
        // Why there are none: what is missing, and what brings it.
        field
            .notes
            .iter()
            .for_each(|note| complain(format_args!("{} ({})", note.message, note.advice)));
        let error = anyhow!("no runtime has these units and workloads; see carefree doctor");
        return Err((exit::USAGE, error));
    }
    Ok(field)
}

/// Has samples of earlier runs stand for those of the plan.
fn use_again(plan: &mut Plan, kept: &mut Kept, bar: &Bar) {
    plan.had = plan.kinds.iter().map(|trial| kept.reuse(trial, plan.samples)).collect();
    // Small meals tell how long large ones take, whichever run measured them.
    let meals = plan.kinds.iter().filter(|trial| trial.workload == Workload::Feed);
    plan.known = meals.filter_map(|trial| Some((trial.clone(), kept.time(trial)?))).collect();
    let again: u32 = plan.had.iter().sum();
    if again > 0 {
        let samples = counted(again as usize, "sample");
        let stand = if again == 1 { "stands" } else { "stand" };
        bar.complain(&format!(
            "{samples} of earlier runs {stand} for as many of this one; --force measures anew"
        ));
    }
}

fn measure(orders: &Bench) -> Result<ExitCode, (u8, Error)> {
    let usage = |error| (exit::USAGE, error);
    let format = Format::choose(orders.format, orders.out.as_deref()).map_err(usage)?;
    let out = orders.out.as_deref().map(Out::check).transpose().map_err(usage)?;
    let started = Instant::now();
    let Finished { record, path, is_lost } = take(orders)?;
    let interrupted = record.run.interrupted;
    match path {
        // After Ctrl-C the question is what of the run is left, wherever it is asked.
        Some(path) if interrupted => complain(format_args!(
            "broken off; recorded in {}; to go on from there: {}",
            path.display(),
            resuming()
        )),
        Some(path) if io::stderr().is_terminal() => {
            complain(format_args!("recorded in {}", path.display()));
        }
        _ => {}
    }
    if interrupted && record.results.is_empty() {
        return Err((exit::INTERRUPTED, anyhow!("broken off before the first sample")));
    }
    match out {
        Some(out) => {
            out.write(&report::render(&record, format, false)).map_err(usage)?;
            let path = orders.out.as_deref().map(|path| path.display().to_string());
            let count = record.samples.len();
            complain(format_args!(
                "{count} {} in {}, written to {}",
                if count == 1 { "sample" } else { "samples" },
                spoken(started.elapsed()),
                path.unwrap_or_default()
            ));
        }
        None => {
            let text = report::render(&record, format, terminal::wants_colour());
            terminal::print(&text).map_err(usage)?;
        }
    }
    // In the other formats, or in a file, failures are easily overlooked.
    if orders.out.is_some() || format != Format::Text {
        let about = [WarningKind::LeftOut, WarningKind::FewerUnits, WarningKind::Cut];
        for note in record.warnings.iter().filter(|warning| about.contains(&warning.kind)) {
            complain(format_args!("{} ({})", note.message, note.advice));
        }
        for failure in &record.failures {
            complain(format_args!("{}: {}", failure.subject.spoken(), failure.message));
        }
    }
    Ok(if interrupted {
        ExitCode::from(exit::INTERRUPTED)
    } else if record.is_complete() && !is_lost {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

/// How long a run may take, with `--quick` and without. With `--samples` it takes as long as it
/// takes.
const QUICK: Duration = Duration::from_secs(50);
const FULL: Duration = Duration::from_secs(19 * 60);
/// With `feed`: it has hundreds of points.
const SWEEP: Duration = Duration::from_secs(5 * 60);

fn plan(orders: &Bench, sizes: &Sizes, kinds: Vec<Trial>) -> Plan {
    let sweeps = sizes.workloads.contains(&Workload::Feed);
    let (samples, least, budget) = match orders.samples {
        Some(samples) => (samples, samples, None),
        // A curve has many points: the neighbours of each back it up.
        None if sweeps && !orders.quick => (5, 1, Some(SWEEP)),
        // Odd: the median is then a sample, and the median rate one over the median time.
        None if orders.quick => (5, 1, Some(QUICK)),
        None => (11, FEWEST, Some(FULL)),
    };
    let seed = orders.seed.unwrap_or_else(chance);
    Plan { least, budget, most: sizes.feed.most, ..Plan::new(kinds, samples, seed) }
}

/// What the run will do and how long it takes, where that is known; `None` where there is nothing
/// to do.
fn announcement(plan: &Plan) -> Option<String> {
    let missing = plan.had.iter().map(|&had| u64::from(plan.samples.saturating_sub(had)));
    let (missing, kinds) = (missing.sum::<u64>(), plan.kinds.len());
    let kinds = if kinds == 1 {
        "one workload of one unit".into()
    } else {
        format!("{} workloads of units", whole(kinds as u64))
    };
    let samples = counted(missing as usize, "sample");
    let first = match (missing, plan.budget) {
        (0, _) => return None,
        (_, Some(budget)) => {
            format!("up to {samples} of {kinds}, as many as fit {}", spoken(budget))
        }
        (_, None) => format!("{samples} of {kinds}, however long they take"),
    };
    Some(format!("{first}; Ctrl-C ends it, and the next run goes on from there"))
}

fn sizes(orders: &Bench) -> Sizes {
    let size = if orders.quick { Size::Quick } else { Size::Full };
    let mut feed = if orders.feed.full { Sweep::full() } else { Sweep::new(size) };
    if !orders.feed.people.is_empty() {
        feed.people.clone_from(&orders.feed.people);
    }
    if !orders.feed.nutrients.is_empty() {
        feed.nutrients.clone_from(&orders.feed.nutrients);
    }
    let mut fetch = Course::new(size);
    fetch.requests = orders.fetch.requests.unwrap_or(fetch.requests);
    fetch.read_size = orders.fetch.read_size.unwrap_or(fetch.read_size);
    let Settings { latency, body, encoding, .. } = &mut fetch.server;
    *latency = orders.fetch.latency.map_or(*latency, Duration::from_millis);
    // The option's limit is below what an address can hold.
    *body = orders.fetch.body.map_or(*body, |b| usize::try_from(b).unwrap_or(usize::MAX));
    *encoding = orders.fetch.encoding.unwrap_or(*encoding);
    let mut serve = Serving::new(size);
    let given = &orders.serve;
    for (asked, usual) in [
        (&given.rates, &mut serve.rates),
        (&given.latencies, &mut serve.latencies),
        (&given.idle, &mut serve.idle),
    ] {
        if !asked.is_empty() {
            usual.clone_from(asked);
        }
    }
    if !given.kinds.is_empty() {
        serve.kinds.clone_from(&given.kinds);
    } else if !given.latencies.is_empty() {
        // A latency of the backend asks for a backend, with --quick too.
        serve.kinds = Kind::ALL.to_vec();
    }
    serve.connections = given.connections;
    serve.time = given.time.map_or(serve.time, Duration::from_millis);
    Sizes {
        workloads: orders.workloads(),
        size,
        feed,
        fetch,
        serve,
        crowd: orders.units,
        pin: orders.pin,
        program: String::new(),
    }
}

fn plural(thing: &str) -> &'static str {
    if thing.ends_with('s') { "es" } else { "s" }
}

/// The command line, as a person would type it.
pub(crate) fn command_line() -> String {
    command(env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
}

/// The command that goes on with this run. `--force` would begin anew.
fn resuming() -> String {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    command(words.filter(|word| word != "--force"))
}

fn command(words: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+~".contains(c);
    let word = |word: String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let words: Vec<String> = words.map(word).collect();
    printable::line(&format!("carefree {}", words.join(" "))).into_owned()
}

/// A random seed. Six digits are enough to differ from run to run, and are easy to type.
fn chance() -> u64 {
    // The standard library draws its hash keys from the system's randomness.
    RandomState::new().build_hasher().finish() % 1_000_000
}

/// Has Ctrl-C end the run and not the program; a second one ends the program.
pub(crate) fn catch_interrupts() -> Result<Arc<AtomicBool>, Error> {
    /// A terminal and what runs under it, such as `timeout`, may both pass on one Ctrl-C.
    const MOMENT: Duration = Duration::from_millis(500);
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let first = OnceLock::new();
    ctrlc::set_handler(move || {
        let since = first.get_or_init(Instant::now).elapsed();
        if flag.swap(true, Ordering::Relaxed) && since > MOMENT {
            process::exit(i32::from(exit::INTERRUPTED));
        }
    })
    .context("cannot catch Ctrl-C")?;
    Ok(interrupted)
}
