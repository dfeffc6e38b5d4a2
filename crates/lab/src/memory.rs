//! What units cost in memory, by two counts.
//!
//! *Own* memory is what the process's resident set has beside pages of files, such as code: those are
//! shared with all that map the same file, the kernel takes them back when it needs room, and a
//! control group counts only those that it was the first to touch. Own memory leaves out what the
//! kernel keeps for a thread: its kernel stack, its page tables, its `task_struct`. *Whole* memory has
//! those too. Where the lab may make a control group for a sample, the group's high-water mark is the
//! whole and counts nothing but the sample. Elsewhere the growth of three figures of `/proc/meminfo` is
//! added to the process's own; they are the whole machine's, so other activity shows in them. Each
//! sample says which of the two it used.
//!
//! So the whole is more than the own, as a rule. It comes out less where a control group has charged
//! memory to another group, whose process touched it first, and where the machine's three figures shrank
//! because other programs ended meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carefree_workloads::groups::groups;
use serde::{Deserialize, Serialize};

use crate::{leftovers, sys};

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
    /// The same at all three moments.
    fn of(bytes: u64) -> Footprint {
        Footprint { base: bytes, rest: bytes, peak: bytes }
    }

    /// Raises the peak to what the resident set tells of it. The high-water mark does not tell what it
    /// is made of: as many pages of files as there were at any time, `files`, are taken off.
    fn see(&mut self, now: &Resident, files: u64) {
        self.peak = self.peak.max(now.own).max(now.peak.saturating_sub(files));
    }

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
    /// The process's resident set without pages of files: `RssAnon` and `RssShmem`; for the peak,
    /// what `VmHWM` has beyond `RssFile`.
    pub own: Footprint,
    /// Pages of files in the resident set: `RssFile`. Nothing in records of before there was this
    /// figure; in these `own` has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Footprint>,
    /// All memory, the kernel's part included; `None` where it could not be read.
    pub whole: Option<Footprint>,
    /// Where `whole` comes from.
    pub whole_method: Option<Method>,
}

impl Memory {
    /// The most the resident set had, pages of files included.
    pub fn most_resident(&self) -> u64 {
        self.own.peak + self.files.map_or(0, |files| files.peak)
    }
}

/// Follows the memory of a process, from outside: so all runtimes are measured in one way, and none
/// is disturbed by it.
#[derive(Debug)]
pub(crate) struct Meter {
    process: u32,
    source: Source,
    own: Footprint,
    files: Footprint,
    whole: Option<Footprint>,
    /// Threads of the process with all units alive.
    threads: Option<u64>,
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
        let (own, files) = (Footprint::default(), Footprint::default());
        let mut meter = Meter { process, source, own, files, whole: None, threads: None };
        let (own, whole) = meter.now();
        meter.own = Footprint::of(own.own);
        meter.files = Footprint::of(own.files);
        meter.whole = whole.map(Footprint::of);
        meter
    }

    /// Takes the figures with all units alive.
    pub(crate) fn all_alive(&mut self) {
        let (own, whole) = self.now();
        self.threads = own.threads;
        self.files.rest = own.files;
        self.files.peak = self.files.peak.max(own.files);
        self.own.rest = own.own;
        self.own.see(&own, self.files.peak);
        if let (Some(footprint), Some(bytes)) = (&mut self.whole, whole) {
            footprint.rest = bytes;
            footprint.peak = bytes;
        }
    }

    /// Takes the high-water marks.
    pub(crate) fn finish(&mut self) {
        let own = resident(self.process);
        self.files.peak = self.files.peak.max(own.files);
        self.own.see(&own, self.files.peak);
        if let (Some(footprint), Source::Cgroup(cgroup)) = (&mut self.whole, &self.source) {
            footprint.peak = footprint.peak.max(cgroup.read(cgroup.version.peak).unwrap_or(0));
        }
    }

    /// How many threads the process had with all units alive, if that could be read.
    pub(crate) fn threads(&self) -> Option<u64> {
        self.threads
    }

    /// What was measured.
    pub(crate) fn reading(&self) -> Memory {
        let method = match &self.source {
            Source::Cgroup(cgroup) => cgroup.version.method,
            Source::Meminfo => Method::Meminfo,
        };
        let (own, whole, files) = (self.own, self.whole, Some(self.files));
        Memory { own, files, whole, whole_method: self.whole.map(|_| method) }
    }

    fn now(&self) -> (Resident, Option<u64>) {
        let own = resident(self.process);
        let whole = match &self.source {
            Source::Cgroup(cgroup) => cgroup.read(cgroup.version.usage),
            Source::Meminfo => kernel_share().map(|bytes| bytes + own.own),
        };
        (own, whole)
    }
}

