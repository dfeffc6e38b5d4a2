//! Timers of the kernel's that concern a hosted thread (`timer_create`).
//!
//! The kernel sends a timer's signal to one of its own threads (`SIGEV_THREAD_ID`), and knows the clocks of its
//! own threads. So for a hosted thread that is to receive a signal, the kernel's timer interrupts the
//! dispatcher, which delivers it. All else is the kernel's: the timer's number, its times, how often it was late.
//!
//! # Clocks of hosted threads
//!
//! A timer on such a clock stands for one of the kernel's on real time, of which a thread can use no more than
//! there is. When that is over, the dispatcher asks for what the thread has used: the timer is due, or begins
//! anew with what is left. While the thread uses nothing, it is asked at growing intervals. So such a timer may be
//! late by [`PAUSE`], as one of the kernel's may by a tick.
//!
//! # What comes when a timer is stopped
//!
//! The kernel has handed over what a timer sent before it was set anew or deleted: no handler is called for it later.
//! So these calls wait until the dispatcher has passed that on.
//!
//! A function that is called on a thread of its own (`SIGEV_THREAD`) is libc's matter, which knows clocks of the
//! kernel's alone; on the clock of a hosted thread, the dispatcher creates those threads.

use std::ffi::{c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_ground::kernel;
use carefree_ground::lock::Lock;
use carefree_runtime::hosted;
use carefree_runtime::wait::without_parking;
use libc::{clockid_t, itimerspec, sigevent, siginfo_t, timespec};

use crate::place;
use crate::signal::expiry::{self, Expiry};
use crate::signal::set::{OURS, give_to_process, is_signal};
use crate::signal::{alarm, deliver, post};
use crate::thread::record::set_errno;
use crate::thread::{Call, clock_owner, find_number};

/// Nanoseconds after which a thread that has used nothing is asked again, at first, and at most.
const PAUSE: [u64; 2] = [1_000_000, 8_000_000];
const SECOND: u64 = 1_000_000_000;

/// On the clock of a hosted thread.
#[derive(Clone, Copy)]
struct Used {
    /// The number of that thread.
    of: c_int,
    /// When it is due; 0 if it is not set.
    due: u64,
    interval: u64,
    overrun: c_int,
    /// What the thread had used at the last look, and after how long the next one comes.
    last: u64,
    pause: u64,
}

/// One that the kernel does not manage alone.
#[derive(Clone, Copy)]
struct Timer {
    id: c_int,
    /// 0 for none.
    signal: c_int,
    value: usize,
    /// The number of the thread that receives the signal; 0 for the process.
    receiver: c_int,
    /// What is called in place of sending a signal.
    call: Option<Call>,
    used: Option<Used>,
}

/// How a `sigevent` is laid out that asks for a call. (`libc` names another member of the union.)
#[repr(C)]
struct CallEvent {
    value: usize,
    signal: c_int,
    notify: c_int,
    function: usize,
    attributes: *const libc::pthread_attr_t,
}
const _: () = assert!(size_of::<CallEvent>() <= size_of::<sigevent>());

static TIMERS: Lock<Vec<Timer>> = Lock::new(Vec::new());
/// How many there are. (Calls that are made within handlers of the kernel's threads take no lock for nothing.)
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// In the child of a fork, which inherits no timers.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(super) unsafe fn renew() {
    // SAFETY: as this function demands.
    unsafe {
        TIMERS.renew(Vec::new());
        expiry::renew();
    }
    COUNT.store(0, Ordering::Relaxed);
}

fn with<T>(id: c_int, f: impl FnOnce(&mut Timer) -> T) -> Option<T> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    TIMERS.lock().iter_mut().find(|timer| timer.id == id).map(f)
}

/// That timer, if it is on the clock of a hosted thread.
fn find_used(id: c_int) -> Option<Used> {
    with(id, |timer| timer.used)?
}

/// What the thread of this number has used, in nanoseconds.
fn used_by(number: c_int) -> Option<u64> {
    Some(find_number(number)?.time_used())
}

impl Used {
    /// When it is due next, at `now`; `None` if that is never.
    fn next(&self, now: u64) -> Option<u64> {
        match (self.due, self.interval) {
            (0, _) => None,
            (due, _) if now < due => Some(due),
            (_, 0) => None,
            (due, interval) => Some(due + (now - due) / interval * interval + interval),
        }
    }

    fn told(&self, now: u64) -> itimerspec {
        let left = self.next(now).map_or(0, |due| due - now);
        itimerspec { it_interval: time(self.interval), it_value: time(left) }
    }
}

