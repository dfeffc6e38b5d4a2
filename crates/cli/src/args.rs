//! The command line.

use std::ffi::{OsStr, OsString};
use std::ops::{Deref, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use carefree_lab::report::Format;
use carefree_workloads::fetch::Encoding;
use carefree_workloads::named::{Unknown, list};
use carefree_workloads::serve::Kind;
use carefree_workloads::workload::Workload;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};

/// Threads at the price of fibers.
#[derive(Debug, Parser)]
#[command(name = "carefree", version, max_term_width = 100)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures coroutines, fibers and threads on this machine.
    Bench(Deferred<Bench>),
    /// Shows records: as tables, as a spreadsheet, or as a page with charts.
    Report(Deferred<Report>),
    /// Tells what changed from one record to another.
    Compare(Deferred<Compare>),
    /// Tells which version, or which day, made a figure what it is.
    History(Deferred<History>),
    /// Lists records, looks for damaged ones, and mends them.
    #[command(subcommand)]
    Records(Records),
    /// Tells whether fibers work here, how, and what limits them; or what `run` makes of a program.
    Doctor(Deferred<Doctor>),
    /// Runs a program whose threads become fibers.
    #[command(
        after_help = "The program's exit status is ours. What it needs to know is in docs/run.md."
    )]
    Run(Deferred<Run>),
    /// Runs fibers to see that they work: `doctor` starts itself with this, in another process.
    #[command(name = "__fibers", hide = true)]
    Fibers,
    /// Takes one sample: `bench` starts itself with this, in another process.
    #[command(name = "__sample", hide = true)]
    Sample {
        /// The sample's orders, as `key=value`.
        orders: Vec<String>,
    },
    /// Ends what a killed `bench` leaves: `bench` starts itself with this, in another process.
    #[command(name = "__watch", hide = true)]
    Watch {
        /// Whether it has containers.
        #[arg(long)]
        containers: bool,
        /// Its mark.
        mark: String,
    },
}

/// The orders of a command. Its options are set up when a command line names that command: `run` should not take time for
/// those of all others before it starts its program.
#[derive(Debug)]
pub(crate) struct Deferred<T>(pub(crate) Box<T>);

impl<T> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|command| {
            // (That of the command, not of its orders.)
            let about = command.get_about().cloned().unwrap_or_default();
            T::augment_args(command).about(about)
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(|orders| Deferred(Box::new(orders)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// The orders of `carefree run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Kernel threads that run the fibers [default: one a processor; one for Python and Ruby].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u32>(1..=1024))]
    pub(crate) carriers: Option<u32>,

    /// Stack of threads that ask for none, in bytes or with K, M or G [default: `ulimit -s`].
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = bytes)]
    pub(crate) stack: Option<usize>,

    /// Leave the programs that it starts as they are.
    #[arg(long, conflicts_with = "children")]
    pub(crate) only: bool,

    /// Have the programs that it starts run on fibers, too (the default).
    #[arg(long)]
    pub(crate) children: bool,

    /// Leave threads that start with this function, or in its library or one of this file name, threads.
    #[arg(long, value_name = "SYMBOL", value_delimiter = ',', value_parser = word)]
    pub(crate) threads_for: Vec<String>,

    /// At the end, write what was done to a file: as JSON if its name ends so, else as text.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Do not run a program whose threads cannot become fibers.
    #[arg(long)]
    pub(crate) strict: bool,

    /// The program, and its arguments.
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

/// The orders of `carefree bench`.
#[derive(Debug, Args)]
#[command(after_help = workloads())]
pub(crate) struct Bench {
    /// What to measure; the first five unless named.
    #[arg(value_name = "WORKLOAD", hide_possible_values = true, value_parser = named::<Workload>(Workload::ALL.map(Workload::name)))]
    pub(crate) workloads: Vec<Workload>,

    /// Runtimes to measure, as ruby or python@3.13 or go@all, or a variant, as ruby/yjit or
    /// ruby@3.4/yjit; everything installed unless named.
    #[arg(long = "runtime", value_name = "RUNTIME", value_delimiter = ',', value_parser = word)]
    pub(crate) runtimes: Vec<String>,

    /// Units to measure, by name or by role (fiber, thread); all unless named.
    #[arg(long = "unit", value_name = "UNIT", value_delimiter = ',', value_parser = word)]
    pub(crate) unit: Vec<String>,

