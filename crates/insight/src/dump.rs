//! Which fibers and threads wait for what, in words.

use std::fmt::{self, Write as _};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use carefree_ground::text::Text;
use carefree_runtime::inspect::{self, CarrierState, FiberGlance};

/// Lines at most.
const NAMED: usize = 100;

/// What the carriers and the fibers of this process do just now, for people: a line for each
/// runtime, then one for each fiber (the first hundred), which says what it waits for, or that it has
/// ended and was not joined yet. Plain threads are listed while they wait for fibers.
///
/// For a program that seems to hang: call it from a plain thread, say one that waits for a signal.
/// Nothing is stopped meanwhile, so the lines are of slightly different moments.
///
/// ```
/// let sleeper = carefree_runtime::Builder::new()
///     .name("sleeper".into())
///     .spawn(|| carefree_runtime::park())?;
/// while !carefree_insight::dump().contains("'sleeper' is parked") {
///     std::thread::yield_now();
/// }
/// sleeper.thread().unpark();
/// # sleeper.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump() -> String {
    written().as_str().to_owned()
}

/// Writes a [`dump`] to `file`, say to standard error, without asking the program's allocator: it
/// comes even when that is what the program hangs in.
///
/// ```
/// carefree_insight::dump_to(std::io::stderr())?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// What the kernel says to the write.
pub fn dump_to(file: impl AsFd) -> io::Result<()> {
    let written = written().write_to(file.as_fd().as_raw_fd());
    written.map_err(io::Error::from_raw_os_error)
}

fn written() -> Text {
    let mut text = Text::new();
    inspect::for_each_runtime(|runtime| {
        if runtime.has_threads() {
            let alive = runtime.alive();
            return text.say(format_args!("runtime: {alive} threads in place of fibers\n"));
        }
        let (carriers, asleep) = (runtime.carriers().len(), runtime.sleeping());
        text.say(format_args!(
            "runtime: {carriers} carriers, {asleep} of them asleep; {} fibers\n",
            runtime.alive()
        ));
        for carrier in runtime.carriers() {
            let state = match carrier.state() {
                CarrierState::Up => "is up",
                CarrierState::Dozing => "dozes",
                CarrierState::Asleep => "sleeps",
                CarrierState::InReserve => "is in reserve",
                CarrierState::Ended => "has no thread",
            };
            let (thread, switches) = (carrier.thread(), carrier.switches());
            let (steals, requests, forced) = carrier.steals();
            text.say(format_args!(
                "  carrier {} (thread {thread}) {state}, {switches} switches, {steals} steals \
                 ({requests} requests, {forced} forced), {}, {}\n",
                carrier.index(),
                if carrier.has_queued() { "fibers queued" } else { "nothing queued" },
                if carrier.has_operations() { "operations under way" } else { "no operations" },
            ));
        }
    });
    lines(&mut text, |waiter| waiter.is_waiting() || waiter.is_spawned());
    text
}

/// Adds a line for each fiber that waits, and for each thread that waits for fibers.
pub(crate) fn waiters(text: &mut Text) {
    lines(text, FiberGlance::is_waiting);
}

fn lines(text: &mut Text, wanted: impl Fn(FiberGlance) -> bool) {
    let mut count = 0;
    // Printed when the registry is free again.
    let mut named = [None; NAMED];
    inspect::for_each_fiber(|fiber| {
        if wanted(fiber) {
            if let Some(place) = named.get_mut(count) {
                *place = Some((fiber, fiber.number()));
            }
            count += 1;
        }
    });
    for (fiber, number) in named.into_iter().flatten() {
        let _ = line(text, fiber, number);
    }
    if count > NAMED {
        text.say(format_args!("  … and {} more\n", count - NAMED));
    }
}

/// The line of fiber `number`, if `fiber` is still that one when the line is written.
fn line(text: &mut Text, fiber: FiberGlance, number: u64) -> fmt::Result {
    let length = text.len();
    let kind = if fiber.is_thread() { "thread" } else { "fiber" };
    let reason = fiber.reason();
    let cancelled = if fiber.is_cancelled() { " (cancelled)" } else { "" };
    let ended = fiber.has_ended();
    write!(text, "  {kind} {number}")?;
    fiber.write_name(number, [" '", "'"], text)?;
    match ended {
        false => writeln!(text, " {reason}{cancelled}")?,
        true => writeln!(text, " has ended; a handle to it is neither joined nor dropped")?,
    }
    if !fiber.is(number) {
        text.truncate(length);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use carefree_runtime::{Builder, JoinHandle};

    /// A fiber as it is seen from here, and its number.
    pub(crate) fn fiber_of(handle: &JoinHandle<()>) -> (FiberGlance, u64) {
        let number = handle.thread().id().to_string().parse().unwrap();
        let mut found = None;
        inspect::for_each_fiber(|fiber| {
            if fiber.is(number) {
                found = Some(fiber);
            }
        });
        (found.unwrap(), number)
    }

    #[test]
    fn a_fiber_that_has_ended_does_not_run() {
        let ended = Builder::new().name("the ended".into()).spawn(|| ()).unwrap();
        while !ended.is_finished() {
            std::thread::yield_now();
        }
        let (fiber, number) = fiber_of(&ended);
        let said = |number| {
            let mut text = Text::new();
            line(&mut text, fiber, number).unwrap();
            text.as_str().to_owned()
        };
        let words = format!(" {number} 'the ended' has ended; a handle to it");
        assert!(said(number).contains(&words), "{}", said(number));
        assert_eq!(said(number + 1), "", "another one's");
        ended.join().unwrap();
    }
}
