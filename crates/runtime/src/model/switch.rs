//! Leaving a fiber's stack: its thread waits until its turn comes.

use crate::carrier::carrier::{Next, of, release};
use crate::fiber::furnish;
use crate::fiber::header::FiberRef;
use crate::fiber::pin;

/// Leaves the calling fiber's stack, until its turn comes.
///
/// # Safety
/// None.
pub(crate) unsafe fn leave(me: FiberRef, next: Next) {
    let carrier = of(me);
    carrier.context.with_mut(|_| ());
    // As `Carrier::settle`, which the same thread of the kernel's does, on another stack.
    match next {
        Next::Park => {
            if !me.episode.commit() {
                // By its own carrier, whose queue needs no link.
                carrier.give_turn();
            }
        }
        Next::ParkHeld(held) => held.release(),
        Next::End => {
            pin::bury(me, furnish::put);
            return release(me);
        }
    }
    let mut turn = carrier.turn.lock().unwrap();
    while !*turn {
        turn = carrier.turns.wait(turn).unwrap();
    }
    *turn = false;
    drop(turn);
    carrier.context.with_mut(|_| ());
    if !carrier.moves_to.get().is_null() {
        me.carrier.set(carrier.moves_to.get().cast());
    }
}

/// Lets the other threads of the model run.
pub(crate) use loom::thread::yield_now;
