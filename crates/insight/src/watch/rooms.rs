//! Which source files are Carefree's own.

/// Where the sources of this crate and of its neighbours lie, as the line tables have it.
#[derive(Debug)]
pub(super) struct Rooms {
    /// This file, as the compiler was told.
    here: &'static str,
}

pub(super) const ROOMS: Rooms = Rooms { here: file!() };

/// The rooms whose functions are the runtime's own; besides them, `carefree` itself.
pub(super) const OWN: [&str; 7] =
    ["settings", "ground", "context", "reactor", "runtime", "insight", "interpose"];

impl Rooms {
    /// The room that `file` is of, if it is one of ours, and where in its `src`.
    ///
    /// This file is `crates/insight/src/watch/rooms.rs`; or, as a package from elsewhere,
    /// `.../carefree-insight-0.1.0/src/watch/rooms.rs`, where `...` is the whole path.
    pub(super) fn locate<'f>(&self, file: &'f str) -> Option<(&'static str, &'f str)> {
        let room = self.here.strip_suffix("/src/watch/rooms.rs")?;
        let (rooms, name) = room.rsplit_once('/').unwrap_or(("", room));
        let (before, after) = name.split_once("insight")?;
        // What was not compiled by its whole path is found by the end of that.
        let within = match rooms.starts_with('/') {
            true => file.strip_prefix(rooms)?.strip_prefix('/')?,
            false => {
                let begin = file.rfind(rooms)?;
                let (outside, within) = file.split_at(begin);
                if !(outside.is_empty() || outside.ends_with('/')) {
                    return None;
                }
                within.strip_prefix(rooms)?.trim_start_matches('/')
            }
        };
        let of = |before: &str, other: &str| {
            let within = within.strip_prefix(before)?.strip_prefix(other)?.strip_prefix(after)?;
            within.strip_prefix("/src/")
        };
        let found = OWN.into_iter().find_map(|other| Some((other, of(before, other)?)));
        found.or_else(|| Some(("carefree", of("", "carefree")?)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As in a workspace, and as a package from a registry.
    pub(crate) const WORKSPACE: Rooms = Rooms { here: "crates/insight/src/watch/rooms.rs" };
    pub(crate) const REGISTRY: Rooms =
        Rooms { here: "/home/me/registry/src/carefree-insight-0.1.0/src/watch/rooms.rs" };

    pub(crate) const LIFE: &str = "/home/me/carefree/crates/runtime/src/api/life.rs";

    #[test]
    fn rooms_are_told_by_their_paths() {
        let found = |file| REGISTRY.locate(file);
        assert_eq!(
            found("/home/me/registry/src/carefree-interpose-0.1.0/src/a/sleep.rs"),
            Some(("interpose", "a/sleep.rs"))
        );
        assert_eq!(
            found("/home/me/registry/src/carefree-ground-0.1.0/src/kernel.rs"),
            Some(("ground", "kernel.rs"))
        );
        assert_eq!(
            found("/home/me/registry/src/carefree-0.1.0/src/lib.rs"),
            Some(("carefree", "lib.rs"))
        );
        assert_eq!(found("/home/me/registry/src/ureq-3.3.0/src/lib.rs"), None);
        assert_eq!(found("/home/me/shop/src/life.rs"), None);
        let found = |file| WORKSPACE.locate(file);
        assert_eq!(found(LIFE), Some(("runtime", "api/life.rs")));
        assert_eq!(found("crates/carefree/src/lib.rs"), Some(("carefree", "lib.rs")));
        assert_eq!(found("/home/me/carefree/crates/proof/src/lib.rs"), None);
        assert_eq!(found("/home/me/notcrates/runtime/src/lib.rs"), None);
        assert_eq!(Rooms { here: "elsewhere.rs" }.locate("elsewhere.rs"), None);
    }

    /// In this program, wherever it was compiled.
    #[test]
    fn our_own_sources_are_known() {
        assert_eq!(ROOMS.locate(file!()), Some(("insight", "watch/rooms.rs")));
    }
}
