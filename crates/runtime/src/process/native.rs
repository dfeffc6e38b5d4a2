//! Threads in place of fibers, where fibers cannot have thread-local storage of their own.
//!
//! What is spawned is a kernel thread then. It has a header, as any plain thread that waits, and what is
//! built on headers works for it as for those: parking, joining, cancellation, limits, scopes. This adds
//! the thread's start, its end, and the runtime it belongs to. What the thread calls of libc is libc's own.
//!
//! # The end
//!
//! When its function has returned, the thread leaves the result and sets FINISHED. Its thread-local
//! variables end after that. So a join also waits for the kernel thread ([`bed::join`]): a joined thread has
//! left nothing behind. The runtime counts the thread as ended when `MEMBER` is dropped, the last of its
//! thread-local variables because it was the first.
//!
//! A thread that has forked ends the child when its function returns, as a fiber does (see
//! [`super::fork`]). Its thread-local variables end there if libc's `exit` sees to them: glibc's does,
//! musl's does not.

use std::cell::OnceCell;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use carefree_context::backtrace::__rust_begin_short_backtrace;
use carefree_context::tls;

use crate::carrier::carrier;
use crate::carrier::carrier::Shared;
use crate::carrier::launch;
use crate::fiber::bed;
use crate::fiber::current;
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::registry;
use crate::fiber::size;
use crate::handle::join::{self, JoinHandle, Stored};
use crate::process::shortage;
use crate::protocol::generation;
use crate::protocol::reason::Reason;

thread_local! {
    /// The runtime that the thread belongs to, if it was started in place of a fiber.
    static MEMBER: OnceCell<Member> = const { OnceCell::new() };
}

/// Keeps the runtime of a thread alive, and tells it of the thread's end.
struct Member(Arc<Shared>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.thread_ended();
    }
}

/// The runtime that the calling thread was started for, if it was. (In the child of a fork that
/// runtime is the parent's, and nothing is started there.)
pub(crate) fn runtime() -> Option<Arc<Shared>> {
    let own = MEMBER.try_with(|member| Some(Arc::clone(&member.get()?.0)));
    own.ok().flatten().filter(|runtime| !runtime.is_of_parent())
}

/// Starts a thread of `runtime` that runs `f`.
///
/// # Errors
/// When the kernel or libc refuses another thread, or there is no memory for its header.
///
/// # Safety
/// As for [`Builder::spawn_unchecked`](crate::Builder::spawn_unchecked).
pub(crate) unsafe fn start<F, T>(
    name: Option<Box<str>>,
    stack_size: Option<usize>,
    runtime: &Shared,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let me = registry::thread()?;
    let bed = bed::of(me);
    bed.begin(true);
    // One reference is the thread's own, one the handle's.
    me.begin(Kind::Thread, registry::number(), name.clone(), 2);
    let stack_size = stack_size.or_else(size::by_variable);
    let runtime = runtime.thread_begins();
    let theirs = Arc::clone(&runtime);
    let body = move || {
        // The first of the thread's variables with a destructor, so the last to be dropped.
        let first = MEMBER.with(|member| member.set(Member(theirs)).is_ok());
        debug_assert!(first, "a thread is started once");
        me.note_standard(thread::current());
        current::adopt(me);
        me.reason.store(Reason::Runs as u8, Ordering::Relaxed);
        let before = generation::current();
        let result = panic::catch_unwind(AssertUnwindSafe(|| __rust_begin_short_backtrace(f)));
        if generation::current() != before {
            // `f` has forked, and this is the child, in which this thread is the only one. It must not
            // return to std's function, which could wait for ever: see `launch`.
            join::drop_quietly(result);
            generation::end();
        }
        // SAFETY: the caller is the thread `me`, whose handle is for a `T`; this is called once.
        unsafe { finish(me, result) };
    };
    // SAFETY: what `f` borrows outlives the thread's use of it, as this function demands; what else the
    // body has is its own.
    match unsafe { launch::launch_unchecked(name.as_deref(), stack_size, body) } {
        Ok(thread) => {
            bed.set_joinable(thread.into_raw());
            Ok(JoinHandle::from_counted(me))
        }
        Err(error) => {
            carrier::release(me);
            carrier::release(me);
            runtime.thread_did_not_begin();
            Err(shortage::of_threads(&in_place(), &error))
        }
    }
}

/// What such a thread is for. Says why, because a program that counts on fibers may never have asked.
#[cold]
fn in_place() -> String {
    match tls::mode() {
        tls::Mode::Threads(why) => {
            format!("in place of a fiber, as threads stand for fibers here ({why})")
        }
        tls::Mode::Own(_) | tls::Mode::Shared(_) => "in place of a fiber".into(),
    }
}

/// Leaves the result of the calling thread's function, and says so.
///
/// # Safety
/// The caller is `me`, whose handle is for a `T`, and does so once.
unsafe fn finish<T>(me: FiberRef, result: Stored<T>) {
    // SAFETY: the caller is `me`, calls this once, and FINISHED is set below.
    unsafe { join::leave(me, result) };
    join::finish(me);
}
