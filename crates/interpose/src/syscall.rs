//! `syscall(2)`: system calls by their numbers.
//!
//! libc's function is variadic; ours has seven arguments. On the processors that Carefree supports, that makes
//! no difference to a caller. x86-64 passes the integers of a variadic call like any others, the first six in
//! registers and the seventh on the stack (and in `al` the number of vector registers, which we ignore).
//! aarch64 on Linux passes all seven in registers, variadic or not. If the caller has passed fewer, we pass on
//! what happens to be there; the kernel looks only at the arguments that the call has.
//!
//! If a fiber makes a system call that has a stand-in, the stand-in is called. All others go to the kernel.

use std::ffi::{c_int, c_long};

use carefree_runtime::clock::NEVER;
use libc::timespec;

use crate::call::answer::answer;
use crate::call::fiber;
use crate::call::host;
use crate::call::sys::Word;
use crate::call::user::{User, word};
use crate::file::{close, control, lock, open, sync};
use crate::io::read_write;
use crate::ipc::{posix_queue, system_v};
use crate::poll::{epoll, pollfd, select};
use crate::process::wait;
use crate::socket::{accept, connect, messages, receive, receive_message, send};
use crate::thread::{alternate_stack, name, sched_yield};
use crate::time::{duration, sleep};
use crate::transfer::{copy, sendfile, splice};
use crate::wait::readiness::SIGNALS;
use crate::{futex, signal};

/// # Safety
/// As for the system call.
unsafe extern "C-unwind" fn raw_syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the program makes this call of the kernel's, with these arguments, and vouches for it.
    answer(unsafe { carefree_ground::kernel::call(number, [a, b, c, d, e, f]) }) as c_long
}

interpose! { lean anywhere
    /// `syscall(2)`.
    fn syscall(
        number: c_long,
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
    ) -> c_long, else raw_syscall {
        // The seventh argument lies on the stack, where the caller may have written less than a whole
        // word, or nothing. To read what was just written in another size takes a processor about as long
        // as two locked instructions. So it is not read for a plain wake-up.
        if number != libc::SYS_futex {
            // SAFETY: number and arguments are handed on as the program has given them.
            return unsafe { no_futex(number, a, b, c, d, e, f) };
        }
        let (operation, value) = (b as c_int, c as u32);
        // SAFETY: the words and the time of a `futex`, which the program vouches for, until it returns. Where
        // the operation has a number in one of these places, it is only handed on.
        let (word, fourth, second_word) = unsafe { (word(a), word(d), word(e)) };
        if futex::call::command(operation) == libc::FUTEX_WAKE {
            return futex::wake::wake::<LibcSyscall>(word, operation, value, futex::call::ANY);
        }
        futex::perform::futex::<LibcSyscall>(word, operation, value, fourth, second_word, f as u32)
    }
}

/// libc's `syscall`, for `futex`.
struct LibcSyscall;

