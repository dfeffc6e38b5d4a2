//! The samples that a run of `fetch` orders, and the check of what they did.

use std::io;
use std::time::Duration;

use carefree_workloads::answer::{Account, Failure};
use carefree_workloads::fetch::{Encoding, SEQUENTIAL, Server, Settings, Tally};
use carefree_workloads::parameters::Parameters;
use carefree_workloads::role::Role;
use carefree_workloads::workload::Size;

use crate::connections::{KEPT, SEQUENTIAL_KEPT, asked_unit};
use crate::number::whole;
use crate::sample::astray;
use crate::trial::Trial;

/// What to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// GETs in each round.
    pub requests: u64,
    /// How the server answers them.
    pub server: Settings,
    /// Bytes a program asks its client for at a time; 0: as its client likes.
    pub read_size: u64,
}

impl Course {
    /// The defaults of `carefree bench fetch`.
    pub fn new(size: Size) -> Course {
        let requests = match size {
            Size::Full => 50,
            Size::Quick => 20,
        };
        Course { requests, server: Settings::default(), read_size: 0 }
    }

    /// The kinds of samples of a unit, as `base` describes it: with a connection for each GET, and
    /// with connections that are kept.
    pub(crate) fn of_unit(&self, base: &Trial) -> Vec<Trial> {
        let name = &base.unit;
        // Rounds are short: five tell more than one, and cost little beside the process's start.
        self.both(base, name, &format!("{name}{KEPT}"), 5)
    }

    /// The kinds of samples that do one GET after the other, in the runtime that `base` describes.
    pub(crate) fn sequential(&self, base: &Trial) -> Vec<Trial> {
        let base = Trial { role: Role::Thread, kernel: false, ..base.clone() };
        self.both(&base, SEQUENTIAL, SEQUENTIAL_KEPT, 1)
    }

    fn both(&self, base: &Trial, closed: &str, kept: &str, rounds: u64) -> Vec<Trial> {
        let of = |unit: &str, keep_alive| {
            let mut trial = Trial { unit: unit.to_owned(), ..base.clone() };
            trial.parameters.set("units", self.requests);
            trial.parameters.set("rounds", rounds);
            // The first round makes the connections that the others use again.
            trial.warmup = base.warmup.clamp(1, 3);
            let Settings { latency, body, encoding, .. } = self.server;
            // Far below 2^64.
            trial.parameters.set("latency_ms", latency.as_millis() as u64);
            trial.parameters.set("keep_alive", u64::from(keep_alive));
            trial.parameters.set("body", body);
            trial.parameters.set("encoding", encoding.name());
            trial.parameters.set("read_size", self.read_size);
            trial.parameters.set("count", 1_u64);
            trial
        };
        vec![of(closed, false), of(kept, true)]
    }
}

/// Starts the server for one sample, and returns the orders with its address.
pub(crate) fn serve(trial: &Trial) -> io::Result<(Server, Trial)> {
    let usual = Settings::default();
    let server = Server::start(Settings {
        latency: trial.parameters.parse("latency_ms").map_or(usual.latency, Duration::from_millis),
        body: trial.parameters.parse("body").unwrap_or(usual.body),
        encoding: trial.parameters.parse::<Encoding>("encoding").unwrap_or(usual.encoding),
        ..usual
    })?;
    let mut trial = trial.clone();
    trial.parameters.set("url", server.url().as_str());
    Ok((server, trial))
}

/// Compares what a program says with what the server saw.
///
/// # Errors
/// A failure that names the first difference.
pub(crate) fn check(trial: &Trial, account: &Account, tally: &Tally) -> Result<(), Failure> {
    let wrong = |message| Err(astray(message));
    let said = |key: &str| account.more.get(key).and_then(serde_json::Value::as_u64);
    let least = trial.parameters.units() * (trial.parameters.rounds() + trial.warmup);
    let most = least + trial.parameters.units();
    match said("requests") {
        Some(requests) if requests < least => {
            return wrong(format!(
                "the program made {} requests in place of {}",
                whole(requests),
                whole(least)
            ));
        }
        // One more round may be for counting what is allocated.
        Some(requests) if requests > most => {
            return wrong(format!(
                "the program made {} requests in place of {} at most",
                whole(requests),
                whole(most)
            ));
        }
        Some(requests) if requests == tally.answered => {}
        Some(requests) => {
            return wrong(format!(
                "the program says that it made {} requests; the server answered {}",
                whole(requests),
                whole(tally.answered)
            ));
        }
        None => return wrong("the program does not say how many requests it made".into()),
    }
    if said("body_bytes") != Some(tally.body_bytes) {
        return wrong(format!(
            "the program says that it received {} bytes of bodies; the server sent {}",
            said("body_bytes").map_or("an unknown number of".into(), whole),
            whole(tally.body_bytes)
        ));
    }
    if tally.failed > 0 {
        return wrong(format!("{} requests failed", whole(tally.failed)));
    }
    let kept = trial.parameters.parse("keep_alive") == Some(1);
    let connections = tally.connections;
    match (kept, asked_unit(&trial.unit) == SEQUENTIAL) {
        (false, _) if connections != tally.answered => wrong(format!(
            "{} connections for {} requests: each was to have its own",
            whole(connections),
            whole(tally.answered)
        )),
        (true, true) if connections != 1 => {
            wrong(format!("{} connections: one was to be kept", whole(connections)))
        }
        (true, false) if connections > trial.parameters.units() => wrong(format!(
            "{} connections for {} requests at a time: they were to be kept",
            whole(connections),
            whole(trial.parameters.units())
        )),
        _ => Ok(()),
    }
}

