//! The wheel against a model: a sorted map of (deadline, number of insertion).

use carefree_reactor::{TimerKey, Wheel};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    /// Sets a timer this far from now, or at the end of time.
    Insert(Distance),
    /// Removes the n-th timer ever set, even if it has expired or was removed.
    Remove(usize),
    /// Advances the time.
    Pass(Distance),
    /// Advances to the wheel's next deadline, or to just before it.
    PassToNext { short_by: u64 },
    /// Calls `expire` with a clock that lags behind.
    LookBack(u64),
    /// Empties the wheel and shrinks it.
    Finish,
}

/// A time relative to now.
#[derive(Clone, Debug)]
enum Distance {
    Before(u64),
    After(u64),
    EndOfTime,
}

impl Distance {
    fn from(&self, now: u64) -> u64 {
        match *self {
            Distance::Before(span) => now.saturating_sub(span),
            Distance::After(span) => now.saturating_add(span),
            Distance::EndOfTime => u64::MAX,
        }
    }
}

/// Durations of every magnitude from 1 ns to 584 years, including the edges of slots.
fn span() -> impl Strategy<Value = u64> {
    let magnitude = (0u32..64, any::<u64>()).prop_map(|(bits, noise)| noise >> bits);
    let edge = (0u32..64, -1i64..=1).prop_map(|(bit, off)| (1u64 << bit).wrapping_add_signed(off));
    prop_oneof![2 => 0u64..500_000_000, 2 => magnitude, 1 => edge]
}

fn step() -> impl Strategy<Value = Step> {
    let insert = prop_oneof![
        12 => span().prop_map(Distance::After),
        1 => span().prop_map(Distance::Before),
        1 => Just(Distance::EndOfTime),
    ];
    let pass = prop_oneof![
        8 => (0u64..20_000_000).prop_map(Distance::After),
        4 => span().prop_map(Distance::After),
    ];
    prop_oneof![
        60 => insert.prop_map(Step::Insert),
        25 => any::<prop::sample::Index>().prop_map(|index| Step::Remove(index.index(1 << 20))),
        15 => pass.prop_map(Step::Pass),
        10 => (0u64..2).prop_map(|short_by| Step::PassToNext { short_by }),
        3 => (0u64..200_000).prop_map(Step::LookBack),
        1 => Just(Step::Finish),
    ]
}

/// The wheel and the model, advanced together and compared at each step.
struct Pair {
    now: u64,
    wheel: Wheel<u64>,
    model: BTreeMap<(u64, u64), ()>,
    /// Key and deadline of each insertion.
    keys: Vec<(TimerKey, u64)>,
    /// Whether `next_deadline` may be early because of a removal.
    removed: bool,
}

impl Pair {
    fn new(now: u64) -> Self {
        Pair {
            now,
            wheel: Wheel::new(now),
            model: BTreeMap::new(),
            keys: Vec::new(),
            removed: false,
        }
    }

    fn insert(&mut self, deadline: u64) {
        let number = self.keys.len() as u64;
        let key = self.wheel.insert(deadline, number);
        self.model.insert((deadline, number), ());
        self.keys.push((key, deadline));
    }

    fn remove(&mut self, number: usize) {
        let Some(&(key, deadline)) = self.keys.get(number) else {
            return;
        };
        let expected = self.model.remove(&(deadline, number as u64));
        self.removed |= expected.is_some();
        assert_eq!(self.wheel.remove(key), expected.map(|()| number as u64));
    }

