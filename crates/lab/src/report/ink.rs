//! Colours on a terminal, and nothing else that a terminal obeys.

use crate::printable;

/// Turns colours on, or nothing at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ink(bool);

impl Ink {
    pub(crate) fn new(colour: bool) -> Ink {
        Ink(colour)
    }

    fn paint(self, code: &str, text: &str) -> String {
        let text = printable::lines(text);
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }
}

/// The text without anything that a terminal obeys but line breaks and, with `colour`, our colours.
/// Records are made printable when they are read; this holds for those that were made otherwise,
/// too.
pub(super) fn safe(text: String, colour: bool) -> String {
    let doubtful = |letter: char| letter.is_control() && letter != '\n';
    if !text.chars().any(doubtful) {
        return text;
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\x1b') {
        safe += &printable::lines(&rest[..at]);
        let own = ["0", "1", "2", "31", "32", "33"].map(|code| format!("\x1b[{code}m"));
        match own.iter().find(|own| colour && rest[at..].starts_with(own.as_str())) {
            Some(own) => {
                safe += own;
                rest = &rest[at + own.len()..];
            }
            None => {
                safe += &printable::lines("\x1b");
                rest = &rest[at + 1..];
            }
        }
    }
    safe + &printable::lines(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_colours_pass() {
        let painted = Ink::new(true).bold("x") + "\ny";
        assert_eq!(safe(painted.clone(), true), painted);
        assert_eq!(safe(painted, false), "\\u{1b}[1mx\\u{1b}[0m\ny");
        let evil = "a\x1b]0;title\x07b\x1b[2J".to_owned();
        assert_eq!(safe(evil, true), "a\\u{1b}]0;title\\u{7}b\\u{1b}[2J");
        assert_eq!(safe("plain\n".into(), true), "plain\n");
    }
}
