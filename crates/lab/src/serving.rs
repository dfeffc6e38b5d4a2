//! The samples that a run of `serve` orders, and the load of each.

use std::thread;
use std::time::{Duration, Instant};

use carefree_workloads::answer::Failure;
use carefree_workloads::limits;
use carefree_workloads::parameters::Parameters;
use carefree_workloads::serve::{Backend, Client, Kind, Paced, answer_to};
use carefree_workloads::workload::Size;

use crate::number::{grouped, whole};
use crate::sample::astray;
use crate::served::Served;
use crate::trial::Trial;

/// What is asked of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// What servers do for a request: a load for each, as for each of the other lists.
    pub kinds: Vec<Kind>,
    /// How long a backend takes, milliseconds.
    pub latencies: Vec<u64>,
    /// Requests a second.
    pub rates: Vec<u64>,
    /// Connections over which they are made; none: as many as the kind of server needs.
    pub connections: Option<u64>,
    /// Connections that are open and say nothing while memory is read.
    pub idle: Vec<u64>,
    /// How long requests are made at the rate, and half as long as fast as answers come.
    pub time: Duration,
}

/// The latency of a backend unless told otherwise, milliseconds, as that of the server of `fetch`.
const LATENCY: u64 = 20;

/// Requests, at least, before memory is read, so that what a server makes for its first one is not counted.
const FIRST: u64 = 100;

/// Files that the lab and a server have open besides connections.
const OTHER_FILES: u64 = 200;

impl Serving {
    /// The defaults of `carefree bench serve`.
    pub fn new(size: Size) -> Serving {
        let (kinds, idle, time) = match size {
            Size::Full => (Kind::ALL.to_vec(), 1_000, Duration::from_secs(2)),
            Size::Quick => (vec![Kind::Plain], 100, Duration::from_secs(1)),
        };
        let (latencies, rates, idle) = (vec![LATENCY], vec![1_000], vec![idle]);
        Serving { kinds, latencies, rates, connections: None, idle, time }
    }

    /// The kinds of samples of a unit that has these kinds of servers, as `base` describes it.
    pub(crate) fn of_unit(&self, base: &Trial, kinds: &[Kind]) -> Vec<Trial> {
        let mut trials = Vec::new();
        for &kind in self.kinds.iter().filter(|kind| kinds.contains(kind)) {
            let backends: Vec<Option<u64>> = match kind {
                Kind::Plain => vec![None],
                Kind::Backend => self.latencies.iter().copied().map(Some).collect(),
            };
            for latency in backends {
                for &idle in &self.idle {
                    for &rate in &self.rates {
                        let mut trial = base.clone();
                        trial.parameters = base.parameters.clone().only(&["cores"]);
                        trial.parameters.set("kind", kind.name());
                        if let Some(latency) = latency {
                            trial.parameters.set("latency_ms", latency);
                        }
                        trial.parameters.set("rate", rate);
                        let connections = self.connections.unwrap_or_else(|| usual(kind));
                        trial.parameters.set("connections", connections);
                        trial.parameters.set("idle", idle);
                        // Far below 2^64.
                        trial.parameters.set("time_ms", self.time.as_millis() as u64);
                        trials.push(trial);
                    }
                }
            }
        }
        trials
    }

    /// The kinds that are ordered and that a unit with `kinds` does not have.
    pub(crate) fn missing(&self, kinds: &[Kind]) -> Vec<Kind> {
        self.kinds.iter().copied().filter(|kind| !kinds.contains(kind)).collect()
    }
}

/// Connections for requests to a kind of servers. While a backend takes its 20 ms, 1,000 requests a
/// second have 20 of them under way, and not all others are to wait when a few are late.
fn usual(kind: Kind) -> u64 {
    match kind {
        Kind::Plain => 32,
        Kind::Backend => 128,
    }
}

/// What a sample's server is asked, and the backend that it asks in turn, if it is of that kind.
#[derive(Debug)]
pub(crate) struct Load {
    /// The orders of the sample; with the backend's address, where there is one.
    pub(crate) trial: Trial,
    backend: Option<Backend>,
}

