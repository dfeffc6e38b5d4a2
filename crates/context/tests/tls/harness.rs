//! A minimal scheduler that runs closures on blocks and moves them between kernel threads; C libraries
//! built by the tests; and child processes that run one test alone.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Condvar, Mutex, OnceLock};

use carefree_context::arch::{self, ThreadContext};
use carefree_context::tls::{self, Block, Layout};

const STACK: usize = 256 * 1024;

/// The layout of blocks. These tests need own mode, and fail in others.
pub(crate) fn layout() -> &'static Layout {
    if std::env::var_os("CAREFREE_TEST_NO_FSGSBASE").is_some() {
        arch::force_no_fsgsbase();
    }
    match tls::mode() {
        tls::Mode::Own(layout) => layout,
        tls::Mode::Shared(reason) | tls::Mode::Threads(reason) => {
            panic!("fibers have no thread-local storage: {reason}")
        }
    }
}

/// A block on a stack, on which closures run one after the other.
pub(crate) struct Slot {
    block: Option<Block>,
    /// The stack's lowest address and its length, as libc has them.
    stack: (usize, usize),
    _memory: Memory,
}

/// A mapping.
struct Memory(*mut u8, usize);

// SAFETY: a private mapping, which is tied to no thread.
unsafe impl Send for Memory {}

