//! What is known of one file descriptor.

use std::ffi::c_int;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use carefree_reactor::clock::NEVER;
use carefree_runtime::waiters::Waiters;

use crate::descriptor::holder::Holder;
use crate::descriptor::kind::{Kind, Seen, look};
use crate::descriptor::process::is_beside_parent;
use crate::descriptor::storage::Storage;
use crate::descriptor::traits::{Limit, Trait, is_blocking, limit_of};

/// What is known of one file descriptor. In this order, so that what a call on a socket or a pipe
/// touches is in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct File {
    /// The fibers that wait on it.
    waiters: Waiters,
    /// How often its mode and its time limits were changed through this number, or the number was closed.
    changes: [AtomicU32; 2],
    /// Its mode when that was asked for, and the [`version`](File::version) then: [`mode_at`]; 0 if never. In one
    /// word, so that an answer is not taken for that to a later question.
    mode: AtomicU32,
    /// The version of its time limits when those were asked for; 0 if never, [`NOTING`] while they are written.
    limits_asked: AtomicU32,
    /// A [`Kind`].
    kind: AtomicU8,
    /// A [`Holder`].
    holder: AtomicU8,
    /// A [`Storage`], once its kind is known.
    storage: AtomicU8,
    /// The upper bits of `inode_hash`, once its kind is known.
    inode: AtomicU8,
    /// Whether other numbers may refer to the same open file.
    duplicated: AtomicBool,
    /// How many tries in a row found nothing to read.
    dry: AtomicU8,
    /// Whether it has refused to be written without waiting.
    untriable: AtomicBool,
    /// Its `SO_RCVTIMEO` and `SO_SNDTIMEO` in nanoseconds, [`NEVER`] for none.
    limits: [AtomicU64; 2],
    /// The hash of its inode, once its kind is known.
    inode_hash: AtomicU64,
    /// How often the number was closed.
    closes: AtomicU32,
}

const _: () = assert!(mem::offset_of!(File, limits) + size_of::<u64>() == 64);

/// The time limits are being written.
const NOTING: u32 = u32::MAX;

/// A mode, and the version at which it was asked for, in one word. (After two billion changes it begins anew.)
const fn mode_at(version: u32, blocking: bool) -> u32 {
    version << 1 | blocking as u32
}

/// After so many failed tries in a row, tries are left out.
const DRY: u8 = 3;
/// Then one in so many is made all the same.
const SOUNDING: u8 = 16;

