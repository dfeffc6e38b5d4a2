//! Tests of the run queue: of the one that is built, for there are two (`queue`, `deque`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::carrier::policy::{CAPACITY, LIFO_RUNS, Place};
use crate::carrier::queue::Queue;
use crate::fiber::header::{FiberRef, Header};
use crate::protocol::parcel::Answer;

fn fibers(count: usize) -> Vec<FiberRef> {
    (0..count).map(|_| FiberRef::new(Box::leak(Box::new(Header::new())))).collect()
}

fn pop(queue: &Queue) -> Option<FiberRef> {
    // SAFETY: the calling thread is the owner in each test, and the queue is not locked.
    let mut locked = unsafe { queue.lock() };
    let next = locked.pop();
    locked.unlock();
    next
}

fn push(queue: &Queue, fiber: FiberRef, place: Place) {
    // SAFETY: as in `pop`.
    unsafe { queue.push(fiber, place) };
}

#[test]
fn the_first_in_is_the_first_out() {
    let (queue, mut expected) = (Queue::new(), VecDeque::new());
    let all = fibers(3 * CAPACITY);
    let mut random = 1u64;
    // It grows meanwhile, from different places.
    for (number, fiber) in all.iter().enumerate() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match random >> 61 {
            0..=5 => {
                push(&queue, *fiber, Place::Last);
                expected.push_back(*fiber);
            }
            6 => assert!(pop(&queue) == expected.pop_front(), "{number}"),
            _ => {
                // SAFETY: as in `pop`.
                let mut locked = unsafe { queue.lock() };
                let next = locked.rotate(*fiber);
                locked.unlock();
                assert!(next == expected.pop_front(), "{number}");
                if next.is_some() {
                    expected.push_back(*fiber);
                }
            }
        }
        assert_eq!(queue.len(), expected.len());
    }
    while let Some(fiber) = expected.pop_front() {
        assert!(pop(&queue) == Some(fiber));
    }
    assert!(pop(&queue).is_none() && queue.is_empty());
}

#[test]
fn one_just_woken_goes_first_but_not_for_ever() {
    let queue = Queue::new();
    let [waiting, woken, other] = fibers(3)[..] else { unreachable!() };
    push(&queue, waiting, Place::Last);
    for _ in 0..LIFO_RUNS {
        push(&queue, woken, Place::Next);
        assert!(pop(&queue) == Some(woken));
    }
    push(&queue, woken, Place::Next);
    assert!(pop(&queue) == Some(waiting));
    // Another that is woken takes its place, and it goes to the end.
    push(&queue, other, Place::Next);
    assert!(pop(&queue) == Some(other) && pop(&queue) == Some(woken));
    assert!(queue.is_empty());
}

/// While many that have started are ready, others wait for their start; but none waits for ever.
#[test]
#[cfg(not(feature = "rejected-deque"))]
fn few_have_started_at_once() {
    use crate::carrier::policy::{STARTED, TURNS};
    use crate::fiber::unstarted;

    let queue = Queue::new();
    let unstarted = fibers(500);
    unstarted.iter().for_each(|fiber| unstarted::mark_unstarted(*fiber));
    unstarted.iter().for_each(|fiber| push(&queue, *fiber, Place::Last));
    // Each yields twice.
    let (mut begun, mut ended, mut most) = (VecDeque::new(), 0, 0);
    let turns: std::collections::HashMap<_, _> =
        unstarted.iter().map(|fiber| (fiber.as_ptr(), AtomicUsize::new(0))).collect();
    while let Some(fiber) = pop(&queue) {
        match turns[&fiber.as_ptr()].fetch_add(1, Ordering::Relaxed) {
            0 => {
                begun.push_back(fiber);
                unstarted::mark_started(fiber);
                push(&queue, fiber, Place::Last);
            }
            1 => push(&queue, fiber, Place::Last),
            _ => {
                begun.retain(|one| *one != fiber);
                ended += 1;
            }
        }
        most = most.max(begun.len());
    }
    assert_eq!((ended, queue.len()), (unstarted.len(), 0));
    assert!((STARTED..=STARTED + 1).contains(&most), "{most}");

    // Many that have started and yield for ever, and one that has not.
    let started = fibers(STARTED + 1);
    started.iter().for_each(|fiber| push(&queue, *fiber, Place::Last));
    unstarted::mark_unstarted(unstarted[0]);
    push(&queue, unstarted[0], Place::Last);
    let mut waited = 0;
    loop {
        let next = pop(&queue).expect("they are queued");
        if next == unstarted[0] {
            break;
        }
        waited += 1;
        push(&queue, next, Place::Last);
    }
    assert!(waited <= TURNS * STARTED, "{waited}");
    while pop(&queue).is_some() {}

    // One that has started, and others without end that have not.
    push(&queue, started[0], Place::Last);
    let mut waited = 0;
    for next in unstarted.iter().cycle() {
        unstarted::mark_unstarted(*next);
        push(&queue, *next, Place::Last);
        push(&queue, *next, Place::Last);
        if pop(&queue) == Some(started[0]) {
            break;
        }
        waited += 1;
    }
    assert!(waited <= 2 * STARTED, "{waited}");
}

