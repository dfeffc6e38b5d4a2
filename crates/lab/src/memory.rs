//! What units cost in memory, by two counts.
//!
//! *Own* memory is the process's resident set, the figure the published tables quote. It leaves
//! out what the kernel keeps for a thread: its kernel stack, its page tables, its `task_struct`.
//! *Whole* memory has those too. Where the lab may make a control group for a sample, the group's
//! high-water mark is the whole and counts nothing but the sample. Elsewhere the growth of three
//! figures of `/proc/meminfo` is added to the process's own; they are the whole machine's, so other
//! activity shows in them. Each sample says which of the two it used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use carefree_workloads::groups::groups;
use serde::{Deserialize, Serialize};

/// Bytes in use at three moments of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Before the first unit.
    pub base: u64,
    /// When all units were alive, each waiting for the rest.
    pub rest: u64,
    /// The most there was until the end of the first round.
    pub peak: u64,
}

impl Footprint {
    /// What the units took when all were alive and at rest.
    pub fn at_rest(&self) -> u64 {
        self.rest.saturating_sub(self.base)
    }

    /// The most the units took.
    pub fn at_peak(&self) -> u64 {
        self.peak.saturating_sub(self.base)
    }
}

/// Where the figure for the whole memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// A control group of the sample's own, version 2: `memory.peak`.
    #[serde(rename = "cgroup2 memory.peak")]
    Cgroup2,
    /// A control group of the sample's own, version 1: `memory.max_usage_in_bytes`.
    #[serde(rename = "cgroup1 memory.max_usage_in_bytes")]
    Cgroup1,
    /// Growth of `KernelStack`, `PageTables` and `Slab` in `/proc/meminfo`, plus the process's
    /// resident set. It has no high-water mark: the peak is the state with all units alive.
    #[serde(rename = "resident set + KernelStack, PageTables and Slab of /proc/meminfo")]
    Meminfo,
}

/// Both counts of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The process's resident set: `VmRSS`, and `VmHWM` for the peak.
    pub own: Footprint,
    /// All memory, the kernel's part included; `None` where it could not be read.
    pub whole: Option<Footprint>,
    /// Where `whole` comes from.
    pub whole_method: Option<Method>,
}

/// Follows the memory of a process, from outside: so all runtimes are measured in one way, and none
/// is disturbed by it.
#[derive(Debug)]
pub(crate) struct Meter {
    process: u32,
    source: Source,
    own: Footprint,
    whole: Option<Footprint>,
}

#[derive(Debug)]
enum Source {
    Cgroup(Cgroup),
    Meminfo,
}

impl Meter {
    /// Takes the base figures of `process`, which has the control group `cgroup` for itself, if
    /// there is one.
    pub(crate) fn start(process: u32, cgroup: Option<&Path>) -> Meter {
        let source = match cgroup.and_then(Cgroup::at) {
            Some(cgroup) => Source::Cgroup(cgroup),
            None => Source::Meminfo,
        };
        let mut meter = Meter { process, source, own: Footprint::default(), whole: None };
        let (own, whole) = meter.now();
        meter.own = Footprint { base: own.resident, rest: own.resident, peak: own.resident };
        meter.whole = whole.map(|bytes| Footprint { base: bytes, rest: bytes, peak: bytes });
        meter
    }

    /// Takes the figures with all units alive.
    pub(crate) fn all_alive(&mut self) {
        let (own, whole) = self.now();
        self.own.rest = own.resident;
        self.own.peak = own.peak.max(own.resident);
        if let (Some(footprint), Some(bytes)) = (&mut self.whole, whole) {
            footprint.rest = bytes;
            footprint.peak = bytes;
        }
    }

    /// Takes the high-water marks.
    pub(crate) fn finish(&mut self) {
        self.own.peak = self.own.peak.max(resident(self.process).peak);
        if let (Some(footprint), Source::Cgroup(cgroup)) = (&mut self.whole, &self.source) {
            footprint.peak = footprint.peak.max(cgroup.read(cgroup.version.peak).unwrap_or(0));
        }
    }

    /// What was measured.
    pub(crate) fn reading(&self) -> Memory {
        let method = match &self.source {
            Source::Cgroup(cgroup) => cgroup.version.method,
            Source::Meminfo => Method::Meminfo,
        };
        Memory { own: self.own, whole: self.whole, whole_method: self.whole.map(|_| method) }
    }

    fn now(&self) -> (Resident, Option<u64>) {
        let own = resident(self.process);
        let whole = match &self.source {
            Source::Cgroup(cgroup) => cgroup.read(cgroup.version.usage),
            Source::Meminfo => kernel_share().map(|bytes| bytes + own.resident),
        };
        (own, whole)
    }
}

/// The resident set of a process in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    resident: u64,
    peak: u64,
}

fn resident(process: u32) -> Resident {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let bytes = |name| field(&status, name).unwrap_or(0);
    Resident { resident: bytes("VmRSS"), peak: bytes("VmHWM") }
}

