//! Names of functions, short enough to be read.

/// `name` without the types its function was made for: `Vec<T>::push` for `Vec<u8>::push`'s cousins
/// would do, and is still long, so `Vec::push`. What a path begins with stays, for without it
/// nothing would: `<Vec as FromIterator>::from_iter`.
pub(super) fn without_types(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    // Angles that were kept, and those within what is left out.
    let (mut kept, mut left_out) = (0, 0);
    let mut before = None;
    for letter in name.chars() {
        // `fn(u8) -> u8`.
        let arrow = letter == '>' && before == Some('-');
        match letter {
            '<' if left_out > 0 => left_out += 1,
            '>' if left_out > 0 && !arrow => left_out -= 1,
            _ if left_out > 0 => {}
            // C++: `operator<`, `operator<<`.
            '<' if short.ends_with("operator") || short.ends_with("operator<") => short.push('<'),
            '<' if matches!(before, None | Some('<' | '(' | '[' | '&' | '*' | ' ')) => {
                kept += 1;
                short.push('<');
            }
            '<' => {
                left_out = 1;
                if short.ends_with("::") {
                    short.truncate(short.len() - 2);
                }
            }
            '>' if kept > 0 && !arrow => {
                kept -= 1;
                short.push('>');
            }
            _ => short.push(letter),
        }
        before = Some(letter);
    }
    short
}

/// `line` in at most `width` characters: what is too much goes from its middle.
pub(super) fn narrow(line: &str, width: usize) -> String {
    let letters: Vec<char> = line.chars().collect();
    if letters.len() <= width {
        return line.to_owned();
    }
    let tail = width / 2;
    let head = width - tail - 1;
    let (head, tail) = (&letters[..head], &letters[letters.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
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
            assert_eq!(without_types(long), short);
        }
    }

    #[test]
    fn long_lines_lose_their_middle() {
        assert_eq!(narrow("abcdefgh", 8), "abcdefgh");
        assert_eq!(narrow("abcdefghi", 8), "abc…fghi");
        assert_eq!(narrow("ñandúñandú", 5), "ña…dú");
        assert_eq!(narrow("", 5), "");
    }
}
