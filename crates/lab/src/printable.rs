//! Text of others, fit to be shown. What a program prints and what a record says may have escape
//! sequences in it, which a terminal obeys: it would change colours or titles, hide lines, or worse.

use std::borrow::Cow;

use serde_json::Value;

/// The text in one line: what a terminal would obey is shown by its number, and line breaks are
/// spaces.
pub fn line(text: &str) -> Cow<'_, str> {
    shown(text, &|letter| if matches!(letter, '\n' | '\r' | '\t') { Some(' ') } else { None })
}

/// The text with its line breaks and tabs; what else a terminal would obey is shown by its number.
pub fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    shown(&text, &|letter| matches!(letter, '\n' | '\t').then_some(letter)).into_owned()
}

/// Makes all text in a value of JSON printable, keys included.
pub(crate) fn value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(lines(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(self::value).collect()),
        Value::Object(parts) => {
            let part = |(key, part): (String, Value)| (lines(&key), self::value(part));
            Value::Object(parts.into_iter().map(part).collect())
        }
        other => other,
    }
}

/// Whether a line of JSON may have text in it that is not printable.
pub(crate) fn is_doubtful(json: &str) -> bool {
    json.contains("\\u")
        || json.contains("\\b")
        || json.contains("\\f")
        || json.contains("\\r")
        || json.chars().any(is_obeyed)
}

fn shown<'a>(text: &'a str, kept: &dyn Fn(char) -> Option<char>) -> Cow<'a, str> {
    if !text.chars().any(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match kept(letter) {
            _ if !is_obeyed(letter) => shown.push(letter),
            Some(letter) => shown.push(letter),
            None => shown.extend(letter.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal, or a reader's eye, would take it for something else than a letter: control
/// characters, those that turn the direction of writing, and separators of lines.
fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_by_its_number() {
        assert_eq!(line("\x1b[31mred\x07"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(line("two\nlines\tand\r"), "two lines and ");
        assert_eq!(lines("two\r\nlines\rback\u{9b}1m"), "two\nlines\\u{d}back\\u{9b}1m");
        assert_eq!(line("\u{202e}drow"), "\\u{202e}drow");
        assert_eq!(line("plain: µs – Größe"), "plain: µs – Größe");
    }

    #[test]
    fn all_text_of_a_value_is_made_printable() {
        let evil = serde_json::json!({"\u{1b}k": ["\u{1b}[2J", 1.5, {"a": "\u{7f}"}]});
        assert!(is_doubtful(&evil.to_string()));
        let said = value(evil).to_string();
        assert!(!is_doubtful(&said.replace("\\\\u", "")), "{said}");
        assert!(said.contains("1.5") && said.contains("[2J"), "{said}");
        assert!(!is_doubtful(r#"{"type":"sample","figures":{"time":1.5}}"#));
    }
}
