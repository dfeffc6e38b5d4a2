//! Filling in the places of a command: `{runtime}`, `{folder}`.

use std::env;
use std::path::{Path, PathBuf};

/// The values of the places.
#[derive(Clone, Debug)]
pub(crate) struct Places<'a> {
    pub(crate) runtime: &'a str,
    pub(crate) bin: &'a str,
    pub(crate) folder: &'a Path,
    /// Nothing where nothing may be kept, as when a version is asked for.
    pub(crate) cache: Option<&'a Path>,
    pub(crate) version: &'a str,
}

impl Places<'_> {
    pub(crate) fn fill(&self, text: &str) -> String {
        let cache = self.cache.unwrap_or(Path::new(""));
        // The paths last: what is in them is not a place, whatever it looks like.
        text.replace("{version}", self.version)
            .replace("{bin}", self.bin)
            .replace("{folder}", &self.folder.to_string_lossy())
            .replace("{cache}", &cache.to_string_lossy())
            .replace("{runtime}", self.runtime)
    }

    pub(crate) fn fill_all(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }
}

/// The first place in `text` that is none of those `known`: `{foldr}`. What a shell or another
/// language has in braces has something before or in them that no place has.
pub(super) fn unknown<'a>(text: &'a str, known: &[&str]) -> Option<&'a str> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|at| from + at) {
        from = open + 1;
        let Some(length) = text[from..].find('}') else { break };
        let name = &text[from..from + length];
        let is_place =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        // `${name}` is the shell's.
        let is_shell = text[..open].ends_with('$');
        if is_place && !is_shell && !known.contains(&name) {
            return Some(name);
        }
    }
    None
}

/// A path from `~` where it is in the user's home, so that reports do not name the user.
pub(crate) fn shortened(path: &str) -> String {
    let home = env::var("HOME").ok().filter(|home| home.len() > 1);
    match home.and_then(|home| path.strip_prefix(home.trim_end_matches('/')).map(str::to_owned)) {
        Some(rest) if rest.starts_with('/') => format!("~{rest}"),
        _ => path.to_owned(),
    }
}

/// The first program of this name in PATH.
pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Files that a pattern of `[find]` matches, sorted: `~` and `$NAME` are filled in, `*` is any part
/// of a name.
pub(crate) fn files(pattern: &str) -> Vec<PathBuf> {
    let Some(pattern) = expanded(pattern, &|name| env::var(name).ok()) else {
        return Vec::new();
    };
    // A pattern that is none matches nothing; a folder that may not be read has nothing for us.
    glob::glob(&pattern).map(|found| found.filter_map(Result::ok).collect()).unwrap_or_default()
}

/// The pattern with its variables; nothing where one of them is not set.
fn expanded(pattern: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let mut text = match pattern.strip_prefix('~') {
        Some(rest) => format!("{}{rest}", variable("HOME")?),
        None => pattern.to_owned(),
    };
    while let Some(at) = text.find('$') {
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let value = variable(&rest[..end])?;
        // A value with a dollar in it would be expanded for ever; no version manager has such a folder.
        if value.is_empty() || value.contains('$') {
            return None;
        }
        text = format!("{}{value}{}", &text[..at], &rest[end..]);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_places_filled() {
        let places = Places {
            runtime: "/opt/x/bin/java",
            bin: "/opt/x/bin",
            folder: Path::new("/t"),
            cache: Some(Path::new("/c")),
            version: "21",
        };
        let words = ["{bin}/javac", "-d", "{cache}", "{folder}/U.java", "{runtime}={version}"];
        let filled = places.fill_all(&words.map(str::to_owned));
        assert_eq!(filled, ["/opt/x/bin/javac", "-d", "/c", "/t/U.java", "/opt/x/bin/java=21"]);
    }

    #[test]
    fn a_place_that_is_unknown_is_found_and_braces_of_others_are_left_alone() {
        let known = ["runtime", "folder"];
        assert_eq!(unknown("{runtime} -c {foldr}/x", &known), Some("foldr"));
        for right in
            ["{runtime}{folder}", "${home}", "{ print }", "{a,b}", "{}", "{", "{\"x\":1}", "{X}"]
        {
            assert_eq!(unknown(right, &known), None, "{right}");
        }
        assert_eq!(unknown("{ {cache}", &known), Some("cache"));
    }

    #[test]
    fn patterns_take_variables_and_the_home() {
        let set = |name: &str| match name {
            "HOME" => Some("/home/me".to_owned()),
            "SDK" => Some("/sdk".to_owned()),
            _ => None,
        };
        assert_eq!(expanded("~/.x/*/ruby", &set).as_deref(), Some("/home/me/.x/*/ruby"));
        assert_eq!(expanded("$SDK/*/bin", &set).as_deref(), Some("/sdk/*/bin"));
        assert_eq!(expanded("$NONE/*/bin", &set), None, "a manager that is not here has no files");
    }

    #[test]
    fn a_star_stands_for_one_part_of_a_path() {
        let folder = tempfile::tempdir().expect("a folder");
        for version in ["1.9", "1.10"] {
            let bin = folder.path().join(version).join("bin");
            std::fs::create_dir_all(&bin).expect("made");
            std::fs::write(bin.join("x"), "").expect("written");
        }
        let pattern = format!("{}/*/bin/x", folder.path().display());
        assert_eq!(files(&pattern).len(), 2);
        assert!(files(&format!("{}/*/x", folder.path().display())).is_empty());
    }
}