    /// Expires at `now`: exactly the timers that are due, in the documented order.
    fn expire(&mut self, now: u64) {
        let later = self.model.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.model, later);
        let mut fired = Vec::new();
        let count = self.wheel.expire(now, |number| fired.push(number));
        assert_eq!(count, fired.len());
        let due: Vec<u64> = due.into_keys().map(|(_, number)| number).collect();
        assert_eq!(fired, due, "at {now}");
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.model.len());
        assert_eq!(self.wheel.is_empty(), self.model.is_empty());
        let earliest = self.model.keys().next().map(|&(deadline, _)| deadline);
        let next = self.wheel.next_deadline();
        if self.removed {
            assert_eq!(next.is_some(), earliest.is_some());
            assert!(next <= earliest, "{next:?} is later than {earliest:?}");
        } else {
            assert_eq!(next, earliest);
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Insert(distance) => self.insert(distance.from(self.now)),
            Step::Remove(index) => self.remove(index % self.keys.len().max(1)),
            Step::Pass(distance) => {
                self.now = distance.from(self.now);
                self.expire(self.now);
            }
            Step::PassToNext { short_by } => {
                let Some(next) = self.wheel.next_deadline() else {
                    return;
                };
                self.now = self.now.max(next.saturating_sub(*short_by));
                let before = self.wheel.len();
                self.expire(self.now);
                if self.now >= next {
                    // Either a timer fired, or a removed timer's deadline was corrected.
                    let moved = self.wheel.next_deadline().is_none_or(|after| after > next);
                    assert!(self.wheel.len() < before || moved, "no progress at {next}");
                }
            }
            Step::LookBack(span) => self.expire(self.now.saturating_sub(*span)),
            Step::Finish => {
                self.now = u64::MAX;
                self.expire(self.now);
                self.wheel.shrink(0);
                assert!(self.model.is_empty());
            }
        }
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_does_what_a_sorted_map_does(
        start in prop_oneof![Just(0), any::<u64>(), Just(u64::MAX)],
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut pair = Pair::new(start);
        for step in &steps {
            pair.take(step);
        }
    }

    #[test]
    fn crowded_slots_do_too(
        deadlines in prop::collection::vec(0u64..400_000, 200..2_000),
        removals in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
        times in prop::collection::vec(0u64..400_000, 1..40),
    ) {
        let mut pair = Pair::new(0);
        for &deadline in &deadlines {
            pair.insert(deadline);
        }
        let mut times = times;
        times.sort_unstable();
        let per_time = removals.len() / times.len() + 1;
        for (time, removals) in times.iter().zip(removals.chunks(per_time)) {
            for removal in removals {
                pair.remove(removal.index(deadlines.len()));
                pair.check();
            }
            pair.expire(*time);
            pair.check();
        }
    }
}

#[test]
fn nothing_fires_early_by_even_a_nanosecond() {
    let mut wheel = Wheel::new(1_000_000_007);
    for deadline in (0..64).map(|bit| 1_000_000_007u64.saturating_add(1 << bit)) {
        wheel.insert(deadline, deadline);
    }
    while let Some(next) = wheel.next_deadline() {
        wheel.expire(next - 1, |deadline| panic!("{deadline} fired at {}", next - 1));
        let mut fired = Vec::new();
        wheel.expire(next, |deadline| fired.push(deadline));
        assert_eq!(fired, [next]);
    }
}

#[test]
fn a_deadline_of_the_largest_number_is_due_only_then() {
    let mut wheel = Wheel::new(0);
    wheel.insert(u64::MAX, ());
    assert_eq!(wheel.next_deadline(), Some(u64::MAX));
    assert_eq!(wheel.expire(u64::MAX - 1, |()| ()), 0);
    assert_eq!(wheel.expire(u64::MAX, |()| ()), 1);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn an_old_key_never_refers_to_a_new_timer() {
    let mut wheel = Wheel::new(0);
    let old = wheel.insert(5, "old");
    assert_eq!(wheel.remove(old), Some("old"));
    let new = wheel.insert(5, "new");
    assert_eq!(wheel.remove(old), None);
    wheel.expire(5, |_| ());
    assert_eq!(wheel.remove(new), None);
    // Not even after the tables were freed.
    wheel.shrink(2);
    assert_eq!(wheel.remove(new), None);
    wheel.shrink(0);
    wheel.insert(9, "newest");
    assert_eq!((wheel.remove(old), wheel.remove(new)), (None, None));
    assert_eq!(wheel.len(), 1);
}

/// Resident memory in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn the_memory_of_a_crowd_is_given_back() {
    const CROWD: u64 = 2_000_000;
    let mut wheel = Wheel::new(0);
    let before = resident();
    for deadline in 0..CROWD {
        wheel.insert(deadline, deadline);
    }
    wheel.shrink(1_000);
    assert_eq!(wheel.expire(CROWD, |_| ()), CROWD as usize);
    // (Other tests take a little at the same time.)
    assert!(resident() > before + 40 * CROWD as usize);
    wheel.shrink(CROWD as usize);
    assert!(resident() > before + 40 * CROWD as usize);
    wheel.shrink(1_000);
    assert!(resident() < before + 10 * CROWD as usize);
}

#[test]
fn a_panic_in_the_middle_loses_no_timer() {
    let mut wheel = Wheel::new(0);
    let keys: Vec<_> = (0..10u64).map(|n| wheel.insert(n, n)).collect();
    let mut fired = Vec::new();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wheel.expire(7, |n| {
            assert_ne!(n, 3, "the caller's own trouble");
            fired.push(n);
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((fired.len(), wheel.len()), (3, 6));
    assert_eq!(wheel.next_deadline(), Some(4), "the remaining timers are due at once");
    assert_eq!(wheel.remove(keys[5]), None, "timers that are due cannot be removed");
    wheel.expire(9, |n| fired.push(n));
    assert_eq!(fired, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
}