fn time(nanos: u64) -> timespec {
    timespec { tv_sec: (nanos / SECOND) as _, tv_nsec: (nanos % SECOND) as _ }
}

fn nanos(time: timespec) -> Option<u64> {
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    (nanos < SECOND).then(|| seconds.saturating_mul(SECOND).saturating_add(nanos))
}

/// Has the kernel's timer end after so long.
fn begin(id: c_int, nanos: u64) {
    let wanted = itimerspec { it_interval: time(0), it_value: time(nanos) };
    let arguments = [id as usize, 0, (&raw const wanted) as usize, 0, 0, 0];
    // SAFETY: the kernel reads the time, which is there during the call, and writes none (the fourth argument is null).
    let _ = unsafe { kernel::call(libc::SYS_timer_settime, arguments) };
}

/// `timer_create`: its number. `None` if it concerns no hosted thread, or is wrong. (To the kernel, `SIGEV_THREAD`
/// is nothing that `calls` a function.)
fn create(clock: clockid_t, event: Option<&sigevent>, calls: bool) -> Option<Result<c_int, c_int>> {
    if !hosted::is_hosting() {
        return None;
    }
    let notify = event.map_or(libc::SIGEV_SIGNAL, |event| event.sigev_notify);
    let signal = event.map_or(libc::SIGALRM, |event| event.sigev_signo);
    let owner = clock_owner(clock);
    let named = event.map_or(0, |event| event.sigev_notify_thread_id);
    let receiver = match notify {
        libc::SIGEV_THREAD_ID => find_number(named).map(|thread| thread.number()),
        _ => None,
    };
    if owner.is_none() && receiver.is_none() {
        return None;
    }
    match notify {
        libc::SIGEV_THREAD_ID if receiver.is_none() => return Some(Err(libc::EINVAL)),
        libc::SIGEV_SIGNAL | libc::SIGEV_THREAD_ID if !is_signal(signal) => {
            return Some(Err(libc::EINVAL));
        }
        libc::SIGEV_SIGNAL | libc::SIGEV_THREAD_ID | libc::SIGEV_NONE => {}
        libc::SIGEV_THREAD if calls => {}
        libc::SIGEV_THREAD => return Some(Err(libc::ENOTSUP)),
        _ => return Some(Err(libc::EINVAL)),
    }
    // SAFETY: zeros are such a structure.
    let mut wanted = unsafe { std::mem::zeroed::<sigevent>() };
    wanted.sigev_notify = libc::SIGEV_THREAD_ID;
    wanted.sigev_signo = OURS;
    wanted.sigev_notify_thread_id = post::await_dispatcher();
    let real = if owner.is_some() { libc::CLOCK_MONOTONIC } else { clock };
    let mut id: c_int = 0;
    let arguments = [real as usize, (&raw const wanted) as usize, (&raw mut id) as usize, 0, 0, 0];
    // SAFETY: what is wanted, and room for the answer.
    if let Err(errno) = unsafe { kernel::call(libc::SYS_timer_create, arguments) } {
        return Some(Err(errno));
    }
    let call = event.filter(|_| notify == libc::SIGEV_THREAD).map(|event| {
        // SAFETY: the caller's event, of this layout; its attributes were initialised, if there are some.
        unsafe {
            let event = &*ptr::from_ref(event).cast::<CallEvent>();
            Call::new(event.function, event.attributes)
        }
    });
    let has_signal = matches!(notify, libc::SIGEV_SIGNAL | libc::SIGEV_THREAD_ID);
    let timer = Timer {
        id,
        signal: if has_signal { signal } else { 0 },
        call,
        value: event.map_or(id as usize, |event| event.sigev_value.sival_ptr as usize),
        receiver: receiver.unwrap_or(0),
        used: owner.map(|of| Used { of, due: 0, interval: 0, overrun: 0, last: 0, pause: 0 }),
    };
    // The list grows under its lock: the caller must not park in the allocator meanwhile.
    without_parking(|| TIMERS.lock().push(timer));
    COUNT.fetch_add(1, Ordering::Relaxed);
    Some(Ok(id))
}

