//! Time, processes, names, locks, and objects that processes share.

use std::collections::VecDeque;
use std::process::{Child, Command};
use std::sync::Mutex;

use super::*;

pub(super) fn nanosleep() -> Option<Scenario> {
    Some(Scenario::new(
        || {},
        || {
            let long = libc::timespec { tv_sec: LONG.as_secs() as i64, tv_nsec: 0 };
            // SAFETY: a time.
            unless_interrupted(counted(unsafe { libc::nanosleep(&raw const long, null_mut()) })?)
        },
        || 60,
    ))
}

pub(super) fn sleep() -> Option<Scenario> {
    Some(Scenario::new(
        || {},
        || {
            // SAFETY: no memory is involved.
            let left = unsafe { libc::sleep(LONG.as_secs() as u32) };
            assert!(left > 0);
            unless_interrupted(0)
        },
        || 60,
    ))
}

/// Children that end. Each end is reported once.
pub(super) fn waitpid() -> Option<Scenario> {
    let children = Arc::new(Mutex::new(VecDeque::new()));
    let given = Arc::clone(&children);
    let rest = Arc::clone(&children);
    let wait = |child: u32| -> Taken {
        let mut status = 0;
        // SAFETY: room for the answer.
        let waited = counted(unsafe { libc::waitpid(child as c_int, &raw mut status, 0) })?;
        assert_eq!((waited, status), (child as usize, 7 << 8));
        Ok(1)
    };
    let scenario = Scenario::new(
        move || {
            let child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
            given.lock().unwrap().push_back(child);
        },
        move || {
            let Some(child) = children.lock().unwrap().front().map(Child::id) else {
                carefree::sleep(LIMIT);
                return unless_interrupted(0);
            };
            wait(child)?;
            children.lock().unwrap().pop_front();
            Ok(1)
        },
        move || rest.lock().unwrap().drain(..).map(|child| wait(child.id()).unwrap()).sum(),
    );
    Some(Scenario { rounds: 8, ..scenario })
}

pub(super) fn system() -> Option<Scenario> {
    Some(Scenario::endless(4, || {
        // SAFETY: a command.
        let status = unsafe { libc::system(c"exit 7".as_ptr()) };
        assert_eq!(counted(status)?, 7 << 8);
        Ok(0)
    }))
}

pub(super) fn getaddrinfo() -> Option<Scenario> {
    Some(Scenario::endless(8, || {
        let mut found = null_mut();
        // SAFETY: a name, and a place for the answer, which is given back.
        unsafe {
            let error = libc::getaddrinfo(c"localhost".as_ptr(), null(), null(), &raw mut found);
            if error == libc::EAI_SYSTEM {
                return Err(errno());
            }
            assert_eq!(error, 0);
            libc::freeaddrinfo(found);
        }
        Ok(0)
    }))
}

pub(super) fn getnameinfo() -> Option<Scenario> {
    Some(Scenario::endless(8, || {
        let mut name = [0; 64];
        let flags = libc::NI_NUMERICHOST;
        // SAFETY: an address, and room for its name.
        let error = unsafe {
            let mut address: libc::sockaddr_in = mem::zeroed();
            address.sin_family = libc::AF_INET as u16;
            let (place, length) = (&raw const address, size_of_val(&address) as u32);
            libc::getnameinfo(place.cast(), length, name.as_mut_ptr(), 64, null_mut(), 0, flags)
        };
        assert_eq!(error, 0);
        Ok(0)
    }))
}

pub(super) fn getservbyname() -> Option<Scenario> {
    Some(Scenario::endless(8, || {
        // Not every machine has a file of these.
        // SAFETY: names.
        _ = unsafe { libc::getservbyname(c"http".as_ptr(), c"tcp".as_ptr()) };
        Ok(0)
    }))
}

/// With numbers that change nothing.
pub(super) fn setresuid() -> Option<Scenario> {
    const SAME: libc::uid_t = libc::uid_t::MAX;
    Some(Scenario::endless(8, || {
        // SAFETY: no memory is involved.
        counted(unsafe { libc::setresuid(SAME, SAME, SAME) })
    }))
}

