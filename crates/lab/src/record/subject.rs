//! What a figure is about.

use std::fmt;

use carefree_workloads::parameters::Parameters;
use carefree_workloads::workload::Workload;
use serde::{Deserialize, Serialize};

use crate::course;
use crate::serving;
use crate::sweep;
use crate::trial::Trial;

/// The runtimes that the lab's own program has in it.
pub(super) const OURS: [&str; 2] = ["carefree", "rust"];

/// The five keys of a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// The runtime of the unit: `carefree`, `rust`, `ruby`.
    pub runtime: String,
    /// That runtime's version.
    pub version: String,
    /// What ran: `fiber`, `thread`, `goroutine`.
    pub unit: String,
    /// What was measured: `alloc`, `feed`.
    pub workload: String,
    /// How large it was, and how it was done.
    pub parameters: Parameters,
}

impl Subject {
    /// The five of them.
    pub fn new([runtime, version, unit, workload]: [&str; 4], parameters: Parameters) -> Subject {
        let [runtime, version, unit, workload] =
            [runtime, version, unit, workload].map(str::to_owned);
        Subject { runtime, version, unit, workload, parameters }
    }

    /// `thread alloc`, and with the runtime where it is not ours: `ruby 3.3.8 thread alloc`.
    pub fn spoken(&self) -> String {
        match self.is_ours() {
            true => format!("{} {}", self.unit, self.workload),
            false => self.to_string(),
        }
    }

    /// Whether it is about units that the lab's own program has in it.
    pub(crate) fn is_ours(&self) -> bool {
        OURS.contains(&&*self.runtime)
    }

    /// What two sides are about, with the runtime even where it is ours: `lua 5.4.4 → 5.1.5
    /// coroutine warm`, or `ruby 3.3.8 thread alloc` where both have one version.
    pub fn spoken_since(&self, old: &Subject) -> String {
        let Subject { runtime, version, unit, workload, .. } = self;
        match old.version == *version {
            true => self.to_string(),
            false => format!("{runtime} {} → {version} {unit} {workload}", old.version),
        }
    }
}

impl fmt::Display for Subject {
    /// `ruby 3.3.8 thread alloc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.runtime, self.version, self.unit, self.workload)
    }
}

impl From<&Trial> for Subject {
    /// What a sample with these orders is about.
    fn from(trial: &Trial) -> Subject {
        let parameters = match trial.workload {
            Workload::Feed => sweep::parameters(trial),
            Workload::Fetch => course::parameters(trial),
            Workload::Serve => serving::parameters(trial),
            _ => trial.parameters.clone(),
        };
        let Trial { runtime, version, unit, workload, .. } = trial;
        Subject::new([runtime, version, unit, workload.name()], parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_are_told_with_their_runtime_and_both_versions() {
        let lua =
            |version| Subject::new(["lua", version, "coroutine", "warm"], Parameters::default());
        assert_eq!(lua("5.1.5").spoken_since(&lua("5.4.4")), "lua 5.4.4 → 5.1.5 coroutine warm");
        assert_eq!(lua("5.4.4").spoken_since(&lua("5.4.4")), "lua 5.4.4 coroutine warm");
        let ours = Subject::new(["carefree", "0.1", "fiber", "warm"], Parameters::default());
        assert_eq!(ours.spoken_since(&ours), "carefree 0.1 fiber warm");
    }
}