impl Load {
    /// Starts the backend that the orders ask for.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn new(trial: &Trial) -> Result<Load, Failure> {
        let mut trial = trial.clone();
        if trial.parameters.parse("kind") != Some(Kind::Backend) {
            return Ok(Load { trial, backend: None });
        }
        let latency =
            Duration::from_millis(trial.parameters.number("latency_ms").unwrap_or(LATENCY));
        let backend = Backend::start(latency)
            .map_err(|error| Failure::new(format!("the backend could not be started: {error}")))?;
        trial.parameters.set("backend", backend.url().as_str());
        Ok(Load { trial, backend: Some(backend) })
    }

    /// Compares the requests that the server was asked with those that its backend answered.
    fn check(&self, made: u64) -> Result<Option<u64>, Failure> {
        let Some(tally) = self.backend.as_ref().map(Backend::tally) else { return Ok(None) };
        if tally.answered == made && tally.failed == 0 {
            return Ok(Some(made));
        }
        Err(astray(format!(
            "the server was asked {} times, and asked its backend {} times: it was to ask once for \
             each",
            whole(made),
            whole(tally.answered + tally.failed)
        )))
    }
}

/// What is looked at meanwhile.
pub(crate) trait Look {
    /// Memory is to be read, before there are connections.
    fn without_connections(&mut self);
    /// Memory is to be read, with all idle connections open.
    fn with_connections(&mut self);
    /// The processor time of the server so far.
    fn processor_time(&self) -> Option<Duration>;
}

/// Loads the server at `port` as ordered. `go_on` is asked every now and then, and ends it by an
/// error.
///
/// # Errors
/// The first thing that the server did wrong.
pub(crate) fn load(
    load: &Load,
    port: u16,
    look: &mut dyn Look,
    go_on: &dyn Fn() -> Result<(), Failure>,
) -> Result<Served, Failure> {
    let number = |name: &str| {
        let told = load.trial.parameters.number(name);
        told.ok_or_else(|| Failure::new(format!("the orders name no {name}")))
    };
    let (rate, connections, idle) = (number("rate")?, number("connections")?, number("idle")?);
    let time = Duration::from_millis(number("time_ms")?);
    let answer = |target: &str| match &load.backend {
        None => answer_to(target),
        Some(backend) => backend.answer_to(target),
    };
    let mut client = Client::new(port, &answer, go_on);
    // They stay open, so that what the server has for them is not used again for those that are idle,
    // and not counted with them; its connections to a backend neither.
    let mut first = client.hold(connections, connections)?;
    while client.made() < FIRST {
        client.ask(&mut first)?;
    }
    look.without_connections();
    let held = client.hold(idle, connections)?;
    look.with_connections();
    client.close(held, connections)?;
    client.close(first, connections)?;
    let mut unsettled = !settle(look, SETTLED_AFTER, go_on)?;
    // Whatever compiles or grows under load does so now.
    let mut busy = client.hold(connections, connections)?;
    let rushed = client.rush(&mut busy, time / 2)?;
    // The end of those connections and the start of others, such as a thread for each, are not what a
    // request costs.
    client.close(busy, connections)?;
    let mut open = client.hold(connections, connections)?;
    unsettled |= !settle(look, SETTLED_AFTER, go_on)?;
    let before = look.processor_time();
    let paced = client.pace(&mut open, rate, time)?;
    let used = before.and_then(|before| look.processor_time()?.checked_sub(before));
    let cpu_ns = used.map(|used| u64::try_from(used.as_nanos()).unwrap_or(u64::MAX));
    let backend_answered = load.check(client.made())?;
    let closed = client.closed();
    Ok(Served { idle, rushed, paced, cpu_ns, backend_answered, closed, unsettled })
}