impl File {
    pub(super) const fn new() -> File {
        File {
            waiters: Waiters::new(),
            changes: [const { AtomicU32::new(0) }; 2],
            mode: AtomicU32::new(0),
            limits_asked: AtomicU32::new(0),
            kind: AtomicU8::new(Kind::Unknown as u8),
            holder: AtomicU8::new(Holder::Unknown as u8),
            storage: AtomicU8::new(Storage::None as u8),
            inode: AtomicU8::new(0),
            duplicated: AtomicBool::new(false),
            dry: AtomicU8::new(0),
            untriable: AtomicBool::new(false),
            limits: [const { AtomicU64::new(NEVER) }; 2],
            inode_hash: AtomicU64::new(0),
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
        let (seen, hash) = look(fd);
        self.storage.store(seen.storage as u8, Ordering::Relaxed);
        self.inode.store(seen.inode, Ordering::Relaxed);
        self.inode_hash.store(hash, Ordering::Relaxed);
        if seen.kind != Kind::Stream {
            self.untriable.store(false, Ordering::Relaxed);
        }
        // The last: a thread that sees it sees the others.
        self.kind.store(seen.kind as u8, Ordering::Release);
        seen.kind
    }

    /// The hash of its inode, as far as is known without asking; else 0.
    pub(crate) fn inode_hash(&self) -> u64 {
        self.inode_hash.load(Ordering::Relaxed)
    }

    /// Whether a write that was tried on it was refused, because of what it is: so would the next one be.
    #[inline]
    pub(crate) fn refuses_tries(&self) -> bool {
        self.untriable.load(Ordering::Relaxed)
    }

    /// It has refused a write without waiting.
    pub(crate) fn refused_try(&self) {
        self.untriable.store(true, Ordering::Relaxed);
    }

    /// What may hold it while a fiber waits for it; asks the kernel the first time.
    #[inline]
    pub(crate) fn holder(&self, fd: c_int) -> Holder {
        match Holder::from_number(self.holder.load(Ordering::Relaxed)) {
            Holder::Unknown => {
                let holder = holder(fd, self.kind(fd));
                self.holder.store(holder as u8, Ordering::Relaxed);
                holder
            }
            known => known,
        }
    }

    /// Notes what is known of it without asking.
    pub(super) fn found(&self, kind: Kind, holder: Holder) {
        if kind == Kind::Socket {
            self.storage.store(Storage::None as u8, Ordering::Relaxed);
        }
        self.kind.store(kind as u8, Ordering::Relaxed);
        self.holder.store(holder as u8, Ordering::Relaxed);
    }

    /// A trait of it may just have been changed.
    pub(super) fn changed(&self, what: Trait) {
        // Whether its writes end in the page cache is a matter of its mode.
        if self.storage.load(Ordering::Relaxed) != Storage::None as u8 {
            self.kind.store(Kind::Unknown as u8, Ordering::Relaxed);
        }
        if self.duplicated.load(Ordering::Acquire) {
            what.changed();
        } else {
            self.changes[what as usize].fetch_add(1, Ordering::Release);
        }
    }

    /// Another number refers to the same open file.
    pub(super) fn duplicated(&self) {
        self.duplicated.store(true, Ordering::Release);
    }

    /// The fibers that wait on it.
    #[inline]
    pub(super) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// What [`prepare_to_close`](super::prepare_to_close) says.
    #[inline]
    pub(super) fn prepare_to_close(&self, beside_parent: bool) -> bool {
        // In the child of a vfork, the parent's fibers go on waiting.
        if !beside_parent {
            self.closes.fetch_add(1, Ordering::Relaxed);
            // A call that goes on after a part sees the new count, or is seen here: see
            // [`MultiStep`](crate::wait::multi_step::MultiStep).
            fence(Ordering::SeqCst);
            if self.waiters.is_waited_on() && !self.waiters.close() {
                return false;
            }
        }
        self.forget();
        true
    }

    /// Forgets all that is known of it.
    pub(super) fn forget(&self) {
        let holder = self.holder.load(Ordering::Relaxed);
        let cannot_be_asked =
            holder == Holder::Process as u8 || self.duplicated.load(Ordering::Relaxed);
        self.dry.store(0, Ordering::Relaxed);
        self.untriable.store(false, Ordering::Relaxed);
        self.mode.store(0, Ordering::Relaxed);
        // (What is just being written is outdated by the close.)
        let known = |asked: u32| (asked != 0 && asked != NOTING).then_some(0);
        let _ = self.limits_asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, known);
        if cannot_be_asked && is_beside_parent() {
            // The parent's file is still there, and asks for the rest again.
            self.kind.store(Kind::Unknown as u8, Ordering::Relaxed);
            return;
        }
        self.duplicated.store(false, Ordering::Relaxed);
        self.found(Kind::Unknown, Holder::Unknown);
    }

    /// The number was closed, and may be another file's now. A call that was under way then may still note what it was
    /// told of the former file: it notes that for an earlier version.
    #[inline]
    pub(super) fn closed(&self) {
        for changes in &self.changes {
            changes.fetch_add(1, Ordering::Release);
        }
    }

    /// How often the number was closed: if the count has changed, it may be another file's.
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

    /// Counts the changes that concern this file. It is read before the kernel is asked, so that a change
    /// that comes meanwhile makes the answer an old one.
    #[inline]
    fn version(&self, what: Trait) -> u32 {
        // Neither of the two ever falls, so the sum changes whenever one of them does.
        what.changes().wrapping_add(self.changes[what as usize].load(Ordering::Acquire))
    }

    /// Whether it is in blocking mode.
    #[inline]
    pub(crate) fn is_blocking(&self, fd: c_int) -> bool {
        let now = self.version(Trait::Mode);
        if self.mode.load(Ordering::Relaxed) == mode_at(now, true) {
            return true;
        }
        // A caller that is told EAGAIN by mistake may fail, so that is never answered from memory.
        let blocking = is_blocking(fd);
        self.mode.store(mode_at(now, blocking), Ordering::Relaxed);
        blocking
    }

    /// Whether it was in non-blocking mode when that was asked last, and this program has not changed a mode since. For
    /// callers that leave the answer to the kernel, and would keep their carrier if another process has: see [`is_blocking`](Self::is_blocking).
    #[inline]
    pub(crate) fn was_impatient(&self) -> bool {
        let mode = self.mode.load(Ordering::Relaxed);
        mode != 0 && mode == mode_at(self.version(Trait::Mode), false)
    }

    /// How long a call that waits may take by the socket's own limit, in nanoseconds.
    pub(crate) fn limit(&self, fd: c_int, limit: Limit) -> u64 {
        if self.kind(fd) != Kind::Socket {
            return NEVER;
        }
        let now = self.version(Trait::Limits);
        if self.limits_asked.load(Ordering::Acquire) == now {
            let known = self.limits[limit as usize].load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            // Asked again: another thread may just have noted what it was told before the last change.
            if self.limits_asked.load(Ordering::Relaxed) == now {
                return known;
            }
        }
        let asked = [Limit::Receive, Limit::Send].map(|limit| limit_of(fd, limit));
        self.note_limits(now, asked);
        asked[limit as usize]
    }