impl Memory {
    fn new(size: usize) -> Memory {
        // SAFETY: a new private mapping, which replaces none.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        Memory(map.cast(), size)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping. A slot drops its memory after its block, and no fiber runs on
        // a slot that is dropped.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

impl Slot {
    pub(crate) fn new() -> Slot {
        Slot::with_stack(STACK)
    }

    pub(crate) fn with_stack(size: usize) -> Slot {
        Slot::in_memory(Memory::new(size), 0)
    }

    /// A slot whose stack has `size` bytes according to libc, though there is more memory below.
    pub(crate) fn with_short_stack(size: usize) -> Slot {
        Slot::in_memory(Memory::new(STACK), STACK - size)
    }

    fn in_memory(memory: Memory, hidden: usize) -> Slot {
        let (base, end) = (memory.0.wrapping_add(hidden), memory.0.wrapping_add(memory.1));
        // SAFETY: the slot's own memory, fresh from the kernel and so zero, which stays mapped
        // until the slot has retired the block.
        let block = unsafe { Block::build(layout(), base..end) };
        Slot {
            stack: (base as usize, end as usize - base as usize),
            _memory: memory,
            block: block.ok(),
        }
    }

    pub(crate) fn block(&self) -> &Block {
        self.block.as_ref().unwrap()
    }

    pub(crate) fn stack(&self) -> (usize, usize) {
        self.stack
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(mut block) = self.block.take() {
            block.return_malloc();
            block.retire();
        }
    }
}

/// A closure that runs on a slot.
pub(crate) struct Fiber {
    slot: Slot,
    context: ThreadContext,
    /// The context of the kernel thread that entered it last.
    back: ThreadContext,
    body: Option<Box<dyn FnOnce() + Send>>,
    panicked: bool,
    done: bool,
}

// SAFETY: a suspended fiber is plain memory; its closure is Send and uses the fiber's own thread-local
// storage.
unsafe impl Send for Fiber {}

thread_local! {
    /// The running fiber. Each fiber has its own variable, so it is right on every kernel thread.
    static CURRENT: Cell<*mut Fiber> = const { Cell::new(std::ptr::null_mut()) };
}

impl Fiber {
    pub(crate) fn new(mut slot: Slot, body: impl FnOnce() + Send + 'static) -> Box<Fiber> {
        // Even if no fiber ran on it yet: libraries may have been loaded since it was built.
        slot.block.as_mut().unwrap().reset();
        let mut fiber = Box::new(Fiber {
            context: ThreadContext::of_this_thread(),
            back: ThreadContext::of_this_thread(),
            body: Some(Box::new(body)),
            panicked: false,
            done: false,
            slot,
        });
        let data = (&raw mut *fiber).cast();
        let block = fiber.slot.block();
        // SAFETY: the stack below the block is the slot's and not in use yet. `entry` gets a
        // pointer to the fiber, which is boxed and so stays in place.
        fiber.context = unsafe {
            arch::prepare_thread(block.low(), block.thread_pointer(), Fiber::entry, data)
        };
        fiber
    }

    /// Runs the fiber until it ends or yields; returns whether it has ended.
    pub(crate) fn enter(self: &mut Box<Self>) -> bool {
        assert!(!self.done);
        layout().prepare_malloc();
        let tp = self.slot.block().thread_pointer();
        // SAFETY: the fiber is about to be entered, by this thread, which has prepared for it.
        unsafe { layout().lend_malloc(arch::thread_pointer(), tp) };
        let fiber: *mut Fiber = &raw mut **self;
        // SAFETY: it has not ended, and is borrowed by its only owner, so it is suspended with its
        // context saved. It switches back here once, when it yields or ends; this thread has saved
        // `back`.
        unsafe {
            (*fiber).back = ThreadContext::of_this_thread();
            arch::switch_thread::<true>(&raw mut (*fiber).back, &raw const (*fiber).context);
        }
        assert!(!(self.done && self.panicked), "a closure panicked on a fiber");
        self.done
    }

    #[allow(clippy::boxed_local, reason = "a fiber lives in a box")]
    pub(crate) fn into_slot(self: Box<Self>) -> Slot {
        assert!(self.done);
        self.slot
    }

    unsafe extern "C" fn entry(data: *mut u8) -> ! {
        let fiber = data.cast::<Fiber>();
        // SAFETY: `data` is the fiber that was entered. Its caller waits in `enter` until the
        // switch below and does not use the fiber meanwhile; it is boxed and stays in place.
        unsafe {
            layout().enter();
            CURRENT.set(fiber);
            let body = (*fiber).body.take().unwrap();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            (*fiber).panicked = result.is_err();
            drop(result);
            layout().run_destructors(arch::thread_pointer());
            (*fiber).done = true;
            arch::switch_thread::<true>(&raw mut (*fiber).context, &raw const (*fiber).back);
        }
        unreachable!("a fiber that has ended was entered")
    }
}

/// Suspends the calling fiber; any kernel thread may continue it.
pub(crate) fn yield_now() {
    let fiber = CURRENT.get();
    assert!(!fiber.is_null(), "not on a fiber");
    // SAFETY: the caller runs on that fiber, so a thread waits in `enter`, where `back` leads; the
    // fiber's own context is saved for the next entry.
    unsafe { arch::switch_thread::<true>(&raw mut (*fiber).context, &raw const (*fiber).back) };
}

/// The id of the kernel thread that the caller runs on.
pub(crate) fn kernel_thread() -> i64 {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// Runs one closure on a slot and returns the slot.
pub(crate) fn run_on(slot: Slot, body: impl FnOnce() + Send + 'static) -> Slot {
    let mut fiber = Fiber::new(slot, body);
    while !fiber.enter() {}
    fiber.into_slot()
}

/// Runs one closure on a new block.
pub(crate) fn on_fiber(body: impl FnOnce() + Send + 'static) {
    drop(run_on(Slot::new(), body));
}

/// Runs `bodies` on `slots` blocks and `threads` kernel threads. If there is more than one thread,
/// each yield moves the fiber to another.
pub(crate) fn run_all(threads: usize, slots: usize, bodies: Vec<Box<dyn FnOnce() + Send>>) {
    struct Shared {
        waiting: VecDeque<Box<dyn FnOnce() + Send>>,
        free: Vec<Slot>,
        /// Each with the kernel thread that it has left.
        runnable: VecDeque<(i64, Box<Fiber>)>,
        alive: usize,
        failed: bool,
    }
    let free = (0..slots.min(bodies.len())).map(|_| Slot::new()).collect();
    let shared = Mutex::new(Shared {
        waiting: bodies.into(),
        free,
        runnable: VecDeque::new(),
        alive: 0,
        failed: false,
    });
    let changed = Condvar::new();
    let carry = || {
        let me = kernel_thread();
        loop {
            let mut state = shared.lock().unwrap();
            let mut fiber = loop {
                // Nothing is left, or a closure has panicked, for which others may wait.
                if state.failed || (state.waiting.is_empty() && state.alive == 0) {
                    changed.notify_all();
                    return;
                }
                if !state.waiting.is_empty() {
                    if let Some(slot) = state.free.pop() {
                        let body = state.waiting.pop_front().unwrap();
                        state.alive += 1;
                        break Fiber::new(slot, body);
                    }
                }
                let elsewhere = |(left, _): &(i64, _)| threads == 1 || *left != me;
                if let Some(index) = state.runnable.iter().position(elsewhere) {
                    break state.runnable.remove(index).unwrap().1;
                }
                state = changed.wait(state).unwrap();
            };
            drop(state);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fiber.enter()));
            let mut state = shared.lock().unwrap();
            match ended {
                Ok(true) => {
                    state.alive -= 1;
                    state.free.push(fiber.into_slot());
                }
                Ok(false) => state.runnable.push_back((me, fiber)),
                Err(_) => state.failed = true,
            }
            changed.notify_all();
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(carry);
        }
        carry();
    });
    let state = shared.into_inner().unwrap();
    assert!(!state.failed, "a closure panicked on a fiber");
}

/// `count` closures made by `make`, for [`run_all`].
pub(crate) fn bodies<F>(count: usize, make: impl Fn(usize) -> F) -> Vec<Box<dyn FnOnce() + Send>>
where
    F: FnOnce() + Send + 'static,
{
    (0..count).map(|index| Box::new(make(index)) as Box<dyn FnOnce() + Send>).collect()
}

