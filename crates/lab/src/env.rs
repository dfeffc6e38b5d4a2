//! The machine and the build that figures were taken on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use carefree::{GuardMode, TlsMode};
use carefree_workloads::sys::allowed_cores;
use carefree_workloads::unit::Unit;
use serde::{Deserialize, Serialize};

use crate::memory::field;
use crate::sys;

/// What figures depend on, as far as the machine tells. What it does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
// A record made elsewhere may not know everything.
#[serde(default)]
pub struct Environment {
    /// When the run began, UTC, as in RFC 3339.
    pub started: String,
    /// What the machine is called, where it was named: tells it from others of its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The processor's model.
    pub cpu: Option<String>,
    /// Logical cores of the machine.
    pub cores: usize,
    /// Those this process may run on.
    pub cores_allowed: usize,
    /// Cores' worth of time a control group leaves to this process.
    pub cpu_quota: Option<f64>,
    /// The frequency governor.
    pub governor: Option<String>,
    /// Kernel name, release and architecture.
    pub kernel: String,
    /// The C library and its version.
    pub libc: String,
    /// Main memory, bytes.
    pub memory: Option<u64>,
    /// Page size, bytes.
    pub page_size: u64,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub thp: Option<String>,
    /// Address space layout randomization: `full`, `partial` or `off`.
    pub aslr: Option<String>,
    /// Whether the processor is a virtual one.
    pub virtual_machine: Option<bool>,
    /// The kind of container, if this is in one.
    pub container: Option<String>,
    /// The version of Carefree.
    pub carefree: String,
    /// The compiler this was built with.
    pub rustc: String,
    /// The target it was built for.
    pub target: String,
    /// The optimization level it was built at.
    pub opt_level: String,
    /// How fibers see thread-local storage: `own`, `shared` or `threads`.
    pub tls_mode: String,
    /// Why.
    pub tls_reason: String,
    /// How stacks are guarded: `madvise` or `mprotect`.
    pub guard_mode: String,
    /// Why.
    pub guard_reason: String,
    /// Whether the thread pointer can be set without a system call.
    pub fsgsbase: bool,
    /// Set environment variables that change how fibers or the C library behave.
    pub variables: BTreeMap<String, String>,
}

impl Environment {
    /// Looks around.
    pub fn capture() -> Environment {
        let platform = carefree::platform();
        let read = |path: &str| fs::read_to_string(path).ok();
        let line = |path: &str| read(path).map(|text| text.trim().to_owned());
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let governors = governors(Path::new("/sys/devices/system/cpu"));
        Environment {
            started: utc(SystemTime::now()),
            machine: None,
            cpu: cpu_model(&cpuinfo),
            cores: cores(&line("/sys/devices/system/cpu/online").unwrap_or_default())
                .unwrap_or_else(|| allowed_cores().len()),
            cores_allowed: allowed_cores().len(),
            cpu_quota: cpu_quota(),
            governor: (!governors.is_empty()).then(|| governors.join(", ")),
            kernel: sys::kernel(),
            libc: sys::libc_version(),
            memory: read("/proc/meminfo").and_then(|text| field(&text, "MemTotal")),
            page_size: sys::page_size(),
            thp: line("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|s| chosen(&s)),
            aslr: line("/proc/sys/kernel/randomize_va_space").map(|value| {
                match value.as_str() {
                    "0" => "off",
                    "1" => "partial",
                    _ => "full",
                }
                .to_owned()
            }),
            virtual_machine: flags(&cpuinfo)
                .map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
            container: container(),
            carefree: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: Unit::Thread.version().to_owned(),
            target: env!("LAB_TARGET").to_owned(),
            opt_level: env!("LAB_OPT_LEVEL").to_owned(),
            tls_mode: tls_name(platform.tls).to_owned(),
            tls_reason: platform.tls_reason.clone(),
            guard_mode: guard_name(platform.guards).to_owned(),
            guard_reason: platform.guards_reason.clone(),
            fsgsbase: platform.fsgsbase,
            variables: variables(std::env::vars_os().filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            })),
        }
    }
}

/// The name of a mode in records, and in `CAREFREE_TLS`.
pub fn tls_name(mode: TlsMode) -> &'static str {
    match mode {
        TlsMode::Own => "own",
        TlsMode::Shared => "shared",
        TlsMode::Threads => "threads",
    }
}

/// The name of a mode in records, and in `CAREFREE_GUARDS`.
pub fn guard_name(mode: GuardMode) -> &'static str {
    match mode {
        GuardMode::Madvise => "madvise",
        GuardMode::Mprotect => "mprotect",
    }
}

/// The variables that matter: ours, and those by which the C library is tuned or replaced.
fn variables(all: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let matters = |name: &str| {
        name.starts_with("CAREFREE_")
            || name.starts_with("MALLOC_")
            || ["GLIBC_TUNABLES", "LD_PRELOAD", "RUST_MIN_STACK"].contains(&name)
    };
    all.filter(|(name, _)| matters(name)).collect()
}