pub(super) fn getpwuid() -> Option<Scenario> {
    Some(Scenario::endless(8, || {
        // SAFETY: no memory is involved.
        assert!(!unsafe { libc::getpwuid(0) }.is_null());
        Ok(0)
    }))
}

pub(super) fn getprotobynumber() -> Option<Scenario> {
    Some(Scenario::endless(8, || {
        // Not every machine has a file of these.
        // SAFETY: no memory is involved.
        _ = unsafe { libc::getprotobynumber(6) };
        Ok(0)
    }))
}

/// A lock with a plain counter, which shows whether two fibers hold the lock at once.
fn lock(
    enter: impl Fn() + Copy + Send + Sync + 'static,
    leave: impl Fn() + Copy + Send + Sync + 'static,
) -> Option<Scenario> {
    let count = Shared::new(0usize);
    let more = move || {
        enter();
        // SAFETY: the lock is held.
        unsafe {
            let before = count.at().read_volatile();
            carefree::yield_now();
            count.at().write_volatile(before + 1);
        }
        leave();
    };
    Some(Scenario::new(
        more,
        move || {
            more();
            Ok(1)
        },
        // Counts that were lost: 0 if no two fibers held the lock at once.
        // SAFETY: no fiber holds the lock any more.
        move || unsafe { count.at().read_volatile() }.abs_diff(120),
    ))
}

pub(super) fn mutex() -> Option<Scenario> {
    let mutex = Shared::new(libc::PTHREAD_MUTEX_INITIALIZER);
    lock(
        // SAFETY: a mutex that lives.
        move || assert_eq!(unsafe { libc::pthread_mutex_lock(mutex.at()) }, 0),
        // SAFETY: a mutex that lives.
        move || assert_eq!(unsafe { libc::pthread_mutex_unlock(mutex.at()) }, 0),
    )
}

pub(super) fn rwlock() -> Option<Scenario> {
    let rwlock = Shared::new(libc::PTHREAD_RWLOCK_INITIALIZER);
    lock(
        // SAFETY: a lock that lives.
        move || assert_eq!(unsafe { libc::pthread_rwlock_wrlock(rwlock.at()) }, 0),
        // SAFETY: a lock that lives.
        move || assert_eq!(unsafe { libc::pthread_rwlock_unlock(rwlock.at()) }, 0),
    )
}

pub(super) fn spin() -> Option<Scenario> {
    // SAFETY: zeros are one, until it is made.
    let spin = Shared::new(unsafe { mem::zeroed::<libc::pthread_spinlock_t>() });
    // SAFETY: a place for one.
    assert_eq!(unsafe { libc::pthread_spin_init(spin.at(), 0) }, 0);
    lock(
        // SAFETY: a lock that lives.
        move || assert_eq!(unsafe { libc::pthread_spin_lock(spin.at()) }, 0),
        // SAFETY: a lock that lives.
        move || assert_eq!(unsafe { libc::pthread_spin_unlock(spin.at()) }, 0),
    )
}

unsafe extern "C" {
    fn flockfile(stream: *mut libc::FILE);
    fn funlockfile(stream: *mut libc::FILE);
    fn mtx_init(mutex: *mut libc::pthread_mutex_t, kind: c_int) -> c_int;
    fn mtx_lock(mutex: *mut libc::pthread_mutex_t) -> c_int;
    fn mtx_unlock(mutex: *mut libc::pthread_mutex_t) -> c_int;
}

pub(super) fn stream() -> Option<Scenario> {
    if platform().tls == TlsMode::Shared {
        // A stream's lock is recursive, and libc knows its holder by its thread-local storage. Here the fibers
        // of a carrier share that, so two of them can hold the lock at once.
        return None;
    }
    // SAFETY: a name and a mode.
    let stream = Shared::new(unsafe { libc::fopen(c"/dev/null".as_ptr(), c"r".as_ptr()) });
    lock(
        // SAFETY: a stream that is open.
        move || unsafe { flockfile(*stream.at()) },
        // SAFETY: a stream that is open.
        move || unsafe { funlockfile(*stream.at()) },
    )
}

