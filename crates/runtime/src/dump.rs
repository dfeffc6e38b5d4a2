//! Who waits for what, in words.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::bed;
use crate::deadlock;
use crate::fiber::{FiberRef, Kind};
use crate::reason::Reason;
use crate::registry;
use crate::thread::Thread;

/// Lines at most.
const NAMED: usize = 100;

/// What the carriers and the fibers of this process do just now, for people: a line for each
/// runtime, then one for each fiber (the first hundred), which says what it waits for. Plain threads
/// are listed while they wait for fibers.
///
/// For a program that seems to hang: call it from a plain thread, say one that waits for a signal.
/// Nothing is stopped meanwhile, so the lines are of slightly different moments.
///
/// ```
/// let sleeper = carefree_runtime::Builder::new()
///     .name("sleeper".into())
///     .spawn(|| carefree_runtime::park())?;
/// while !carefree_runtime::dump().contains("'sleeper' is parked") {
///     std::thread::yield_now();
/// }
/// sleeper.thread().unpark();
/// # sleeper.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump() -> String {
    let mut text = String::new();
    deadlock::for_each_runtime(|runtime| {
        if runtime.has_threads() {
            let _ = writeln!(text, "runtime: {} threads in place of fibers", runtime.alive());
            return;
        }
        let (carriers, asleep) = (runtime.carriers.len(), runtime.sleepers.sleeping());
        let _ = writeln!(
            text,
            "runtime: {carriers} carriers, {asleep} of them asleep; {} fibers",
            runtime.alive()
        );
        for carrier in &runtime.carriers {
            let state =
                if runtime.sleepers.is_sleeping(carrier.index()) { "sleeps" } else { "is up" };
            let (thread, switches) = (carrier.thread(), carrier.switches());
            let _ = writeln!(
                text,
                "  carrier {} (thread {thread}) {state}, {switches} switches, {}, {}",
                carrier.index(),
                if carrier.is_empty() { "nothing queued" } else { "fibers queued" },
                if carrier.has_operations() { "operations under way" } else { "no operations" },
            );
        }
    });
    text += &lines(|waiter| {
        waiter.episode.is_waiting() || waiter.kind.get() == Kind::Fiber || bed::is_spawned(waiter)
    });
    text
}

/// A line for each fiber that waits, and for each thread that waits for fibers.
pub(crate) fn waiters() -> String {
    lines(|waiter| waiter.episode.is_waiting())
}

fn lines(wanted: impl Fn(FiberRef) -> bool) -> String {
    let mut count = 0;
    // Counted references, so that names stay; printed when the registry is free again.
    let mut named = Vec::with_capacity(NAMED);
    registry::for_each_alive(|fiber| {
        if wanted(fiber) {
            count += 1;
            if named.len() < NAMED {
                named.extend(Thread::try_from_ref(fiber));
            }
        }
    });
    let mut text: String = named.iter().map(line).collect();
    if count > named.len() {
        let _ = writeln!(text, "  … and {} more", count - named.len());
    }
    text
}

fn line(fiber: &Thread) -> String {
    let header = fiber.as_ref();
    let of_thread = header.episode.is_of_thread() || header.kind.get() == Kind::Thread;
    let kind = if of_thread { "thread" } else { "fiber" };
    let name = fiber.name().map(|name| format!(" '{name}'")).unwrap_or_default();
    let reason = match Reason::from_code(header.reason.load(Ordering::Relaxed)) {
        // The reason stays when the wait has been ended, until the fiber gets on.
        reason if header.episode.is_waiting() || reason == Reason::NotStarted => reason,
        _ => Reason::Runs,
    };
    let cancelled = if header.cancel.peek() { " (cancelled)" } else { "" };
    format!("  {kind} {}{name} {reason}{cancelled}\n", fiber.id())
}