    /// A program to measure, as ruby=/path/to/ruby; two of the same version need names, as
    /// ruby@base=/path ruby@patch=/path.
    #[arg(long, value_name = "RUNTIME[@NAME]=PATH")]
    pub(crate) with: Vec<String>,

    /// A container image, as ruby:3.4, run with docker or podman; one whose name tells no runtime, or
    /// that needs a name, as ruby=own:dev or ruby@fork=own:dev.
    #[arg(long = "image", value_name = "[RUNTIME[@NAME]=]IMAGE")]
    pub(crate) images: Vec<String>,

    /// A folder of targets besides ours; see docs/targets.md.
    #[arg(long, value_name = "DIR")]
    pub(crate) targets: Vec<PathBuf>,

    /// Smaller crowds and fewer samples, for a look in about a minute.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Samples to take of each workload and unit [default: 11, with --quick 5].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u32>(1..=10_000))]
    pub(crate) samples: Option<u32>,

    /// Units alive at once, in place of each workload's own number; not of feed, fetch and serve.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u64>(1..=100_000_000))]
    pub(crate) units: Option<u64>,

    /// Format of the report; json is the record itself, an object a line [default: by the name of
    /// --out, else text].
    #[arg(long, value_name = "FORMAT", value_parser = named::<Format>(Format::ALL.map(Format::name)))]
    pub(crate) format: Option<Format>,

    /// Write the report to a file instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Fixes the random order of the samples.
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,

    /// Keep every sample on one core, not `switch` alone.
    #[arg(long)]
    pub(crate) pin: bool,

    /// Folder of records: this run's is written there, in a file named by the time and the machine, and
    /// samples of earlier ones are used again [default: carefree/records in your data folder].
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,

    /// What this run is of, as a commit's name: history has it in place of the date.
    #[arg(long, value_name = "NAME", value_parser = label)]
    pub(crate) label: Option<String>,

    /// Measure again what earlier runs have measured.
    #[arg(long)]
    pub(crate) force: bool,

    /// Stop sampling where every interval reaches no further than this from the median, in percent.
    #[arg(long, value_name = "PCT", allow_negative_numbers = true, value_parser = within::<u32>(1..=100))]
    pub(crate) precision: Option<u32>,

    #[command(flatten)]
    pub(crate) feed: Feed,

    #[command(flatten)]
    pub(crate) fetch: Fetch,

    #[command(flatten)]
    pub(crate) serve: Serve,

    #[command(flatten)]
    pub(crate) fleet: Fleet,
}

impl Bench {
    /// The workloads to measure.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        let named = |workload: &Workload| match self.workloads.is_empty() {
            true => workload.is_gated(),
            false => self.workloads.contains(workload),
        };
        Workload::ALL.into_iter().filter(named).collect()
    }

    /// Refuses an option that none of the workloads has: it would be passed over in silence, and
    /// the run would take minutes to measure something else.
    ///
    /// # Errors
    /// One line that names the option and what has it.
    pub(crate) fn check_options(&self) -> Result<()> {
        let (feed, fetch, serve) = (&self.feed, &self.fetch, &self.serve);
        let given = [
            ("--full", feed.full, Some(Workload::Feed)),
            ("--people", !feed.people.is_empty(), Some(Workload::Feed)),
            ("--nutrients", !feed.nutrients.is_empty(), Some(Workload::Feed)),
            ("--requests", fetch.requests.is_some(), Some(Workload::Fetch)),
            ("--latency", fetch.latency.is_some(), Some(Workload::Fetch)),
            ("--body", fetch.body.is_some(), Some(Workload::Fetch)),
            ("--encoding", fetch.encoding.is_some(), Some(Workload::Fetch)),
            ("--read-size", fetch.read_size.is_some(), Some(Workload::Fetch)),
            ("--kind", !serve.kinds.is_empty(), Some(Workload::Serve)),
            ("--backend-latency", !serve.latencies.is_empty(), Some(Workload::Serve)),
            ("--rate", !serve.rates.is_empty(), Some(Workload::Serve)),
            ("--connections", serve.connections.is_some(), Some(Workload::Serve)),
            ("--idle", !serve.idle.is_empty(), Some(Workload::Serve)),
            ("--time", serve.time.is_some(), Some(Workload::Serve)),
            ("--units", self.units.is_some(), None),
        ];
        if !serve.latencies.is_empty()
            && !serve.kinds.is_empty()
            && !serve.kinds.contains(&Kind::Backend)
        {
            bail!("--backend-latency is of servers with a backend: --kind backend");
        }
        let workloads = self.workloads();
        for (option, _, of) in given.into_iter().filter(|(_, is_given, _)| *is_given) {
            let has = |workload: &Workload| match of {
                Some(of) => *workload == of,
                None => workload.is_gated(),
            };
            if workloads.iter().any(has) {
                continue;
            }
            let measured: Vec<&str> = workloads.iter().map(|workload| workload.name()).collect();
            let (measured, first) = (list(&measured), env!("CARGO_BIN_NAME"));
            match of {
                Some(of) => bail!(
                    "{option} is an option of {of}, and this run measures {measured}: name it, as \
                     in {first} bench {of} {option}"
                ),
                None => bail!(
                    "{option} is no option of {measured}: feed has --people, fetch has --requests, \
                     serve has --connections"
                ),
            }
        }
        Ok(())
    }
}

