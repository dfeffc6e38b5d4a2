//! Looking up names: `getaddrinfo`, `gethostbyname`, `getpwnam` and their kin.
//!
//! libc asks servers and reads files for these by internal calls, which cannot be seen. So a thread that may
//! block makes them, and the fiber gets the `errno` and `h_errno` that they leave. Results in libc's own
//! memory are shared by the process, as ever; a program that needs them to last uses the forms whose names
//! end in `_r`.
//!
//! `getaddrinfo` of a fiber that is interrupted answers `EAI_SYSTEM` with the `errno` that says why; the
//! thread finishes later, and its result is dropped. Without memory for that it answers `EAI_MEMORY`. The
//! other calls are not cut short. (Nor does a signal cut one short: a hosted thread handles those that come while
//! `getaddrinfo` waits, and after the other calls.)
//!
//! Where the fiber has changed the resolver's settings (`_res`), the thread makes the call with a [copy](resolver).

#![allow(clippy::too_many_arguments, reason = "libc has such functions")]

#[cfg_attr(not(target_env = "gnu"), path = "lookup/no_resolver.rs")]
mod resolver;

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::IpAddr;
use std::ptr;

use carefree_runtime::offload;
use carefree_runtime::wait;
use carefree_runtime::{Builder, Interrupted};
use libc::{addrinfo, gid_t, sockaddr, socklen_t, uid_t};

use crate::call::answer::{interruption, set_errno};
use crate::call::host;
use crate::call::user::User;
use resolver::Settings;

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
}

interpose! {
    /// `getaddrinfo(3)`.
    safe fn getaddrinfo(
        node: User<c_char>,
        service: User<c_char>,
        hints: User<addrinfo>,
        found: User<*mut addrinfo>,
    ) -> c_int {
        // SAFETY: the program has given two strings and hints, or null pointers, to be read until this returns;
        // libc's function would read them unasked.
        let asked = unsafe { Asked::new(node, service, hints) };
        if asked.needs_no_lookup() {
            return original(node, service, hints, found);
        }
        let question = asked.copied();
        let settings = settings();
        match until_interrupted(move || with_settings(settings, || question.ask()).0) {
            Ok((0, errno, answer)) => {
                set_errno(errno);
                // SAFETY: libc's function would write there unasked.
                unsafe { found.write_seen(answer.take()) };
                0
            }
            Ok((failure, errno, _)) => {
                set_errno(errno);
                failure
            }
            Err(Unanswered::Interrupted(why)) => {
                set_errno(interruption(why));
                libc::EAI_SYSTEM
            }
            Err(Unanswered::NoMemory) => libc::EAI_MEMORY,
        }
    }
}

interpose! {
    /// `getnameinfo(3)`.
    safe fn getnameinfo(
        address: User<sockaddr>,
        length: socklen_t,
        host: User<c_char>,
        host_length: socklen_t,
        service: User<c_char>,
        service_length: socklen_t,
        flags: c_int,
    ) -> c_int {
        let look_up =
            || original(address, length, host, host_length, service, service_length, flags);
        let numbers = libc::NI_NUMERICHOST | libc::NI_NUMERICSERV;
        if flags & numbers == numbers { look_up() } else { elsewhere(look_up) }
    }
}

/// What `getaddrinfo` is asked.
struct Asked<'u> {
    node: Option<&'u CStr>,
    service: Option<&'u CStr>,
    hints: Option<&'u addrinfo>,
}

impl<'u> Asked<'u> {
    /// # Safety
    /// Each leads to a string, or to hints, that stay as they are during `'u`; or is null.
    unsafe fn new(
        node: User<'u, c_char>,
        service: User<'u, c_char>,
        hints: User<'u, addrinfo>,
    ) -> Asked<'u> {
        let text = |text: User<'u, c_char>| {
            // SAFETY: a string, as `new` asks, since it is not null.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text.pointer()) })
        };
        // SAFETY: hints, or null, as `new` asks.
        let hints = unsafe { hints.pointer().as_ref() };
        Asked { node: text(node), service: text(service), hints }
    }

    /// Whether the call asks no server and reads no file.
    fn needs_no_lookup(&self) -> bool {
        let flags = self.hints.map_or(0, |hints| hints.ai_flags);
        let host = self.node.map(CStr::to_bytes).is_none_or(|name| {
            flags & libc::AI_NUMERICHOST != 0
                || std::str::from_utf8(name).is_ok_and(|name| name.parse::<IpAddr>().is_ok())
        });
        let port = self.service.map(CStr::to_bytes).is_none_or(|name| {
            flags & libc::AI_NUMERICSERV != 0 || name.iter().all(u8::is_ascii_digit)
        });
        host && port
    }

    /// A copy that may outlive the fiber's call.
    fn copied(&self) -> Question {
        let hints = self.hints.map(|hints| {
            // SAFETY: zeros and null pointers are hints.
            let mut copy: addrinfo = unsafe { MaybeUninit::zeroed().assume_init() };
            copy.ai_flags = hints.ai_flags;
            copy.ai_family = hints.ai_family;
            copy.ai_socktype = hints.ai_socktype;
            copy.ai_protocol = hints.ai_protocol;
            copy
        });
        Question {
            node: self.node.map(CStr::to_owned),
            service: self.service.map(CStr::to_owned),
            hints,
        }
    }
}