pub(super) fn c11() -> Option<Scenario> {
    let mutex = Shared::new(libc::PTHREAD_MUTEX_INITIALIZER);
    // SAFETY: a place for one.
    assert_eq!(unsafe { mtx_init(mutex.at(), 0) }, 0);
    lock(
        // SAFETY: a mutex that lives.
        move || assert_eq!(unsafe { mtx_lock(mutex.at()) }, 0),
        // SAFETY: a mutex that lives.
        move || assert_eq!(unsafe { mtx_unlock(mutex.at()) }, 0),
    )
}

pub(super) fn condition() -> Option<Scenario> {
    let mutex = Shared::new(libc::PTHREAD_MUTEX_INITIALIZER);
    let condition = Shared::new(libc::PTHREAD_COND_INITIALIZER);
    let items = Shared::new(0usize);
    Some(Scenario::new(
        // SAFETY: objects that live; the count is changed under the mutex.
        move || unsafe {
            assert_eq!(libc::pthread_mutex_lock(mutex.at()), 0);
            *items.at() += 1;
            assert_eq!(libc::pthread_cond_signal(condition.at()), 0);
            assert_eq!(libc::pthread_mutex_unlock(mutex.at()), 0);
        },
        // SAFETY: objects that live; the count is changed under the mutex.
        move || unsafe {
            assert_eq!(libc::pthread_mutex_lock(mutex.at()), 0);
            while *items.at() == 0 {
                assert_eq!(libc::pthread_cond_wait(condition.at(), mutex.at()), 0);
            }
            *items.at() -= 1;
            assert_eq!(libc::pthread_mutex_unlock(mutex.at()), 0);
            Ok(1)
        },
        // SAFETY: no other fiber is left.
        move || unsafe { *items.at() },
    ))
}

pub(super) fn semaphore() -> Option<Scenario> {
    // SAFETY: zeros are one, until it is made.
    let semaphore = Shared::new(unsafe { mem::zeroed::<libc::sem_t>() });
    // SAFETY: a place for one.
    assert_eq!(unsafe { libc::sem_init(semaphore.at(), 0, 0) }, 0);
    Some(Scenario::new(
        // SAFETY: a semaphore that lives.
        move || assert_eq!(unsafe { libc::sem_post(semaphore.at()) }, 0),
        move || {
            // SAFETY: a semaphore that lives.
            counted(unsafe { libc::sem_wait(semaphore.at()) })?;
            Ok(1)
        },
        move || {
            // SAFETY: a semaphore that lives.
            std::iter::from_fn(|| (unsafe { libc::sem_trywait(semaphore.at()) } == 0).then_some(1))
                .sum()
        },
    ))
}

pub(super) fn barrier() -> Option<Scenario> {
    // SAFETY: zeros are one, until it is made.
    let barrier = Shared::new(unsafe { mem::zeroed::<libc::pthread_barrier_t>() });
    // SAFETY: a place for one.
    assert_eq!(unsafe { libc::pthread_barrier_init(barrier.at(), null(), 2) }, 0);
    let wait = move || {
        // SAFETY: a barrier that lives.
        let waited = unsafe { libc::pthread_barrier_wait(barrier.at()) };
        assert!(matches!(waited, 0 | libc::PTHREAD_BARRIER_SERIAL_THREAD));
    };
    Some(Scenario::new(
        wait,
        move || {
            wait();
            Ok(1)
        },
        || 0,
    ))
}

pub(super) fn once() -> Option<Scenario> {
    unsafe extern "C" {
        fn pthread_once(once: *mut c_int, routine: extern "C" fn()) -> c_int;
    }
    extern "C" fn routine() {
        carefree::yield_now();
    }
    Some(Scenario::endless(30, || {
        let once = Shared::new(0);
        // SAFETY: one that lives, and was not used.
        assert_eq!(unsafe { pthread_once(once.at(), routine) }, 0);
        Ok(0)
    }))
}

