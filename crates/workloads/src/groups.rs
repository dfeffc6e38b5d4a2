//! The control groups of a process.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of a process's control groups that have this controller: its own group first, for
/// limits set on that hold there too, then the top of the hierarchy, where the group's name may not
/// be visible, as in a container.
pub fn groups(process: &str, controller: &str) -> Vec<PathBuf> {
    let read = |file: String| fs::read_to_string(file).unwrap_or_default();
    let mounts = read("/proc/self/mounts".into());
    groups_in(&mounts, &read(format!("/proc/{process}/cgroup")), controller)
}

fn groups_in(mounts: &str, own: &str, controller: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for mount in mounts.lines() {
        let [_, top, kind, options, ..] = mount.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        // Version 2 has one hierarchy for all controllers, whose line names none.
        let named = match kind {
            "cgroup2" => "",
            "cgroup" if options.split(',').any(|option| option == controller) => controller,
            _ => continue,
        };
        let group = own.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            names.split(',').any(|name| name == named).then_some(path)
        });
        let group = group.map(|path| path.trim_start_matches('/')).filter(|path| !path.is_empty());
        folders.extend(group.map(|group| Path::new(top).join(group)));
        folders.push(top.into());
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_sought_in_our_own_first_and_then_on_top() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let own = "4:memory:/jobs/one\n1:cpu:/\n0::/\n";
        let expected = ["memory/jobs/one", "memory", "unified"]
            .map(|path| Path::new("/sys/fs/cgroup").join(path));
        assert_eq!(groups_in(mounts, own, "memory"), expected);
    }
}
