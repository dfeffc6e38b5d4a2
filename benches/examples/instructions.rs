//! What `benches/instructions.sh` counts the instructions of: `instructions WHAT ROUNDS`. A round is two switches, or
//! the lives of the fibers of a [`CROWD`].

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

/// Fibers that are alive at once in a round of lives.
const CROWD: usize = 1000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments.get(1).and_then(|rounds| rounds.parse().ok());
    match (arguments.first().map(String::as_str), rounds) {
        (Some("coroutine"), Some(rounds)) => coroutine(rounds),
        (Some("corosensei"), Some(rounds)) => corosensei(rounds),
        (Some("yield"), Some(rounds)) => yields(rounds),
        (Some("hand-over"), Some(rounds)) => hand_over(rounds),
        (Some("life"), Some(rounds)) => {
            lives(rounds, || (0..2).for_each(|_| carefree::yield_now()))
        }
        (Some("sleep"), Some(rounds)) => {
            lives(rounds, || carefree::sleep(Duration::from_millis(10)));
        }
        _ => {
            eprintln!("usage: instructions coroutine|corosensei|yield|hand-over|life|sleep ROUNDS");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn coroutine(rounds: u64) {
    // SAFETY: the coroutine suspends within no call that sets a thread-local variable.
    unsafe { carefree::coroutine_scope(|scope| rally(scope, rounds)) };
}

fn rally(scope: &carefree::CoroutineScope<'_>, rounds: u64) {
    let mut coroutine = scope.coroutine(|suspender, mut ball: u64| {
        while ball != u64::MAX {
            ball = suspender.suspend(ball + 1);
        }
    });
    for round in 0..rounds {
        coroutine.resume(black_box(round));
    }
    coroutine.resume(u64::MAX);
}

fn corosensei(rounds: u64) {
    let mut coroutine = corosensei::Coroutine::<u64, u64, ()>::new(|yielder, mut ball| {
        while ball != u64::MAX {
            ball = yielder.suspend(ball + 1);
        }
    });
    for round in 0..rounds {
        coroutine.resume(black_box(round));
    }
    coroutine.resume(u64::MAX);
}

/// Two fibers send a ball to and fro, each waiting until it comes.
fn hand_over(rounds: u64) {
    carefree::run(move || {
        let (there, serve) = mpsc::channel();
        let (back, receive) = mpsc::channel();
        let other = carefree::spawn(move || {
            for ball in serve {
                back.send(ball).expect("the first fiber receives");
            }
        });
        for round in 0..black_box(rounds) {
            there.send(round).expect("the other fiber receives");
            assert_eq!(receive.recv(), Ok(round));
        }
        drop(there);
        other.join().expect("a fiber panicked");
    });
}

fn yields(rounds: u64) {
    carefree::run(move || {
        let fibers = [(); 2].map(|()| {
            carefree::spawn(move || {
                for _ in 0..black_box(rounds) {
                    carefree::yield_now();
                }
            })
        });
        for fiber in fibers {
            fiber.join().expect("a fiber panicked");
        }
    });
}

/// Crowds of fibers that all start before the first is joined.
fn lives(rounds: u64, live: fn()) {
    carefree::run(move || {
        for _ in 0..black_box(rounds) {
            let crowd: Vec<_> = (0..CROWD).map(|_| carefree::spawn(live)).collect();
            for fiber in crowd {
                fiber.join().expect("a fiber panicked");
            }
        }
    });
}