/// What `feed` serves.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of feed")]
pub(crate) struct Feed {
    /// Measure every power of two up to 2,048 people, however long a point takes.
    #[arg(long)]
    pub(crate) full: bool,

    /// How many people are fed [default: 1 to 2048 in steps of four].
    #[arg(long, value_name = "N,..", value_delimiter = ',', allow_negative_numbers = true, value_parser = within::<u64>(1..=1_000_000))]
    pub(crate) people: Vec<u64>,

    /// How many bites each of them needs [default: 10,100,1000,10000].
    #[arg(long, value_name = "N,..", value_delimiter = ',', allow_negative_numbers = true, value_parser = within::<u64>(1..=1_000_000_000))]
    pub(crate) nutrients: Vec<u64>,
}

/// What `fetch` fetches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of fetch")]
pub(crate) struct Fetch {
    /// GETs at a time [default: 50, with --quick 20].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u64>(1..=4_000))]
    pub(crate) requests: Option<u64>,

    /// Milliseconds until the server answers [default: 20].
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = within::<u64>(0..=60_000))]
    pub(crate) latency: Option<u64>,

    /// Bytes of the answer [default: 1024].
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = within::<u64>(0..=1_000_000_000))]
    pub(crate) body: Option<u64>,

    /// How the answer is sent: with its length in the head, or in chunks [default: fixed].
    #[arg(long, value_name = "ENCODING", value_parser = named::<Encoding>(Encoding::ALL.map(Encoding::name)))]
    pub(crate) encoding: Option<Encoding>,

    /// Bytes a program reads at a time; 0 is the client's default, 1 reproduces byte-at-a-time
    /// reads [default: 0].
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = within::<u64>(0..=1_000_000_000))]
    pub(crate) read_size: Option<u64>,
}

/// What is asked of servers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of serve")]
pub(crate) struct Serve {
    /// What a server does for a request: answer at once (plain), or ask a backend on this machine and
    /// pass on its answer; a load for each [default: both, with --quick plain].
    #[arg(long = "kind", value_name = "KIND,..", value_delimiter = ',', value_parser = named::<Kind>(Kind::ALL.map(Kind::name)))]
    pub(crate) kinds: Vec<Kind>,

    /// Milliseconds until the backend answers; a load for each [default: 20].
    #[arg(long = "backend-latency", value_name = "MS,..", value_delimiter = ',', allow_negative_numbers = true, value_parser = within::<u64>(0..=5_000))]
    pub(crate) latencies: Vec<u64>,

    /// Requests a second, whether the server keeps up or not; a load for each [default: 1000].
    #[arg(long = "rate", value_name = "N,..", value_delimiter = ',', allow_negative_numbers = true, value_parser = within::<u64>(1..=1_000_000))]
    pub(crate) rates: Vec<u64>,

    /// Connections over which they are made [default: 32, of a server with a backend 128].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u64>(1..=10_000))]
    pub(crate) connections: Option<u64>,

    /// Connections that say nothing while memory is read; a load for each [default: 1000, with --quick
    /// 100].
    #[arg(long, value_name = "N,..", value_delimiter = ',', allow_negative_numbers = true, value_parser = within::<u64>(1..=20_000))]
    pub(crate) idle: Vec<u64>,