/// `timer_settime` of a timer on the clock of a hosted thread: an `errno`, or 0. `None` for others.
///
/// # Safety
/// Times, or null.
unsafe fn set(
    id: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Option<c_int> {
    let used = find_used(id)?;
    // SAFETY: as this function demands.
    let new = match unsafe { place::read(new) } {
        Ok(new) => new,
        Err(_) if new.is_null() => return Some(libc::EINVAL),
        Err(errno) => return Some(errno),
    };
    let (Some(value), Some(interval)) = (nanos(new.it_value), nanos(new.it_interval)) else {
        return Some(libc::EINVAL);
    };
    let Some(now) = used_by(used.of) else { return Some(libc::ESRCH) };
    let due = match (value, flags & libc::TIMER_ABSTIME) {
        (0, _) => 0,
        (value, 0) => now.saturating_add(value),
        (value, _) => value,
    };
    let set = Used { due, interval, overrun: 0, last: now, pause: 0, ..used };
    let before = with(id, |timer| {
        let before = timer.used.replace(set);
        // Under the lock: two that are set at once end with what was set last.
        let is_silent = timer.signal == 0 && timer.call.is_none();
        let left = if due == 0 || is_silent { 0 } else { due.saturating_sub(now).max(1) };
        begin(id, left);
        before
    });
    if let (false, Some(Some(before))) = (old.is_null(), before) {
        // SAFETY: as this function demands.
        return Some(unsafe { place::write(old, before.told(now)) }.err().unwrap_or(0));
    }
    Some(0)
}

/// `timer_gettime` of a timer on the clock of a hosted thread: an `errno`, or 0. `None` for others.
///
/// # Safety
/// Room for times.
unsafe fn get(id: c_int, told: *mut itimerspec) -> Option<c_int> {
    let used = find_used(id)?;
    let ended = Used { due: 0, ..used };
    let told_now = used_by(used.of).map_or(ended.told(0), |now| used.told(now));
    // SAFETY: as this function demands.
    Some(unsafe { place::write(told, told_now) }.err().unwrap_or(0))
}

/// `timer_getoverrun`: what was taken from the kernel, which `kernels` tells of, may have waited for its thread.
fn overrun(id: c_int, kernels: impl FnOnce() -> c_int) -> c_int {
    // One that calls a function sends no signal.
    let called = with(id, |timer| timer.used.filter(|_| timer.call.is_some()));
    if let Some(Some(used)) = called {
        return used.overrun;
    }
    match kernels() {
        late if late >= 0 && id >= 0 && post::is_open() => expiry::overrun(id),
        late => late,
    }
}

/// The timer is deleted.
fn forget(id: c_int) {
    expiry::forget(id);
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut timers = TIMERS.lock();
    if let Some(place) = timers.iter().position(|timer| timer.id == id) {
        timers.swap_remove(place);
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A timer of the kernel's that stands for one of these has interrupted the dispatcher, which calls this.
pub(super) fn fired(info: &mut siginfo_t) {
    let Some(Expiry { id, overrun: mut late, .. }) = Expiry::of(info).copied() else { return };
    let Some(timer) = with(id, |timer| *timer) else { return };
    if let Some(used) = timer.used {
        // If the thread has ended, it uses no more.
        let Some(now) = used_by(used.of) else { return };
        match with(id, |timer| look(timer, &used, now)).flatten() {
            Some(overrun) => late = overrun,
            None => return,
        }
    }
    if let Some(call) = timer.call {
        // SAFETY: what the program has asked for; a timer concerns a hosted thread.
        return unsafe { call.make(timer.value) };
    }
    let signal = Expiry::told(timer.signal, id, late, timer.value);
    match timer.receiver {
        0 => give_to_process(&signal),
        // (A thread that has ended by now is sent nothing.)
        number => {
            if let Some(thread) = find_number(number) {
                let _ = deliver::deliver(*thread, signal);
            }
        }
    }
}

/// Looks whether a timer is due, which was `seen` before its thread was asked; and begins it anew. Returns how
/// many times it should have been due since.
fn look(timer: &mut Timer, seen: &Used, now: u64) -> Option<c_int> {
    // (It may have been set meanwhile: then the kernel's was.)
    let used = timer.used.as_mut().filter(|used| used.due == seen.due && used.due != 0)?;
    let is_due = now >= used.due;
    let mut overrun = 0;
    if is_due {
        let missed = (now - used.due).checked_div(used.interval).unwrap_or(0);
        overrun = c_int::try_from(missed).unwrap_or(c_int::MAX);
        used.overrun = overrun;
        used.due = used.next(now).unwrap_or(0);
        used.pause = 0;
    } else {
        let [first, most] = PAUSE;
        let rests = now == used.last;
        used.pause = if rests { (used.pause * 2).clamp(first, most) } else { first };
    }
    used.last = now;
    if used.due != 0 {
        begin(timer.id, (used.due - now).max(used.pause));
    }
    is_due.then_some(overrun)
}

/// These calls by their numbers, with the kernel's numbers of timers; `None` for all that is left to the kernel.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn by_number(number: c_long, arguments: [usize; 6]) -> Option<c_int> {
    let [a, b, c, d, ..] = arguments;
    // SAFETY: as this function demands.
    unsafe {
        match number {
            libc::SYS_timer_create => {
                let event = (b != 0).then(|| place::read(b as *const sigevent)).transpose();
                let event = match event {
                    Ok(event) => event,
                    Err(errno) => return Some(errno),
                };
                let created = create(a as clockid_t, event.as_ref(), false)?;
                Some(created.map_or_else(
                    |errno| errno,
                    |id| {
                        (c as *mut c_int).write(id);
                        0
                    },
                ))
            }
            libc::SYS_timer_settime => {
                let set = set(a as c_int, b as c_int, c as *const itimerspec, d as *mut itimerspec);
                Some(settled(match set {
                    None => kernel::call(number, arguments),
                    Some(0) => Ok(0),
                    Some(errno) => Err(errno),
                }))
            }
            libc::SYS_timer_gettime => get(a as c_int, b as *mut itimerspec),
            libc::SYS_timer_delete => {
                forget(a as c_int);
                Some(settled(kernel::call(number, arguments)))
            }
            libc::SYS_setitimer => Some(alarm::set(a, b as *const _, c as *mut _)),
            _ => None,
        }
    }
}

/// An `errno`, or 0. What a timer sent before it was set or deleted is with a thread then.
fn settled(result: Result<usize, c_int>) -> c_int {
    match result {
        Ok(_) => {
            deliver::settle();
            0
        }
        Err(errno) => errno,
    }
}

/// Whether a timer that was set so may have sent a signal that is still on its way: not if it was to end once, and had
/// not.
fn may_have_sent(before: &itimerspec) -> bool {
    let is_null = |time: timespec| time.tv_sec == 0 && time.tv_nsec == 0;
    is_null(before.it_value) || !is_null(before.it_interval)
}

/// libc's name of a timer that the kernel has given a number. (Those that call functions have others.)
type Name = *mut c_void;

/// The number of a timer; one that there is not, if the kernel has given none.
fn id_of(name: Name) -> c_int {
    c_int::try_from(name as isize).unwrap_or(-1)
}

/// -1 with `errno`, or 0.
fn answer(errno: c_int) -> c_int {
    if errno == 0 {
        return 0;
    }
    set_errno(errno);
    -1
}

stand_in! {
    /// `timer_create(2)`.
    fn timer_create(clock: clockid_t, event: *mut sigevent, timer: *mut Name) -> c_int {
        // SAFETY: the caller's arguments.
        match create(clock, unsafe { event.as_ref() }, true) {
            Some(Ok(id)) => {
                // SAFETY: as above.
                unsafe { timer.write(id as isize as Name) };
                0
            }
            Some(Err(errno)) => answer(errno),
            // SAFETY: as above.
            None => unsafe { next(clock, event, timer) },
        }
    }

    /// `timer_settime(2)`.
    fn timer_settime(
        timer: Name,
        flags: c_int,
        new: *const itimerspec,
        old: *mut itimerspec,
    ) -> c_int {
        let id = id_of(timer);
        // SAFETY: the caller's arguments.
        unsafe {
            if let Some(errno) = set(id, flags, new, old) {
                let set = settled(if errno == 0 { Ok(0) } else { Err(errno) });
                if set == 0 {
                    expiry::forget(id);
                }
                return answer(set);
            }
            let mut own = MaybeUninit::<itimerspec>::uninit();
            let before = if old.is_null() { own.as_mut_ptr() } else { old };
            let set = next(timer, flags, new, before);
            // (What calls a function sends no signal.)
            if set == 0 && id >= 0 && may_have_sent(&before.read()) {
                deliver::settle();
            }
            if set == 0 {
                expiry::forget(id);
            }
            set
        }
    }

    /// `timer_gettime(2)`.
    fn timer_gettime(timer: Name, told: *mut itimerspec) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match get(id_of(timer), told) {
                Some(errno) => answer(errno),
                None => next(timer, told),
            }
        }
    }

    /// `timer_getoverrun(2)`.
    fn timer_getoverrun(timer: Name) -> c_int {
        // SAFETY: the caller's argument.
        overrun(id_of(timer), || unsafe { next(timer) })
    }

    /// `timer_delete(2)`.
    fn timer_delete(timer: Name) -> c_int {
        forget(id_of(timer));
        // SAFETY: the caller's argument.
        let deleted = unsafe { next(timer) };
        if deleted == 0 && id_of(timer) >= 0 {
            deliver::settle();
        }
        deleted
    }
}
