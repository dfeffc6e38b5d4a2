//! The samples that a run of `serve` orders, and the load of each.

use std::time::Duration;

use carefree_workloads::answer::Failure;
use carefree_workloads::limits;
use carefree_workloads::parameters::Parameters;
use carefree_workloads::serve::{Client, Paced};
use carefree_workloads::workload::Size;

use crate::served::Served;
use crate::trial::Trial;

/// What is asked of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Requests a second: a load for each.
    pub rates: Vec<u64>,
    /// Connections over which they are made.
    pub connections: u64,
    /// Connections that are open and say nothing while memory is read.
    pub idle: u64,
    /// How long requests are made at the rate, and half as long as fast as answers come.
    pub time: Duration,
}

/// The kind of servers there is: one that answers at once.
const PLAIN: &str = "plain";

/// Requests before memory is read, so that what a server makes for its first one is not counted.
const FIRST: u64 = 100;

/// Files that the lab and a server have open besides connections.
const OTHER_FILES: u64 = 200;

impl Serving {
    /// The defaults of `carefree bench serve`.
    pub fn new(size: Size) -> Serving {
        let (idle, time) = match size {
            Size::Full => (1_000, Duration::from_secs(2)),
            Size::Quick => (100, Duration::from_secs(1)),
        };
        Serving { rates: vec![1_000], connections: 32, idle, time }
    }

    /// The kinds of samples of a unit, as `base` describes it: one for each rate.
    pub(crate) fn of_unit(&self, base: &Trial) -> Vec<Trial> {
        let of = |&rate: &u64| {
            let mut trial = base.clone();
            trial.parameters = base.parameters.clone().only(&["cores"]);
            trial.parameters.set("kind", PLAIN);
            trial.parameters.set("rate", rate);
            trial.parameters.set("connections", self.connections);
            trial.parameters.set("idle", self.idle);
            // Far below 2^64.
            trial.parameters.set("time_ms", self.time.as_millis() as u64);
            trial
        };
        self.rates.iter().map(of).collect()
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
    trial: &Trial,
    port: u16,
    look: &mut dyn Look,
    go_on: &dyn Fn() -> Result<(), Failure>,
) -> Result<Served, Failure> {
    let number = |name: &str| {
        let told = trial.parameters.number(name);
        told.ok_or_else(|| Failure::new(format!("the orders name no {name}")))
    };
    let (rate, connections, idle) = (number("rate")?, number("connections")?, number("idle")?);
    let time = Duration::from_millis(number("time_ms")?);
    let mut client = Client::new(port, go_on);
    client.ask(FIRST)?;
    look.without_connections();
    let held = client.hold(idle)?;
    look.with_connections();
    drop(held);
    // Whatever compiles or grows under load does so now.
    let rushed = client.rush(connections, time / 2)?;
    let before = look.processor_time();
    let paced = client.pace(connections, rate, time)?;
    let used = before.and_then(|before| look.processor_time()?.checked_sub(before));
    let cpu_ns = used.map(|used| u64::try_from(used.as_nanos()).unwrap_or(u64::MAX));
    Ok(Served { idle, rushed, paced, cpu_ns })
}

/// Lets the lab and the server, which inherits it, have all connections open.
///
/// # Errors
/// When they may not.
pub(crate) fn allow_files(trial: &Trial) -> Result<(), Failure> {
    let of = |name: &str| trial.parameters.number(name).unwrap_or(0);
    let files = of("idle").max(of("connections")) + OTHER_FILES;
    limits::raise_open_files(files).map_err(|error| Failure {
        message: format!("{} connections cannot be had: {error}", of("idle")),
        advice: Some("hold fewer of them with --idle".into()),
    })
}

/// What a reader of the figures should know: a server that did not keep up, or a load that did not.
pub(crate) fn remarks(trial: &Trial, served: &Served) -> Vec<String> {
    let Paced { requests, ns, p50_ns, late_p99_ns, .. } = served.paced;
    let rate = trial.parameters.number("rate").unwrap_or(0);
    let reached = requests as f64 / (ns.max(1) as f64 / 1e9);
    let slow = reached < 0.95 * rate as f64;
    let late = late_p99_ns > p50_ns;
    [
        slow.then(|| format!("of {rate} requests a second it answered {reached:.0}")),
        late.then(|| "the lab itself was late with some requests, and their latency has it".into()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The parameters under which a record keeps it.
pub(crate) fn parameters(trial: &Trial) -> Parameters {
    let told = ["kind", "rate", "connections", "idle", "time_ms", "cores"];
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
        let [slow, fast] = &serving.of_unit(&base)[..] else { panic!("two rates") };
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

    fn served(seconds: u64) -> Served {
        let paced = Paced { requests: 500, ns: seconds * 1_000_000_000, ..Paced::default() };
        let rushed = Rushed { requests: 3_000, ns: 500_000_000 };
        Served { idle: 100, rushed, paced, cpu_ns: Some(5_000_000) }
    }

    #[test]
    fn a_server_that_does_not_keep_up_is_remarked_on_and_so_is_a_late_load() {
        let trial = trial();
        assert!(remarks(&trial, &served(1)).is_empty());
        assert_eq!(remarks(&trial, &served(2)), ["of 500 requests a second it answered 250"]);
        let mut late = served(1);
        late.paced = Paced { p50_ns: 50, late_p99_ns: 51, ..late.paced };
        assert!(remarks(&trial, &late)[0].starts_with("the lab itself was late"));
    }
}
