//! corosensei: stackful coroutines, no scheduler. Where a workload needs one, a plain round-robin
//! loop resumes them in turn.

use carefree_benches::peer::{Answer, Peer, Turn, stint, sum};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::rc::Rc;

pub(crate) const PEER: Peer = Peer {
    name: "corosensei",
    fewer: 1,
    coroutine: Some(coroutine),
    crowd: Some(crowd),
    sleepers: None,
    parked: Some(parked),
    readers: None,
    channel: None,
    crossbeam: None,
    elsewhere: None,
};

fn coroutine(rounds: u64) -> u64 {
    let mut coroutine = Coroutine::<u64, u64, ()>::new(|yielder, mut ball| {
        while ball != u64::MAX {
            ball = yielder.suspend(ball + 1);
        }
    });
    let mut sum = 0;
    for round in 0..rounds {
        match coroutine.resume(black_box(round)) {
            CoroutineResult::Yield(ball) => sum += ball,
            CoroutineResult::Return(()) => unreachable!("the coroutine goes on until u64::MAX"),
        }
    }
    coroutine.resume(u64::MAX);
    sum
}

/// The size `Coroutine::new` takes.
const STACK: usize = 1 << 20;

thread_local! {
    /// corosensei maps a new stack for each coroutine and has no pool, but hands the stack back at
    /// the end: programs that start crowds of coroutines keep the stacks.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

fn crowd(units: usize, yields: u64) -> Answer {
    let turn = Rc::new(Turn::default());
    let mut queue: VecDeque<_> = (0..units)
        .map(|me| {
            let turn = turn.clone();
            let kept = STACKS.with_borrow_mut(Vec::pop);
            let stack = kept.unwrap_or_else(|| DefaultStack::new(STACK).expect("a stack"));
            Coroutine::<(), (), Answer>::with_stack(stack, move |yielder, ()| {
                stint(me, yields, &turn, || yielder.suspend(()))
            })
        })
        .collect();
    let mut answers = Vec::with_capacity(units);
    while let Some(mut first) = queue.pop_front() {
        match first.resume(()) {
            CoroutineResult::Yield(()) => queue.push_back(first),
            CoroutineResult::Return(answer) => {
                answers.push(answer);
                STACKS.with_borrow_mut(|stacks| stacks.push(first.into_stack()));
            }
        }
    }
    sum(answers.into_iter())
}

fn parked(units: usize, look: &mut dyn FnMut()) -> io::Result<usize> {
    let mut parked = Vec::with_capacity(units);
    for _ in 0..units {
        let stack = DefaultStack::new(STACK)?;
        let mut coroutine = Coroutine::<(), (), usize>::with_stack(stack, |yielder, ()| {
            yielder.suspend(());
            1
        });
        coroutine.resume(());
        parked.push(coroutine);
    }
    look();
    Ok(parked
        .iter_mut()
        .map(|coroutine| match coroutine.resume(()) {
            CoroutineResult::Return(one) => one,
            CoroutineResult::Yield(()) => 0,
        })
        .sum())
}