    /// Remembers the time limits, unless another thread is doing so.
    fn note_limits(&self, version: u32, limits: [u64; 2]) {
        let before = self.limits_asked.load(Ordering::Relaxed);
        let (took, lost) = (Ordering::Acquire, Ordering::Relaxed);
        if before == NOTING
            || self.limits_asked.compare_exchange(before, NOTING, took, lost).is_err()
        {
            return;
        }
        // A reader that sees one of these sees `NOTING` or what follows it.
        fence(Ordering::Release);
        for (place, limit) in self.limits.iter().zip(limits) {
            place.store(limit, Ordering::Relaxed);
        }
        self.limits_asked.store(version, Ordering::Release);
    }
}

/// Whether `fd`, whose place in the table is `file`, is in blocking mode.
#[inline]
pub(crate) fn blocking(file: Option<&File>, fd: c_int) -> bool {
    file.map_or_else(|| is_blocking(fd), |file| file.is_blocking(fd))
}

/// What is known of `fd`, whose place in the table is `file`; asks the kernel the first time.
#[inline]
pub(crate) fn seen(file: Option<&File>, fd: c_int) -> Seen {
    let Some(file) = file else { return look(fd).0 };
    let kind = file.kind(fd);
    let storage = Storage::from_number(file.storage.load(Ordering::Relaxed));
    Seen { kind, storage, inode: file.inode.load(Ordering::Relaxed) }
}

/// What may hold `fd` while a fiber waits for it.
#[cold]
pub(super) fn holder(fd: c_int, kind: Kind) -> Holder {
    match kind {
        Kind::Device => Holder::Process,
        Kind::Socket => Holder::of_socket(fd),
        _ => Holder::Ring,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;
    use std::sync::atomic::AtomicUsize;
    use std::{hint, thread};

    use super::*;

    /// Two threads ask at the same time, just after the mode was changed.
    #[test]
    fn an_answer_is_not_taken_for_one_to_a_later_question() {
        const ROUNDS: usize = 100_000;
        let socket = UnixDatagram::unbound().unwrap();
        let (fd, file) = (socket.as_raw_fd(), &File::new());
        let (round, heard) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        let wrong = thread::scope(|scope| {
            let other = scope.spawn(move || {
                let mut wrong = 0;
                for number in 1..=ROUNDS {
                    while round.load(Ordering::Acquire) != number {
                        hint::spin_loop();
                    }
                    (0..number % 32).for_each(|_| hint::spin_loop());
                    wrong += usize::from(file.is_blocking(fd));
                    heard.store(number, Ordering::Release);
                }
                wrong
            });
            let mut wrong = 0;
            for number in 1..=ROUNDS {
                socket.set_nonblocking(false).unwrap();
                file.changed(Trait::Mode);
                assert!(file.is_blocking(fd));
                socket.set_nonblocking(true).unwrap();
                file.changed(Trait::Mode);
                round.store(number, Ordering::Release);
                wrong += usize::from(file.is_blocking(fd));
                while heard.load(Ordering::Acquire) != number {
                    hint::spin_loop();
                }
            }
            wrong + other.join().unwrap()
        });
        assert_eq!(wrong, 0, "of {ROUNDS}");
    }

    /// A number is closed, and given to another file, while a call asks for its mode.
    #[test]
    fn an_answer_is_not_taken_for_one_about_a_later_file() {
        const ROUNDS: usize = 20_000;
        let (round, heard) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        let file = &File::new();
        let place = UnixDatagram::unbound().unwrap();
        let fd = place.as_raw_fd();
        let spare = UnixDatagram::unbound().unwrap();
        spare.set_nonblocking(true).unwrap();
        let replace_by = |other: &UnixDatagram| {
            // SAFETY: the number stays this test's.
            let number = unsafe { libc::syscall(libc::SYS_dup3, other.as_raw_fd(), fd, 0) };
            assert_eq!(number, fd.into());
        };
        let wrong = thread::scope(|scope| {
            scope.spawn(move || {
                for number in 1..=ROUNDS {
                    while round.load(Ordering::Acquire) != number {
                        hint::spin_loop();
                    }
                    (0..number % 64).for_each(|_| hint::spin_loop());
                    file.is_blocking(fd);
                    heard.store(number, Ordering::Release);
                }
            });
            let mut wrong = 0;
            for number in 1..=ROUNDS {
                round.store(number, Ordering::Release);
                (0..number % 32).for_each(|_| hint::spin_loop());
                file.prepare_to_close(false);
                replace_by(&spare);
                file.closed();
                while heard.load(Ordering::Acquire) != number {
                    hint::spin_loop();
                }
                wrong += usize::from(file.is_blocking(fd));
                replace_by(&UnixDatagram::unbound().unwrap());
                file.forget();
            }
            wrong
        });
        assert_eq!(wrong, 0, "of {ROUNDS}");
    }
}
