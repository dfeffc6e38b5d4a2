//! Coroutines as their users see them.

mod owned;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use carefree_context::coroutine::{Coroutine, CoroutineState, Suspender};
use carefree_context::stack::{StackPool, StackSize};
use owned::{owned, owned_on};

use CoroutineState::{Complete, Yielded};

/// A log of events, written by destructors and bodies.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.borrow_mut().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        self.0.take()
    }

    fn guard(&self, name: &'static str) -> Guard {
        Guard { log: self.clone(), name }
    }
}

/// Logs when it is dropped.
struct Guard {
    log: Log,
    name: &'static str,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.log.add(self.name);
    }
}

/// Catches a panic of `f`.
fn quietly<T>(f: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(f))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .expect("a message")
}

#[test]
fn values_go_both_ways() {
    let mut coroutine = owned(|suspender, first: u64| {
        let second = suspender.suspend(first * 2);
        let third = suspender.suspend(second * 3);
        format!("{first} {second} {third}")
    });
    assert!(!coroutine.is_done());
    assert_eq!(coroutine.resume(1), Yielded(2));
    assert_eq!(coroutine.resume(10), Yielded(30));
    assert!(!coroutine.is_done());
    assert_eq!(coroutine.resume(100), Complete("1 10 100".to_string()));
    assert!(coroutine.is_done());
}

/// Passes `value` in and out a few times, as input, as yield and as return value.
fn travels<T: Clone + PartialEq + Debug + 'static>(value: T) {
    // Unoptimised builds copy a value many times on its way.
    let size = StackSize::new(2 << 20).unwrap();
    let mut echo = owned_on::<T, T, T>(size, |suspender, first| {
        let mut value = first;
        for _ in 0..5 {
            value = suspender.suspend(value);
        }
        value
    })
    .expect("2 MiB can be allocated");
    for _ in 0..5 {
        assert_eq!(echo.resume(value.clone()), Yielded(value.clone()));
    }
    assert_eq!(echo.resume(value.clone()), Complete(value));
}

#[test]
fn values_of_every_shape() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(64))]
    struct Aligned<T>(T);
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(4096))]
    struct Page(u8);

    travels(());
    travels(Aligned(()));
    travels(7_u8);
    travels((1_u8, 2_u32));
    travels(u64::MAX);
    travels(u128::MAX);
    travels(f64::MIN_POSITIVE);
    travels([3_u8; 10 * 1024]);
    travels(Aligned(3_u8));
    travels(Page(200));
    travels(Some(String::from("owned")));
    travels(vec![vec![1], vec![2, 3]]);
    travels::<Option<Box<u32>>>(None);
    travels(Rc::new(5));
}

#[test]
fn values_are_moved_never_copied_or_lost() {
    let count = Rc::new(());
    let mut coroutine = owned(|suspender, first: Rc<()>| {
        let second = suspender.suspend(first);
        drop(suspender.suspend(second));
    });
    for _ in 0..2 {
        match coroutine.resume(count.clone()) {
            Yielded(value) => assert!(Rc::ptr_eq(&value, &count)),
            Complete(()) => panic!("too early"),
        }
        assert_eq!(Rc::strong_count(&count), 1);
    }
    assert_eq!(coroutine.resume(count.clone()), Complete(()));
    assert_eq!(Rc::strong_count(&count), 1);
}

#[test]
fn coroutines_nest() {
    fn counter(depth: u32) -> Coroutine<u32, u32, u32> {
        owned(move |suspender: &Suspender<u32, u32>, first| {
            if depth == 0 {
                return first;
            }
            let mut inner = counter(depth - 1);
            let mut input = first;
            loop {
                match inner.resume(input + 1) {
                    Yielded(value) => input = suspender.suspend(value + 1),
                    Complete(value) => {
                        input = suspender.suspend(value + 1);
                        return input;
                    }
                }
            }
        })
    }
    let mut outermost = counter(20);
    // Twenty increments on the way in, and another twenty on the way out.
    assert_eq!(outermost.resume(0), Yielded(40));
    // The innermost one that suspended itself returns what it is given.
    assert_eq!(outermost.resume(0), Yielded(19 + 19));
}

