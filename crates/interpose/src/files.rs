//! What is known of each file descriptor: who waits on it, and how it has behaved.
//!
//! # Closing a file that others wait on
//!
//! An operation that waits refers to its file by number until the reactor has handed it to the
//! kernel. Were the number closed and given to another file meanwhile, the operation would be done
//! on that one. So `close` first tells the waiters to give up, waits until they have, and only then
//! closes: see [`carefree_runtime::waiters`]. (Who calls `read` between the two, on a number another
//! fiber is closing, would have the same race on threads.)
//!
//! Files closed by others than the functions interposed here (by libc within `daemon`, by a system call
//! without a function) leave what is known behind, until the number is an opened, accepted or duplicated
//! file's. So all of it is a hint but who waits, which is exact. A read or write that goes by a wrong one
//! finds out where a socket or a pipe has become a file; one of a file that has become a socket or a pipe
//! may block its carrier.
//!
//! # What is remembered of a file
//!
//! A system call that asks for a file's mode or time limits costs as much as one that reads from it,
//! so the answers are remembered, until they are changed by a call seen here. Both belong to the open
//! file, which may go by several numbers: a change through a number that has been duplicated, or is a
//! duplicate, makes us ask again for every file. (Numbers that became the same file's in a way that
//! is not seen here, as those received over a socket, do not share what is remembered.) A mode changed
//! by a raw system call is noticed if that happens before a fiber waits on the file for the first
//! time, as it does with those who set it when they open one.

use std::alloc::{self, Layout};
use std::ffi::c_int;
use std::mem;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use carefree_ground::kernel;
use carefree_reactor::clock::NEVER;
use carefree_runtime::waiters::{self, Seat, Waiters};

use crate::hold::Hold;
use crate::kind::{Kind, Seen, look};
use crate::storage::Storage;

/// What is known of one file descriptor. In this order, so that what a call on a socket or a pipe
/// touches is in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct File {
    /// The fibers that wait on it.
    waiters: Waiters,
    /// How often its mode was changed, and its time limits, through this number.
    changes: [AtomicU32; 2],
    /// The [`version`](File::version) of its mode when that was asked for; 0 if never.
    mode_asked: AtomicU32,
    /// The version of its time limits when those were asked for; 0 if never.
    limits_asked: AtomicU32,
    /// Whether it was in blocking mode then.
    blocking: AtomicBool,
    /// A [`Kind`].
    kind: AtomicU8,
    /// A [`Hold`].
    hold: AtomicU8,
    /// A [`Storage`], once its kind is known.
    storage: AtomicU8,
    /// The hash of its inode, once its kind is known.
    inode: AtomicU8,
    /// Whether its open file may go by other numbers too.
    duplicated: AtomicBool,
    /// How often in a row it had nothing to read when it was tried.
    dry: AtomicU8,
    /// Its `SO_RCVTIMEO` and `SO_SNDTIMEO` in nanoseconds, [`NEVER`] for none.
    limits: [AtomicU64; 2],
    /// From where to where it was found in memory.
    warm: [AtomicU64; 2],
    /// How often the number was closed.
    closes: AtomicU32,
}

const _: () = assert!(mem::offset_of!(File, limits) + size_of::<u64>() == 64);

/// What is remembered of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trait {
    /// `O_NONBLOCK`.
    Mode = 0,
    /// `SO_RCVTIMEO` and `SO_SNDTIMEO`.
    Limits = 1,
}

/// How often a [`Trait`] of files that go by several numbers was changed.
static CHANGES: [AtomicU32; 2] = [const { AtomicU32::new(1) }; 2];

/// A trait of the file `fd` may just have been changed: it is asked for again, or all files' if
/// another number may be the same file's.
pub(crate) fn changed(fd: c_int, what: Trait) {
    if let Some(file) = known(fd) {
        // Whether its writes end in the page cache is a matter of its mode.
        if file.storage.load(Ordering::Relaxed) != Storage::None as u8 {
            file.kind.store(Kind::Unknown as u8, Ordering::Relaxed);
        }
    }
    let own = known(fd).filter(|file| !file.duplicated.load(Ordering::Acquire));
    let changes = own.map_or(&CHANGES, |file| &file.changes);
    changes[what as usize].fetch_add(1, Ordering::Release);
}