pub(super) fn join() -> Option<Scenario> {
    extern "C" fn end(value: *mut c_void) -> *mut c_void {
        value
    }
    Some(Scenario::endless(30, || {
        let (mut thread, mut value) = (0, null_mut());
        // SAFETY: places for the answers; the function touches nothing.
        unsafe {
            assert_eq!(libc::pthread_create(&raw mut thread, null(), end, 7 as *mut c_void), 0);
            assert_eq!(libc::pthread_join(thread, &raw mut value), 0);
        }
        assert_eq!(value as usize, 7);
        Ok(0)
    }))
}

pub(super) fn mq_receive() -> Option<Scenario> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("/carefree-cuts-{}-{number}", std::process::id());
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a name and what the queue shall be like; it loses its name at once.
    let queue = unsafe {
        let mut attributes: libc::mq_attr = mem::zeroed();
        (attributes.mq_maxmsg, attributes.mq_msgsize) = (4, 8);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let queue = libc::mq_open(name.as_ptr(), flags, 0o600 as libc::mode_t, &raw mut attributes);
        libc::mq_unlink(name.as_ptr());
        queue
    };
    if queue < 0 {
        return None;
    }
    let receive = move || {
        let mut room = [0; 8];
        // SAFETY: there is as much room.
        counted(unsafe { libc::mq_receive(queue, room.as_mut_ptr(), 8, null_mut()) } as i64)
    };
    Some(Scenario::new(
        // SAFETY: a message.
        move || assert_eq!(unsafe { libc::mq_send(queue, c"x".as_ptr(), 1, 0) }, 0),
        receive,
        move || {
            // SAFETY: a queue, and its new attributes.
            let left = unsafe {
                let mut attributes: libc::mq_attr = mem::zeroed();
                libc::mq_getattr(queue, &raw mut attributes);
                libc::mq_close(queue);
                attributes.mq_curmsgs
            };
            left as usize
        },
    ))
}

pub(super) fn msgrcv() -> Option<Scenario> {
    #[repr(C)]
    struct Message {
        kind: libc::c_long,
        text: [u8; 8],
    }

    // SAFETY: no memory is involved.
    let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
    if queue < 0 {
        return None;
    }
    let receive = move |flags| {
        let mut message = Message { kind: 0, text: [0; 8] };
        // SAFETY: there is as much room.
        counted(unsafe { libc::msgrcv(queue, (&raw mut message).cast(), 8, 0, flags) } as i64)
    };
    Some(Scenario::new(
        move || {
            let message = Message { kind: 1, text: [0; 8] };
            // SAFETY: a message.
            assert_eq!(unsafe { libc::msgsnd(queue, (&raw const message).cast(), 1, 0) }, 0);
        },
        move || receive(0),
        move || {
            let left = std::iter::from_fn(|| receive(libc::IPC_NOWAIT).ok()).sum();
            // SAFETY: no memory is involved.
            assert_eq!(unsafe { libc::msgctl(queue, libc::IPC_RMID, null_mut()) }, 0);
            left
        },
    ))
}

pub(super) fn semop() -> Option<Scenario> {
    // SAFETY: no memory is involved.
    let semaphore = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
    if semaphore < 0 {
        return None;
    }
    let change = move |by: i16, flags: c_int| {
        let mut change = libc::sembuf { sem_num: 0, sem_op: by, sem_flg: flags as i16 };
        // SAFETY: an array of one.
        counted(unsafe { libc::semop(semaphore, &raw mut change, 1) }).map(|_| 1)
    };
    Some(Scenario::new(
        move || assert_eq!(change(1, 0), Ok(1)),
        move || change(-1, 0),
        move || {
            let left = std::iter::from_fn(|| change(-1, libc::IPC_NOWAIT).ok()).sum();
            // SAFETY: no memory is involved.
            assert_eq!(unsafe { libc::semctl(semaphore, 0, libc::IPC_RMID) }, 0);
            left
        },
    ))
}
