//! What is wrong with an answer that is none: a program's author has to be told the key.

use carefree_workloads::answer::{Account, Answer};
use serde_json::{Map, Value};

use crate::printable;

/// Keys of a sample that have to be there, and those that may be, by the kind of their values.
const COUNTS: [&str; 3] = ["units", "switches_asked", "switches_made"];
const OPTIONAL: [&str; 4] = ["voluntary", "involuntary", "user_ns", "system_ns"];

/// Reads the last line of a program; nothing where it is no answer.
pub(crate) fn read(line: &str) -> Option<Answer> {
    if !printable::is_doubtful(line) {
        return serde_json::from_str(line).ok();
    }
    serde_json::from_value(printable::value(serde_json::from_str(line).ok()?)).ok()
}

/// What is wrong with the last line of a program that was to print an answer; nothing where the line
/// is an answer, or was never meant to be one.
pub(crate) fn mistake(line: &str) -> Option<String> {
    let value = match serde_json::from_str::<Value>(line) {
        Ok(value) => value,
        Err(error) if line.trim_start().starts_with('{') => {
            return Some(format!("its answer is no JSON: {}", placed(line, &error)));
        }
        Err(_) => return None,
    };
    let answer = value.as_object()?;
    let keys: Vec<&str> = answer.keys().map(String::as_str).collect();
    match keys[..] {
        ["sample"] => of_sample(&answer["sample"]),
        ["failure"] => of_failure(&answer["failure"]),
        [key] if is_like_one(&answer[key]) => {
            Some(format!("its last line has the key `{key}` in place of `sample` or `failure`"))
        }
        // A line of its log, say.
        _ if !keys.iter().any(|key| ["sample", "failure"].contains(key)) => return None,
        _ => Some("its answer has other keys beside `sample` or `failure`".to_owned()),
    }
    // Whatever else the parser finds.
    .or_else(|| {
        let error = serde_json::from_str::<Answer>(line).err()?;
        Some(format!("its answer cannot be read: {error}"))
    })
}

/// More than any figure: in nanoseconds it is 30 years, in bytes an exabyte.
const TOO_MUCH: f64 = 1e18;

/// A figure of an account that no program can have measured.
pub(crate) fn impossible(account: &Account) -> Option<String> {
    let wrong = |(name, value): (&String, &f64)| match *value {
        value if value < 0.0 => {
            Some(format!("`figures.{name}` is {value}, and a figure is not below zero"))
        }
        value if value < TOO_MUCH => None,
        value => Some(format!("`figures.{name}` is {value:e}, and a figure is below {TOO_MUCH:e}")),
    };
    account.figures.iter().find_map(wrong)
}

/// Whether this may be meant as a sample or a failure.
fn is_like_one(value: &Value) -> bool {
    ["units", "rounds", "message"].iter().any(|key| value.get(key).is_some())
}

fn of_sample(value: &Value) -> Option<String> {
    let Some(sample) = value.as_object() else {
        return Some(format!("`sample` is {}, not an object", shown(value)));
    };
    let required = COUNTS.into_iter().find_map(|key| whole(sample, "", key, true));
    let optional = || OPTIONAL.into_iter().find_map(|key| whole(sample, "", key, false));
    required
        .or_else(|| rounds(sample))
        .or_else(optional)
        .or_else(|| parts(sample))
        .or_else(|| figures(sample))
        .or_else(|| notes(sample))
}

fn rounds(sample: &Map<String, Value>) -> Option<String> {
    let Some(value) = sample.get("rounds") else {
        return Some("the sample has no key `rounds`".to_owned());
    };
    let Some(rounds) = value.as_array() else {
        return Some(format!("`rounds` is {}, not a list", shown(value)));
    };
    rounds.iter().enumerate().find_map(|(at, round)| {
        let place = format!("rounds[{at}]");
        let Some(round) = round.as_object() else {
            return Some(format!("`{place}` is {}, not an object", shown(round)));
        };
        ["create_ns", "run_ns"].into_iter().find_map(|key| whole(round, &place, key, true))
    })
}

fn parts(sample: &Map<String, Value>) -> Option<String> {
    let keys: [(&str, &[&str], bool); 2] =
        [("warmup", &["rounds", "ns"], true), ("gc", &["collections", "ns"], false)];
    keys.into_iter().find_map(|(part, keys, required)| {
        let value = sample.get(part).filter(|value| !value.is_null())?;
        let Some(object) = value.as_object() else {
            return Some(format!("`{part}` is {}, not an object", shown(value)));
        };
        let wrong = keys.iter().find_map(|key| whole(object, part, key, required));
        let on = object.get("on").filter(|_| part == "gc");
        wrong.or_else(|| match on {
            None if part == "gc" => Some("the sample has no key `gc.on`".to_owned()),
            Some(on) if !on.is_boolean() => {
                Some(format!("`gc.on` is {}, not true or false", shown(on)))
            }
            _ => None,
        })
    })
}

fn figures(sample: &Map<String, Value>) -> Option<String> {
    let value = sample.get("figures")?;
    let Some(figures) = value.as_object() else {
        return Some(format!("`figures` is {}, not an object", shown(value)));
    };
    let (name, value) = figures.iter().find(|(_, value)| !value.is_number())?;
    Some(format!("`figures.{name}` is {}, not a number", shown(value)))
}

fn notes(sample: &Map<String, Value>) -> Option<String> {
    let value = sample.get("notes")?;
    let words = value.as_array().is_some_and(|notes| notes.iter().all(Value::is_string));
    (!words).then(|| format!("`notes` is {}, not a list of sentences", shown(value)))
}