/// These two numbers, if they are numbers of files, now go by the same one.
pub(crate) fn duplicated(one: c_int, other: c_int) {
    if one >= 0 && other >= 0 && one != other {
        for fd in [one, other] {
            if let Some(file) = file(fd) {
                file.duplicated.store(true, Ordering::Release);
            }
        }
    }
}

/// A time limit of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `SO_RCVTIMEO`: for what receives.
    Receive = 0,
    /// `SO_SNDTIMEO`: for what sends.
    Send = 1,
}

/// Tries that must have failed in a row before one is left out.
const DRY: u8 = 3;
/// Of so many, one is tried all the same.
const SOUNDING: u8 = 16;

/// Files a chunk of the table describes.
const CHUNK: usize = 512;
/// Chunks: enough for the most file descriptors the kernel gives a process unless told otherwise
/// (`fs.nr_open`). Those beyond are not known; fibers wait on them all the same.
const CHUNKS: usize = (1 << 20) / CHUNK;

static TABLE: [AtomicPtr<[File; CHUNK]>; CHUNKS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];

/// What is known of `fd`, if anything is.
#[inline]
pub(crate) fn known(fd: c_int) -> Option<&'static File> {
    let index = usize::try_from(fd).ok()?;
    let chunk = TABLE.get(index / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: chunks are never freed.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % CHUNK])
}

/// The place for what is known of `fd`; `None` for numbers beyond the table, and without memory.
#[inline]
pub(crate) fn file(fd: c_int) -> Option<&'static File> {
    known(fd).or_else(|| enter(fd))
}

#[cold]
fn enter(fd: c_int) -> Option<&'static File> {
    let slot = TABLE.get(usize::try_from(fd).ok()? / CHUNK)?;
    let layout = Layout::new::<[File; CHUNK]>();
    // SAFETY: of a size that is not 0.
    let new = unsafe { alloc::alloc(layout) }.cast::<[File; CHUNK]>();
    if new.is_null() {
        // Not an error: who says that memory is out writes it, and would come here again.
        return None;
    }
    // Built where it will be, one by one: a chunk is too much for a fiber's stack.
    for index in 0..CHUNK {
        // SAFETY: there is room for so many.
        unsafe { new.cast::<File>().add(index).write(File::new()) };
    }
    if slot.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: allocated just above, and nobody has seen it. There is nothing in it to drop.
        unsafe { alloc::dealloc(new.cast(), layout) };
    }
    known(fd)
}

impl File {
    const fn new() -> File {
        File {
            waiters: Waiters::new(),
            changes: [const { AtomicU32::new(0) }; 2],
            mode_asked: AtomicU32::new(0),
            limits_asked: AtomicU32::new(0),
            blocking: AtomicBool::new(false),
            kind: AtomicU8::new(Kind::Unknown as u8),
            hold: AtomicU8::new(Hold::Unknown as u8),
            storage: AtomicU8::new(Storage::None as u8),
            inode: AtomicU8::new(0),
            duplicated: AtomicBool::new(false),
            dry: AtomicU8::new(0),
            limits: [const { AtomicU64::new(NEVER) }; 2],
            warm: [const { AtomicU64::new(0) }; 2],
            closes: AtomicU32::new(0),
        }
    }

    /// What it refers to; asks the kernel the first time.
    #[inline]
    pub(crate) fn kind(&self, fd: c_int) -> Kind {
        match self.kind.load(Ordering::Acquire) {
            1 => Kind::Socket,
            2 => Kind::Regular,
            3 => Kind::Pipe,
            4 => Kind::Stream,
            5 => Kind::Device,
            _ => self.look(fd),
        }
    }

    /// Whether it is a socket, as far as is known without asking.
    #[inline]
    pub(crate) fn is_known_socket(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == Kind::Socket as u8
    }

    /// Asks the kernel what it refers to now.
    #[cold]
    pub(crate) fn look(&self, fd: c_int) -> Kind {
        let seen = look(fd);
        self.storage.store(seen.storage as u8, Ordering::Relaxed);
        self.inode.store(seen.inode, Ordering::Relaxed);
        self.set_warm(0, 0);
        // The last: who sees it sees the others.
        self.kind.store(seen.kind as u8, Ordering::Release);
        seen.kind
    }

