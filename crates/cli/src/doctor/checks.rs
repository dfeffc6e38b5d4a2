//! What the doctor looks at, and what each finding means for programs with fibers.

use std::env;
use std::fs;

use carefree::{GuardMode, Platform, ReactorKind, StackSize, TlsMode};
use carefree_lab::env::{guard_name, tls_name};
use carefree_lab::number::whole;
use carefree_workloads::limits::{self, Limit, LimitKind};
use serde::Serialize;

/// One finding.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) value: String,
    /// The reason, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// What that means to the user.
    pub(super) meaning: String,
    /// What to do about it, where something should be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// Works as well as it can.
    Good,
    /// Works, at a price or up to a limit worth knowing.
    Note,
    /// Does not work.
    Bad,
}

impl Check {
    pub(super) fn new(name: &str, verdict: Verdict, value: impl Into<String>) -> Check {
        let (name, value) = (name.to_owned(), value.into());
        Check { name, verdict, value, reason: None, meaning: String::new(), advice: None }
    }

    pub(super) fn reason(self, reason: &str) -> Check {
        Check { reason: Some(reason.to_owned()), ..self }
    }

    pub(super) fn means(self, meaning: impl Into<String>) -> Check {
        Check { meaning: meaning.into(), ..self }
    }

    pub(super) fn advice(self, advice: impl Into<String>) -> Check {
        Check { advice: Some(advice.into()), ..self }
    }
}

/// Looks at everything. `tried` is the outcome of running fibers.
pub(super) fn all(tried: anyhow::Result<String>) -> Vec<Check> {
    let mut found = vec![fibers(tried)];
    let platform = carefree::platform();
    found.push(match platform.hosted {
        true => hosted(&platform.tls_reason),
        false => tls(platform.tls, &platform.tls_reason),
    });
    if platform.tls == TlsMode::Own {
        found.push(fsgsbase(platform.fsgsbase));
    }
    if platform.tls != TlsMode::Threads {
        found.push(guards(platform.guards, &platform.guards_reason));
        found.push(reactor(platform.reactor, &platform.reactor_reason));
        found.extend(carriers());
    }
    found.extend(limits::all().iter().map(|limit| self::limit(limit, platform)));
    if platform.tls != TlsMode::Threads {
        found.extend(overcommit());
        found.extend(memory());
    }
    found
}

fn fibers(tried: anyhow::Result<String>) -> Check {
    match tried {
        Ok(what) => Check::new("fibers", Verdict::Good, "work").means(format!("{what}.")),
        Err(why) => Check::new("fibers", Verdict::Bad, "do not work")
            .reason(&format!("{why:#}"))
            .means("carefree::spawn cannot be used here.")
            .advice("try CAREFREE_TLS=threads carefree doctor, and report what it says"),
    }
}

fn hosted(reason: &str) -> Check {
    Check::new("thread-local storage", Verdict::Note, tls_name(TlsMode::Threads))
        .reason(reason)
        .means(
            "Each fiber is a thread of this program, and each thread a fiber of `carefree run`: one \
             scheduler runs all of them.",
        )
        .advice("run the program without `carefree run`: it has fibers of its own")
}

fn tls(mode: TlsMode, reason: &str) -> Check {
    let check =
        |verdict| Check::new("thread-local storage", verdict, tls_name(mode)).reason(reason);
    match mode {
        TlsMode::Own => check(Verdict::Good).means(
            "Each fiber has its own, as a thread has: libraries that keep state in it work \
             unchanged, and a fiber may move to any carrier that is free.",
        ),
        TlsMode::Shared => check(Verdict::Note)
            .means(
                "Fibers see their carrier's and stay on that carrier: what keeps state in it across \
                 a wait (parking_lot, std's channels) finds another fiber's, and breaks.",
            )
            .advice(unless_forced("CAREFREE_TLS", "do not call carefree::share_thread_locals")),
        TlsMode::Threads => check(Verdict::Note)
            .means(
                "Each fiber is a thread of the kernel's: what is right on fibers is right here, at \
                 the price of threads.",
            )
            .advice(unless_forced(
                "CAREFREE_TLS",
                "fibers need glibc 2.35 or newer on x86-64 or aarch64, and no sanitizer",
            )),
    }
}