/// A copy of what `getaddrinfo` is asked.
struct Question {
    node: Option<CString>,
    service: Option<CString>,
    hints: Option<addrinfo>,
}

// SAFETY: the strings are its own, and the pointers in `hints` are null: see `Asked::copied`.
unsafe impl Send for Question {}

impl Question {
    /// The result, `errno`, and the addresses.
    fn ask(mut self) -> (c_int, c_int, Addresses) {
        let text = |text: &Option<CString>| {
            // SAFETY: a string of ours, which stays until this function returns; libc only reads it.
            text.as_ref().map_or(User::NULL, |text| unsafe { User::new(text.as_ptr()) })
        };
        let (node, service) = (text(&self.node), text(&self.service));
        let mut found = Addresses(ptr::null_mut());
        let place = User::lend(&mut found.0);
        let failed = getaddrinfo::original(node, service, User::lend_some(&mut self.hints), place);
        // SAFETY: it is this thread's own.
        (failed, unsafe { *libc::__errno_location() }, found)
    }
}

/// A list that `getaddrinfo` has made; freed unless it is taken.
struct Addresses(*mut addrinfo);

// SAFETY: a list in memory from `malloc`, which any thread may read and free.
unsafe impl Send for Addresses {}

impl Addresses {
    fn take(mut self) -> *mut addrinfo {
        std::mem::replace(&mut self.0, ptr::null_mut())
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: from `getaddrinfo`, and not taken.
            unsafe { libc::freeaddrinfo(self.0) };
        }
    }
}

/// Why a look-up has no result.
enum Unanswered {
    Interrupted(Interrupted),
    NoMemory,
}

/// Has `f` run by a thread that may block, until the calling fiber is interrupted. Signals of a hosted thread are
/// handled meanwhile: libc's own asks on after a handler, whatever its flags.
fn until_interrupted<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unanswered> {
    carefree_runtime::interrupted().map_err(Unanswered::Interrupted)?;
    if wait::holds_loader() {
        return Ok(f());
    }
    // Another fiber waits for the thread, and goes on waiting if this one is interrupted.
    let helper = Builder::new().name("looks up a name".into());
    let helper = helper.spawn(|| carefree_runtime::offload(f)).map_err(|_| Unanswered::NoMemory)?;
    // A handler may leave the call, which must have nothing to drop then. (The handle is lost with it.)
    let helper = ManuallyDrop::new(helper);
    while let Err(why) = helper.wait() {
        if why == Interrupted::Cancelled && host::is_interruptible() {
            host::handle_signals();
            continue;
        }
        drop(ManuallyDrop::into_inner(helper));
        return Err(Unanswered::Interrupted(why));
    }
    ManuallyDrop::into_inner(helper).join().or_else(|payload| std::panic::resume_unwind(payload))
}

/// What the calling fiber has changed of the resolver's settings.
#[inline]
fn settings() -> Option<Settings> {
    Settings::of_caller(|| {
        // SAFETY: an address in numbers, which libc reads.
        let name = unsafe { User::new(c"0.0.0.0".as_ptr()) };
        let (mut host, mut buffer) = ([0u64; 16], [0; 1024]);
        let (mut found, mut error) = (User::NULL, 0);
        let length = buffer.len();
        gethostbyname_r::original(
            name,
            User::lend(&mut host).cast(),
            User::lend_slice(&mut buffer),
            length,
            User::lend(&mut found),
            User::lend(&mut error),
        );
    })
}

