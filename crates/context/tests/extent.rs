//! Extents, where coroutines are suspended and resumed.

use std::cell::Cell;
use std::ptr;
use std::sync::Barrier;
use std::thread;

use carefree_context::coroutine::{CoroutineState, Suspender, scope};
use carefree_context::extent::{Extent, Place, set_place};

use CoroutineState::{Complete, Yielded};

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