    /// Whether all from `begin` to `end` was found in memory when that was looked for.
    pub(crate) fn is_warm(&self, begin: u64, end: u64) -> bool {
        let [from, to] = self.warm.each_ref().map(|place| place.load(Ordering::Relaxed));
        from <= begin && end <= to
    }

    /// All from `begin` to `end` was found in memory.
    pub(crate) fn set_warm(&self, begin: u64, end: u64) {
        self.warm[0].store(begin, Ordering::Relaxed);
        self.warm[1].store(end, Ordering::Relaxed);
    }

    /// What it may be held by while a fiber waits for it; asks the kernel the first time.
    #[inline]
    pub(crate) fn hold(&self, fd: c_int) -> Hold {
        match Hold::from_number(self.hold.load(Ordering::Relaxed)) {
            Hold::Unknown => {
                let hold = hold(fd, self.kind(fd));
                self.hold.store(hold as u8, Ordering::Relaxed);
                hold
            }
            known => known,
        }
    }

    /// Takes note of what is known of it without asking.
    pub(crate) fn found(&self, kind: Kind, hold: Hold) {
        if kind == Kind::Socket {
            self.storage.store(Storage::None as u8, Ordering::Relaxed);
        }
        self.kind.store(kind as u8, Ordering::Relaxed);
        self.hold.store(hold as u8, Ordering::Relaxed);
    }

    /// What [`prepare_to_close`] says.
    #[inline]
    fn prepare_to_close(&self, beside_parent: bool) -> bool {
        // In the child of a vfork, what waits in the parent goes on waiting.
        if !beside_parent {
            self.closes.fetch_add(1, Ordering::Relaxed);
            // A call that goes on after a part sees that, or is seen here: see `steps`.
            fence(Ordering::SeqCst);
            if self.waiters.is_waited_on() && !self.waiters.close() {
                return false;
            }
        }
        self.forget();
        true
    }

    /// Forgets all that is known of it.
    fn forget(&self) {
        let hold = self.hold.load(Ordering::Relaxed);
        let cannot_be_asked =
            hold == Hold::Process as u8 || self.duplicated.load(Ordering::Relaxed);
        self.dry.store(0, Ordering::Relaxed);
        self.mode_asked.store(0, Ordering::Relaxed);
        self.limits_asked.store(0, Ordering::Relaxed);
        if cannot_be_asked && is_beside_parent() {
            // The parent's file is still there, and asks for the rest again.
            self.kind.store(Kind::Unknown as u8, Ordering::Relaxed);
            return;
        }
        self.duplicated.store(false, Ordering::Relaxed);
        self.found(Kind::Unknown, Hold::Unknown);
    }

    /// How often the number was closed: another count says that it may be another file's.
    #[inline]
    pub(crate) fn closes(&self) -> u32 {
        self.closes.load(Ordering::Relaxed)
    }

    /// Whether a read should be tried before it is submitted: not if such tries have kept failing.
    #[inline]
    pub(crate) fn is_worth_a_try(&self) -> bool {
        let dry = self.dry.load(Ordering::Relaxed);
        if dry < DRY {
            return true;
        }
        let sounding = dry == DRY + SOUNDING;
        self.dry.store(if sounding { DRY } else { dry + 1 }, Ordering::Relaxed);
        sounding
    }

    /// A read was tried: whether there was anything.
    #[inline]
    pub(crate) fn tried(&self, found: bool) {
        let dry = self.dry.load(Ordering::Relaxed);
        if found && dry != 0 {
            self.dry.store(0, Ordering::Relaxed);
        } else if !found && dry < DRY {
            self.dry.store(dry + 1, Ordering::Relaxed);
        }
    }

    /// Another number after each change that concerns this file. Read before the kernel is asked:
    /// then a change that comes meanwhile makes the answer an old one.
    #[inline]
    fn version(&self, what: Trait) -> u32 {
        // Neither of the two ever falls, so the sum is another one whenever one of them is.
        let all = CHANGES[what as usize].load(Ordering::Acquire);
        all.wrapping_add(self.changes[what as usize].load(Ordering::Acquire))
    }