fn of_failure(value: &Value) -> Option<String> {
    let Some(failure) = value.as_object() else {
        return Some(format!("`failure` is {}, not an object", shown(value)));
    };
    match failure.get("message") {
        None => Some("the failure has no key `message`".to_owned()),
        Some(message) if !message.is_string() => {
            Some(format!("`failure.message` is {}, not a sentence", shown(message)))
        }
        Some(_) => {
            let advice = failure.get("advice").filter(|a| !a.is_string() && !a.is_null())?;
            Some(format!("`failure.advice` is {}, not a sentence", shown(advice)))
        }
    }
}

/// What is wrong with a key of `object`, which stands at `place`, that holds a whole number.
fn whole(object: &Map<String, Value>, place: &str, key: &str, required: bool) -> Option<String> {
    let name = if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
    match object.get(key) {
        None | Some(Value::Null) if !required => None,
        None => Some(format!("the sample has no key `{name}`")),
        Some(value) if value.is_u64() => None,
        Some(value) => Some(format!("`{name}` is {}, not a whole number", shown(value))),
    }
}

/// A value, cut short.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// An error of the parser with what stands there.
fn placed(line: &str, error: &serde_json::Error) -> String {
    // Columns are counted in bytes, from 1.
    let at = error.column().saturating_sub(1).min(line.len());
    let near = String::from_utf8_lossy(&line.as_bytes()[at.saturating_sub(20)..]).into_owned();
    let near: String = near.chars().take(40).collect();
    let said = error.to_string();
    let said = said.split(" at line").next().unwrap_or_default();
    format!("{said} at byte {}, near: {}", error.column(), near.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"sample":{"units":5,"switches_asked":10,"switches_made":10,"rounds":[{"create_ns":1000,"run_ns":2000}],"voluntary":1,"gc":{"on":true,"ns":3},"warmup":{"rounds":1,"ns":9},"figures":{"wishes":2.5},"notes":["x"]}}"#;

    fn with(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        mistake(&GOOD.replacen(from, to, 1)).unwrap_or_else(|| panic!("{to} is no mistake"))
    }

    #[test]
    fn an_answer_has_no_mistake_and_what_was_none_is_not_judged() {
        assert_eq!(mistake(GOOD), None);
        assert_eq!(mistake(r#"{"failure":{"message":"no","advice":null}}"#), None);
        assert_eq!(mistake("Segmentation fault"), None);
        assert_eq!(mistake(""), None);
        assert_eq!(mistake(r#"{"level":"error","message":"a log's line"}"#), None);
    }

    #[test]
    fn what_a_program_says_does_not_reach_the_terminal_as_orders() {
        let evil = r#"{"failure":{"message":"\u001b[2Jgone","advice":null}}"#;
        let Some(Answer::Failure(failure)) = read(evil) else { panic!("an answer") };
        assert_eq!(failure.message, "\\u{1b}[2Jgone");
        assert!(matches!(read(GOOD), Some(Answer::Sample(_))));
    }

    #[test]
    fn the_key_that_is_wrong_is_named() {
        for (from, to, named) in [
            (r#""units":5"#, r#""units":"many""#, r#"`units` is "many", not a whole number"#),
            (r#""units":5"#, r#""units":5.5"#, "`units` is 5.5, not a whole number"),
            (r#""units":5,"#, "", "the sample has no key `units`"),
            (r#""run_ns":2000"#, r#""run_ns":-7"#, "`rounds[0].run_ns` is -7, not a whole number"),
            (r#","run_ns":2000"#, "", "the sample has no key `rounds[0].run_ns`"),
            (r#""voluntary":1"#, r#""voluntary":"x""#, r#"`voluntary` is "x", not a whole number"#),
            (r#""on":true"#, r#""on":1"#, "`gc.on` is 1, not true or false"),
            (r#","ns":9"#, "", "the sample has no key `warmup.ns`"),
            (r#"2.5"#, r#""2.5""#, r#"`figures.wishes` is "2.5", not a number"#),
            (r#"["x"]"#, r#""x""#, r#"`notes` is "x", not a list of sentences"#),
        ] {
            assert_eq!(with(from, to), named);
        }
        let other = with(r#""sample""#, r#""smaple""#);
        assert!(other.contains("the key `smaple` in place of `sample`"), "{other}");
        let failure = mistake(r#"{"failure":{"mesage":"no"}}"#);
        assert_eq!(failure.as_deref(), Some("the failure has no key `message`"));
    }

    #[test]
    fn what_is_no_json_is_shown() {
        for number in ["NaN", "1e999", "Infinity"] {
            let said = with("2.5", number);
            assert!(said.contains("its answer is no JSON") && said.contains("wishes"), "{said}");
        }
        assert!(mistake(&GOOD[..60]).is_some_and(|said| said.contains("no JSON")));
    }

    #[test]
    fn a_figure_that_cannot_be_is_none() {
        let mut account = Account::default();
        account.figures.insert("idle_ns".into(), 0.0);
        assert_eq!(impossible(&account), None);
        account.figures.insert("idle_ns".into(), -0.5);
        let said = impossible(&account).expect("below zero");
        assert_eq!(said, "`figures.idle_ns` is -0.5, and a figure is not below zero");
        account.figures.insert("idle_ns".into(), 1e303);
        let said = impossible(&account).expect("too much");
        assert_eq!(said, "`figures.idle_ns` is 1e303, and a figure is below 1e18");
    }
}