#[test]
fn a_resumer_may_have_another_stack_each_time() {
    let shared = Rc::new(RefCell::new(owned(|suspender, mut value: u32| {
        loop {
            value = suspender.suspend(value + 1);
        }
    })));
    let resume = |value| match shared.borrow_mut().resume(value) {
        Yielded(value) => value,
        Complete(()) => unreachable!(),
    };
    assert_eq!(resume(1), 2);
    let other = shared.clone();
    let mut from_inside = owned::<(), u32, u32>(move |suspender, ()| {
        let Yielded(value) = other.borrow_mut().resume(10) else { unreachable!() };
        suspender.suspend(value);
        let Yielded(value) = other.borrow_mut().resume(20) else { unreachable!() };
        value
    });
    assert_eq!(from_inside.resume(()), Yielded(11));
    assert_eq!(resume(100), 101);
    assert_eq!(from_inside.resume(()), Complete(21));
}

#[test]
fn handles_may_move_while_suspended() {
    let mut moved = Vec::new();
    for start in 0..50_u32 {
        let mut coroutine = owned(move |suspender, ()| {
            for step in 0.. {
                suspender.suspend(start + step);
            }
        });
        assert_eq!(coroutine.resume(()), Yielded(start));
        moved.push(coroutine);
    }
    moved.reverse();
    for (start, mut coroutine) in (0..50_u32).rev().zip(moved) {
        assert_eq!(coroutine.resume(()), Yielded(start + 1));
    }
}

#[test]
fn completion_drops_locals_before_the_resumer_continues() {
    let log = Log::default();
    let captured = log.guard("captured");
    let inside = log.clone();
    let mut coroutine = owned(move |suspender: &Suspender<(), ()>, ()| {
        let _captured = captured;
        let _first = inside.guard("first");
        let _second = inside.guard("second");
        suspender.suspend(());
    });
    coroutine.resume(());
    assert!(log.take().is_empty());
    coroutine.resume(());
    log.add("resumer");
    assert_eq!(log.take(), ["second", "first", "captured", "resumer"]);
}

#[test]
fn dropping_one_that_never_ran_drops_its_closure() {
    let log = Log::default();
    let captured = log.guard("captured");
    let coroutine = owned::<(), (), ()>(move |_, ()| {
        let _captured = captured;
        unreachable!("it is never resumed");
    });
    assert!(log.take().is_empty());
    drop(coroutine);
    assert_eq!(log.take(), ["captured"]);
}

#[test]
fn dropping_a_suspended_one_runs_its_destructors() {
    let log = Log::default();
    let inside = log.clone();
    let mut coroutine = owned(move |suspender: &Suspender<(), Guard>, ()| {
        let _first = inside.guard("first");
        let deeper = |name| {
            let _deeper = inside.guard(name);
            suspender.suspend(inside.guard("yielded"));
            unreachable!("it is dropped instead of resumed");
        };
        let _second = inside.guard("second");
        deeper("deeper");
    });
    let Yielded(yielded) = coroutine.resume(()) else { unreachable!() };
    drop(coroutine);
    assert_eq!(log.take(), ["deeper", "second", "first"]);
    drop(yielded);
    assert_eq!(log.take(), ["yielded"]);
}

#[test]
fn dropping_a_nest_unwinds_from_the_innermost() {
    let log = Log::default();
    let inside = log.clone();
    let mut outer = owned::<(), (), ()>(move |suspender, ()| {
        let innermost = inside.clone();
        let mut inner = owned::<(), (), ()>(move |suspender, ()| {
            let _guard = innermost.guard("inner");
            suspender.suspend(());
        });
        let _outer = inside.guard("outer, declared later");
        inner.resume(());
        suspender.suspend(());
    });
    outer.resume(());
    drop(outer);
    assert_eq!(log.take(), ["outer, declared later", "inner"]);
}

#[test]
fn the_forced_unwind_runs_no_panic_hook() {
    let hooks = Rc::new(Cell::new(0));
    thread_local!(static HOOKS: Cell<u32> = const { Cell::new(0) });
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        HOOKS.set(HOOKS.get() + 1);
        previous(info);
    }));
    let mut coroutine = owned::<(), (), ()>(|suspender, ()| suspender.suspend(()));
    coroutine.resume(());
    drop(coroutine);
    hooks.set(HOOKS.get());
    assert_eq!(hooks.get(), 0);
    assert!(!std::thread::panicking());
}