    /// Milliseconds for which requests are made at the rate [default: 2000, with --quick 1000].
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = within::<u64>(10..=60_000))]
    pub(crate) time: Option<u64>,
}

/// How a run is spread over several machines.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for several machines (docs/fleet.md)")]
pub(crate) struct Fleet {
    /// Measure nothing, but write a file of tasks, which any number of machines may run; with
    /// --task, the file that has the task.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,

    /// Run this task of the plan, and leave its record in the folder of --record.
    #[arg(long, value_name = "N", requires_all = ["plan", "record"], allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) task: Option<u32>,

    /// What records call this machine, to tell it from others like it, in place of the name made of
    /// its hardware; it is part of the name of this run's file.
    #[arg(long, value_name = "NAME", conflicts_with = "on")]
    pub(crate) machine: Option<String>,

    /// Have this engine run the tasks on several machines, and report on all of them; --plan then
    /// names a plan that is there.
    #[arg(long, value_name = "ENGINE", value_enum, conflicts_with = "task")]
    pub(crate) on: Option<Engine>,

    /// Slurm's partition [default: Slurm's own default].
    #[arg(long, value_name = "NAME", requires = "on")]
    pub(crate) partition: Option<String>,

    /// The machines, as n1,m[2-40] [default: all of the partition].
    #[arg(long, value_name = "LIST", requires = "on")]
    pub(crate) nodes: Option<String>,

    /// Let no other job run on a machine that measures [default: true].
    #[arg(long, value_name = "BOOL", requires = "on", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) exclusive: Option<bool>,

    /// Seconds to wait for machines that are down, once all others have finished.
    #[arg(long, value_name = "SECONDS", requires = "on", default_value_t = 600, allow_negative_numbers = true, value_parser = within::<u64>(0..=10_000_000))]
    pub(crate) node_patience: u64,

    /// A further option for sbatch, as --sbatch=--account=lab; may be given several times.
    #[arg(long, value_name = "OPTION", requires = "on", allow_hyphen_values = true)]
    pub(crate) sbatch: Vec<String>,
}

/// What runs the tasks of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Slurm,
}

/// The help on names of records.
const NAMES: &str = "\
Records:
  FILE       a record that bench has written, whatever its name
  DIR        all records of a folder, which are named *.jsonl
  mine       all of your own
  published  the figures of the documents this lab follows
  ...@3.2    what any of these has of version 3.2, or of the build of that name

  carefree compare published@3.2 published@3.3
  carefree compare mine@base mine@patch      (see carefree bench --help, --with)";

/// The orders of `carefree report`.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
pub(crate) struct Report {
    /// Records to show.
    #[arg(value_name = "RECORD", required = true)]
    pub(crate) records: Vec<String>,

    /// Format [default: by the name of --out, else text].
    #[arg(long, value_name = "FORMAT", value_parser = named::<Format>(Format::ALL.map(Format::name)))]
    pub(crate) format: Option<Format>,

    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// The orders of `carefree compare`.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
pub(crate) struct Compare {
    /// Baseline record.
    #[arg(value_name = "OLD")]
    pub(crate) old: String,

    /// Record to compare.
    #[arg(value_name = "NEW")]
    pub(crate) new: String,

    /// End with exit code 1 if a figure got worse, beyond doubt and by more than this.
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = within::<u32>(0..=1_000_000))]
    pub(crate) fail_on_regression: Option<u32>,

    /// Tell the outcome to a pipeline as well: junit writes a file of test cases, one for each figure
    /// that both sides have; github prints annotations for figures that got worse.
    #[arg(long, value_name = "junit=FILE|github", requires = "fail_on_regression")]
    pub(crate) annotate: Vec<Annotate>,

    /// Let --fail-on-regression judge figures of different machines.
    #[arg(long, requires = "fail_on_regression")]
    pub(crate) across_machines: bool,

    /// Format [default: by the name of --out, else text].
    #[arg(long, value_name = "FORMAT", value_parser = named::<Format>(Format::OF_COMPARISONS.map(Format::name)))]
    pub(crate) format: Option<Format>,

    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// How a pipeline is told of the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Annotate {
    /// A file that JUnit might have written.
    Junit(PathBuf),
    /// Lines that GitHub Actions shows beside the change.
    Github,
}

