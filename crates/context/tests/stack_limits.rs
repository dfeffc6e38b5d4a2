//! Each limit is reached, in a process of its own, and named in the error.

mod reexec;

use carefree_context::stack::{self, GuardMode, Stack, StackPool, StackSize};
use std::io::ErrorKind;
use std::process::Output;

/// Runs one of the tests below again, as a child with this variable set.
const CHILD: &str = "CAREFREE_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn in_child(test: &str, variables: &[(&str, &str)]) -> Output {
    reexec::this_program()
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

/// The number of a limit, for which C libraries have types of their own.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn set_limit(resource: Resource, value: u64) {
    // SAFETY: only reads the structure.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(libc::getrlimit(resource, &raw mut limit), 0);
        limit.rlim_cur = value.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(resource, &raw const limit), 0);
    }
}

fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: no preconditions.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// Acquires until an error; returns the stacks and the error.
fn exhaust(size: StackSize) -> (Vec<Stack>, std::io::Error) {
    let mut stacks = Vec::with_capacity(1 << 20);
    loop {
        match StackPool::global().acquire(size) {
            Ok(stack) => stacks.push(stack),
            Err(error) => return (stacks, error),
        }
    }
}

fn readable(address: *const u8) -> bool {
    let mut pipe = [0; 2];
    // SAFETY: the kernel reads the address, and returns EFAULT if it cannot.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let written = libc::write(pipe[1], address.cast(), 1);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        written == 1
    }
}

#[test]
fn the_limit_on_address_space() {
    if !is_child() {
        return assert_passed(&in_child("the_limit_on_address_space", &[]));
    }
    let room: u64 = 100 << 20;
    set_limit(libc::RLIMIT_AS, address_space() + room);
    let (stacks, error) = exhaust(StackSize::DEFAULT);
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.starts_with("cannot allocate a stack of 256 KiB: the limit on address"), "{text}");
    assert!(text.contains("RLIMIT_AS") && text.contains("ulimit -v"), "{text}");
    // All the address space that stacks fit into was used, though slabs prefer to be larger. (The list
    // of stacks takes some of it as well.)
    let most = (room / StackSize::DEFAULT.bytes() as u64) as usize;
    assert!((most / 2..=most).contains(&stacks.len()), "{} of {most} stacks", stacks.len());
    // Existing stacks still work, and releasing some is enough to continue.
    let mut more = Vec::new();
    assert!(StackPool::global().acquire_many(StackSize::DEFAULT, 10, &mut more).is_err());
    drop(stacks);
    StackPool::global().acquire_many(StackSize::DEFAULT, most * 2, &mut more).unwrap();
    assert!(more.len() >= most / 2, "as many as possible, not {}", more.len());
}

#[test]
fn the_limit_on_mappings() {
    if !is_child() {
        let variables = [("CAREFREE_GUARDS", "mprotect")];
        return assert_passed(&in_child("the_limit_on_mappings", &variables));
    }
    assert_eq!(stack::guards().mode, GuardMode::Mprotect);
    assert_eq!(stack::guards().reason, "CAREFREE_GUARDS=mprotect asks for it");
    // The smallest stacks, to touch as few page tables as possible.
    let (stacks, error) = exhaust(StackSize::MIN);
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.starts_with("cannot allocate a stack of 16 KiB: the process has "), "{text}");
    assert!(text.contains("sysctl -w vm.max_map_count="), "{text}");
    for stack in stacks.iter().step_by(1000).chain(stacks.last()) {
        assert!(!readable(stack.base()) && readable(stack.limit()));
    }
    let many = stacks.len();
    drop(stacks);
    let mut again = Vec::new();
    StackPool::global().acquire_many(StackSize::MIN, many, &mut again).unwrap();
    assert_eq!(again.len(), many);
}

#[test]
fn guards_by_madvise_take_no_mappings() {
    if !is_child() {
        let variables = [("CAREFREE_GUARDS", "madvise")];
        return assert_passed(&in_child("guards_by_madvise_take_no_mappings", &variables));
    }
    if stack::guards().mode == GuardMode::Mprotect {
        // A kernel before 6.13: then the reason must say so.
        return assert!(stack::guards().reason.contains("6.13"), "{}", stack::guards().reason);
    }
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let before = mappings();
    let mut stacks = Vec::new();
    StackPool::global().acquire_many(StackSize::MIN, 20_000, &mut stacks).unwrap();
    assert!(stacks.iter().all(|stack| !readable(stack.base())));
    let more = mappings() - before;
    assert!(more < 40, "{more} mappings more for 20,000 stacks");
}

#[test]
fn locked_memory() {
    if !is_child() {
        return assert_passed(&in_child("locked_memory", &[]));
    }
    set_limit(libc::RLIMIT_MEMLOCK, 64 << 20);
    // Memory mapped from now on is locked when it is touched.
    // SAFETY: no preconditions.
    let locked = unsafe { libc::mlockall(libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    assert_eq!(locked, 0, "{}", std::io::Error::last_os_error());
    let mut stacks = Vec::new();
    match StackPool::global().acquire_many(StackSize::DEFAULT, 100, &mut stacks) {
        Ok(()) => {}
        Err(error) => assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}"),
    }
    assert!(stacks.iter().all(|stack| !readable(stack.base()) && readable(stack.limit())));
    StackPool::global().release_many(&mut stacks);
    StackPool::global().trim();
}

#[test]
fn a_forked_child_has_guarded_stacks_too() {
    if !is_child() {
        return assert_passed(&in_child("a_forked_child_has_guarded_stacks_too", &[]));
    }
    let pool = StackPool::global();
    let old = pool.acquire(StackSize::DEFAULT).unwrap();
    // SAFETY: the child only makes calls that need no lock of another thread; no thread of the test
    // harness allocates meanwhile.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut stacks = Vec::new();
        let ok = pool.acquire_many(StackSize::DEFAULT, 100, &mut stacks).is_ok()
            && stacks.iter().all(|stack| !readable(stack.base()) && readable(stack.limit()))
            && !readable(old.base());
        // SAFETY: no preconditions.
        unsafe { libc::_exit(if ok { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: only writes to `status`.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's stacks were not right");
    assert_eq!(pool.stats().in_use, 1, "the child's stacks are not the parent's");
}
