//! The counting allocator, in a program of its own: it has to be the program's one.

use carefree_workloads::fetch::{Allocations, CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The least of several counts: the thread that runs the tests may allocate something meanwhile.
fn least<T>(f: impl Fn() -> T) -> Option<Allocations> {
    (0..20).map(|_| count_allocations(&f).1).min_by_key(|c| c.map(|c| (c.objects, c.bytes)))?
}

// One test, and not three: they would count each other's.
#[test]
fn what_is_allocated_is_counted_on_all_threads_and_only_while_asked() {
    let before = std::hint::black_box(vec![0_u8; 5000]);
    let counted = least(|| {
        drop(std::hint::black_box(vec![1_u8; 1000]));
        std::hint::black_box(vec![0_u8; 300])
    });
    assert_eq!(counted, Some(Allocations { bytes: 1300, objects: 2 }));
    drop(before);

    let counted = least(|| {
        let mut grown = Vec::<u8>::with_capacity(10);
        grown.reserve_exact(std::hint::black_box(4000));
        std::hint::black_box(grown);
    });
    assert_eq!(counted, Some(Allocations { bytes: 4000, objects: 1 }));

    let counted = least(|| {
        let work = || drop(std::hint::black_box(vec![1_u8; 1 << 20]));
        std::thread::spawn(work).join().expect("no panic");
    });
    let counted = counted.expect("this program's allocator");
    assert!(counted.bytes >= 1 << 20 && counted.objects > 1, "{counted:?}");
    assert_eq!(least(|| ()), Some(Allocations::default()));
}