fn reactor(kind: Option<ReactorKind>, reason: &str) -> Check {
    let Some(kind) = kind else {
        return Check::new("waiting for I/O", Verdict::Bad, "not possible")
            .reason(reason)
            .means("No fiber can be spawned.")
            .advice("unset CAREFREE_REACTOR");
    };
    let check = |verdict| Check::new("waiting for I/O", verdict, kind.to_string()).reason(reason);
    match kind {
        ReactorKind::Epoll => check(Verdict::Note)
            .means(
                "Fibers wait for sockets and pipes without blocking their carriers; calls on files, \
                 and blocking connects, go to a pool of threads.",
            )
            .advice(unless_forced(
                "CAREFREE_REACTOR",
                "io_uring: a kernel of 5.13 or newer, and a container that allows it",
            )),
        _ => check(Verdict::Good)
            .means("A fiber's blocking calls are done by the kernel while the fiber is parked."),
    }
}

/// What would change a mode: the machine, or the variable that has forced it.
fn unless_forced(variable: &str, machine: &str) -> String {
    match env::var_os(variable) {
        Some(_) => format!("unset {variable}"),
        None => machine.to_owned(),
    }
}

fn fsgsbase(there: bool) -> Check {
    if there {
        Check::new("thread pointer", Verdict::Good, "set by an instruction")
            .means("A switch between fibers needs no system call.")
    } else {
        Check::new("thread pointer", Verdict::Note, "set by a system call")
            .means("A switch between fibers costs a system call, some 300 ns in place of 30.")
            .advice("a kernel of 5.9 or newer on a processor with FSGSBASE, or CAREFREE_TLS=shared")
    }
}

fn guards(mode: GuardMode, reason: &str) -> Check {
    let check = |verdict| Check::new("stack guards", verdict, guard_name(mode)).reason(reason);
    match mode {
        GuardMode::Madvise => check(Verdict::Good)
            .means("Guards cost no mappings: memory is all that limits the number of fibers."),
        GuardMode::Mprotect => check(Verdict::Note)
            .means("Each stack takes two mappings: vm.max_map_count limits the number of fibers.")
            .advice(unless_forced(
                "CAREFREE_GUARDS",
                "Linux 6.13 or newer, or a higher vm.max_map_count (below)",
            )),
    }
}

fn carriers() -> Option<Check> {
    let carriers = carefree::available_parallelism().ok()?.get();
    let meaning = if carriers == 1 {
        "Fibers take turns on one core.".to_owned()
    } else {
        format!("Up to {carriers} fibers run at the same moment; CAREFREE_CARRIERS changes it.")
    };
    Some(Check::new("carriers", Verdict::Good, carriers.to_string()).means(meaning))
}

/// A limit below this may be too low for a program with a fiber for each request.
const PLENTY: u64 = 100_000;

fn limit(limit: &Limit, platform: &Platform) -> Check {
    let value = limit.value.map_or_else(|| "none".to_owned(), whole);
    let fibers = platform.tls != TlsMode::Threads;
    let guards = platform.guards;
    let threads = |bound: &str| {
        let most =
            limit.threads.map_or("any number of".into(), |most| format!("about {}", whole(most)));
        let a_fiber = if fibers { "a fiber is none" } else { "a fiber is one here" };
        format!("{bound} {most} threads; {a_fiber}.")
    };
    let check = |verdict| Check::new(limit.kind.name(), verdict, value.clone());
    let raised = || limit.kind.knob();
    match (limit.kind, limit.value) {
        (LimitKind::MapCount, Some(maps)) if fibers && guards == GuardMode::Mprotect => {
            check(Verdict::Note)
                .means(format!("Room for about {} fibers.", whole(maps / 2)))
                .advice(raised())
        }
        (LimitKind::MapCount | LimitKind::AddressSpace, _) if !fibers => {
            check(Verdict::Good).means(threads("Room for"))
        }
        (LimitKind::MapCount, _) => {
            check(Verdict::Good).means(threads("Fibers take one mapping for many stacks. Room for"))
        }
        (LimitKind::AddressSpace, Some(bytes)) => {
            let most = bytes / StackSize::DEFAULT.bytes() as u64;
            check(if most < PLENTY { Verdict::Note } else { Verdict::Good })
                .means(format!(
                    "Room for about {} fibers with stacks of the default size.",
                    whole(most)
                ))
                .advice(raised())
        }
        (LimitKind::AddressSpace, None) => {
            check(Verdict::Good).means("Stacks may reserve as much as they like.")
        }
        (LimitKind::OpenFiles, Some(most)) if most < PLENTY => check(Verdict::Note)
            .means(format!(
                "Up to {} connections and files open at once, fewer than fibers to serve them.",
                whole(most)
            ))
            .advice(raised()),
        (LimitKind::OpenFiles, _) => {
            check(Verdict::Good).means("As many connections as a program with fibers wants.")
        }
        _ => check(Verdict::Good).means(threads("Room for")),
    }
}

