//! Functions' names, shortened for reports.

use carefree_ground::text::Text;

/// Adds `name` without generic arguments: `Vec::push` for `Vec<u8>::push`. Angles at the beginning of a path
/// stay, because nothing would be left without them: `<Vec as FromIterator>::from_iter`.
pub(super) fn without_types(name: &str, to: &mut Text) {
    let begin = to.len();
    // How many angles are open that were kept, and how many within the part that is left out.
    let (mut kept, mut left_out) = (0, 0);
    let mut before = None;
    for letter in name.chars() {
        // `fn(u8) -> u8`.
        let arrow = letter == '>' && before == Some('-');
        let short = &to[begin..];
        match letter {
            '<' if left_out > 0 => left_out += 1,
            '>' if left_out > 0 && !arrow => left_out -= 1,
            _ if left_out > 0 => {}
            // C++: `operator<`, `operator<<`.
            '<' if short.ends_with("operator") || short.ends_with("operator<") => to.add(letter),
            '<' if matches!(before, None | Some('<' | '(' | '[' | '&' | '*' | ' ')) => {
                kept += 1;
                to.add(letter);
            }
            '<' => {
                left_out = 1;
                if short.ends_with("::") {
                    to.truncate(to.len() - 2);
                }
            }
            '>' if kept > 0 && !arrow => {
                kept -= 1;
                to.add(letter);
            }
            _ => to.add(letter),
        }
        before = Some(letter);
    }
}

/// Adds `line` in at most `width` characters: if it is longer, its middle is left out.
pub(super) fn narrow(line: &str, width: usize, to: &mut Text) {
    let count = line.chars().count();
    if count <= width {
        return line.chars().for_each(|letter| to.add(letter));
    }
    let tail = width / 2;
    let head = width - tail - 1;
    line.chars().take(head).for_each(|letter| to.add(letter));
    to.add('…');
    line.chars().skip(count - tail).for_each(|letter| to.add(letter));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_left_out() {
        for (long, short) in [
            ("main", "main"),
            ("shop::serve<alloc::vec::Vec<u8>, ()>", "shop::serve"),
            ("shop::serve::<Vec<u8>>::{closure#0}", "shop::serve::{closure#0}"),
            (
                "core::ops::function::FnOnce::call_once<a::{closure_env#1}, ()>",
                "core::ops::function::FnOnce::call_once",
            ),
            (
                "<alloc::vec::Vec<u8> as core::iter::FromIterator<u8>>::from_iter::<Map<R, F>>",
                "<alloc::vec::Vec as core::iter::FromIterator>::from_iter",
            ),
            ("<<A<B> as C<D>>::E as F>::g", "<<A as C>::E as F>::g"),
            ("<fn(&[u8]) -> Option<u8> as Call>::call", "<fn(&[u8]) -> Option as Call>::call"),
            ("run<fn(u8) -> Option<u8>, u8>", "run"),
            ("<&T<u8> as Debug>::fmt", "<&T as Debug>::fmt"),
            ("{impl#2}::with<T>", "{impl#2}::with"),
            ("std::operator<< <std::char_traits<char> >", "std::operator<< <std::char_traits >"),
            ("Money::operator->", "Money::operator->"),
            ("Money::operator>", "Money::operator>"),
            ("half<of", "half"),
            ("", ""),
        ] {
            let mut text = Text::of(format_args!("fn "));
            without_types(long, &mut text);
            assert_eq!(&text[3..], short);
        }
    }

    #[test]
    fn long_lines_lose_their_middle() {
        for (line, width, narrowed) in [
            ("abcdefgh", 8, "abcdefgh"),
            ("abcdefghi", 8, "abc…fghi"),
            ("ñandúñandú", 5, "ña…dú"),
            ("", 5, ""),
        ] {
            let mut text = Text::new();
            narrow(line, width, &mut text);
            assert_eq!(&*text, narrowed);
        }
    }
}