/// What the kernel keeps for all processes of the machine, in bytes.
fn kernel_share() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    Some(
        field(&meminfo, "KernelStack")? + field(&meminfo, "PageTables")? + field(&meminfo, "Slab")?,
    )
}

/// A `Name:   123 kB` line of /proc, in bytes.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// A control group with nothing but one sample in it.
#[derive(Debug)]
struct Cgroup {
    path: PathBuf,
    version: &'static Version,
}

/// The names by which a version of control groups tells memory.
#[derive(Debug)]
struct Version {
    method: Method,
    usage: &'static str,
    peak: &'static str,
}

static VERSIONS: [Version; 2] = [
    Version { method: Method::Cgroup2, usage: "memory.current", peak: "memory.peak" },
    Version {
        method: Method::Cgroup1,
        usage: "memory.usage_in_bytes",
        peak: "memory.max_usage_in_bytes",
    },
];

impl Cgroup {
    /// Finds out what `path` is; nothing if it does not count memory.
    fn at(path: &Path) -> Option<Cgroup> {
        let version = VERSIONS.iter().find(|version| path.join(version.peak).exists())?;
        Some(Cgroup { path: path.to_owned(), version })
    }

    fn read(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }
}

/// A control group made for one sample, and removed with this.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes the group of this process's sample `number`, where one that counts memory can be had,
    /// which takes root or a delegated subtree.
    pub(crate) fn make(number: usize) -> Option<Group> {
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        groups("self", "memory").into_iter().find_map(|parent| {
            sweep(&parent);
            let path = parent.join(&name);
            fs::create_dir(&path).ok()?;
            let group = Group { path };
            // A version 2 group counts memory only where its parent hands the controller down.
            let counts = Cgroup::at(&group.path).is_some();
            let open = fs::OpenOptions::new().write(true).open(group.door());
            (counts && open.is_ok()).then_some(group)
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file a process writes a zero into to move here.
    pub(crate) fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel refuses while the sample's last thread is still being taken down.
        for _ in 0..50 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                _ => return,
            }
        }
    }
}

/// What the names of our groups begin with; the process that made them follows.
const PREFIX: &str = "carefree-bench-";

/// Removes the groups of labs that were killed and could not do so themselves.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let Some(maker) = maker else { continue };
        if !Path::new("/proc").join(maker).exists() {
            // A sample may still be ending in it; the next lab will find it empty.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The control group of a process that has one for itself, such as a container's.
pub(crate) fn group_of(process: u32) -> Option<PathBuf> {
    let process = process.to_string();
    let own = |process: &str| fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    if own(&process)? == own("self")? {
        return None;
    }
    groups(&process, "memory").into_iter().find(|path| Cgroup::at(path).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_are_read_in_bytes() {
        let text = "VmPeak:\t    2000 kB\nVmHWM:\t  95432 kB\nThreads:\t1\n";
        assert_eq!(field(text, "VmHWM"), Some(95_432 * 1024));
        assert_eq!(field(text, "VmRSS"), None);
        assert_eq!(field(text, "Threads"), None, "a number without its unit is no size");
    }

    #[test]
    fn groups_of_labs_that_are_gone_are_removed_and_others_are_not() {
        let parent = tempfile::tempdir().expect("a folder");
        let ours = format!("{PREFIX}{}-0", std::process::id());
        // No process has this number: it is above the highest there can be.
        let gone = format!("{PREFIX}4194305-7");
        for name in [ours.as_str(), gone.as_str(), "system.slice"] {
            fs::create_dir(parent.path().join(name)).expect("a folder");
        }
        sweep(parent.path());
        let left = |name: &str| parent.path().join(name).exists();
        assert!(left(&ours) && left("system.slice") && !left(&gone));
    }

    #[test]
    fn a_group_is_gone_when_its_sample_is() {
        // Making one takes root or a delegated subtree; where it can be made, it must go again.
        if let Some(group) = Group::make(usize::MAX) {
            let path = group.path().to_owned();
            assert!(path.join("cgroup.procs").exists());
            drop(group);
            assert!(!path.exists());
        }
    }

    #[test]
    fn the_meter_sees_memory_that_was_touched_and_keeps_the_peak() {
        let mut meter = Meter::start(std::process::id(), None);
        let ballast = vec![1u8; 32 << 20];
        meter.all_alive();
        assert_eq!(std::hint::black_box(&ballast)[1 << 20], 1);
        drop(ballast);
        meter.finish();
        let own = meter.reading().own;
        let most = 40 << 20;
        assert!((31 << 20..most).contains(&own.at_rest()), "{own:?}");
        assert!(own.at_peak() >= own.at_rest(), "{own:?}");
        assert_eq!(meter.reading().whole_method, Some(Method::Meminfo));
    }

    #[test]
    fn footprints_never_go_below_nothing() {
        let shrunk = Footprint { base: 10, rest: 4, peak: 10 };
        assert_eq!((shrunk.at_rest(), shrunk.at_peak()), (0, 0));
    }
}