/// The resident set of a process in bytes, and its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Resident {
    /// What is not of files.
    own: u64,
    /// What is of files.
    files: u64,
    /// The most that both were together.
    peak: u64,
    threads: Option<u64>,
}

fn resident(process: u32) -> Resident {
    Resident::of(&fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default())
}

impl Resident {
    /// What `/proc/PID/status` says.
    fn of(status: &str) -> Resident {
        let bytes = |name| field(status, name).unwrap_or(0);
        Resident {
            own: bytes("RssAnon") + bytes("RssShmem"),
            files: bytes("RssFile"),
            peak: bytes("VmHWM"),
            threads: line(status, "Threads").and_then(|count| count.parse().ok()),
        }
    }
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
    let kib: u64 = line(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// What stands behind the name in a line of /proc.
fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
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
        let name = format!("{PREFIX}{}-{number}", leftovers::mark());
        groups("self", "memory").into_iter().find_map(|parent| {
            let _ = sweep(&parent);
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
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => return,
            }
        }
    }
}

/// What the names of our groups begin with; the mark of the lab that made them follows. A process
/// number alone would be another lab's, too, where labs in several containers share the groups.
const PREFIX: &str = "carefree-bench-";

/// Ends what runs in the groups of labs on this machine that were killed, and removes the groups. Returns how many
/// are left: the kernel keeps one until the last process in it has ended.
pub(crate) fn remove_leftovers() -> usize {
    groups("self", "memory").iter().map(|parent| sweep(parent)).sum()
}

/// The same, in one group of all.
fn sweep(parent: &Path) -> usize {
    let mut left = 0;
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.rsplit_once('-'));
        let Some((maker, _number)) = name else { continue };
        if leftovers::is_of_dead_lab(maker) {
            // What its samples have left running would keep the group, and disturb ours.
            let inside = fs::read_to_string(entry.path().join("cgroup.procs")).unwrap_or_default();
            inside.lines().filter_map(|process| process.parse().ok()).for_each(sys::end);
            left += usize::from(fs::remove_dir(entry.path()).is_err());
        } else if !leftovers::is_from_here(maker) && is_old(&entry) {
            // Whether that lab lives cannot be seen from here. If it does, its sample does as well, and the kernel
            // keeps the group.
            let _ = fs::remove_dir(entry.path());
        }
    }
    left
}

