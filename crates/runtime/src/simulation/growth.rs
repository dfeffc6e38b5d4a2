//! How the counts grow with the number of carriers.

use std::process::Command;

use super::load::{ALL, Done, Load};
use super::machine::{self, Counts};
use crate::{Runtime, metrics};

/// What the child process is to count: the number of a load, of carriers, and of places to show.
const CASE: &str = "CAREFREE_TEST_SIMULATION";
/// Places in the source that are shown, those with the most transfers first.
const PLACES: usize = 6;

/// Counts of one load on so many carriers, each for one unit.
#[derive(Debug, Default)]
struct Row {
    carriers: usize,
    /// Of all carriers' time, the share in which fibers computed.
    used: f64,
    transfers: f64,
    queued: f64,
    wakes: f64,
    interruptions: f64,
    requests: f64,
    steals: f64,
    places: Vec<String>,
}

/// In the process that counts: what it is asked to.
#[test]
fn counted() {
    let Some(asked) = carefree_settings::text(CASE) else { return };
    let (load, carriers) = asked.split_once(' ').expect("two numbers");
    let load: &Load = &ALL[load.parse::<usize>().expect("a load")];
    let carriers: usize = carriers.parse().expect("a number of carriers");
    // A carrier that waits for ever ends the process, at the latest now.
    // SAFETY: nothing handles the signal.
    unsafe { libc::alarm(300) };
    // The last core is this thread.
    machine::set_up(carriers + 1);
    let runtime = Runtime::builder().carriers(carriers).build().expect("a runtime");
    machine::start(carriers);
    // Once for what is made at first only.
    (load.run)(&runtime, carriers);
    let before = metrics();
    let (_, begun) = machine::counted();
    let done = (load.run)(&runtime, carriers);
    let (counts, ended) = machine::counted();
    let after = metrics();
    let [requests, steals] =
        [after.requests - before.requests, after.steals - before.steals].map(|n| n as f64);
    print(&counts, done, (ended - begun) as f64 * carriers as f64, requests, steals);
    // The carriers' threads wait for their turns, and none will come.
    std::process::exit(0);
}

fn print(counts: &Counts, done: Done, time: f64, requests: f64, steals: f64) {
    let each = |count: u64| count as f64 / done.units as f64;
    println!(
        "row: {} {} {} {} {} {} {}",
        done.computed as f64 / time,
        each(counts.transfers),
        each(counts.queued),
        each(counts.wakes),
        each(counts.interruptions),
        requests / done.units as f64,
        steals / done.units as f64,
    );
    let mut places: Vec<_> = counts.places.iter().collect();
    places.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for ((file, line), count) in places.into_iter().take(PLACES) {
        let file = file.rsplit_once("src/").map_or(*file, |(_, file)| file);
        println!("place: {:.2} {file}:{line}", each(*count));
    }
}

fn count(load: usize, carriers: usize) -> Row {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "simulation::growth::counted", "--nocapture", "--test-threads=1"])
        .env(CASE, format!("{load} {carriers}"))
        .output()
        .expect("it can be started again");
    let text = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let row = text.lines().find_map(|line| Some(line.split_once("row: ")?.1.to_owned()));
    let row = row.unwrap_or_else(|| panic!("{}: {text}{complaints}", ALL[load].name));
    let numbers: Vec<f64> =
        row.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [used, transfers, queued, wakes, interruptions, requests, steals] = numbers[..] else {
        panic!("{row}")
    };
    let places = text.lines().filter_map(|line| Some(line.split_once("place: ")?.1.to_owned()));
    Row {
        carriers,
        used,
        transfers,
        queued,
        wakes,
        interruptions,
        requests,
        steals,
        places: places.collect(),
    }
}

fn print_row(row: &Row) {
    println!(
        "| {} | {:.0}% | {:.2} | {:.0} | {:.3} | {:.3} | {:.3} | {:.3} |",
        row.carriers,
        100.0 * row.used,
        row.transfers,
        row.queued,
        row.wakes,
        row.interruptions,
        row.requests,
        row.steals
    );
}

/// The table for docs/scheduling.md; and, with `PLACES=1`, where in the source lines were taken from others.
#[test]
#[ignore = "takes minutes, and prints"]
fn table() {
    for (number, load) in ALL.iter().enumerate() {
        println!("\n{}: {}\n", load.name, load.what);
        println!(
            "| carriers | used | transfers | queued, ns | wake-ups | interruptions | requests | steals |"
        );
        println!("|--:|--:|--:|--:|--:|--:|--:|--:|");
        for carriers in [1, 2, 4, 16, 64, 256] {
            let row = count(number, carriers);
            print_row(&row);
            if carefree_settings::text("PLACES").is_some() {
                println!("    {}", row.places.join("; "));
            }
        }
    }
}

/// What a load may take on 4 carriers and on 64: of each about twice what it takes.
struct Limits {
    name: &'static str,
    used: [f64; 2],
    transfers: [f64; 2],
    interruptions: [f64; 2],
}

const LIMITS: [Limits; 7] = [
    // Before carriers shared out a few that hand over for long, 19% and 8% were used.
    limits("pairs", [0.40, 0.25], [0.5, 1.0], [0.05, 0.05]),
    limits("one pair", [0.15, 0.008], [0.2, 0.2], [0.05, 0.05]),
    // Before a carrier that computes was asked for longer, 11 interruptions a leaf.
    limits("tree", [0.70, 0.30], [20.0, 40.0], [0.5, 1.0]),
    limits("crowd", [0.60, 0.20], [15.0, 30.0], [0.5, 2.0]),
    // Before each carrier saw to its own timers, 87 transfers a fiber.
    limits("bursts", [0.02, 0.01], [80.0, 30.0], [1.5, 3.0]),
    limits("timers", [0.24, 0.20], [40.0, 70.0], [0.5, 1.0]),
    limits("outside", [0.20, 0.20], [30.0, 40.0], [0.5, 4.0]),
];

const fn limits(
    name: &'static str,
    used: [f64; 2],
    transfers: [f64; 2],
    interruptions: [f64; 2],
) -> Limits {
    Limits { name, used, transfers, interruptions }
}

#[test]
fn carriers_hardly_get_in_each_others_way() {
    for (number, load) in ALL.iter().enumerate() {
        println!("{}", load.name);
        let limits = LIMITS.iter().find(|limits| limits.name == load.name);
        let limits = limits.expect("each load has limits");
        for (at, carriers) in [4, 64].into_iter().enumerate() {
            let row = count(number, carriers);
            print_row(&row);
            let holds = row.used >= limits.used[at]
                && row.transfers <= limits.transfers[at]
                && row.interruptions <= limits.interruptions[at];
            assert!(holds, "{}: {row:#?}", load.name);
        }
    }
}
