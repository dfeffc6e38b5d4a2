//! Text of records in Markdown: shown as it is.

/// Text as it is: nothing in it is a tag, an entity or a link.
pub(super) fn text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek().copied().unwrap_or(' ');
        match letter {
            '<' if next.is_ascii_alphabetic() || "/!?".contains(next) => safe.push_str("&lt;"),
            '&' if next.is_ascii_alphabetic() || next == '#' => safe.push_str("&amp;"),
            '[' | '`' => safe.extend(['\\', letter]),
            '\n' => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

/// A block of lines that are shown as they are, whatever is in them.
pub(super) fn block(lines: &str) -> String {
    let mut fence = "```".to_owned();
    while lines.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}\n{lines}\n{fence}\n")
}

/// Sentences, one a line.
pub(super) fn list(sentences: &[String]) -> String {
    sentences.iter().map(|sentence| format!("  - {}\n", text(sentence))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_record_is_a_tag_a_link_or_the_end_of_a_block() {
        let evil = "<script>x</script> &lt; ![x](http://x/) `a";
        let safe = "&lt;script>x&lt;/script> &amp;lt; !\\[x](http://x/) \\`a";
        assert_eq!(text(evil), safe);
        assert_eq!(text("p <0.001, R & D, 3 < 4"), "p <0.001, R & D, 3 < 4");
        assert_eq!(block("a\n```\nb"), "````\na\n```\nb\n````\n");
    }
}