/// Makes a call with such settings in force. (They come back.)
fn with_settings<R>(
    mut settings: Option<Settings>,
    call: impl FnOnce() -> R,
) -> (R, Option<Settings>) {
    let result = match &mut settings {
        Some(settings) => settings.in_force(call),
        None => call(),
    };
    (result, settings)
}

/// Has a thread that may block make a call, with the fiber's settings of the resolver.
fn elsewhere<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    let settings = settings();
    if settings.is_none() {
        return offload(call);
    }
    let (result, settings) = offload(|| with_settings(settings, call));
    settings.inspect(Settings::tell_error);
    result
}

/// Defines functions that a thread of the pool runs.
macro_rules! elsewhere {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {$(
        interpose! {
            #[doc = concat!("`", stringify!($name), "(3)`, on a thread that may block.")]
            safe fn $name($($argument: $type),*) -> $result {
                let (result, h_errno) =
                    // SAFETY: it is the own location of the thread that makes the call.
                    elsewhere(|| (original($($argument),*), unsafe { *__h_errno_location() }));
                // SAFETY: it is the fiber's own location.
                unsafe { *__h_errno_location() = h_errno };
                result
            }
        }
    )*};
}

/// A record that libc's headers describe, or room for one. (A result is in libc's own memory.)
type Record<'u> = User<'u, c_void>;
type Text<'u> = User<'u, c_char>;

elsewhere! {
    gethostbyname(name: Text) -> Record<'static>;
    gethostbyname2(name: Text, family: c_int) -> Record<'static>;
    gethostbyaddr(address: User<c_void>, length: socklen_t, family: c_int) -> Record<'static>;
    gethostbyname_r(name: Text, host: Record, buffer: User<c_char>, length: usize,
        found: User<Record>, h_errno: User<c_int>) -> c_int;
    gethostbyname2_r(name: Text, family: c_int, host: Record, buffer: User<c_char>, length: usize,
        found: User<Record>, h_errno: User<c_int>) -> c_int;
    gethostbyaddr_r(address: User<c_void>, address_length: socklen_t, family: c_int, host: Record,
        buffer: User<c_char>, length: usize, found: User<Record>, h_errno: User<c_int>) -> c_int;

    getservbyname(name: Text, protocol: Text) -> Record<'static>;
    getservbyport(port: c_int, protocol: Text) -> Record<'static>;
    getservbyname_r(name: Text, protocol: Text, service: Record, buffer: User<c_char>,
        length: usize, found: User<Record>) -> c_int;
    getservbyport_r(port: c_int, protocol: Text, service: Record, buffer: User<c_char>,
        length: usize, found: User<Record>) -> c_int;
    getprotobyname(name: Text) -> Record<'static>;
    getprotobynumber(number: c_int) -> Record<'static>;
    getprotobyname_r(name: Text, protocol: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getprotobynumber_r(number: c_int, protocol: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getnetbyname(name: Text) -> Record<'static>;
    getnetbyaddr(network: u32, family: c_int) -> Record<'static>;

    getpwnam(name: Text) -> Record<'static>;
    getpwuid(user: uid_t) -> Record<'static>;
    getpwnam_r(name: Text, user: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getpwuid_r(user_id: uid_t, user: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getgrnam(name: Text) -> Record<'static>;
    getgrgid(group: gid_t) -> Record<'static>;
    getgrnam_r(name: Text, group: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getgrgid_r(group_id: gid_t, group: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getgrouplist(user: Text, group: gid_t, groups: User<gid_t>, count: User<c_int>) -> c_int;
    initgroups(user: Text, group: gid_t) -> c_int;

    res_query(name: Text, class: c_int, kind: c_int, answer: User<c_uchar>, length: c_int) -> c_int;
    res_search(name: Text, class: c_int, kind: c_int, answer: User<c_uchar>, length: c_int) -> c_int;
    res_nquery(state: Record, name: Text, class: c_int, kind: c_int, answer: User<c_uchar>,
        length: c_int) -> c_int;
    res_nsearch(state: Record, name: Text, class: c_int, kind: c_int, answer: User<c_uchar>,
        length: c_int) -> c_int;
    res_send(question: User<c_uchar>, question_length: c_int, answer: User<c_uchar>,
        length: c_int) -> c_int;
    res_nsend(state: Record, question: User<c_uchar>, question_length: c_int,
        answer: User<c_uchar>, length: c_int) -> c_int;
}
