//! Why a fiber waits.

use std::fmt;

/// What a fiber waits for, as dumps and deadlock reports show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// It was spawned and no carrier has run it yet.
    NotStarted,
    /// It runs, or is ready to.
    Runs,
    /// It sleeps for a given time.
    Sleep,
    /// It parked itself and waits for `unpark`.
    Park,
    /// It called `std::thread::park` and waits for an unpark, std's or ours.
    StandardPark,
    /// It waits for another fiber to end.
    Join,
    /// It waits for the fibers of its scope to end.
    Scope,
    /// It waits for a permit of a semaphore.
    Semaphore,
    /// It waits for a place among the fibers that may run at once.
    Limit,
    /// It waits for a call that another thread makes for it: see [`offload`](crate::offload).
    Offload,
    /// It waits for data to read.
    Read,
    /// It waits until there is room for what it writes.
    Write,
    /// It waits for a connection to accept.
    Accept,
    /// It waits for a connection to be made.
    Connect,
    /// It waits for something to happen on a file.
    Poll,
    /// It waits until others have left a file that it closes.
    Close,
    /// It waits on a futex: for a lock, a condition or a channel of `std`, as a rule.
    Futex,
    /// It waits for a pthread mutex.
    Mutex,
    /// It waits on a pthread condition variable.
    Condition,
    /// It waits for a pthread read-write lock.
    ReadWriteLock,
    /// It waits for a POSIX semaphore (`sem_t`).
    PosixSemaphore,
    /// It waits at a pthread barrier.
    Barrier,
    /// It waits for an initialization that another caller of `pthread_once` makes.
    Once,
    /// It waits for the lock of a C stream.
    Stream,
    /// It waits for a thread to end.
    Thread,
    /// It waits until a future of its own is woken.
    Future,
    /// It waits for the other end of a FIFO to be opened.
    Open,
    /// It waits for a lock on a file.
    FileLock,
    /// It waits for a message or a semaphore of System V.
    Ipc,
    /// It waits for a child process.
    Child,
    /// It waits for a signal.
    Signal,
    /// It waits for something else, through [`park`](crate::wait::park::park).
    Other,
}

impl Reason {
    pub(crate) const COUNT: usize = 32;

    const ALL: [Reason; Reason::COUNT] = [
        Reason::NotStarted,
        Reason::Runs,
        Reason::Sleep,
        Reason::Park,
        Reason::StandardPark,
        Reason::Join,
        Reason::Scope,
        Reason::Semaphore,
        Reason::Limit,
        Reason::Offload,
        Reason::Read,
        Reason::Write,
        Reason::Accept,
        Reason::Connect,
        Reason::Poll,
        Reason::Close,
        Reason::Futex,
        Reason::Mutex,
        Reason::Condition,
        Reason::ReadWriteLock,
        Reason::PosixSemaphore,
        Reason::Barrier,
        Reason::Once,
        Reason::Stream,
        Reason::Thread,
        Reason::Future,
        Reason::Open,
        Reason::FileLock,
        Reason::Ipc,
        Reason::Child,
        Reason::Signal,
        Reason::Other,
    ];

    /// Whether it takes another fiber's progress to end such a wait, as a rule.
    pub(crate) fn is_for_fibers(self) -> bool {
        matches!(self, Reason::Join | Reason::Scope | Reason::Semaphore | Reason::Limit)
    }

    /// The reason with this number; [`Other`](Reason::Other) if there is none.
    #[must_use]
    pub fn from_code(code: u8) -> Reason {
        Reason::ALL.get(usize::from(code)).copied().unwrap_or(Reason::Other)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Reason::NotStarted => "has not started yet",
            Reason::Runs => "runs",
            Reason::Sleep => "sleeps",
            Reason::Park => "is parked until something unparks it",
            Reason::StandardPark => {
                "is parked by std::thread::park (std's channels wait so) until something unparks it"
            }
            Reason::Join => "waits for another fiber to end",
            Reason::Scope => "waits for the fibers of its scope",
            Reason::Semaphore => "waits for a permit of a semaphore",
            Reason::Limit => "waits until fewer fibers of its scope run",
            Reason::Offload => "waits for a call that another thread makes for it",
            Reason::Read => "waits for data to read",
            Reason::Write => "waits until it can write",
            Reason::Accept => "waits for a connection",
            Reason::Connect => "waits to be connected",
            Reason::Poll => "waits for something to happen on a file",
            Reason::Close => "waits until others have left the file it closes",
            Reason::Futex => "waits for a lock, a condition or a channel (a futex)",
            Reason::Mutex => "waits for a pthread mutex",
            Reason::Condition => "waits on a pthread condition variable",
            Reason::ReadWriteLock => "waits for a pthread read-write lock",
            Reason::PosixSemaphore => "waits for a POSIX semaphore",
            Reason::Barrier => "waits at a pthread barrier",
            Reason::Once => "waits for a pthread_once under way",
            Reason::Stream => "waits for the lock of a C stream",
            Reason::Thread => "waits for a thread to end",
            Reason::Future => "waits for a future to be woken",
            Reason::Open => "waits for the other end of a FIFO to be opened",
            Reason::FileLock => "waits for a lock on a file",
            Reason::Ipc => "waits for a message or a semaphore of System V",
            Reason::Child => "waits for a child process",
            Reason::Signal => "waits for a signal",
            Reason::Other => "waits",
        })
    }
}