impl FromStr for Annotate {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Annotate, String> {
        match text.split_once('=') {
            None if text == "github" => Ok(Annotate::Github),
            Some(("junit", file)) if !file.is_empty() => Ok(Annotate::Junit(file.into())),
            _ => Err("it is junit=FILE or github".to_owned()),
        }
    }
}

/// The orders of `carefree history`.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
pub(crate) struct History {
    /// Records to look through.
    #[arg(value_name = "RECORD", required = true)]
    pub(crate) records: Vec<String>,

    /// Format [default: by the name of --out, else text].
    #[arg(long, value_name = "FORMAT", value_parser = named::<Format>(Format::OF_HISTORIES.map(Format::name)))]
    pub(crate) format: Option<Format>,

    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// What to do with records.
#[derive(Debug, Subcommand)]
pub(crate) enum Records {
    /// Tells of each file what it has, and whether it is whole.
    #[command(after_help = NAMES)]
    List(Chosen),
    /// Names each damaged line; ends with exit code 1 if there is one.
    #[command(after_help = NAMES)]
    Verify(Chosen),
    /// Writes each damaged file anew without its damaged lines, and keeps the old one beside it.
    #[command(after_help = NAMES)]
    Repair(Chosen),
}

/// Which records.
#[derive(Debug, Args)]
pub(crate) struct Chosen {
    /// Files, or folders of them [default: mine].
    #[arg(value_name = "RECORD")]
    pub(crate) records: Vec<String>,

    /// The folder of your own records [default: carefree/records in your data folder].
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
}

/// Where records are, and how to show them.
#[derive(Debug, Args)]
pub(crate) struct Shown {
    /// Write to a file instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// The folder of your own records [default: carefree/records in your data folder].
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
}

/// The orders of `carefree doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Tell whether the threads of this program become fibers under `carefree run`, and why not.
    #[arg(value_name = "PROGRAM", conflicts_with = "targets")]
    pub(crate) program: Option<OsString>,

    /// Format of the findings.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = DoctorFormat::Text)]
    pub(crate) format: DoctorFormat,

    /// A folder of targets besides ours, as for bench.
    #[arg(long, value_name = "DIR")]
    pub(crate) targets: Vec<PathBuf>,
}

/// Formats of the doctor's findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoctorFormat {
    Text,
    Json,
}

/// A name for a run: it stands below charts and in tables.
fn label(text: &str) -> Result<String, String> {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    match text.chars().count() {
        1..=64 if text.chars().all(is_plain) => Ok(text.to_owned()),
        _ => Err("it is one word of at most 64 letters".to_owned()),
    }
}

/// A parser for whole numbers from one to another: all else is answered with these.
fn within<T>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64>,
{
    move |text| {
        if text.is_empty() {
            let (start, end) = (range.start(), range.end());
            return Err(format!("a number is missing, one in {start}..={end}"));
        }
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("{text} is not in {}..={}", range.start(), range.end()))
    }
}

/// A parser for the names of a list.
fn word(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a name is missing".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// A parser for sizes.
fn bytes(text: &str) -> Result<usize, String> {
    let bytes = carefree_settings::bytes(text);
    bytes.ok_or_else(|| format!("{text} is not a number of bytes, such as 1048576, 1024K or 1M"))
}

/// A parser for values with these names.
fn named<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = Unknown> + Clone + Send + Sync + 'static,
{
    OneOf(PossibleValuesParser::new(names)).try_map(|name| name.parse::<T>())
}

/// A parser for these names. Of an empty one in a list, clap would say that there is no list.
#[derive(Clone)]
struct OneOf(PossibleValuesParser);

impl TypedValueParser for OneOf {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        option: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        if value.is_empty() {
            let option = option.map(ToString::to_string).unwrap_or_default();
            let names = self.possible_values().into_iter().flatten();
            let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
            let said = format!(
                "invalid value '' for '{option}': a name is missing, one of {}\n",
                names.join(", ")
            );
            return Err(clap::Error::raw(ErrorKind::ValueValidation, said).with_cmd(command));
        }
        self.0.parse_ref(command, option, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

fn workloads() -> String {
    let lines = Workload::ALL.map(|w| format!("  {:<11} {}", w.name(), w.summary()));
    format!("Workloads:\n{}\n\nSee docs/methodology.md for what the figures say.", lines.join("\n"))
}
