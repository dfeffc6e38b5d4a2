//! What a sample was asked for: how large it is, and how it is done.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Named parameters, in the order of their names: the orders of a trial, by the protocol's keys,
/// and what a record tells figures of one workload apart by. Copies share their memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parameters(Arc<BTreeMap<String, Value>>);

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parameters, D::Error> {
        BTreeMap::deserialize(deserializer).map(|found| Parameters(Arc::new(found)))
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
    /// Some numbers.
    pub fn of<const N: usize>(numbers: [(&str, u64); N]) -> Parameters {
        let number = |(name, number): (&str, u64)| (name.to_owned(), Value::Number(number));
        Parameters(Arc::new(numbers.into_iter().map(number).collect()))
    }

    /// With one parameter more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Parameters {
        self.set(name, value);
        self
    }

    /// Adds a parameter, or changes it.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        Arc::make_mut(&mut self.0).insert(name.to_owned(), value.into());
    }

    /// Units (coroutines, fibers or threads) alive at once.
    pub fn units(&self) -> u64 {
        self.number("units").unwrap_or(1)
    }

    /// How often the whole is repeated in one process.
    pub fn rounds(&self) -> u64 {
        self.number("rounds").unwrap_or(1)
    }

    /// Cores that the sample may use.
    pub fn cores(&self) -> u64 {
        self.number("cores").unwrap_or(1)
    }

    /// All switches a sample asks for, over all units and rounds.
    pub fn switches_asked(&self) -> u64 {
        self.units() * self.number("switches").unwrap_or(0) * self.rounds()
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

    /// A parameter of any kind that has a spelling.
    pub fn parse<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.to_string().parse().ok()
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// With these alone.
    #[must_use]
    pub fn only(mut self, names: &[&str]) -> Parameters {
        Arc::make_mut(&mut self.0).retain(|name, _| names.contains(&name.as_str()));
        self
    }

    /// Without the one of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Parameters {
        Arc::make_mut(&mut self.0).remove(name);
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

macro_rules! from {
    ($($from:ty: $make:expr;)*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Value {
                $make(value)
            }
        })*
    };
}
from! {
    bool: Value::Flag;
    u64: Value::Number;
    usize: |number| Value::Number(number as u64);
    &str: |word: &str| Value::Word(word.to_owned());
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