impl futex::call::Kernel for LibcSyscall {
    #[inline(always)]
    fn futex(arguments: [Word<'_>; 6]) -> c_long {
        let [a, b, c, d, e, f] = arguments.map(Word::number);
        // SAFETY: `futex` goes to no memory but where its arguments point, and the pointers among these are
        // `User`s, of a program that has made this call.
        unsafe { syscall::original(libc::SYS_futex, a, b, c, d, e, f) }
    }
}

/// A system call, but not `futex`.
///
/// # Safety
/// As for the system call.
#[inline(never)]
unsafe extern "C-unwind" fn no_futex(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: all three ask for what the system call does, which this function's callers vouch for.
    unsafe {
        if fiber::on_fiber() {
            return by_a_fiber(number, [a, b, c, d, e, f]);
        }
        syscall::original(number, a, b, c, d, e, f)
    }
}

/// Whether a call takes this set of signals, or none. It fails at once if the size is another.
fn is_set(set: usize, size: usize) -> bool {
    set == 0 || size == SIGNALS
}

/// Makes a call that takes at most so much time, and writes there what is left of it, as the kernel does. (libc's
/// functions of the same names leave it alone.)
fn telling_time_left(time: User<timespec>, call: impl FnOnce() -> c_int) -> c_long {
    let span = match duration::given(time) {
        Ok(Some(time)) => duration::span(&time).unwrap_or(0),
        _ => 0,
    };
    // Where there was none, nothing is written. Of a span that is too long to count, all is left.
    let until = (span != 0 && span != NEVER).then(|| duration::from_now(span));
    let answer = call();
    if let Some(until) = until {
        // It may lie in memory that can only be read: the call has succeeded all the same.
        let _ = time.write(duration::timespec(duration::left(until)));
    }
    answer.into()
}

/// A fiber makes a system call, but not `futex`.
///
/// # Safety
/// As for the system call.
unsafe fn by_a_fiber(number: c_long, arguments: [usize; 6]) -> c_long {
    // No thread is cancelled at `syscall`, whatever the function is that stands in for the call.
    host::begin_number();
    // SAFETY: as this function demands.
    let done = unsafe { by_stand_in(number, arguments) };
    host::end_number();
    done.unwrap_or_else(|| {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: as this function demands.
        let hosted = host::get().and_then(|host| unsafe { (host.call)(number, arguments) });
        // SAFETY: as this function demands.
        hosted.unwrap_or_else(|| unsafe { syscall::original(number, a, b, c, d, e, f) })
    })
}

/// A system call that a function stands in for, or `None`.
///
/// # Safety
/// As for the system call.
unsafe fn by_stand_in(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    let fd = a as c_int;
    // SAFETY: the program vouches for the arguments of the system call until that returns, and the functions
    // take what the system calls of the same names take.
    let done = unsafe {
        match number {
            libc::SYS_read => read_write::read(fd, word(b), c) as c_long,
            libc::SYS_write => read_write::write(fd, word(b), c) as c_long,
            libc::SYS_readv => read_write::readv(fd, word(b), c as c_int) as c_long,
            libc::SYS_writev => read_write::writev(fd, word(b), c as c_int) as c_long,
            libc::SYS_recvfrom => {
                receive::recvfrom(fd, word(b), c, d as c_int, word(e), word(f)) as c_long
            }
            libc::SYS_sendto => {
                send::sendto(fd, word(b), c, d as c_int, word(e), word(f)) as c_long
            }
            libc::SYS_recvmsg => receive_message::recvmsg(fd, word(b), c as c_int) as c_long,
            libc::SYS_sendmsg => send::sendmsg(fd, word(b), c as c_int) as c_long,
            libc::SYS_accept => accept::accept(fd, word(b), word(c)).into(),
            libc::SYS_accept4 => accept::accept4(fd, word(b), word(c), d as c_int).into(),
            libc::SYS_connect => connect::connect(fd, word(b), word(c)).into(),
            libc::SYS_pread64 => read_write::pread(fd, word(b), c, word(d)) as c_long,
            libc::SYS_pwrite64 => read_write::pwrite(fd, word(b), c, word(d)) as c_long,
            libc::SYS_preadv => read_write::preadv(fd, word(b), c as c_int, word(d)) as c_long,
            libc::SYS_pwritev => read_write::pwritev(fd, word(b), c as c_int, word(d)) as c_long,
            // The offset comes in two halves, of which the second is for 32-bit machines.
            libc::SYS_preadv2 => {
                read_write::preadv2(fd, word(b), c as c_int, word(d), f as c_int) as c_long
            }
            libc::SYS_pwritev2 => {
                read_write::pwritev2(fd, word(b), c as c_int, word(d), f as c_int) as c_long
            }
            libc::SYS_recvmmsg => messages::recvmmsg(fd, word(b), word(c), word(d), word(e)).into(),
            libc::SYS_sendmmsg => messages::sendmmsg(fd, word(b), word(c), word(d)).into(),
            libc::SYS_fsync => sync::fsync(fd).into(),
            libc::SYS_fdatasync => sync::fdatasync(fd).into(),
            libc::SYS_syncfs => sync::syncfs(fd).into(),
            libc::SYS_sync => {
                sync::sync();
                0
            }
            libc::SYS_sync_file_range => {
                sync::sync_file_range(fd, word(b), word(c), word(d)).into()
            }
            libc::SYS_msync => sync::msync(word(a), b, c as c_int).into(),
            libc::SYS_prctl => name::prctl(a as c_int, word(b), word(c), word(d), word(e)).into(),
            libc::SYS_sigaltstack => alternate_stack::sigaltstack(word(a), word(b)).into(),
            libc::SYS_flock => lock::flock(fd, b as c_int).into(),
            libc::SYS_wait4 => wait::wait4(word(a), word(b), c as c_int, word(d)).into(),
            libc::SYS_close => close::close(fd).into(),
            libc::SYS_close_range => close::close_range(word(a), word(b), c as c_int).into(),
            libc::SYS_dup => close::dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => close::dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => close::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_setsockopt => {
                control::setsockopt(fd, b as c_int, c as c_int, word(d), word(e)).into()
            }
            libc::SYS_ioctl => control::ioctl(fd, word(b), word(c)).into(),
            libc::SYS_sched_yield => sched_yield::sched_yield().into(),
            libc::SYS_nanosleep => sleep::nanosleep(word(a), word(b)).into(),
            libc::SYS_clock_nanosleep => {
                // The function returns what the system call leaves in `errno`.
                match sleep::clock_nanosleep(word(a), b as c_int, word(c), word(d)) {
                    0 => 0,
                    errno => answer(Err(errno)) as c_long,
                }
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => pollfd::poll(word(a), word(b), c as c_int).into(),
            libc::SYS_ppoll if is_set(d, e) => {
                telling_time_left(word(c), || pollfd::ppoll(word(a), word(b), word(c), word(d)))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                select::select(a as c_int, word(b), word(c), word(d), word(e)).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => epoll::epoll_wait(fd, word(b), c as c_int, d as c_int).into(),
            libc::SYS_epoll_pwait if is_set(e, f) => {
                epoll::epoll_pwait(fd, word(b), c as c_int, d as c_int, word(e)).into()
            }
            libc::SYS_epoll_pwait2 if is_set(e, f) => {
                epoll::epoll_pwait2(fd, word(b), c as c_int, word(d), word(e)).into()
            }
            libc::SYS_pselect6 => {
                // The argument points to the pointer to the set of signals, and its length.
                let given: User<u64> = word(f);
                let read = |index| if given.is_null() { Ok(0) } else { given.after(index).read() };
                let (mask, size) = match (read(0), read(1)) {
                    (Ok(mask), Ok(size)) => (mask as usize, size as usize),
                    _ => return Some(answer(Err(libc::EFAULT)) as c_long),
                };
                if !is_set(mask, size) {
                    return Some(syscall::original(number, a, b, c, d, e, f));
                }
                let mask = word(mask);
                telling_time_left(word(e), || {
                    select::pselect(a as c_int, word(b), word(c), word(d), word(e), mask)
                })
            }
            // With a fifth argument, which only the system call has, it reports the child's resource usage.
            // That blocks the carrier.
            libc::SYS_waitid if e == 0 => {
                wait::waitid(word(a), word(b), word(c), d as c_int).into()
            }
            libc::SYS_openat => open::openat(fd, word(b), c as c_int, word(d)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => open::open(word(a), b as c_int, word(c)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => open::creat(word(a), word(b)).into(),
            libc::SYS_fcntl => control::fcntl(fd, b as c_int, word(c)).into(),
            libc::SYS_sendfile => sendfile::sendfile(fd, b as c_int, word(c), d) as c_long,
            libc::SYS_splice => {
                splice::splice(fd, word(b), c as c_int, word(d), e, word(f)) as c_long
            }
            libc::SYS_tee => splice::tee(fd, b as c_int, c, word(d)) as c_long,
            libc::SYS_vmsplice => splice::vmsplice(fd, word(b), c, word(d)) as c_long,
            libc::SYS_copy_file_range => {
                copy::copy_file_range(fd, word(b), c as c_int, word(d), e, word(f)) as c_long
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_pause => signal::pause().into(),
            libc::SYS_rt_sigsuspend if b == SIGNALS => signal::sigsuspend(word(a)).into(),
            libc::SYS_rt_sigtimedwait if d == SIGNALS => {
                signal::sigtimedwait(word(a), word(b), word(c)).into()
            }
            libc::SYS_mq_timedreceive => {
                posix_queue::mq_timedreceive(fd, word(b), c, word(d), word(e)) as c_long
            }
            libc::SYS_mq_timedsend => {
                posix_queue::mq_timedsend(fd, word(b), c, word(d), word(e)).into()
            }
            libc::SYS_msgsnd => system_v::msgsnd(fd, word(b), c, d as c_int).into(),
            libc::SYS_msgrcv => system_v::msgrcv(fd, word(b), c, word(d), e as c_int) as c_long,
            libc::SYS_semop => system_v::semop(fd, word(b), c).into(),
            libc::SYS_semtimedop => system_v::semtimedop(fd, word(b), c, word(d)).into(),
            libc::SYS_futex_waitv => futex::several::wait(arguments),
            _ => return None,
        }
    };
    Some(done)
}