    /// Whether it is in blocking mode.
    #[inline]
    pub(crate) fn is_blocking(&self, fd: c_int) -> bool {
        let now = self.version(Trait::Mode);
        if self.blocking.load(Ordering::Relaxed) && self.mode_asked.load(Ordering::Relaxed) == now {
            return true;
        }
        // Who is told EAGAIN by mistake may fail, so that is never answered from memory.
        let blocking = is_blocking(fd);
        self.blocking.store(blocking, Ordering::Relaxed);
        self.mode_asked.store(now, Ordering::Relaxed);
        blocking
    }

    /// How long a call that waits may take by the socket's own limit, in nanoseconds.
    pub(crate) fn limit(&self, fd: c_int, limit: Limit) -> u64 {
        if self.kind(fd) != Kind::Socket {
            return NEVER;
        }
        let now = self.version(Trait::Limits);
        if self.limits_asked.load(Ordering::Relaxed) != now {
            for limit in [Limit::Receive, Limit::Send] {
                self.limits[limit as usize].store(limit_of(fd, limit), Ordering::Relaxed);
            }
            self.limits_asked.store(now, Ordering::Relaxed);
        }
        self.limits[limit as usize].load(Ordering::Relaxed)
    }
}

/// What is known of `fd`, whose place in the table is `file`; asks the kernel the first time.
#[inline]
pub(crate) fn seen(file: Option<&File>, fd: c_int) -> Seen {
    let Some(file) = file else { return look(fd) };
    let kind = file.kind(fd);
    let storage = Storage::from_number(file.storage.load(Ordering::Relaxed));
    Seen { kind, storage, inode: file.inode.load(Ordering::Relaxed) }
}

/// What `fd` may be held by while a fiber waits for it.
#[cold]
fn hold(fd: c_int, kind: Kind) -> Hold {
    match kind {
        Kind::Device => Hold::Process,
        Kind::Socket => Hold::of_socket(fd),
        _ => Hold::Ring,
    }
}

/// `fd` is a new file's number. If it was another one's, which was closed where that is not seen, what is
/// known of that one is forgotten.
pub(crate) fn opened(fd: c_int) {
    if let Some(file) = known(fd) {
        file.forget();
    }
}

/// `connection` was accepted from `listener`: then it need not be asked what it is.
pub(crate) fn accepted(listener: c_int, connection: c_int) {
    opened(connection);
    if file(listener).is_some_and(|file| file.hold(listener) == Hold::Listener) {
        if let Some(file) = file(connection) {
            file.found(Kind::Socket, Hold::Ring);
        }
    }
}

/// The open file that goes by `fd` has a lock or an address, so it must not be held by a ring from now
/// on until it is closed.
pub(crate) fn claimed(fd: c_int) {
    if let Some(file) = file(fd) {
        file.found(file.kind(fd), Hold::Process);
    }
}

/// Whether `fd` is in blocking mode, by the kernel.
///
/// If it does not tell, it is: for a number that was just closed the wait says so (`EBADF`), and where
/// a sandbox does not let the mode be asked for, most files are.
pub(crate) fn is_blocking(fd: c_int) -> bool {
    let arguments = [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: no memory is involved.
    let mode = unsafe { kernel::call(libc::SYS_fcntl, arguments) };
    mode.is_err() || mode.is_ok_and(|mode| mode as c_int & libc::O_NONBLOCK == 0)
}

/// A time limit of a socket by the kernel, in nanoseconds; [`NEVER`] for none.
pub(crate) fn limit_of(fd: c_int, limit: Limit) -> u64 {
    let option = match limit {
        Limit::Receive => libc::SO_RCVTIMEO,
        Limit::Send => libc::SO_SNDTIMEO,
    };
    let mut value = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of::<libc::timeval>() as libc::socklen_t;
    let arguments = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        option as usize,
        &raw mut value as usize,
        &raw mut length as usize,
        0,
    ];
    // SAFETY: there is room for the answer, and its length is said.
    let asked = unsafe { kernel::call(libc::SYS_getsockopt, arguments) };
    if asked.is_err() || (value.tv_sec == 0 && value.tv_usec == 0) {
        return NEVER;
    }
    (value.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(value.tv_usec as u64 * 1000)
}

/// A fiber that waits on a file.
#[derive(Debug)]
pub(crate) struct Waiter<'s> {
    fd: c_int,
    file: Option<(&'static File, waiters::Waiter<'s>)>,
}

