//! Objects that processes share: the waker may be in another process, which cannot see fibers.

use std::time::Duration;

use carefree_runtime::Runtime;

/// Memory that is shared with a child.
fn shared<T>() -> *mut T {
    // SAFETY: a new mapping at an address of the kernel's choice, of zeros.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(address, libc::MAP_FAILED);
    address.cast()
}

/// Runs `here` on a fiber at once, and `there` in a child process a little later.
///
/// `there` may only make calls that are allowed after `fork`.
fn with_a_child(there: impl FnOnce(), here: impl FnOnce() + Send) {
    // SAFETY: the child makes system calls and touches shared memory, then is gone.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::usleep(20_000) };
        there();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    Runtime::builder().carriers(1).build().unwrap().run(here);
    let mut status = 0;
    // SAFETY: the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_futex() {
    let word = shared::<std::sync::atomic::AtomicU32>() as usize;
    // SAFETY: shared memory for good.
    let value = unsafe { &*(word as *const std::sync::atomic::AtomicU32) };
    let futex = move |operation: i32, value: u32| {
        // SAFETY: the word is there.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, value, 0usize) }
    };
    use std::sync::atomic::Ordering::SeqCst;
    with_a_child(
        || {
            value.store(1, SeqCst);
            futex(libc::FUTEX_WAKE, 1);
        },
        || {
            while value.load(SeqCst) == 0 {
                let woken = futex(libc::FUTEX_WAIT, 0);
                let error = std::io::Error::last_os_error().raw_os_error();
                assert!(woken == 0 || error == Some(libc::EAGAIN), "{error:?}");
            }
        },
    );
}

#[test]
fn a_semaphore() {
    let semaphore = shared::<libc::sem_t>() as usize;
    // SAFETY: set up before it is used, in shared memory.
    unsafe { libc::sem_init(semaphore as *mut libc::sem_t, 1, 0) };
    with_a_child(
        // SAFETY: as above.
        || unsafe { assert_eq!(libc::sem_post(semaphore as *mut libc::sem_t), 0) },
        // SAFETY: as above.
        || unsafe { assert_eq!(libc::sem_wait(semaphore as *mut libc::sem_t), 0) },
    );
}

#[test]
fn a_mutex_and_a_condition() {
    struct Both {
        mutex: libc::pthread_mutex_t,
        condition: libc::pthread_cond_t,
        set: bool,
    }
    let both = shared::<Both>() as usize;
    // SAFETY: set up before it is used, in shared memory; used with the mutex held.
    unsafe {
        let both = both as *mut Both;
        let mut attributes = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attributes);
        libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_mutex_init(&raw mut (*both).mutex, &raw const attributes);
        let mut attributes = std::mem::zeroed();
        libc::pthread_condattr_init(&raw mut attributes);
        libc::pthread_condattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_cond_init(&raw mut (*both).condition, &raw const attributes);
    }
    with_a_child(
        // SAFETY: as above.
        || unsafe {
            let both = both as *mut Both;
            libc::pthread_mutex_lock(&raw mut (*both).mutex);
            (*both).set = true;
            libc::pthread_cond_signal(&raw mut (*both).condition);
            // The fiber finds the mutex held by the other process.
            libc::usleep(10_000);
            libc::pthread_mutex_unlock(&raw mut (*both).mutex);
        },
        // SAFETY: as above.
        || unsafe {
            let both = both as *mut Both;
            libc::pthread_mutex_lock(&raw mut (*both).mutex);
            while !(*both).set {
                libc::pthread_cond_wait(&raw mut (*both).condition, &raw mut (*both).mutex);
            }
            libc::pthread_mutex_unlock(&raw mut (*both).mutex);
        },
    );
}

#[test]
fn a_barrier() {
    let barrier = shared::<libc::pthread_barrier_t>() as usize;
    // SAFETY: set up before it is used, in shared memory.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_barrierattr_init(&raw mut attributes);
        libc::pthread_barrierattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
        let barrier = barrier as *mut libc::pthread_barrier_t;
        assert_eq!(libc::pthread_barrier_init(barrier, &raw const attributes, 2), 0);
    }
    // SAFETY: as above.
    let wait = move || unsafe {
        libc::pthread_barrier_wait(barrier as *mut libc::pthread_barrier_t);
    };
    with_a_child(wait, move || {
        // While the fiber waits, another one runs.
        let other = carefree_runtime::spawn(|| carefree_runtime::sleep(Duration::from_millis(1)));
        wait();
        other.join().unwrap();
    });
}