/// What a reader of the figures should know of a sample: units that were to be under way at once
/// and were not.
pub(crate) fn remark(trial: &Trial, tally: &Tally) -> Option<String> {
    let (units, at_once) = (trial.parameters.units(), tally.at_once);
    let alone = asked_unit(&trial.unit) == SEQUENTIAL;
    (!alone && at_once * 2 < units).then(|| {
        let (units, at_once) = (whole(units), whole(at_once));
        format!("of {units} requests no more than {at_once} were under way at once")
    })
}

/// The parameters under which a record keeps it.
pub(crate) fn parameters(trial: &Trial) -> Parameters {
    let told = ["latency_ms", "body", "encoding", "read_size", "cores"];
    let mut parameters = trial.parameters.clone().only(&told);
    parameters.set("requests", trial.parameters.units());
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use carefree_workloads::unit::Unit;
    use carefree_workloads::workload::Workload;
    use serde_json::json;

    fn trials() -> Vec<Trial> {
        let base = plan::tests::kind(Unit::Thread, Workload::Fetch);
        let course = Course { requests: 5, ..Course::new(Size::Quick) };
        let mut trials = course.sequential(&base);
        trials.extend(course.of_unit(&base));
        trials
    }

    fn account(requests: u64) -> Account {
        let said = json!({"requests": requests, "body_bytes": requests * 10});
        Account { more: said.as_object().expect("an object").clone(), ..Account::default() }
    }

    fn tally(requests: u64, connections: u64) -> Tally {
        Tally { connections, answered: requests, body_bytes: requests * 10, failed: 0, at_once: 5 }
    }

    fn complaint(trial: &Trial, account: &Account, tally: &Tally) -> String {
        check(trial, account, tally).map_or_else(|failure| failure.message, |()| "none".into())
    }

    #[test]
    fn four_ways_have_names_of_their_own_and_the_programs_words() {
        let names: Vec<String> = trials().into_iter().map(|trial| trial.unit).collect();
        assert_eq!(names, ["sequential", "keep-alive", "thread", "thread+keep-alive"]);
        let asked: Vec<&str> = names.iter().map(|name| asked_unit(name)).collect();
        assert_eq!(asked, ["sequential", "sequential", "thread", "thread"]);
    }

    #[test]
    fn an_account_that_the_server_confirms_is_believed() {
        let [alone, kept_alone, each, kept] = &trials()[..] else { panic!("four ways") };
        // A warm-up round and one round; or five of them.
        assert_eq!(check(alone, &account(10), &tally(10, 10)), Ok(()));
        assert_eq!(check(kept_alone, &account(10), &tally(10, 1)), Ok(()));
        assert_eq!(check(each, &account(30), &tally(30, 30)), Ok(()));
        assert_eq!(check(kept, &account(30), &tally(30, 5)), Ok(()));
        // A further round, for counting.
        assert_eq!(check(kept, &account(35), &tally(35, 3)), Ok(()));
    }

    #[test]
    fn an_account_of_other_work_is_refused() {
        let [alone, kept_alone, each, kept] = &trials()[..] else { panic!("four ways") };
        let few = complaint(each, &account(5), &tally(5, 5));
        assert_eq!(few, "the program made 5 requests in place of 30");
        let many = complaint(each, &account(40), &tally(40, 40));
        assert_eq!(many, "the program made 40 requests in place of 35 at most");
        let lies = complaint(each, &account(31), &tally(30, 30));
        assert!(lies.ends_with("made 31 requests; the server answered 30"), "{lies}");
        let silent = complaint(each, &Account::default(), &tally(30, 30));
        assert!(silent.contains("does not say how many"), "{silent}");
        let bytes = complaint(each, &account(30), &Tally { body_bytes: 7, ..tally(30, 30) });
        assert!(bytes.ends_with("received 300 bytes of bodies; the server sent 7"), "{bytes}");
        let failed = complaint(each, &account(30), &Tally { failed: 2, ..tally(30, 30) });
        assert_eq!(failed, "2 requests failed");
        let keeps = complaint(alone, &account(10), &tally(10, 1));
        assert!(keeps.contains("each was to have its own"), "{keeps}");
        let closes = complaint(kept_alone, &account(10), &tally(10, 10));
        assert!(closes.contains("one was to be kept"), "{closes}");
        let closes = complaint(kept, &account(30), &tally(30, 30));
        assert!(closes.contains("they were to be kept"), "{closes}");
    }

    #[test]
    fn units_that_waited_in_turn_are_remarked_on() {
        let [alone, _, each, _] = &trials()[..] else { panic!("four ways") };
        let in_turn = Tally { at_once: 2, ..tally(30, 30) };
        let remark_on = remark(each, &in_turn).expect("a remark");
        assert_eq!(remark_on, "of 5 requests no more than 2 were under way at once");
        assert_eq!(remark(alone, &in_turn), None);
        assert_eq!(remark(each, &tally(30, 30)), None);
    }

    #[test]
    fn a_server_is_as_the_orders_say() {
        let base = plan::tests::kind(Unit::Thread, Workload::Fetch);
        let mut course = Course::new(Size::Quick);
        course.server.latency = Duration::ZERO;
        course.server.body = 1500;
        course.server.encoding = Encoding::Chunked;
        let trial = course.sequential(&base).remove(0);
        let (server, with_url) = serve(&trial).expect("a port on loopback");
        let url = &with_url.parameters.get("url").expect("its address").to_string();
        let mut answer = ureq::get(url).call().expect("an answer");
        assert_eq!(answer.headers()["transfer-encoding"], "chunked");
        assert_eq!(answer.body_mut().read_to_vec().expect("a body").len(), 1500);
        drop(answer);
        assert_eq!(server.stop().answered, 1);
    }
}
