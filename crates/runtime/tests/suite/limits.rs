//! Memory: how much a fiber may take, what is given back, and the errors where there is none.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree_runtime::{Builder, JoinHandle, park, park_timeout, run, spawn};

use crate::common::{
    in_a_process, in_forced_mode, is_child, limit_address_space, page_size, text, until,
};

/// Resident memory in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * page_size() as usize
}

/// What this process may take yet: what is left of the machine's memory, and of its control group's.
fn available() -> usize {
    let number = |path: &str, word: &str| -> Option<usize> {
        let text = std::fs::read_to_string(path).ok()?;
        let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let group = |name: &str| number(&format!("/sys/fs/cgroup/{name}"), "");
    let most = [
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ];
    let left = most.map(|(most, used)| Some(group(most)?.saturating_sub(group(used)?)));
    let free = number("/proc/meminfo", "MemAvailable:").map(|kib| kib << 10);
    left.into_iter().chain([free]).flatten().min().unwrap_or(usize::MAX)
}

#[test]
fn an_overflow_names_the_fiber() {
    fn deep(n: u64) -> u64 {
        let frame = black_box([n; 64]);
        if n == 0 { frame[0] } else { deep(n - 1) + frame[1] }
    }
    if is_child() {
        let handle = Builder::new().name("digger".into()).stack_size(64 << 10);
        handle.spawn(|| deep(1 << 20)).unwrap().join().unwrap();
        return;
    }
    let output = in_a_process("limits::an_overflow_names_the_fiber", &[]);
    let said = text(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("fiber 'digger'") && said.contains("overflow"), "{said}");
}

#[test]
fn the_size_asked_for_is_checked() {
    let error = Builder::new().stack_size(usize::MAX).spawn(|| ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    // More than fits in any address space, but not more than the largest class.
    let mut parked = Vec::new();
    let said = loop {
        match Builder::new().stack_size(63 << 40).spawn(park) {
            Ok(handle) => parked.push(handle),
            Err(error) => break error,
        }
        assert!(parked.len() < 3, "there is no address space for so many");
    };
    assert_eq!(said.kind(), std::io::ErrorKind::OutOfMemory, "{said}");
    assert!(said.to_string().contains("address space"), "{said}");
    end_all(parked);
    // Small sizes are rounded up, as by std. Large ones take only address space.
    for size in [0, 1, 16 << 10, 100_000, 1 << 20, 16 << 20, 16 << 30] {
        let deep = move || black_box([1u8; 2000]).iter().map(|b| usize::from(*b)).sum::<usize>();
        let handle = Builder::new().stack_size(size).spawn(deep).unwrap();
        assert_eq!(handle.join().unwrap(), 2000);
    }
}

#[test]
fn fibers_in_a_row_leak_nothing() {
    fn some(fibers: usize) {
        run(move || {
            let ended = Arc::new(AtomicUsize::new(0));
            for n in 0..fibers {
                let name = format!("number {n}");
                let handle = Builder::new().name(name).spawn(move || vec![n; 10]).unwrap();
                assert_eq!(handle.join().unwrap()[9], n);
                // Spawns a detached fiber with a large closure, and now and then one that panics.
                let (large, theirs) = ([n; 300], ended.clone());
                drop(spawn(move || {
                    black_box(large);
                    theirs.fetch_add(1, Ordering::Release);
                }));
                if n % 64 == 0 {
                    crate::common::quiet();
                    assert!(spawn(|| crate::common::panic_on_purpose()).join().is_err());
                    // Bounds how many are alive at once, so that no round needs more memory than another.
                    until("they have ended", || ended.load(Ordering::Acquire) == n + 1);
                }
            }
        });
    }
    if !is_child() {
        // The watchdog's memory, names of functions above all, would look like a leak.
        let quiet = [("CAREFREE_WATCH", "off")];
        let output = in_a_process("limits::fibers_in_a_row_leak_nothing", &quiet);
        assert!(output.status.success(), "{}", text(&output));
        return;
    }
    let fibers = if in_forced_mode() { 5_000 } else { 25_000 };
    some(fibers);
    // Two fibers a turn: with 50,000, even 20 bytes lost with each would show.
    const LEAK: usize = 1 << 20;
    // A leak shows in each round. The stacks and headers that carriers keep at hand do not: each carrier fills
    // up its own once, in this round or in a later one.
    let mut grown = Vec::new();
    let leaks = (0..100).all(|_| {
        let before = resident();
        some(fibers);
        grown.push(resident().saturating_sub(before));
        grown.last() >= Some(&LEAK)
    });
    assert!(!leaks, "{grown:?} bytes were lost with {} fibers", 2 * fibers);
}

#[test]
fn handles_can_be_kept_and_joined_later() {
    let fibers = if in_forced_mode() { 2_000 } else { 100_000 };
    let handles: Vec<JoinHandle<usize>> = (0..fibers).map(|n| spawn(move || n)).collect();
    let sum: usize = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
    assert_eq!(sum, fibers * (fibers - 1) / 2);
}

/// Spawns fibers that park, until there is no memory for another stack and the error says why.
fn fill(stack: usize) -> Vec<JoinHandle<()>> {
    let mut parked = Vec::with_capacity(100);
    loop {
        match Builder::new().stack_size(stack).spawn(park) {
            Ok(handle) => parked.push(handle),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
                let said = error.to_string();
                assert!(said.contains("RLIMIT_AS") && said.contains("ulimit -v"), "{said}");
                return parked;
            }
        }
        assert!(parked.len() < 100, "the limit has no effect");
    }
}

fn end_all(parked: Vec<JoinHandle<()>>) {
    for handle in parked {
        handle.thread().unpark();
        handle.join().unwrap();
    }
}

#[test]
fn the_limit_that_refuses_a_stack_is_named() {
    const STACK: usize = 16 << 20;
    if !is_child() {
        let output = in_a_process("limits::the_limit_that_refuses_a_stack_is_named", &[]);
        assert!(output.status.success(), "{}", text(&output));
        return;
    }
    // The runtime's threads and the pools exist before the limit does.
    run(|| ());
    // Room for ten stacks, and some for malloc, which the limit also counts.
    limit_address_space(10 * STACK + (8 << 20));
    let parked = fill(STACK);
    let at_once = parked.len();
    assert!(at_once >= 5, "{at_once}");
    // A refused spawn keeps no memory, and what is given back can be had again at once, from a thread and from
    // a fiber.
    end_all(parked);
    let parked = fill(STACK);
    assert_eq!(parked.len(), at_once);
    end_all(parked);
    let again = run(|| {
        let parked = fill(STACK);
        let again = parked.len();
        end_all(parked);
        again
    });
    assert_eq!(again, at_once);
}

/// Where there is no memory for another carrier, what waits behind a fiber that computes goes on waiting.
#[test]
fn a_carrier_that_memory_is_refused_for_is_not_added() {
    if !is_child() {
        let name = "limits::a_carrier_that_memory_is_refused_for_is_not_added";
        let output = in_a_process(name, &[("CAREFREE_CARRIERS", "1")]);
        assert!(output.status.success(), "{}", text(&output));
        return;
    }
    run(|| {
        // Its stack is kept at hand for the next.
        spawn(|| ()).join().unwrap();
        limit_address_space(0);
        let waiting = spawn(|| ());
        // The monitor looks a few times.
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        waiting.join().unwrap();
    });
}

/// Idle stacks give up their address space for stacks of another size.
#[test]
fn idle_stacks_make_room_for_those_of_another_size() {
    if !is_child() {
        let name = "limits::idle_stacks_make_room_for_those_of_another_size";
        // Otherwise malloc reserves 64 MiB for each of several threads.
        let output = in_a_process(name, &[("MALLOC_ARENA_MAX", "1"), ("CAREFREE_CARRIERS", "2")]);
        assert!(output.status.success(), "{}", text(&output));
        return;
    }
    run(|| ());
    limit_address_space(800 << 20);
    // A little less than a power of two: there is a guard, too.
    for (stack, least) in [(510 << 20, 1), (62 << 20, 8), (254 << 20, 2), (510 << 20, 1)] {
        for round in 0..3 {
            let parked = fill(stack);
            let had = parked.len();
            assert!(had >= least, "{had} stacks of {} MiB in round {round}", stack >> 20);
            end_all(parked);
        }
    }
    // Then stacks of the default size, of which carriers keep some at hand.
    for round in 0..3 {
        end_all((0..2000).map(|_| spawn(park)).collect());
        // A carrier that gets no processor meanwhile cannot give back its idle stacks.
        until(&format!("there is room in round {round}"), || {
            let parked = fill(510 << 20);
            let had = !parked.is_empty();
            end_all(parked);
            had
        });
    }
}

#[test]
fn a_wrong_number_of_carriers_is_reported() {
    if is_child() {
        let error = Builder::new().spawn(|| ()).unwrap_err();
        eprintln!("error: {error}");
        // It stays wrong.
        Builder::new().spawn(|| ()).unwrap_err();
        return;
    }
    for wrong in ["0", "many", "1025", "-1"] {
        let name = "limits::a_wrong_number_of_carriers_is_reported";
        let output = in_a_process(name, &[("CAREFREE_CARRIERS", wrong)]);
        assert!(output.status.success(), "{}", text(&output));
        let line = format!("CAREFREE_CARRIERS={wrong} is not a number of carriers from 1 to 1024");
        assert!(text(&output).contains(&line), "{}", text(&output));
    }
}

/// The timers of a crowd that slept take no memory when none is left.
#[test]
fn sleepers_leave_no_timers() {
    const CROWD: usize = 100_000;
    static WAITS: AtomicUsize = AtomicUsize::new(0);
    fn wait(wait: impl FnOnce()) {
        WAITS.fetch_add(1, Ordering::Relaxed);
        wait();
    }
    if is_child() {
        // All fibers live all the time, so that their stacks' memory stays the same.
        run(|| {
            let waits = || {
                wait(park);
                wait(|| park_timeout(Duration::from_secs(1000)));
                wait(park);
            };
            let fibers: Vec<_> = (0..CROWD).map(|_| spawn(waits)).collect();
            let resident_in_wait = |number: usize| {
                until("all wait", || WAITS.load(Ordering::Relaxed) == number * CROWD);
                let resident = resident();
                fibers.iter().for_each(|fiber| fiber.thread().unpark());
                resident
            };
            let [_, timed, parked] = [1, 2, 3].map(resident_in_wait);
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            assert!(timed > parked + 20 * CROWD, "{timed} bytes with timers, {parked} without");
        });
        return;
    }
    // It takes seconds, and the mode is no matter.
    if in_forced_mode() {
        return;
    }
    // Several times: where carriers are added between two looks, they take memory, and few of the timers each.
    let outputs = (0..3)
        .map(|_| in_a_process("limits::sleepers_leave_no_timers", &[("CAREFREE_CARRIERS", "1")]));
    let failed = Vec::from_iter(outputs.take_while(|output| !output.status.success()));
    assert!(failed.len() < 3, "{}", text(&failed[2]));
}

/// However deep the fibers of a crowd have gone, their stacks keep no more than is promised when it has ended.
#[test]
fn idle_stacks_keep_bounded_memory() {
    use carefree_context::stack::default_idle_bytes;
    const PAGES: usize = 10;
    fn deep(pages: usize) {
        let mut frame = [0u8; 4096];
        black_box(&mut frame);
        if pages > 0 {
            deep(pages - 1);
        }
        black_box(&mut frame);
    }
    if is_child() {
        let crowd = 3 * default_idle_bytes() / (PAGES * 4096);
        let before = resident();
        run(move || {
            static DEEP: AtomicUsize = AtomicUsize::new(0);
            let wait = || {
                deep(PAGES);
                DEEP.fetch_add(1, Ordering::Relaxed);
                park();
            };
            let fibers = (0..crowd).map(|_| spawn(wait)).collect();
            until("all were deep", || DEEP.load(Ordering::Relaxed) == crowd);
            assert!(resident() > before + 5 * default_idle_bytes() / 2);
            end_all(fibers);
        });
        let kept = resident() - before;
        assert!(kept < 3 * default_idle_bytes() / 2, "{kept} bytes are kept");
        return;
    }
    // The share is one of the machine's memory, of which a container may have little.
    let wanted = 4 * default_idle_bytes();
    if wanted > available() {
        return println!("skipped: it takes {wanted} bytes, and {} are left", available());
    }
    let output = in_a_process("limits::idle_stacks_keep_bounded_memory", &[]);
    assert!(output.status.success(), "{}", text(&output));
}
