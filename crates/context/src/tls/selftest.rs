//! Runs a function on a block before the first fiber does, and compares what libc and `std` say
//! there with what they say on a thread.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::block::Block;
use super::layout::Layout;
use super::pristine::BLOCK_MAX;
use crate::arch::{self, ThreadContext};
use crate::valgrind;

/// Bytes of its stack: those of the largest block, and of its reserve, are not all that it takes.
const STACK: usize = 2 * BLOCK_MAX + 256 * 1024;

thread_local! {
    /// One variable to look at the initial value and at the destructor: every fiber has a copy.
    static PROBE: Probe = const { Probe(Cell::new(7)) };
}

/// How many destructors ran, of `thread_local`s and of keys.
static DESTROYED: AtomicUsize = AtomicUsize::new(0);

struct Probe(Cell<u32>);

impl Probe {
    fn get() -> u32 {
        PROBE.with(|probe| probe.0.get())
    }

    fn set(value: u32) {
        PROBE.with(|probe| probe.0.set(value));
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        DESTROYED.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C" fn destroy_key(_: *mut std::ffi::c_void) {
    DESTROYED.fetch_add(1, Ordering::Relaxed);
}

struct Test {
    back: ThreadContext,
    own: ThreadContext,
    layout: *const Layout,
    block: [usize; 2],
    stack: [usize; 2],
    creator: std::thread::ThreadId,
    key: libc::pthread_key_t,
    mutex: *mut libc::pthread_mutex_t,
    result: Result<(), &'static str>,
}

/// Runs the test twice on one block, which is fresh for the first fiber and reset for later ones.
pub(super) fn run(layout: &'static Layout) -> Result<(), String> {
    // SAFETY: a new private mapping, which replaces none.
    let map = unsafe {
        libc::mmap(
            ptr::null_mut(),
            STACK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().to_string());
    }
    let base = map.cast::<u8>();
    valgrind::register(base as usize, base as usize + STACK);
    let result = test(layout, base);
    valgrind::deregister(&(base as usize..base as usize + STACK));
    // SAFETY: mapped above; `test` has returned, so nothing runs on it any more.
    unsafe { libc::munmap(map, STACK) };
    result
}

fn test(layout: &'static Layout, base: *mut u8) -> Result<(), String> {
    // SAFETY: fresh zeroed memory that nothing else uses, mapped until after the block is retired.
    let mut block = unsafe { Block::build(layout, base..base.wrapping_add(STACK)) }
        .map_err(|e| e.to_string())?;
    let mut key = 0;
    // SAFETY: the destructor is valid; the attributes and the mutex are initialised before use.
    let mut mutex = unsafe {
        if libc::pthread_key_create(&mut key, Some(destroy_key)) != 0 {
            return Err("no pthread key could be created".into());
        }
        let mut attributes = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_settype(&mut attributes, libc::PTHREAD_MUTEX_RECURSIVE);
        let mut mutex = std::mem::zeroed::<libc::pthread_mutex_t>();
        libc::pthread_mutex_init(&mut mutex, &attributes);
        libc::pthread_mutexattr_destroy(&mut attributes);
        // This thread holds it while the fiber tries to lock it.
        libc::pthread_mutex_lock(&mut mutex);
        mutex
    };
    Probe::set(8);
    let mut result = Ok(());
    for round in 0..2 {
        let destroyed = DESTROYED.load(Ordering::Relaxed);
        let low = block.low();
        let mut test = Test {
            back: ThreadContext::of_this_thread(),
            own: ThreadContext::of_this_thread(),
            layout,
            block: [low as usize, low as usize + layout.size()],
            stack: [base as usize, base as usize + STACK],
            creator: std::thread::current().id(),
            key,
            mutex: &mut mutex,
            result: Err("nothing ran"),
        };
        layout.prepare_malloc();
        // SAFETY: nothing else uses the stack below the block; `on_block` switches back, so `test`
        // and the stack outlive it, and it is never entered again. The fiber is run by this thread only.
        unsafe {
            layout.lend_malloc(arch::thread_pointer(), block.thread_pointer());
            let test = &raw mut test;
            (*test).own = arch::prepare_thread(low, block.thread_pointer(), on_block, test.cast());
            arch::switch_thread::<true>(&raw mut (*test).back, &raw const (*test).own);
        }
        let ran = DESTROYED.load(Ordering::Relaxed) - destroyed;
        result = test.result.map_err(str::to_string);
        if result.is_ok() && Probe::get() != 8 {
            result = Err("a fiber's thread_local is the carrier's".into());
        }
        if result.is_ok() && ran != 2 {
            result = Err(format!("{ran} of 2 thread-local destructors ran"));
        }
        if let Err(what) = result {
            result = Err(format!("{what} (round {round})"));
            break;
        }
        block.reset();
    }
    block.return_malloc();
    block.retire();
    // SAFETY: all three were created above; this thread has locked the mutex.
    unsafe {
        libc::pthread_mutex_unlock(&mut mutex);
        libc::pthread_mutex_destroy(&mut mutex);
        libc::pthread_key_delete(key);
    }
    result
}

unsafe extern "C" fn on_block(data: *mut u8) -> ! {
    let test = data.cast::<Test>();
    // SAFETY: `test` is alive, since its function waits in the switch. The block is of that layout,
    // was just entered, and is left for good by the switch below.
    unsafe {
        (*(*test).layout).enter();
        (*test).result = check(&*test);
        (*(*test).layout).run_destructors(arch::thread_pointer());
        let (own, back) = (&raw mut (*test).own, &raw const (*test).back);
        arch::switch_thread::<true>(own, back);
    }
    unreachable!("an ended self-test was entered again")
}

/// Checks what must hold on a fiber. Must not panic, since nothing could catch it here.
fn check(test: &Test) -> Result<(), &'static str> {
    let within = |range: &[usize; 2], address: usize| (range[0]..range[1]).contains(&address);
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    // SAFETY: calls of libc with valid arguments. `errno` is read within the block only.
    unsafe {
        let errno = libc::__errno_location();
        ensure(within(&test.block, errno as usize), "errno lies outside the block")?;
        ensure(*errno == 0, "errno does not start as 0")?;
        ensure(within(&test.block, libc::pthread_self() as usize), "pthread_self is another's")?;
        ensure(Probe::get() == 7, "a thread_local does not have its initial value")?;
        Probe::set(9);
        ensure(std::thread::current().id() != test.creator, "std takes it for its creator")?;
        // Two allocations must differ: malloc works on a fiber.
        let first = libc::malloc(100);
        let second = libc::malloc(100);
        let distinct = !first.is_null() && !second.is_null() && first != second;
        libc::free(first);
        libc::free(second);
        ensure(distinct, "malloc does not work")?;
        ensure(libc::pthread_getspecific(test.key).is_null(), "a key has a former value")?;
        libc::pthread_setspecific(test.key, ptr::from_ref(test).cast());
        ensure(
            libc::pthread_getspecific(test.key) == ptr::from_ref(test).cast_mut().cast(),
            "a key's value is lost",
        )?;
        ensure(
            libc::pthread_mutex_trylock(test.mutex) == libc::EBUSY,
            "a recursive mutex takes it for its creator",
        )?;
        ensure(
            libc::isalpha(i32::from(b'a')) != 0 && libc::isalpha(i32::from(b'1')) == 0,
            "the locale's tables are missing",
        )?;
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        let mut base = ptr::null_mut();
        let mut size = 0;
        ensure(
            libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) == 0,
            "pthread_getattr_np fails",
        )?;
        libc::pthread_attr_getstack(&attributes, &mut base, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        ensure(
            base as usize == test.stack[0] && base as usize + size == test.stack[1],
            "pthread_getattr_np tells another stack",
        )?;
    }
    Ok(())
}
