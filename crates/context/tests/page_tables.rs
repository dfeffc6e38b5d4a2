//! The page tables that stacks take. They are the whole process's, so this test has one of its own.

use carefree_context::stack::{StackPool, StackSize};

/// Kilobytes of page tables.
fn page_tables() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A stack larger than a page table's span takes one for its top page, and none more for its guard.
#[test]
fn the_guards_of_large_stacks_take_none() {
    const STACKS: usize = 300;
    let size = StackSize::new(8 << 20).unwrap();
    let before = page_tables();
    let stacks: Vec<_> = (0..STACKS)
        .map(|_| {
            let stack = StackPool::global().acquire(size).unwrap();
            // SAFETY: the top word of a stack that nothing else uses.
            unsafe { stack.top().cast::<u64>().sub(1).write(1) };
            stack
        })
        .collect();
    let each = (page_tables() - before) as f64 / STACKS as f64;
    assert!(each < 5.0, "{each} KiB");
    drop(stacks);
}