/// Whether a group was made so long ago that its sample has entered it.
fn is_old(group: &fs::DirEntry) -> bool {
    const LONG: Duration = Duration::from_secs(600);
    let made = group.metadata().and_then(|about| about.modified()).ok();
    made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age > LONG)
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
    use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

    #[test]
    fn fields_of_proc_are_read_in_bytes() {
        let text = "VmPeak:\t    2000 kB\nVmHWM:\t  95432 kB\nThreads:\t1\n";
        assert_eq!(field(text, "VmHWM"), Some(95_432 * 1024));
        assert_eq!(field(text, "VmRSS"), None);
        assert_eq!(field(text, "Threads"), None, "a number without its unit is no size");
    }

    #[test]
    fn pages_of_files_are_not_the_units() {
        let status = "VmHWM:\t  9000 kB\nVmRSS:\t  8000 kB\nRssAnon:\t  5000 kB\n\
                      RssFile:\t  2900 kB\nRssShmem:\t  100 kB\nThreads:\t12\n";
        let seen = Resident::of(status);
        let kib = |count: u64| count * 1024;
        let expected =
            Resident { own: kib(5_100), files: kib(2_900), peak: kib(9_000), threads: Some(12) };
        assert_eq!(seen, expected);
        let mut own = Footprint::of(kib(100));
        own.see(&seen, seen.files);
        assert_eq!(own.peak, kib(6_100), "the mark without the files");
    }

    /// Tests that weigh this process take turns.
    fn alone() -> std::sync::MutexGuard<'static, ()> {
        static WEIGHING: std::sync::Mutex<()> = std::sync::Mutex::new(());
        WEIGHING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A process that reads code as its units begin: the control group that has charged it to an
    /// earlier process does not count it, and neither does the process's own figure.
    #[test]
    fn whole_memory_is_not_less_than_own_where_files_are_mapped() {
        let _alone = alone();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("code");
        fs::write(&path, vec![1u8; 32 << 20]).expect("written");
        let file = fs::File::open(&path).expect("there");
        let size = std::num::NonZeroUsize::new(32 << 20).expect("not zero");
        let mut meter = Meter::start(std::process::id(), None);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let code = unsafe { mmap(None, size, ProtFlags::PROT_READ, flags, &file, 0) };
        let code = code.expect("mapped");
        meter.all_alive();
        // SAFETY: nothing refers to the mapping, which is whole.
        unsafe { munmap(code, size.get()) }.expect("unmapped");
        meter.finish();
        let memory = meter.reading();
        let files = memory.files.expect("a process has some");
        assert!(files.at_rest() >= 31 << 20, "{memory:?}");
        // Other tests run in this process.
        assert!(memory.own.at_rest() < 16 << 20 && memory.own.at_peak() < 16 << 20, "{memory:?}");
        assert!(memory.most_resident() >= memory.own.base + (31 << 20), "{memory:?}");
    }

    #[test]
    fn groups_of_labs_that_are_gone_are_removed_and_others_are_not() {
        let parent = tempfile::tempdir().expect("a folder");
        let ours = format!("{PREFIX}{}-0", leftovers::mark());
        let (here, _) = leftovers::mark().split_once('-').expect("it begins with the boot");
        let (mine, _) = leftovers::mark().rsplit_once('-').expect("it ends with the start");
        // This process's number, and an earlier start.
        let gone = format!("{PREFIX}{mine}-1-7");
        // Another namespace of process numbers, in which the lab may well live.
        let elsewhere = format!("{PREFIX}{here}-7-4194305-1-7");
        for name in [&*ours, &*gone, &*elsewhere, "system.slice"] {
            fs::create_dir(parent.path().join(name)).expect("a folder");
        }
        assert_eq!(sweep(parent.path()), 0);
        let left = |name: &str| parent.path().join(name).exists();
        assert!(left(&ours) && left("system.slice") && left(&elsewhere) && !left(&gone));
        // Where nothing has run for so long, nothing will.
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        for name in [&ours, &elsewhere] {
            let folder = fs::File::open(parent.path().join(name)).expect("a folder");
            folder.set_modified(hour_ago).expect("ours");
        }
        assert_eq!(sweep(parent.path()), 0);
        assert!(left(&ours) && !left(&elsewhere));
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
        let _alone = alone();
        let mut meter = Meter::start(std::process::id(), None);
        let ballast = vec![1u8; 32 << 20];
        meter.all_alive();
        assert_eq!(std::hint::black_box(&ballast)[1 << 20], 1);
        drop(ballast);
        meter.finish();
        let own = meter.reading().own;
        // The other tests of this process allocate meanwhile.
        let most = 1 << 30;
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
