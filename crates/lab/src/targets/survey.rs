//! Asking many programs at the same time: one that does not answer is waited for, and no other.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use carefree_workloads::limits::{self, LimitKind};

use super::Target;
use super::find::program;

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many have answered, of how many.
    pub done: usize,
    /// All of them.
    pub total: usize,
    /// Those that were asked and have not answered yet.
    pub names: Vec<String>,
    /// How long the longest of them has been waited for.
    pub longest: Duration,
}

/// Programs that are asked at once: they wait for files and, those that do not answer, for nothing.
const AT_ONCE: usize = 16;
/// What a worker takes of address space, with its heap and the readers of a program's output.
const EACH: u64 = 128 << 20;
/// How often the waiting is told of.
const PACE: Duration = Duration::from_millis(200);

/// As many as the address space has room for: threads take it for their stacks and heaps.
fn at_once() -> usize {
    let all = limits::all();
    let space = all.iter().find(|limit| limit.kind == LimitKind::AddressSpace);
    match space.and_then(|limit| limit.value) {
        Some(bytes) => usize::try_from(bytes / EACH).unwrap_or(AT_ONCE).min(AT_ONCE),
        None => AT_ONCE,
    }
}

/// Asks all programs that may be of these targets for their versions, and keeps what they answer.
pub fn survey(targets: &[Target], told: &mut dyn FnMut(&Waiting)) {
    let mut programs: Vec<(&Target, PathBuf)> = Vec::new();
    for target in targets {
        let mut seen = Vec::new();
        for path in target.places() {
            if let Some(real) = program(&path).filter(|real| !seen.contains(real)) {
                seen.push(real);
                programs.push((target, path));
            }
        }
    }
    let name = |(_, path): &(&Target, PathBuf)| path.display().to_string();
    let ask = |(target, path): &(&Target, PathBuf)| drop(target.version_at(path));
    each(&programs, &name, &ask, told);
}

/// Does something with each item, many at the same time; the results are in the order of the items.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    name: &dyn Fn(&T) -> String,
    work: &(dyn Fn(&T) -> R + Sync),
    told: &mut dyn FnMut(&Waiting),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let started: Mutex<Vec<(usize, Instant)>> = Mutex::default();
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let worker = |sender: mpsc::Sender<(usize, R)>| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            if let Ok(mut started) = started.lock() {
                started.push((at, Instant::now()));
            }
            // The receiver waits for all of them.
            let _ = sender.send((at, work(item)));
        }
    };
    let worker = &worker;
    thread::scope(|scope| {
        let spawn = |_| {
            let own = sender.clone();
            thread::Builder::new().spawn_scoped(scope, move || worker(own)).is_ok()
        };
        // Where there is no room for more threads, those that there are do the work, or this one.
        let helpers = (0..items.len().min(at_once())).take_while(|at| spawn(*at)).count();
        if helpers == 0 {
            worker(sender.clone());
        }
        drop(sender);
        let mut done = 0;
        loop {
            match receiver.recv_timeout(PACE) {
                Ok((at, result)) => {
                    results[at] = Some(result);
                    done += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let started = started.lock().map(|started| started.clone()).unwrap_or_default();
            let open: Vec<&(usize, Instant)> =
                started.iter().filter(|(at, _)| results[*at].is_none()).collect();
            told(&Waiting {
                done,
                total: items.len(),
                names: open.iter().map(|(at, _)| name(&items[*at])).collect(),
                longest: open.iter().map(|(_, at)| at.elapsed()).max().unwrap_or_default(),
            });
        }
    });
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_are_asked_at_the_same_time_and_answer_in_order() {
        // Each waits for all others: one after the other they would never end.
        let all = Barrier::new(9);
        let items: Vec<usize> = (0..9).collect();
        let answers = each(
            &items,
            &|item| item.to_string(),
            &|item| {
                all.wait();
                item * 2
            },
            &mut |_| {},
        );
        assert_eq!(answers, (0..9).map(|item| item * 2).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_waited_for_is_named() {
        let (told, heard) = mpsc::channel::<()>();
        let heard = Mutex::new(heard);
        let mut named = Vec::new();
        // The slow one ends when it was told of.
        each(
            &["quick", "slow"],
            &|name| (*name).to_owned(),
            &|name| {
                if *name == "slow" {
                    let _ = heard.lock().expect("alone").recv();
                }
            },
            &mut |waiting| {
                if waiting.done == 1 && waiting.names == ["slow"] {
                    named.push(waiting.total);
                    let _ = told.send(());
                }
            },
        );
        assert!(named.contains(&2), "{named:?}");
    }
}
