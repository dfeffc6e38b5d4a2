//! Carefree's settings, from the environment.
//!
//! All crates of Carefree read the environment here, so that a program with more rights than its user
//! ignores that user's variables.
#![warn(missing_docs)]

pub mod denied;
pub mod headers;
pub mod names;

use std::ffi::OsString;

/// The value of the environment variable `name`; `None` if it is not set, or, as with
/// `secure_getenv(3)`, if the program runs with rights that its user does not have (setuid, setgid,
/// file capabilities).
///
/// ```
/// assert_eq!(carefree_settings::setting("CAREFREE_NO_SUCH_SETTING"), None);
/// ```
pub fn setting(name: &str) -> Option<OsString> {
    if is_privileged() { None } else { std::env::var_os(name) }
}

/// The value of [`setting`] if it is valid Unicode and not empty.
pub fn text(name: &str) -> Option<String> {
    setting(name)?.into_string().ok().filter(|text| !text.is_empty())
}

/// A number of bytes, perhaps with a suffix: `65536`, `64K`, `64k`, `1M`, `2G`. `None` if it is none, or too large.
///
/// ```
/// assert_eq!(carefree_settings::bytes("64k"), Some(65_536));
/// assert_eq!(carefree_settings::bytes("much"), None);
/// ```
pub fn bytes(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// Whether the program was started with rights that its user does not have.
fn is_privileged() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        for (text, number) in [("0", 0), ("65536", 65_536), ("64K", 65_536), ("3m", 3 << 20)] {
            assert_eq!(bytes(text), Some(number), "{text}");
        }
        assert_eq!(bytes("16G"), Some(16 << 30));
        for text in ["", "K", "1T", "-1", "1.5M", "64 K", "much", "99999999999999999G", "1\u{e9}"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push(path),
            }
        }
    }

    #[test]
    fn no_crate_reads_the_environment_by_itself() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = Vec::new();
        for room in ["context", "reactor", "runtime", "interpose", "carefree"] {
            sources(&crates.join(room).join("src"), &mut found);
        }
        assert!(found.len() > 100);
        for path in found {
            let source = fs::read_to_string(&path).unwrap();
            // Unit tests may: they start programs with variables.
            let code = source.split("#[cfg(test)]").next().unwrap();
            for word in ["env::var", "env::vars", "getenv("] {
                assert!(!code.contains(word), "{word} in {}", path.display());
            }
        }
    }
}
