//! Two coroutines: one that yields primes to a plain `for` loop, and one that is fed line by line
//! and gives back words, whole across line ends.
//!
//! ```sh
//! cargo run -p carefree-context --example generator
//! ```

use carefree_context::coroutine::{self, CoroutineState, Scope, ScopedCoroutine, Suspender};

/// All primes, by trial division: an endless loop that its user stops when there are enough.
fn primes<'h>(scope: &'h Scope<'_>) -> ScopedCoroutine<'h, (), u32, ()> {
    scope.coroutine(|suspender, ()| {
        let mut found: Vec<u32> = Vec::new();
        for candidate in 2.. {
            let divisors = found.iter().take_while(|&&prime| prime * prime <= candidate);
            if divisors.copied().all(|prime| candidate % prime != 0) {
                found.push(candidate);
                suspender.suspend(candidate);
            }
        }
    })
}

/// The next character, asking for more text as often as needed: from inside a function, which is
/// what a hand-written state machine cannot do.
fn next(text: &mut Vec<char>, suspender: &Suspender<Option<&'static str>, Vec<String>>) -> char {
    loop {
        if let Some(character) = text.pop() {
            return character;
        }
        match suspender.suspend(Vec::new()) {
            Some(more) => text.extend(more.chars().rev()),
            None => return '.',
        }
    }
}

fn main() {
    // SAFETY: the coroutine suspends within no call that sets a thread-local variable.
    let firsts: Vec<u32> = unsafe { coroutine::scope(|scope| primes(scope).take(10).collect()) };
    println!("primes: {firsts:?}");
    assert_eq!(firsts, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);

    // SAFETY: as above.
    unsafe { coroutine::scope(read_words) };
}

fn read_words(scope: &Scope<'_>) {
    let mut sentence = scope.coroutine(|suspender, first: Option<&'static str>| {
        let mut text: Vec<char> = first.unwrap_or("").chars().rev().collect();
        let mut words = vec![String::new()];
        loop {
            match next(&mut text, suspender) {
                '.' => return words,
                ' ' => words.push(String::new()),
                letter => words.last_mut().expect("there is one").push(letter),
            }
        }
    });
    for piece in [Some("threads at the pri"), Some("ce of fi"), Some("bers"), None] {
        if let CoroutineState::Complete(words) = sentence.resume(piece) {
            println!("words: {words:?}");
            assert_eq!(words, ["threads", "at", "the", "price", "of", "fibers"]);
        }
    }
    assert!(sentence.is_done());
}