#[test]
fn a_swallowed_forced_unwind_is_raised_again_at_the_next_suspend() {
    let log = Log::default();
    let inside = log.clone();
    let mut coroutine = owned::<(), Guard, ()>(move |suspender, ()| {
        for _ in 0..3 {
            let suspended = quietly(|| suspender.suspend(inside.guard("lost value")));
            inside.add(if suspended.is_err() { "caught" } else { "resumed" });
        }
        inside.add("went on");
        suspender.suspend(inside.guard("lost value"));
        unreachable!("it is being dropped");
    });
    coroutine.resume(());
    assert_eq!(log.take(), ["lost value"], "the resumer dropped it");
    drop(coroutine);
    assert_eq!(
        log.take(),
        ["caught", "lost value", "caught", "lost value", "caught", "went on", "lost value"]
    );
    assert!(!std::thread::panicking());
}

#[test]
fn a_swallowed_forced_unwind_may_end_in_a_return() {
    let log = Log::default();
    let inside = log.clone();
    let mut coroutine = owned::<(), (), Guard>(move |suspender, ()| {
        assert!(quietly(|| suspender.suspend(())).is_err());
        inside.guard("returned")
    });
    coroutine.resume(());
    drop(coroutine);
    assert_eq!(log.take(), ["returned"]);
}

#[test]
fn a_swallowed_forced_unwind_may_end_in_another_panic() {
    let mut coroutine = owned::<(), (), ()>(|suspender, ()| {
        assert!(quietly(|| suspender.suspend(())).is_err());
        resume_unwind(Box::new("another"));
    });
    coroutine.resume(());
    let payload = quietly(|| drop(coroutine)).unwrap_err();
    assert_eq!(message(&*payload), "another");
}

#[test]
fn panics_cross_to_the_resumer_with_their_payload() {
    #[derive(Debug, PartialEq)]
    struct Payload(Vec<u32>);
    let log = Log::default();
    let inside = log.clone();
    let mut coroutine = owned::<u32, u32, ()>(move |suspender, first| {
        let _guard = inside.guard("guard");
        let second = suspender.suspend(first);
        resume_unwind(Box::new(Payload(vec![first, second])));
    });
    assert_eq!(coroutine.resume(1), Yielded(1));
    let payload = quietly(|| coroutine.resume(2)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&Payload(vec![1, 2])));
    assert_eq!(log.take(), ["guard"]);
    assert!(coroutine.is_done());
    assert!(!std::thread::panicking());
}

#[test]
fn panics_cross_several_coroutines() {
    let mut outer = owned::<(), (), ()>(|_, ()| {
        let mut inner = owned::<(), (), ()>(|_, ()| resume_unwind(Box::new("deep")));
        inner.resume(());
    });
    let payload = quietly(|| outer.resume(())).unwrap_err();
    assert_eq!(message(&*payload), "deep");
}

#[test]
fn a_panic_caught_inside_stays_inside() {
    let mut coroutine = owned::<(), bool, bool>(|suspender, ()| {
        let caught = quietly(|| resume_unwind(Box::new(1))).is_err();
        suspender.suspend(caught);
        std::thread::panicking()
    });
    assert_eq!(coroutine.resume(()), Yielded(true));
    assert_eq!(coroutine.resume(()), Complete(false));
}

#[test]
fn resuming_a_completed_one_panics() {
    let mut returned = owned::<(), (), ()>(|_, ()| ());
    returned.resume(());
    let payload = quietly(|| returned.resume(())).unwrap_err();
    assert_eq!(
        message(&*payload),
        "a coroutine was resumed after it had completed: ask is_done() first"
    );

    let mut panicked = owned::<(), (), ()>(|_, ()| resume_unwind(Box::new(())));
    assert!(quietly(|| panicked.resume(())).is_err());
    assert!(quietly(|| panicked.resume(())).unwrap_err().is::<&str>());
}

/// Runs a closure in its destructor.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_panicking_resumer_may_use_and_drop_coroutines() {
    let log = Log::default();
    let inside = log.clone();
    let numbers = move || {
        let inside = inside.clone();
        owned::<(), u32, ()>(move |suspender, ()| {
            let _guard = inside.guard("unwound");
            for number in 0.. {
                suspender.suspend(number);
            }
        })
    };
    let mut used_before = numbers();
    assert_eq!(used_before.next(), Some(0));
    let started = {
        let mut started = numbers();
        started.next();
        started
    };
    let outside = log.clone();
    let result = quietly(|| {
        let _dropped_while_panicking = started;
        let _finally = Finally(|| {
            assert!(std::thread::panicking());
            outside.add(format!("{:?}", used_before.next()));
            outside.add(format!("{:?}", numbers().take(3).collect::<Vec<_>>()));
        });
        resume_unwind(Box::new("the resumer's"));
    });
    assert_eq!(message(&*result.unwrap_err()), "the resumer's");
    assert!(!std::thread::panicking());
    assert_eq!(log.take(), ["Some(1)", "unwound", "[0, 1, 2]", "unwound"]);
    assert_eq!(used_before.next(), Some(2));
}