/// A library built of one of the fixtures, and loaded.
#[derive(Clone, Copy)]
pub(crate) struct Library(*mut c_void);

// SAFETY: a handle of the loader's, which is tied to no thread.
unsafe impl Send for Library {}
// SAFETY: the loader's functions may be called with it from several threads.
unsafe impl Sync for Library {}

impl Library {
    pub(crate) fn open(path: &Path) -> Library {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library's constructors are sound: it was made for these tests.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        // SAFETY: without a handle, dlerror returns a string.
        assert!(!handle.is_null(), "{:?}", unsafe { CStr::from_ptr(libc::dlerror()) });
        Library(handle)
    }

    /// Calls the library's function `name`, of no arguments.
    pub(crate) fn call(self, name: &CStr) -> isize {
        // SAFETY: the fixtures' functions have this type.
        unsafe {
            let function = libc::dlsym(self.0, name.as_ptr());
            assert!(!function.is_null(), "{name:?}");
            std::mem::transmute::<*mut c_void, extern "C" fn() -> isize>(function)()
        }
    }

    pub(crate) fn close(self) {
        // SAFETY: the tests do not use a library after they close it.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// Builds `source` of the fixtures as a shared library called `name`. Without a compiler it prints
/// that, and returns `None`.
pub(crate) fn build(name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let plus_plus = source.ends_with(".cpp");
    let (variable, usual) = if plus_plus { ("CXX", "c++") } else { ("CC", "cc") };
    let compiler = std::env::var(variable).unwrap_or_else(|_| {
        let cross = format!(
            "{}-linux-gnu-{}",
            std::env::consts::ARCH,
            if plus_plus { "g++" } else { "gcc" }
        );
        if builds_for_us(usual) { usual.into() } else { cross }
    });
    if !builds_for_us(&compiler) {
        println!("skipped: {compiler} is not installed, or does not build for this processor");
        return None;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(path).unwrap();
    let path = path.join(format!("lib{name}-{}.so", std::process::id()));
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(source);
    let built = Command::new(&compiler)
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&path)
        .arg(fixture)
        .args(flags)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(path)
}

fn builds_for_us(compiler: &str) -> bool {
    static ANSWERS: OnceLock<Mutex<Vec<(String, bool)>>> = OnceLock::new();
    let mut answers = ANSWERS.get_or_init(Default::default).lock().unwrap();
    if let Some((_, answer)) = answers.iter().find(|(name, _)| name == compiler) {
        return *answer;
    }
    let output = Command::new(compiler).arg("-dumpmachine").output();
    let answer = output.is_ok_and(|o| o.stdout.starts_with(std::env::consts::ARCH.as_bytes()));
    answers.push((compiler.into(), answer));
    answer
}

/// Set in children: the name of the test that they run alone.
const ALONE: &str = "CAREFREE_TEST_ALONE";

/// Whether this process is a child that runs `test` alone.
pub(crate) fn alone(test: &str) -> bool {
    std::env::var_os(ALONE).is_some_and(|name| name == test)
}

/// Whether an emulator executes this program.
pub(crate) fn emulated() -> bool {
    std::env::var_os("CAREFREE_TEST_RUNNER").is_some()
}

/// Whether the kernel keeps lists of robust mutexes; qemu's emulation of it does not.
pub(crate) fn has_robust_lists() -> bool {
    let (mut head, mut length) = (0_usize, 0_usize);
    // SAFETY: only writes the two variables.
    let answer =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) };
    if answer != 0 {
        println!("skipped: this kernel has no lists of robust mutexes");
    }
    answer == 0
}

/// A command that runs this program, under `runner` if that is not empty.
///
/// `CAREFREE_TEST_RUNNER` names an emulator with its arguments, if the kernel cannot execute the
/// program.
pub(crate) fn myself(runner: &[&str]) -> Command {
    let executable = std::env::current_exe().unwrap();
    let emulator = std::env::var("CAREFREE_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.iter().copied().chain(emulator.split_whitespace());
    let Some(first) = words.next() else { return Command::new(executable) };
    let mut command = Command::new(first);
    command.args(words).arg(executable);
    command
}

/// Runs `test` alone in a child, with `environment`, under `runner` if that is not empty.
pub(crate) fn child(test: &str, environment: &[(&str, &str)], runner: &[&str]) -> Output {
    let mut command = myself(runner);
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, test)
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// Runs `body` alone in a process; `test` is the name of the calling
/// test. A child that hangs is killed after some minutes and fails the test.
pub(crate) fn isolated(test: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    if alone(test) {
        // SAFETY: no preconditions.
        unsafe { libc::alarm(120) };
        body();
        return;
    }
    let output = child(test, environment, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} alone: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    // So that "skipped: …" shows in the outer test's output.
    text.lines().filter(|line| line.starts_with("skipped")).for_each(|line| println!("{line}"));
}
