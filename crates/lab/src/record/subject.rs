//! What a figure is about.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The five things that figures are told apart by.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// Whose units they are: `carefree`, `rust`, `ruby`.
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
    /// `thread alloc`, and with the runtime where it is not ours: `ruby 3.3.8 thread alloc`.
    pub fn spoken(&self) -> String {
        match self.runtime.as_str() {
            "carefree" | "rust" => format!("{} {}", self.unit, self.workload),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Subject {
    /// `ruby 3.3.8 thread alloc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.runtime, self.version, self.unit, self.workload)
    }
}

/// Named parameters, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Parameters(BTreeMap<String, Value>);

/// Which side of the comparison a unit stands on. Runtimes call their units by many names; this is
/// what makes a goroutine comparable to a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Switched by the runtime: fibers, coroutines, goroutines, tasks, processes of Erlang.
    Fiber,
    /// Switched by the kernel.
    Thread,
}

impl Side {
    /// The side a record names, or else the one that the unit's own name tells.
    pub fn of(role: Option<&str>, unit: &str) -> Side {
        let kernels = ["thread", "platform", "worker", "locked"];
        match role {
            Some("thread") => Side::Thread,
            Some("fiber") => Side::Fiber,
            _ if kernels.iter().any(|name| unit.contains(name)) => Side::Thread,
            _ => Side::Fiber,
        }
    }
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Something that is so or not.
    Flag(bool),
    /// A count, or a size.
    Number(u64),
    /// One of several ways.
    Word(String),
}

impl Parameters {
    /// With one parameter more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Parameters {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// A parameter's value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A parameter that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Without the one of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Parameters {
        self.0.remove(name);
        self
    }

    /// Whether all that both name is the same. What one side does not tell, as the published
    /// tables do not tell how many cores a sample had, keeps nothing apart.
    pub fn agrees(&self, other: &Parameters) -> bool {
        self.iter().all(|(name, value)| other.get(name).is_none_or(|theirs| theirs == value))
    }
}

impl fmt::Display for Parameters {
    /// `cores=2 switches=2 units=10000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            let gap = if at == 0 { "" } else { " " };
            write!(f, "{gap}{name}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Word(word) => f.write_str(word),
        }
    }
}

impl Value {
    /// The value that `text` spells: a flag, a number, or else a word.
    pub fn of(text: &str) -> Value {
        match (text.parse::<bool>(), text.parse::<u64>()) {
            (Ok(flag), _) => Value::Flag(flag),
            // Not "007", which would not read back as it was.
            (_, Ok(number)) if number.to_string() == text => Value::Number(number),
            _ => Value::Word(text.to_owned()),
        }
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(number as u64)
    }
}

impl From<&str> for Value {
    fn from(word: &str) -> Value {
        Value::Word(word.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_does_not_tell_keeps_nothing_apart() {
        let published = Parameters::default().with("units", 10_000_u64).with("switches", 2_u64);
        let mine = published.clone().with("cores", 2_u64);
        assert!(published.agrees(&mine) && mine.agrees(&published));
        assert!(!mine.agrees(&mine.clone().with("units", 2_000_u64)));
    }

    #[test]
    fn orders_of_the_protocol_become_values() {
        assert_eq!(Value::of("true"), Value::Flag(true));
        assert_eq!(Value::of("2048"), Value::Number(2048));
        assert_eq!(Value::of("chunked"), Value::Word("chunked".into()));
        assert_eq!(Value::of("007"), Value::Word("007".into()));
    }

    #[test]
    fn parameters_are_a_plain_object() {
        let parameters =
            Parameters::default().with("people", 8_u64).with("yields", true).with("how", "hybrid");
        let text = serde_json::to_string(&parameters).expect("plain data");
        assert_eq!(text, r#"{"how":"hybrid","people":8,"yields":true}"#);
        assert_eq!(
            serde_json::from_str::<Parameters>(&text).expect("what was written"),
            parameters
        );
        assert_eq!(parameters.to_string(), "how=hybrid people=8 yields=true");
    }
}