/// A server that is still busy then is given up on.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// Waits until a server has done what there is to do for connections that were closed, or has been
/// given up on: what comes next is charged with it then. Returns whether it has.
fn settle(
    look: &dyn Look,
    most: Duration,
    go_on: &dyn Fn() -> Result<(), Failure>,
) -> Result<bool, Failure> {
    const PAUSE: Duration = Duration::from_millis(20);
    let started = Instant::now();
    let mut before = look.processor_time();
    let mut quiet = 0;
    // Of a server that cannot be seen this is the pause alone.
    while quiet < 2 && started.elapsed() < most {
        thread::sleep(PAUSE);
        go_on()?;
        let now = look.processor_time();
        let used = now.zip(before).and_then(|(now, before)| now.checked_sub(before));
        quiet = if used.is_none_or(|used| used < PAUSE / 10) { quiet + 1 } else { 0 };
        before = now;
    }
    Ok(quiet == 2)
}

/// Lets the lab and the server, which inherits it, have all connections open.
///
/// # Errors
/// When they may not.
pub(crate) fn allow_files(trial: &Trial) -> Result<(), Failure> {
    let of = |name: &str| trial.parameters.number(name).unwrap_or(0);
    // Those to the server, and as many of its own to a backend as requests are under way.
    let files = of("idle") + 2 * of("connections") + OTHER_FILES;
    limits::raise_open_files(files).map_err(|error| Failure {
        message: format!("{} idle connections cannot be had: {error}", of("idle")),
        advice: Some("raise RLIMIT_NOFILE as it says, or hold fewer with --idle".into()),
    })
}