/// The processor's model, as the kernel tells it.
pub fn processor() -> Option<String> {
    cpu_model(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    // arm64 kernels name no model; the implementer and part numbers stand for it.
    entry(cpuinfo, "model name").map(str::to_owned).or_else(|| {
        let implementer = entry(cpuinfo, "CPU implementer")?;
        let part = entry(cpuinfo, "CPU part")?;
        Some(format!("arm64 implementer {implementer} part {part}"))
    })
}

fn flags(cpuinfo: &str) -> Option<&str> {
    entry(cpuinfo, "flags")
}

/// The first `name : value` of /proc/cpuinfo.
fn entry<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// How many cores a list such as `0-3,8` holds.
fn cores(list: &str) -> Option<usize> {
    list.split(',')
        .map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
            (to + 1).checked_sub(from)
        })
        .sum()
}

/// The choice in brackets: `always [madvise] never`.
fn chosen(choices: &str) -> Option<String> {
    let (_, rest) = choices.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// The governors in use on any core, each once.
fn governors(cpus: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(cpus) else {
        return Vec::new();
    };
    let mut found: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path().join("cpufreq/scaling_governor");
            Some(fs::read_to_string(path).ok()?.trim().to_owned())
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The cores' worth of time that control groups allow, from whichever version tells.
fn cpu_quota() -> Option<f64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let version_2 = || {
        let text = read("/sys/fs/cgroup/cpu.max")?;
        let (quota, period) = text.trim().split_once(' ')?;
        Some((quota.parse().ok()?, period.parse().ok()?))
    };
    let version_1 = || {
        let number = |file: &str| -> Option<f64> {
            read(&format!("/sys/fs/cgroup/cpu/{file}"))?.trim().parse().ok()
        };
        Some((number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?))
    };
    let (quota, period): (f64, f64) = version_2().or_else(version_1)?;
    // Version 1 says -1 for no quota.
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn container() -> Option<String> {
    // systemd's and podman's way to tell the first process what it is in.
    let named = fs::read("/proc/1/environ").ok().and_then(|bytes| {
        bytes.split(|&byte| byte == 0).find_map(|entry| {
            Some(String::from_utf8_lossy(entry.strip_prefix(b"container=")?).into_owned())
        })
    });
    let marked = |path: &str, name: &str| Path::new(path).exists().then(|| name.to_owned());
    named
        .or_else(|| marked("/.dockerenv", "docker"))
        .or_else(|| marked("/run/.containerenv", "podman"))
}

/// `2026-01-31T23:59:59Z`.
fn utc(time: SystemTime) -> String {
    // "Sat, 31 Jan 2026 23:59:59 GMT"
    let text = httpdate::fmt_http_date(time);
    let month = "JanFebMarAprMayJunJulAugSepOctNovDec".find(&text[8..11]).unwrap_or(0) / 3 + 1;
    format!("{}-{month:02}-{}T{}Z", &text[12..16], &text[5..7], &text[17..25])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn moments_are_written_as_calendars_have_them() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn core_lists_are_counted() {
        assert_eq!(cores("0"), Some(1));
        assert_eq!(cores("0-3,8,10-11"), Some(7));
        assert_eq!(cores("none"), None);
    }

    #[test]
    fn the_processor_is_found_in_both_kinds_of_cpuinfo() {
        let x86 = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor fsgsbase\n";
        assert_eq!(cpu_model(x86).as_deref(), Some("AMD EPYC"));
        assert!(flags(x86).is_some_and(|flags| flags.contains("hypervisor")));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("arm64 implementer 0x41 part 0xd0c"));
    }

    #[test]
    fn the_choice_in_brackets_is_the_one() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn each_governor_is_named_once_and_none_where_there_is_none() {
        let cpus = tempfile::tempdir().expect("a folder");
        assert!(governors(cpus.path()).is_empty());
        for (cpu, governor) in [("cpu0", "powersave"), ("cpu1", "powersave"), ("cpu2", "schedutil")]
        {
            let folder = cpus.path().join(cpu).join("cpufreq");
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("scaling_governor"), format!("{governor}\n")).expect("a file");
        }
        assert_eq!(governors(cpus.path()), ["powersave", "schedutil"]);
    }

    #[test]
    fn only_variables_that_change_behaviour_are_kept() {
        let all = ["CAREFREE_CARRIERS", "HOME", "LD_PRELOAD", "MALLOC_ARENA_MAX", "SECRET"];
        let kept = variables(all.iter().map(|name| ((*name).to_owned(), "1".to_owned())));
        assert_eq!(
            kept.into_keys().collect::<Vec<_>>(),
            ["CAREFREE_CARRIERS", "LD_PRELOAD", "MALLOC_ARENA_MAX"]
        );
    }

    #[test]
    fn this_machine_can_be_described() {
        let environment = Environment::capture();
        assert!(environment.kernel.starts_with("Linux "), "{environment:?}");
        assert!(environment.cores >= 1 && environment.cores_allowed >= 1);
        assert!(environment.memory.is_some_and(|bytes| bytes > 1 << 20));
        let json = serde_json::to_string(&environment).expect("plain data");
        let back: Environment = serde_json::from_str(&json).expect("what was written");
        assert_eq!(back, environment);
    }
}