#[test]
fn a_closure_whose_destructor_panics_gives_its_stack_back() {
    /// Stores its address.
    struct Bomb(Rc<Cell<usize>>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.set(std::ptr::from_ref(self).addr());
            resume_unwind(Box::new("bomb"));
        }
    }
    // A size that no other test uses.
    let size = StackSize::new(32 * 1024).unwrap();
    let address = Rc::new(Cell::new(0));
    let bomb = Bomb(address.clone());
    let coroutine = owned_on::<(), (), ()>(size, move |_, ()| {
        let _bomb = &bomb;
    });
    let payload = quietly(|| drop(coroutine)).unwrap_err();
    assert_eq!(message(&*payload), "bomb");
    // The stack that was released last is reused first.
    let stack = StackPool::global().acquire(size).unwrap();
    assert!((stack.base().addr()..stack.top().addr()).contains(&address.get()));
}

#[test]
fn the_stack_is_aligned() {
    #[repr(align(64))]
    struct Aligned([u8; 64]);
    #[inline(never)]
    fn spill(a: [f64; 8], suspender: &Suspender<f64, f64>) -> f64 {
        let local = Aligned([1; 64]);
        let address = std::hint::black_box(&local) as *const Aligned as usize;
        assert_eq!(address % 64, 0);
        assert_eq!(local.0.iter().map(|&byte| u32::from(byte)).sum::<u32>(), 64);
        let b = a.map(|x| suspender.suspend(x * 1.5));
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }
    // The closure's size moves the first frame, which must be aligned with any size.
    fn with_captured<const N: usize>() {
        let captured = [3_u8; N];
        let mut coroutine = owned(move |suspender: &Suspender<f64, f64>, first: f64| {
            assert!(captured.iter().all(|&byte| byte == 3));
            spill([first; 8], suspender)
        });
        for _ in 0..8 {
            assert_eq!(coroutine.resume(2.0), Yielded(3.0));
        }
        assert_eq!(coroutine.resume(2.0), Complete(32.0));
    }
    with_captured::<0>();
    with_captured::<1>();
    with_captured::<8>();
    with_captured::<15>();
    with_captured::<24>();
    with_captured::<1000>();
    with_captured::<4097>();
}

#[test]
fn over_aligned_captures() {
    #[repr(align(1024))]
    struct Aligned(u64);
    let captured = Aligned(7);
    let mut coroutine = owned::<(), (), u64>(move |_, ()| {
        assert_eq!(std::ptr::from_ref(&captured).addr() % 1024, 0);
        captured.0
    });
    assert_eq!(coroutine.resume(()), Complete(7));
}

#[test]
fn registers_survive_a_suspension() {
    // More live values over the suspension than there are registers of either kind.
    let mut coroutine = owned(|suspender: &Suspender<[u64; 20], f64>, first| {
        let mut integers = first;
        let mut floats = first.map(|x| x as f64 / 3.0);
        for round in 0..50_u64 {
            let more = suspender.suspend(floats.iter().sum::<f64>());
            for i in 0..20 {
                integers[i] = integers[i].wrapping_mul(31).wrapping_add(more[i] ^ round);
                floats[i] = floats[i] * 0.5 + more[i] as f64;
            }
        }
        (integers, floats)
    });
    let mut integers: [u64; 20] = std::array::from_fn(|i| i as u64);
    let mut floats = integers.map(|x| x as f64 / 3.0);
    let mut input = integers;
    for round in 0..50_u64 {
        let Yielded(sum) = coroutine.resume(input) else { panic!("too early") };
        assert_eq!(sum, floats.iter().sum::<f64>());
        input = std::array::from_fn(|i| (i as u64 + 1) * (round + 7));
        for i in 0..20 {
            integers[i] = integers[i].wrapping_mul(31).wrapping_add(input[i] ^ round);
            floats[i] = floats[i] * 0.5 + input[i] as f64;
        }
    }
    assert_eq!(coroutine.resume(input), Complete((integers, floats)));
}

