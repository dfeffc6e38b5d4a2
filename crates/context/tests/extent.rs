//! Extents, where coroutines are suspended and resumed.

use std::cell::Cell;
use std::ptr;
use std::sync::Barrier;
use std::thread;

use carefree_context::coroutine::{self, CoroutineState, Scope, Suspender};
use carefree_context::extent::{Extent, Place, set_place};

use CoroutineState::{Complete, Yielded};

/// [`coroutine::scope`], for coroutines that are suspended within no call that sets a thread-local variable.
fn scope<'env, T>(f: impl for<'h> FnOnce(&'h Scope<'env>) -> T) -> T {
    // SAFETY: the coroutines here begin extents, which each switch takes along, and set nothing else.
    unsafe { coroutine::scope(f) }
}

/// A coroutine resumes an inner one while another thread has an extent away, so that switches move
/// extents. That extent has ended when the inner coroutine suspends the outer one. The list must
/// not keep the outer one's boundary, which lies in a suspended frame.
#[test]
fn a_boundary_leaves_the_list_when_no_other_extent_is_away() {
    let place = Place::new(ptr::null());
    let (begun, ended) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|threads| {
        threads.spawn(|| {
            let place = Cell::new(ptr::null());
            let extent = Extent::new();
            // SAFETY: the place outlives the thread's coroutines, of which there are none, and the
            // extent ends in this frame.
            unsafe {
                set_place(&raw const place);
                extent.begin(true);
                begun.wait();
                ended.wait();
                extent.end();
                set_place(ptr::null());
            }
            ended.wait();
        });
        begun.wait();

        let (first, second) = (Extent::new(), Extent::new());
        // SAFETY: `place` outlives its use. The extents lie on the thread's own stack, and are nested.
        unsafe {
            set_place(&raw const place);
            first.begin(false);
        }
        scope(|s| {
            let mut outer = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
                scope(|s| {
                    let mut inner = s.coroutine(|_: &Suspender<(), ()>, ()| {
                        ended.wait();
                        ended.wait();
                        suspender.suspend(());
                    });
                    assert_eq!(inner.resume(()), Complete(()));
                });
            });
            assert_eq!(outer.resume(()), Yielded(()));
            assert!(ptr::eq(place.get(), &first), "nothing but the resumer's own is in force");
            // SAFETY: it lies on the thread's own stack, and ends in this frame.
            unsafe { second.begin(false) };
            assert_eq!(outer.resume(()), Complete(()));
            assert!(ptr::eq(place.get(), &second), "what began meanwhile is still in force");
        });
        // SAFETY: both are in force, `second` innermost.
        unsafe {
            second.end();
            first.end();
            set_place(ptr::null());
        }
    });
}

/// As in coroutines of other crates, which are suspended with their extents in the list. In every order in
/// which three that have begun one within the other can end, those that are left are in force, in their
/// order, and at the end none is.
#[test]
fn extents_end_in_any_order() {
    const ORDERS: [[usize; 3]; 6] =
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in ORDERS {
        let place = Place::new(ptr::null());
        let extents = [Extent::new(), Extent::new(), Extent::new()];
        // SAFETY: `place` and the extents outlive their use, and the extents do not move.
        unsafe {
            set_place(&raw const place);
            extents.iter().for_each(|extent| extent.begin(true));
        }
        let mut left = vec![2, 1, 0];
        for ended in order {
            // SAFETY: in force since above.
            unsafe { extents[ended].end() };
            left.retain(|&index| index != ended);
            assert_eq!(in_force(&place, &extents), left, "{ended} of {order:?} has ended");
        }
        // SAFETY: nothing is in force any more.
        unsafe { set_place(ptr::null()) };
    }
}

/// An extent that begins in a coroutine and ends outside of it, while the coroutine is suspended: as in a
/// coroutine of another crate that both resume.
#[test]
fn an_extent_ends_while_it_is_detached() {
    let place = Place::new(ptr::null());
    // SAFETY: `place` outlives its use.
    unsafe { set_place(&raw const place) };
    let extents = [Extent::new(), Extent::new()];
    let shared = &extents;
    scope(|s| {
        let mut coroutine = s.coroutine(move |suspender: &Suspender<(), ()>, ()| {
            // SAFETY: they do not move, and end below or outside, before the frame that has them is left.
            unsafe { shared.iter().for_each(|extent| extent.begin(true)) };
            suspender.suspend(());
            // SAFETY: in force since above.
            unsafe { shared[0].end() };
        });
        assert_eq!(coroutine.resume(()), Yielded(()));
        assert!(in_force(&place, &extents).is_empty(), "the coroutine has taken its extents along");
        // SAFETY: it has begun above.
        unsafe { extents[1].end() };
        assert_eq!(coroutine.resume(()), Complete(()));
        assert!(in_force(&place, &extents).is_empty());
    });
    // SAFETY: nothing is in force any more.
    unsafe { set_place(ptr::null()) };
}

/// The places in `extents` of those that are in force, innermost first.
fn in_force(place: &Place, extents: &[Extent]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut next = place.get();
    while !next.is_null() {
        let index = extents.iter().position(|extent| ptr::eq(extent, next));
        found.push(index.expect("nothing else is in force"));
        next = extents[found[found.len() - 1]].outer();
    }
    found
}