impl<'s> Waiter<'s> {
    /// Counts the caller among those who wait on `fd`, at `seat`; `None` if it is just being closed.
    #[inline]
    pub(crate) fn new(fd: c_int, seat: &'s Seat) -> Option<Waiter<'s>> {
        let Some(file) = file(fd) else { return Some(Waiter { fd, file: None }) };
        let waiter = file.waiters.enter(seat)?;
        Some(Waiter { fd, file: Some((file, waiter)) })
    }

    /// Whether its file must not be held by a ring.
    #[inline]
    pub(crate) fn unheld(&self) -> bool {
        let hold = match &self.file {
            Some((file, _)) => file.hold(self.fd),
            None => hold(self.fd, look(self.fd).kind),
        };
        hold != Hold::Ring
    }

    /// Whether it is a device, which must not be held either.
    pub(crate) fn is_device(&self) -> bool {
        self.file.as_ref().is_some_and(|(file, _)| file.kind(self.fd) == Kind::Device)
    }

    /// Whether the file is still there to wait on.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.file.as_ref().is_none_or(|(_, waiter)| waiter.holds())
    }
}

/// Whether fibers wait on `fd`, or it is being closed.
#[inline]
pub(crate) fn is_waited_on(fd: c_int) -> bool {
    known(fd).is_some_and(|file| file.waiters.is_waited_on())
}

/// Prepares for `fd` to be closed: those who wait on it give up, and what is known of it is
/// forgotten. False: another thread or fiber is closing it already.
#[inline]
pub(crate) fn prepare_to_close(fd: c_int) -> bool {
    known(fd).is_none_or(|file| file.prepare_to_close(is_beside_parent()))
}

/// `new` is a duplicate of `old` from now on, by a call that has closed the file it was before.
///
/// `new` was a file's all the time, so calls on it are no mistake: one that came after
/// [`prepare_to_close`] has learned what the old file was.
pub(crate) fn replaced(old: c_int, new: c_int) {
    if let Some(file) = known(new).filter(|_| old != new) {
        file.forget();
    }
    duplicated(old, new);
}

/// The child of a fork has none of the fibers that wait in its parent: nobody is to be driven out.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        PROCESS.store(process(), Ordering::Relaxed);
        // SAFETY: the handler touches nothing but atomics.
        unsafe { libc::pthread_atfork(None, None, Some(forget_waiters)) };
    }
    mind_forks
};

/// The process that the table is of.
static PROCESS: AtomicUsize = AtomicUsize::new(0);

fn process() -> usize {
    // SAFETY: takes nothing.
    unsafe { kernel::call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0)
}

unsafe extern "C" fn forget_waiters() {
    PROCESS.store(process(), Ordering::Relaxed);
    for chunk in &TABLE {
        // SAFETY: chunks are never freed.
        for file in unsafe { chunk.load(Ordering::Acquire).as_ref() }.into_iter().flatten() {
            // SAFETY: the child has one thread, and that one was forking.
            unsafe { file.waiters.renew() };
        }
    }
}

/// Whether this is the child of a `vfork`, which runs in its parent's memory: what it closes is its own.
fn is_beside_parent() -> bool {
    process() != PROCESS.load(Ordering::Relaxed)
}

/// [`prepare_to_close`] for all from `first` to `last`.
pub(crate) fn prepare_to_close_range(first: u32, last: u32) {
    let (first, end) = (first as usize, (last as usize).saturating_add(1));
    let beside_parent = is_beside_parent();
    let chunks = TABLE.iter().enumerate().take(end.div_ceil(CHUNK)).skip(first / CHUNK);
    for (index, slot) in chunks {
        let begin = index * CHUNK;
        let range = begin.max(first)..(begin + CHUNK).min(end);
        // SAFETY: chunks are never freed.
        let Some(chunk) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        for fd in range {
            // Who closes one of them at the same time closes it.
            chunk[fd % CHUNK].prepare_to_close(beside_parent);
        }
    }
}