/// Each fiber that the owner queues comes to one party, whether asked for or taken.
#[test]
fn none_is_lost_or_doubled_between_carriers() {
    const ROUNDS: usize = 200;
    let mut all = fibers(CAPACITY + 100);
    all.sort_by_key(|fiber| fiber.as_ptr());
    let seen: Vec<_> = all.iter().map(|_| AtomicUsize::new(0)).collect();
    let see = |fiber: FiberRef| {
        let number = all.binary_search_by_key(&fiber.as_ptr(), |fiber| fiber.as_ptr());
        seen[number.expect("one that was queued")].fetch_add(1, Ordering::Relaxed);
    };
    let (queue, is_over) = (Queue::new(), AtomicBool::new(false));
    thread::scope(|threads| {
        for turn in 0..2 {
            let (queue, is_over, see) = (&queue, &is_over, &see);
            threads.spawn(move || {
                let mine = Queue::new();
                while !is_over.load(Ordering::Acquire) {
                    // SAFETY: this thread owns `mine`, which is not locked.
                    let asked = (turn == 0).then(|| unsafe { mine.ask(queue, || true) });
                    let first = match asked {
                        // SAFETY: this thread owns `mine`, which is not locked.
                        None => unsafe { mine.take_from(queue) },
                        Some(Answer::Thing(fiber)) => Some(fiber),
                        Some(Answer::Nothing | Answer::Unanswered) => None,
                    };
                    first.into_iter().for_each(see);
                    while let Some(fiber) = pop(&mine) {
                        see(fiber);
                    }
                    thread::yield_now();
                }
            });
        }
        for round in 1..=ROUNDS {
            for (number, fiber) in all.iter().enumerate() {
                let place = if number % 7 == 0 { Place::Next } else { Place::Last };
                push(&queue, *fiber, place);
                if number % 3 == 0 {
                    pop(&queue).into_iter().for_each(see);
                }
            }
            while let Some(fiber) = pop(&queue) {
                see(fiber);
            }
            while seen.iter().any(|seen| seen.load(Ordering::Relaxed) < round) {
                // Perhaps it is asked for fibers, which waits for an answer.
                assert!(pop(&queue).is_none());
                thread::yield_now();
            }
            assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == round));
        }
        is_over.store(true, Ordering::Release);
    });
}

/// A carrier asks another for fibers, where one is queued. It gets that one if the other's running fiber yields, and
/// so can go on there; not if the running fiber waits.
#[test]
#[cfg(not(feature = "rejected-deque"))]
fn the_only_one_queued_is_given_away_where_another_stays() {
    let [only] = fibers(1)[..] else { unreachable!() };
    for yields in [false, true] {
        let (queue, is_over) = (Queue::new(), AtomicBool::new(false));
        push(&queue, only, Place::Last);
        let answer = thread::scope(|threads| {
            let owner = threads.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    // SAFETY: this thread acts as the owner from here on, and unlocks the queue each time.
                    unsafe {
                        match yields {
                            true => queue.lock_to_yield().unlock(),
                            false => queue.lock().unlock(),
                        }
                    }
                    thread::yield_now();
                }
            });
            let mine = Queue::new();
            // SAFETY: this thread owns `mine`, which is not locked.
            let answer = unsafe { mine.ask(&queue, || true) };
            is_over.store(true, Ordering::Release);
            owner.join().expect("it does not panic");
            answer
        });
        match answer {
            Answer::Thing(fiber) => assert!(yields && fiber == only),
            Answer::Nothing => assert!(!yields),
            Answer::Unanswered => unreachable!("it waits for as long as it takes"),
        }
    }
}