fn overcommit() -> Option<Check> {
    let text = fs::read_to_string("/proc/sys/vm/overcommit_memory").ok()?;
    let check = |verdict, value| Check::new("vm.overcommit_memory", verdict, value);
    Some(match text.trim() {
        "2" => check(Verdict::Note, "2 (strict)")
            .means("Reserved stacks count as used: the commit limit bounds the number of fibers.")
            .advice("sysctl -w vm.overcommit_memory=0, or smaller stacks"),
        "1" => check(Verdict::Good, "1 (always)").means("Reserved stacks cost nothing."),
        _ => check(Verdict::Good, "0 (heuristic)").means("Reserved stacks cost nothing."),
    })
}

/// What a parked fiber takes of memory, all told, in bytes: as `carefree bench parked` measures it
/// here, rounded up.
const PARKED: u64 = 5 * 1024;

fn memory() -> Option<Check> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let fibers = kib * 1024 / PARKED;
    Some(
        Check::new("memory available", Verdict::Good, format!("{} MiB", whole(kib / 1024)))
            .means(format!("Room for about {} parked fibers that do little.", rounded(fibers))),
    )
}

/// Two digits of it: more would claim a precision it does not have.
fn rounded(number: u64) -> String {
    let digits = number.checked_ilog10().unwrap_or(0);
    let step = 10u64.pow(digits.saturating_sub(1));
    whole(number / step * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(tls: TlsMode, kind: LimitKind, value: Option<u64>, guards: GuardMode) -> Check {
        let mut platform = carefree::platform().clone();
        (platform.tls, platform.guards) = (tls, guards);
        limit(&Limit { kind, value, threads: value }, &platform)
    }

    fn of(kind: LimitKind, value: Option<u64>, guards: GuardMode) -> Check {
        on(TlsMode::Own, kind, value, guards)
    }

    #[test]
    fn where_threads_stand_for_fibers_limits_are_those_of_threads() {
        let maps = on(TlsMode::Threads, LimitKind::MapCount, Some(65_530), GuardMode::Mprotect);
        assert_eq!(maps.meaning, "Room for about 65,530 threads; a fiber is one here.");
    }

    #[test]
    fn numbers_are_set_apart_and_rounded() {
        assert_eq!(rounded(4_987_654), "4,900,000");
        assert_eq!(rounded(7), "7");
        assert_eq!(rounded(0), "0");
    }

    #[test]
    fn mappings_limit_fibers_only_where_guards_take_them() {
        let by_mprotect = of(LimitKind::MapCount, Some(65_530), GuardMode::Mprotect);
        assert_eq!(by_mprotect.verdict, Verdict::Note);
        assert_eq!(by_mprotect.meaning, "Room for about 32,765 fibers.");
        assert!(by_mprotect.advice.is_some_and(|advice| advice.contains("vm.max_map_count")));
        let by_madvise = of(LimitKind::MapCount, Some(65_530), GuardMode::Madvise);
        assert_eq!((by_madvise.verdict, by_madvise.advice), (Verdict::Good, None));
    }

    #[test]
    fn a_low_limit_comes_with_its_knob_and_none_without() {
        let low = of(LimitKind::OpenFiles, Some(1_024), GuardMode::Madvise);
        assert_eq!(low.verdict, Verdict::Note);
        assert!(low.advice.is_some_and(|advice| advice.contains("ulimit -n")));
        let none = of(LimitKind::OpenFiles, None, GuardMode::Madvise);
        assert_eq!((none.verdict, none.value.as_str(), none.advice), (Verdict::Good, "none", None));
        let space = of(LimitKind::AddressSpace, Some(1 << 30), GuardMode::Madvise);
        assert_eq!(space.meaning, "Room for about 4,096 fibers with stacks of the default size.");
    }

    #[test]
    fn what_did_not_work_is_said_with_its_reason() {
        let check = fibers(Err(anyhow::anyhow!("boom")));
        assert_eq!((check.verdict, check.reason.as_deref()), (Verdict::Bad, Some("boom")));
    }
}