#[test]
fn deep_recursion() {
    fn depth(n: u32, suspender: &Suspender<(), u32>) -> u32 {
        let frame = std::hint::black_box([n; 16]);
        if n == 0 {
            suspender.suspend(u32::MAX);
            return 0;
        }
        depth(n - 1, suspender) + frame[3] / n
    }
    let size = StackSize::new(8 << 20).unwrap();
    let mut coroutine =
        owned_on(size, |suspender, ()| depth(20_000, suspender)).expect("8 MiB can be allocated");
    assert_eq!(coroutine.resume(()), Yielded(u32::MAX));
    assert_eq!(coroutine.resume(()), Complete(20_000));
}

#[test]
fn recursion_inside_a_suspension_and_between() {
    fn walk(tree: &[Vec<usize>], node: usize, suspender: &Suspender<(), usize>) {
        suspender.suspend(node);
        for &child in &tree[node] {
            walk(tree, child, suspender);
        }
    }
    let tree = vec![vec![1, 2], vec![3], vec![4, 5], vec![], vec![6], vec![], vec![]];
    let mut walker = owned(move |suspender, ()| walk(&tree, 0, suspender));
    assert_eq!(walker.by_ref().collect::<Vec<_>>(), [0, 1, 3, 2, 4, 6, 5]);
    assert!(walker.is_done());
    assert_eq!(walker.next(), None, "it is fused");
}

#[test]
fn a_closure_too_large_for_the_stack_is_an_error() {
    let large = [0_u8; 64 * 1024];
    let error = owned_on::<(), (), usize>(StackSize::MIN, move |_, ()| {
        large.iter().filter(|&&byte| byte == 0).count()
    })
    .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(
        error.to_string(),
        format!(
            "the closure of a coroutine captures 65536 bytes, which do not fit the {} usable bytes \
             of its stack: give it a larger one, or box what it captures",
            StackSize::MIN.usable()
        )
    );
}

#[test]
fn it_shares_its_resumers_thread_local_variables() {
    thread_local!(static VALUE: Cell<u32> = const { Cell::new(0) });
    let mut coroutine = owned(|suspender: &Suspender<(), u32>, ()| {
        loop {
            VALUE.set(VALUE.get() * 2);
            suspender.suspend(VALUE.get());
        }
    });
    for round in 1..10 {
        VALUE.set(round);
        assert_eq!(coroutine.next(), Some(round * 2));
        assert_eq!(VALUE.get(), round * 2);
    }
}

#[test]
fn a_hundred_thousand_in_a_row_and_ten_thousand_at_once() {
    let mut sum = 0_u64;
    for number in 0..100_000_u64 {
        let mut coroutine = owned::<u64, u64, u64>(move |suspender, x| {
            let y = suspender.suspend(x + number);
            x + y
        });
        coroutine.resume(1);
        if number % 1000 == 0 {
            // Some are dropped half-way.
            continue;
        }
        if let Complete(value) = coroutine.resume(2) {
            sum += value;
        }
    }
    assert_eq!(sum, 3 * (100_000 - 100));

    let mut many: Vec<_> = (0..10_000_u64)
        .map(|start| {
            owned::<(), u64, ()>(move |suspender, ()| {
                for number in start.. {
                    suspender.suspend(number);
                }
            })
        })
        .collect();
    for round in 0..3 {
        for (start, coroutine) in many.iter_mut().enumerate() {
            assert_eq!(coroutine.next(), Some(start as u64 + round));
        }
    }
}

#[test]
fn scoped_threads_inside_a_coroutine_see_its_locals() {
    let mut coroutine = owned::<(), u64, ()>(|suspender, ()| {
        let mut local = vec![1_u64; 1000];
        std::thread::scope(|scope| {
            let (left, right) = local.split_at_mut(500);
            scope.spawn(|| left.iter_mut().for_each(|x| *x += 1));
            scope.spawn(|| right.iter_mut().for_each(|x| *x += 2));
        });
        suspender.suspend(local.iter().sum());
    });
    assert_eq!(coroutine.next(), Some(500 * 2 + 500 * 3));
}

#[test]
fn debug_says_whether_it_is_done() {
    let mut coroutine = owned::<(), (), ()>(|suspender, ()| {
        assert_eq!(format!("{suspender:?}"), "Suspender { .. }");
    });
    assert_eq!(format!("{coroutine:?}"), "Coroutine { is_done: false, .. }");
    coroutine.resume(());
    assert_eq!(format!("{coroutine:?}"), "Coroutine { is_done: true, .. }");
}