/// What a reader of the figures should know: a server that did not keep up, or a load that did not.
pub(crate) fn remarks(trial: &Trial, served: &Served) -> Vec<String> {
    let Paced { requests, ns, p50_ns, late_p99_ns, .. } = served.paced;
    let rate = trial.parameters.number("rate").unwrap_or(0);
    // The last answer is not to come before a backend has answered.
    let latency = trial.parameters.number("latency_ms").unwrap_or(0) * 1_000_000;
    let reached = requests as f64 / (ns.saturating_sub(latency).max(1) as f64 / 1e9);
    let slow = reached < 0.95 * rate as f64;
    let late = late_p99_ns > p50_ns;
    let closed = served.closed;
    [
        slow.then(|| {
            format!("of {} requests a second it answered {}", whole(rate), grouped(reached, 0))
        }),
        late.then(|| "the lab itself was late with some requests, and their latency has it".into()),
        served.unsettled.then(|| {
            "it was still busy with connections that had been closed, and its figures have that".into()
        }),
        (closed > 0).then(|| {
            "the server closes a connection after some number of requests; the next one is in its figures".into()
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The parameters under which a record keeps it.
pub(crate) fn parameters(trial: &Trial) -> Parameters {
    let told = ["kind", "latency_ms", "rate", "connections", "idle", "time_ms", "cores"];
    trial.parameters.clone().only(&told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use carefree_workloads::serve::Rushed;
    use carefree_workloads::unit::Unit;
    use carefree_workloads::workload::Workload;

    fn trial() -> Trial {
        let base = plan::tests::kind(Unit::Thread, Workload::Serve);
        let serving = Serving { rates: vec![500, 2_000], ..Serving::new(Size::Quick) };
        let [slow, fast] = &serving.of_unit(&base, &Kind::ALL)[..] else { panic!("two rates") };
        assert_eq!(fast.parameters.number("rate"), Some(2_000));
        slow.clone()
    }

    #[test]
    fn orders_name_the_load_and_nothing_of_units() {
        let trial = trial();
        assert_eq!(
            parameters(&trial).to_string(),
            "connections=32 cores=2 idle=100 kind=plain rate=500 time_ms=1000"
        );
        assert!(trial.arguments().contains(&"kind=plain".to_owned()), "{:?}", trial.arguments());
    }

    #[test]
    fn lists_are_loads_and_only_servers_with_a_backend_have_its_latency() {
        let base = plan::tests::kind(Unit::Thread, Workload::Serve);
        let (kinds, latencies) = (Kind::ALL.to_vec(), vec![5, 50]);
        let serving = Serving { kinds, latencies, idle: vec![1, 9], ..Serving::new(Size::Full) };
        let loads = |kinds: &[Kind]| -> Vec<String> {
            let trials = serving.of_unit(&base, kinds);
            trials.iter().map(|trial| parameters(trial).to_string()).collect()
        };
        let rest = "rate=1000 time_ms=2000";
        let mut plain = Vec::new();
        let mut backend = Vec::new();
        for idle in [1, 9] {
            plain.push(format!("connections=32 cores=2 idle={idle} kind=plain {rest}"));
        }
        for latency in [5, 50] {
            for idle in [1, 9] {
                let own = format!("idle={idle} kind=backend latency_ms={latency}");
                backend.push(format!("connections=128 cores=2 {own} {rest}"));
            }
        }
        assert_eq!(loads(&Kind::ALL), [plain.clone(), backend].concat());
        assert_eq!(loads(&[Kind::Plain]), plain);
        assert_eq!(serving.missing(&[Kind::Plain]), [Kind::Backend]);
        assert!(serving.missing(&Kind::ALL).is_empty());
    }

    /// A server that is busy with what was, for so many looks.
    struct Busy(std::cell::Cell<u32>);

    impl Look for Busy {
        fn without_connections(&mut self) {}
        fn with_connections(&mut self) {}
        fn processor_time(&self) -> Option<Duration> {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            // It has used ten milliseconds more at each look, until it is done.
            Some(Duration::from_millis(10 * u64::from(100 - left)))
        }
    }

    #[test]
    fn the_load_begins_when_the_server_is_done_with_what_was() {
        let looks = std::cell::Cell::new(0);
        let go_on = || {
            looks.set(looks.get() + 1);
            Ok(())
        };
        assert!(settle(&Busy(5.into()), SETTLED_AFTER, &go_on).expect("it ends"));
        // Five busy looks, and two quiet ones.
        assert_eq!(looks.get(), 7);
        let given_up =
            settle(&Busy(5.into()), SETTLED_AFTER, &|| Err(Failure::new("the server has ended")));
        assert_eq!(given_up.expect_err("an end").message, "the server has ended");
        let most = Duration::from_millis(50);
        assert!(!settle(&Busy(100.into()), most, &|| Ok(())).expect("it gives up"));
    }

    #[test]
    fn more_connections_than_files_are_refused_with_the_knob() {
        let mut trial = trial();
        trial.parameters.set("idle", 1_u64 << 40);
        let failure = allow_files(&trial).expect_err("a limit");
        assert!(failure.message.starts_with("1099511627776 idle connections cannot be had: "));
        assert!(failure.message.contains("`ulimit -Hn "), "{failure:?}");
    }

    fn served(seconds: u64) -> Served {
        let paced = Paced { requests: 500, ns: seconds * 1_000_000_000, ..Paced::default() };
        let rushed = Rushed { requests: 3_000, ns: 500_000_000 };
        Served {
            idle: 100,
            rushed,
            paced,
            cpu_ns: Some(5_000_000),
            backend_answered: None,
            closed: 0,
            unsettled: false,
        }
    }

    #[test]
    fn a_server_that_does_not_keep_up_is_remarked_on_and_so_is_a_late_load() {
        let trial = trial();
        assert!(remarks(&trial, &served(1)).is_empty());
        assert_eq!(remarks(&trial, &served(2)), ["of 500 requests a second it answered 250"]);
        let unsettled = Served { unsettled: true, ..served(1) };
        assert!(remarks(&trial, &unsettled)[0].starts_with("it was still busy"));
        let closing = Served { closed: 3, ..served(1) };
        assert!(remarks(&trial, &closing)[0].starts_with("the server closes a connection after"));
        let mut late = served(1);
        late.paced = Paced { p50_ns: 50, late_p99_ns: 51, ..late.paced };
        assert!(remarks(&trial, &late)[0].starts_with("the lab itself was late"));
    }
}
